"""The server: pages without JavaScript, what may be read, and who may change anything."""

import asyncio
import gzip
import json
import time

import pytest
from run_folders import finished, write_run
from starlette.testclient import TestClient

from shoal.cli.main import main
from shoal.live import server
from shoal.live.guard import Rules
from shoal.live.index import Index
from shoal.live.server import Feed, make
from shoal.live.tables import PER_PAGE, duration
from shoal.store import folder

TOKEN = "a-token-for-the-tests"
EVIL = '"><img src=x onerror=alert(1)>'
SCRIPT = "<script>alert(2)</script>"
PAGE = "http://127.0.0.1:8765"
BEARER = {"authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A folder with runs of all kinds."""
    root = tmp_path_factory.mktemp("live") / "runs"
    for seed in (0, 1):
        write_run(root / "group" / f"seed-{seed}", seed=seed, ended={})
        write_run(root / "ippo" / f"seed-{seed}", "ippo", seed=seed, ended={})
    (root / "group" / "seed-0.txt").write_text(f"the game never ends {SCRIPT}\n")
    (root / "group" / "seed-1.txt").symlink_to(root.parent / "secret.json")
    run = write_run(root / EVIL, ended={"reason": SCRIPT, "message": SCRIPT, "scores": {SCRIPT: 1}})
    config = json.loads((run / folder.CONFIG).read_text())
    config["env"] = SCRIPT
    config["options"] = {SCRIPT: SCRIPT}
    config["teams"]["agent"]["algorithm"] = SCRIPT
    (run / folder.CONFIG).write_text(json.dumps(config))
    fault = {"env": SCRIPT, "report": f"Traceback\n{SCRIPT}", EVIL: 1}
    (run / folder.FAULTS).write_text(json.dumps(fault) + "\nnot json\n")
    (run / "replays").mkdir()
    (run / "replays" / "step-000000000-0.json").write_text('{"frames": []}')
    (run / "replays" / f"{EVIL}.json").write_text("{}")
    (run / "videos").mkdir()
    (run / "videos" / "last.gif").write_bytes(b"GIF89a")
    (root.parent / "secret.json").write_text('"the secret"')
    (run / "replays" / "leak.json").symlink_to(root.parent / "secret.json")
    (root / "table").mkdir()
    table = {
        "env": SCRIPT,
        "names": [SCRIPT, "b"],
        "rows": EVIL,
        "columns": "c",
        "returns": {SCRIPT: [[1.0, 2.0], [3.0, 4.0]]},
        "metrics": {},
    }
    (root / "table" / "crossplay.json").write_text(json.dumps(table))
    (root / "broken").mkdir()
    (root / "broken" / folder.CONFIG).write_text("{")
    return root


def client_of(root, **rules):
    index = Index(root)
    index.refresh()
    site = make(index, Rules(token=TOKEN, **rules))
    return TestClient(site, base_url=PAGE, follow_redirects=False), index


@pytest.fixture(scope="module")
def served(root):
    return client_of(root)


def slug(index, name):
    return next(run.slug for run in index.runs.values() if run.id == name)


def test_the_tables_need_no_javascript(served):
    client, index = served
    two = [slug(index, name) for name in ("group/seed-0", "ippo/seed-0")]
    text = client.get("/", params={"run": two}).text
    assert 'progress max="1"' in text and "finished" in text and "6 runs" in text
    assert "teams.agent.algorithm" in text, "no differences"
    assert "final IQM" in text and "95 % CI" in text, "no statistics"
    assert 'class="heat-0">1<' in text and 'class="heat-9">4<' in text, "no heat map"
    one = client.get(f"/run/{two[0]}").text
    assert "settings.steps" in one and "<td>4000</td>" in one and "4,000 of 4,000 steps" in one


def test_words_and_pages_choose_the_runs_that_are_shown(served, tmp_path):
    client, _ = served
    text = client.get("/table", params={"q": "ippo SEED-1"}).text
    assert text.count("data-slug") == 1
    assert "no run matches" in client.get("/table", params={"q": "nothing-like-it"}).text
    for i in range(PER_PAGE + 3):
        (tmp_path / f"run-{i:03d}").mkdir()
        (tmp_path / f"run-{i:03d}" / folder.CONFIG).write_text("{}")
    many, _ = client_of(tmp_path)
    assert many.get("/table").text.count("data-slug") == PER_PAGE
    assert many.get("/table", params={"page": "1"}).text.count("data-slug") == 3
    assert many.get("/table", params={"page": "x"}).status_code == 200


def test_nothing_from_a_run_is_markup(served):
    client, index = served
    evil = slug(index, EVIL)
    every = [run for run in index.runs]
    pages = ["/", "/table", f"/run/{evil}", f"/run/{evil}/head"]
    pages += ["/compare?" + "&".join(f"run={one}" for one in every)]
    pages += [f"/?q={SCRIPT}", f"/?q={EVIL}"]
    for page in pages:
        text = client.get(page).text
        assert "<script>alert" not in text and "<img src=x" not in text, page
    assert "&lt;script&gt;alert(2)" in client.get("/").text
    for page in ("/", f"/run/{evil}"):
        policy = client.get(page).headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy


def test_series_are_json_by_metric(served):
    client, index = served
    told = client.get(f"/data/{slug(index, 'group/seed-1')}?metric=agent/return").json()
    assert told["series"]["agent/return"]["value"][-1] == 78 and len(told["series"]) == 1
    assert "agent/actor_loss" in told["metrics"]
    assert client.get(f"/data/{slug(index, 'broken')}").json() == {"metrics": [], "series": {}}


@pytest.mark.parametrize(
    "path",
    [
        "/run/nobody",
        "/run/../../etc/passwd",
        "/data/..%2f..%2fsecret.json",
        "/static/../server.py",
        "/static/..%2fserver.py",
        "/static/%2e%2e/server.py",
        "/file/{evil}/replays/..%2f..%2f..%2fsecret.json",
        "/file/{evil}/replays/leak.json",
        "/file/{evil}/replays/%2e%2e",
        "/file/{evil}/../config.json",
        "/file/{evil}/./config.json",
        "/file/{evil}/checkpoints/config.json",
        "/file/{evil}/videos/last.gif%00.json",
        "/file/{evil}/policy/weights.safetensors",
    ],
)
def test_nothing_but_what_is_listed_can_be_read(served, path):
    client, index = served
    answer = client.get(path.format(evil=slug(index, EVIL)))
    assert answer.status_code == 404 and "secret" not in answer.text


def test_replays_and_videos_are_files_of_their_kind(served):
    client, index = served
    evil = slug(index, EVIL)
    assert client.get(f"/file/{evil}/replays/step-000000000-0.json").json() == {"frames": []}
    film = client.get(f"/file/{evil}/videos/last.gif")
    assert film.headers["content-type"] == "image/gif"
    assert film.headers["x-content-type-options"] == "nosniff"
    assert client.get("/static/uPlot.LICENSE").status_code == 200


def test_what_a_run_said_is_shown_and_no_link_that_leads_out(served):
    client, index = served
    said = client.get(f"/run/{slug(index, 'group/seed-0')}").text
    assert "the game never ends &lt;script&gt;" in said
    other = client.get(f"/run/{slug(index, 'group/seed-1')}").text
    assert "Console" not in other and "the secret" not in other


def test_other_names_of_the_server_are_refused(served):
    client, _ = served
    assert client.get("/", headers={"host": "evil.example:8765"}).status_code == 421
    assert client.get("/", headers={"host": "localhost:8765"}).status_code == 200
    assert client.request("DELETE", "/").status_code == 405


def test_whoever_listens_to_others_wants_the_token_for_everything(root):
    client, index = client_of(root, host="0.0.0.0")
    for path in ("/", "/events", "/static/page.js", f"/data/{next(iter(index.runs))}"):
        assert client.get(path).status_code == 401, path
    assert client.get("/", headers={"authorization": "Bearer wrong"}).status_code == 401
    assert client.get("/?token=wrong").status_code == 401
    answer = client.get(f"/?token={TOKEN}")
    assert answer.status_code == 303 and answer.headers["location"] == "/"
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie
    assert client.get("/").status_code == 200  # the cookie is kept
    assert (
        client.get(f"{PAGE}//evil.example/?token={TOKEN}").headers["location"] == "/evil.example/"
    )


def test_a_run_is_stopped_only_with_the_token_and_from_our_own_page(tmp_path):
    run = write_run(tmp_path / "going")
    with folder.locked(run):
        client, index = client_of(tmp_path)
        stop = f"/run/{slug(index, 'going')}/stop"
        ours = {"origin": PAGE}
        assert client.post(stop, headers=ours).status_code == 403
        assert client.get(stop).status_code in (404, 405)
        theirs = BEARER | {"origin": "http://evil.example"}
        assert client.post(stop, headers=theirs).status_code == 403
        assert not (run / ".stop").exists()
        assert "token" in client.get(f"/run/{slug(index, 'going')}").text
        assert client.post(stop, headers=BEARER | ours).status_code == 303
        assert (run / ".stop").exists()
        refused = client.post(stop.replace("stop", "resume"), headers=BEARER | ours)
        assert refused.status_code == 409 and "cannot be asked to resume" in refused.text
        nonsense = client.post(stop.replace("stop", "delete"), headers=BEARER | ours)
        assert nonsense.status_code == 409


@pytest.mark.slow
def test_a_finished_run_is_evaluated_in_a_process_of_its_own(tmp_path):
    write_run(tmp_path / "done", ended={})  # it has no policy: the command says so
    client, index = client_of(tmp_path)
    page = f"/run/{slug(index, 'done')}"
    assert client.post(f"{page}/evaluate", headers=BEARER | {"origin": PAGE}).status_code == 303
    end = time.monotonic() + 120
    while "under way" in client.get(f"{page}/head").text and time.monotonic() < end:
        time.sleep(0.2)
    assert "has no policy policy yet" in client.get(f"{page}/head").text


def test_events_say_what_changed(tmp_path):
    run = write_run(tmp_path / "going")
    index = Index(tmp_path)
    index.refresh()

    async def heard():
        feed = Feed(index)
        events = feed.events()
        first = await anext(events)
        (run / folder.SUMMARY).write_text(json.dumps(finished(run)))
        second, _ = await asyncio.gather(anext(events), feed.look())
        await events.aclose()
        return first, second, feed.listeners

    first, second, listeners = asyncio.run(heard())
    told = json.loads(second.removeprefix("data: "))
    assert told["changed"] == [slug(index, "going")] and '"changed": []' in first
    assert told["version"] > json.loads(first.splitlines()[1].removeprefix("data: "))["version"]
    assert listeners == 0


def test_durations():
    told = [duration(x) for x in (0, 59.6, 3_700, 90_000)]
    assert told == ["0 s", "1 min", "1 h 1 min", "1 d 1 h"]


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["nowhere"], "there is no folder nowhere"),
        ([".", "--port", "99999"], "port must be between"),
        ([".", "--token", "short"], "token must be 16"),
        ([".", "--export", "."], "exists already"),
    ],
)
def test_mistakes_are_one_sentence(args, sentence, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    assert main(["live", *args]) == 2
    told = capsys.readouterr().err
    assert sentence in told and told.count("\n") == 1


def test_an_answer_is_compressed_once_for_all_who_ask(root, monkeypatch):
    client, index = client_of(root)
    compressed = []
    compress = gzip.compress

    def counted(content, level):
        compressed.append(level)
        return compress(content, level)

    monkeypatch.setattr(server.gzip, "compress", counted)
    for path in ("/table", f"/data/{slug(index, 'group/seed-0')}?metric=agent/return"):
        del compressed[:]
        plain = client.get(path, headers={"accept-encoding": "identity"})
        packed = [client.get(path, headers={"accept-encoding": "gzip"}) for _ in range(3)]
        assert "content-encoding" not in plain.headers
        assert {one.headers["content-encoding"] for one in packed} == {"gzip"}
        assert {one.headers["vary"] for one in packed} == {"accept-encoding"}
        assert {one.text for one in packed} == {plain.text}
        assert len(compressed) == 1
