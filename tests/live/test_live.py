"""The page in a real browser: Debian's Chromium, driven by Playwright."""

import json
import re
import shutil
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from run_folders import TEAMS, lines, write_run

import shoal
from shoal.config.config import Config
from shoal.live.export import export
from shoal.live.guard import Rules
from shoal.live.index import Index
from shoal.live.server import make, server_of
from shoal.monitor import film, replay
from shoal.render import video
from shoal.store import folder
from shoal.store.player import Player

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytest.importorskip("uvicorn", reason="uvicorn is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine"),
]
QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
TOKEN = "a-token-for-the-tests"
PATIENCE = 30_000  # milliseconds
EVIL = '"><img src=x onerror=alert(1)>'


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as play:
        one = play.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield one
        one.close()


@pytest.fixture
def page(browser, serve):  # closed before the server is
    yield from opened(browser)


def opened(browser, **how):
    """A page that fails the test if a script does, or if anything is asked of another server."""
    context = browser.new_context(**how)
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    wrong = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("dialog", lambda dialog: wrong.append(f"dialog: {dialog.message}"))
    page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    page.on("request", lambda asked: check_address(asked.url, wrong))
    yield page
    context.close()
    assert wrong == []


def check_address(url, wrong):
    if not re.match(r"(http://127\.0\.0\.1:\d+/|file://|data:)", url):
        wrong.append(f"asked {url}")


@pytest.fixture
def serve():
    """Serves a folder on a port of its own, and ends it afterwards."""
    servers = []

    def begin(root):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        index = Index(root)
        index.refresh()
        rules = Rules(port=port, token=TOKEN)
        app = make(index, rules)
        app.state.site.feed.every = 0.2
        server = server_of(app, rules)
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        servers.append((server, thread))
        while not server.started:
            time.sleep(0.05)
        return f"http://127.0.0.1:{port}/", index

    yield begin
    for server, thread in servers:
        server.should_exit = True
        thread.join(10)


def record(run):
    """Put two recorded episodes of random play into a run."""
    sides = {team: ("random", {}) for team in TEAMS}
    config = Config.build("mpe/simple_tag", sides, {"max_cycles": 6}, {})
    player = Player(config, dict.fromkeys(config.algorithms, ()), 0)
    camera = film.Camera(config.game, player.algorithms, 2, True, 2, thoughts=True)
    takes = camera.shoot(player.learners, 0, player.clock)
    (run / replay.FOLDER).mkdir()
    for step, take in zip((0, 4_000), takes, strict=True):
        said = replay.replay(take, player.teams, dict.fromkeys(player.teams, "probabilities"))
        for now in said["minds"]:
            for team, mind in now.items():
                count = len(said["teams"][team])
                mind["preferences"] = [[0.1, 0.6, 0.1, 0.1, 0.1]] * count
                mind["values"] = [1.25] * count
        place = run / replay.FOLDER / f"step-{step:09d}-0.json"
        place.write_text(json.dumps({"steps": step, "episode": 0, "env": "x"} | said))


def some_runs(root):
    for seed in (0, 1):
        write_run(root / "mappo" / f"seed-{seed}", seed=seed, ended={})
    write_run(root / "ippo", "ippo", lr=0.01, ended={})
    return root


def drawn(page):
    """Colours in the first plot."""
    script = """() => { const c = document.querySelector('.card canvas'); if (!c) return 0;
        const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
        const seen = new Set();
        for (let i = 0; i < d.length; i += 4) if (d[i + 3]) seen.add(d.slice(i, i + 3).join());
        return seen.size; }"""
    return page.evaluate(script)


def test_it_loads_and_draws_curves(page, serve, tmp_path):
    address, _ = serve(some_runs(tmp_path))
    page.goto(address)
    page.wait_for_selector(".live.on")
    page.wait_for_selector('.card[data-metric="evaluation/agent/return"] canvas')
    page.wait_for_function(
        "() => document.querySelector('.legend')?.textContent.includes('2 seeds')"
    )
    assert drawn(page) > 3
    page.get_by_role("button", name="Losses").click()
    page.wait_for_selector('.card[data-metric="agent/actor_loss"]')
    page.get_by_label("add a metric").fill("agent/agent_0/return")
    page.get_by_label("add a metric").press("Enter")
    page.wait_for_selector('.card[data-metric="agent/agent_0/return"]')
    page.get_by_label("x-axis").select_option("seconds")
    page.get_by_label("smoothing").fill("0.9")
    assert page.evaluate("() => shoalCharts.axis") == "seconds"
    page.get_by_label("remove agent/actor_loss").click()
    page.wait_for_selector('.card[data-metric="agent/actor_loss"]', state="detached")


def test_a_plot_tells_values_under_the_pointer_alone(page, serve, tmp_path):
    address, _ = serve(some_runs(tmp_path))
    page.goto(address)
    page.wait_for_selector(".card .u-over")
    values = page.locator(".card .u-legend").first
    page.mouse.move(1, 1)
    assert not values.is_visible()
    page.locator(".card .u-over").first.hover()
    assert values.is_visible() and re.search(r"steps\s*[\d,]+", values.inner_text())
    assert ", ippo" not in values.inner_text()  # its group has no other run


def test_a_plot_is_zoomed_by_dragging(page, serve, tmp_path):
    address, _ = serve(some_runs(tmp_path))
    page.goto(address)
    page.wait_for_selector(".card .u-over")
    box = page.locator(".card .u-over").first.bounding_box()
    x = "[...shoalCharts.plots.values()][0].chart.scales.x"
    span = f"() => {x}.max - {x}.min"
    before = page.evaluate(span)
    page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 45, steps=5)
    page.mouse.up()
    page.wait_for_function(f"() => ({span})() < {before} / 2")
    page.locator(".card .u-over").first.dblclick()
    page.wait_for_function(f"() => ({span})() > {before} * 0.9")


def test_picked_runs_are_compared(page, serve, tmp_path):
    address, _ = serve(some_runs(tmp_path))
    page.goto(address)
    page.get_by_role("button", name="Pick none").click()
    page.wait_for_selector("text=Pick runs above")
    page.get_by_label("pick all runs of mappo").check()
    page.get_by_label("pick ippo").check()
    page.wait_for_selector('.differences th:has-text("ippo")')  # two runs were compared before
    told = page.locator("#compare").inner_text()
    assert "teams.agent.options.lr" in told and "final IQM" in told
    assert page.url.count("run=") == 3
    page.reload()  # the address keeps what was picked
    page.wait_for_selector(".differences td.other")
    assert page.locator('input[name="run"]:checked').count() == 3


def test_many_differences_leave_room_for_what_follows(page, serve, tmp_path):
    write_run(tmp_path / "one", "mappo", ended={})
    write_run(tmp_path / "other", "qmix", warmup=100, ended={})
    address, _ = serve(tmp_path)
    page.goto(address)
    page.wait_for_selector(".differences td.other")
    assert page.locator(".differences tr").count() > 40
    assert page.locator(".differences").bounding_box()["height"] < 500
    page.locator(".differences tr").last.scroll_into_view_if_needed()
    assert page.locator(".differences th").last.is_visible()  # the names of the runs stay in sight
    head = page.locator(".differences th").last.bounding_box()["y"]
    assert head >= page.locator(".differences .wide").bounding_box()["y"] - 1


def test_it_follows_a_run_while_it_trains(page, serve, tmp_path):
    address, _ = serve(tmp_path)
    page.goto(address)
    page.wait_for_selector("td.empty")
    page.wait_for_selector(".live.on")
    words = "train ippo mpe/simple_tag --steps 60000 --games 4 --window 25 --eval-episodes 2"
    more = ["--out", str(tmp_path), "--name", "mine", "--no-preset", "--devices", "1"]
    command = [sys.executable, "-m", "shoal", *words.split(), *more]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT) as training:
        try:
            page.wait_for_selector(".pill.training, .pill.finished", timeout=300_000)
            page.wait_for_function(
                "() => document.querySelector('#runs progress')?.value > 0.05", timeout=300_000
            )
            page.get_by_label("pick mine", exact=True).check()
            page.wait_for_selector(".card canvas")
            points = "() => [...shoalCharts.plots.values()][0]?.chart.data[0].length ?? 0"
            page.get_by_role("button", name="All").click()
            before = page.evaluate(points)
            page.wait_for_function(f"() => ({points})() > {before} + 1", timeout=120_000)
            page.goto(f"{address}?token={TOKEN}")
            page.get_by_role("link", name="mine").click()
            page.get_by_role("button", name="Stop").click()
            page.wait_for_selector(".pill.stopped", timeout=120_000)
        finally:
            training.terminate()
    assert "stopped" in json.loads((tmp_path / "mine" / folder.SUMMARY).read_text())["reason"]


def test_a_run_is_evaluated_and_resumed_from_its_page(page, serve, tmp_path):
    options = {"steps": 400, "games": 4, "window": 25, "evaluations": 0, "eval_episodes": 2}
    shoal.train("ippo", "mpe/simple_tag", out=str(tmp_path), name="mine", quiet=True, **options)
    summary = tmp_path / "mine" / folder.SUMMARY
    said = json.loads(summary.read_text())
    summary.write_text(json.dumps(said | {"reason": "stopped by ctrl-c", "stopped": 1}))
    address, _ = serve(tmp_path)
    page.goto(address)
    page.get_by_role("link", name="mine").click()
    assert page.get_by_role("button", name="Evaluate").count() == 0  # no token was given
    page.goto(f"{address}?token={TOKEN}")
    assert TOKEN not in page.url
    page.get_by_role("link", name="mine").click()
    page.get_by_role("button", name="Evaluate").click()
    page.wait_for_selector(".jobs:has-text('100 greedy episodes')", timeout=300_000)
    page.get_by_role("button", name="Resume").click()
    page.wait_for_selector(".pill.finished", timeout=300_000)


def test_everything_that_a_run_says_has_its_place(page, serve, tmp_path):
    run = write_run(tmp_path / "mine", ended={})
    more = {"evaluation/episode/won": 0.5, "agent/elo": 1010.0, "agent/critic_loss": None}
    with (run / folder.METRICS).open("a") as file:
        file.write(json.dumps({"env_step": 5_000, "seconds": 30.0} | more) + "\nnonsense\n")
    fault = {
        "env": "x",
        "report": "Traceback\nValueError: a reward of None",
    }
    (run / folder.FAULTS).write_text(json.dumps(fault) + "\n")
    (run / film.FOLDER).mkdir()
    frame = np.zeros((8, 600, 3), np.uint8)
    for name in ("first", "last"):
        video.save(run / film.FOLDER / f"{name}.gif", [frame, frame + 200], 10)
    names = ["runs/a", "runs/b"]
    table = {"env": "mpe/simple_tag", "names": names, "rows": "adversary", "columns": "agent"}
    table |= {"returns": {"agent": [[1.0, 2.0], [3.0, 4.0]]}, "metrics": {}}
    (tmp_path / "crossplay.json").write_text(json.dumps(table))
    address, _ = serve(tmp_path)
    page.goto(address)
    for tab, metric in (
        ("Elo", "agent/elo"),
        ("Wins", "evaluation/episode/won"),
        ("Agents", "agent/agent_0/return"),
        ("Returns", "evaluation/adversary/return"),
    ):
        page.get_by_role("button", name=tab, exact=True).click()
        page.wait_for_selector(f'.card[data-metric="{metric}"] canvas')
    warned = page.locator("#curves .warn").all_inner_texts()
    assert "mine: agent/critic_loss was not a finite number at 1 log points" in warned
    assert any("left out: 1" in one for one in warned)
    heat = page.locator("table.heat td[class^=heat]")
    shades = heat.evaluate_all("all => all.map((one) => getComputedStyle(one).backgroundColor)")
    assert len(shades) == len(set(shades)) == 4
    page.get_by_role("link", name="mine").click()
    page.get_by_text("ValueError: a reward of None").first.click()
    assert "Traceback" in page.locator("details[open] pre").inner_text()
    film_size = "() => document.querySelector('.films img')?.naturalWidth"
    page.wait_for_function(f"() => ({film_size})() === 600")
    first, last = (one.bounding_box() for one in page.locator(".films img").all())
    assert first["y"] == last["y"]  # side by side


def test_replays_are_scrubbed_side_by_side(page, serve, tmp_path):
    run = write_run(tmp_path / "mine", ended={})
    record(run)
    address, _ = serve(tmp_path)
    page.goto(address)
    page.get_by_role("link", name="mine").click()
    page.wait_for_selector(".stage canvas")
    page.wait_for_function("() => document.querySelector('.scrub')?.max === '6'")
    assert page.locator(".stage").count() == 2
    shot = "() => document.querySelector('.stage canvas').toDataURL()"
    before = page.evaluate(shot)
    page.get_by_label("instant").fill("4")
    assert "step 4 of 6" in page.locator(".player").inner_text()
    assert page.evaluate(shot) != before
    assert "expects 1.25" in page.locator(".mind").first.inner_text()
    chosen = page.locator(".mind .bars span").first
    assert chosen.get_attribute("title") == "action 0: 0.1"
    page.get_by_label("agent, before").select_option("agent_0")
    assert "agent_0" in page.locator(".mind").first.inner_text()
    page.get_by_label("replay, after").select_option("step-000000000-0.json")
    page.get_by_label("speed").select_option("4")
    page.get_by_role("button", name="play").click()
    page.wait_for_function("() => document.querySelector('.scrub').value === '6'")


def test_both_stages_have_one_scale(page, serve, tmp_path):
    run = write_run(tmp_path / "mine", ended={})
    record(run)
    first, last = sorted((run / replay.FOLDER).iterdir())
    said = json.loads(first.read_text())
    wide = {end: [2 * x for x in said[end]] for end in ("low", "high")}
    last.write_text(json.dumps(said | wide))  # the same episode, seen from afar
    address, index = serve(tmp_path)
    page.goto(f"{address}run/{next(iter(index.runs))}")
    page.wait_for_function("() => document.querySelectorAll('.stage .mind b').length === 2")
    shots = page.locator(".stage canvas").evaluate_all("all => all.map((one) => one.toDataURL())")
    assert shots[0] == shots[1]


def test_the_agent_under_the_pointer_tells_its_thoughts(page, serve, tmp_path):
    record(write_run(tmp_path / "mine", ended={}))
    address, index = serve(tmp_path)
    page.goto(f"{address}run/{next(iter(index.runs))}")
    page.wait_for_function("() => document.querySelector('.scrub')?.max === '6'")
    both = [json.loads(one.read_text()) for one in sorted((tmp_path / "mine/replays").iterdir())]
    frames = both[0]
    shapes = [frames["shapes"][number] for number in frames["frames"][0]]
    at = next(shape["at"] for shape in shapes if shape.get("name") == "agent_0")
    canvas = page.locator(".stage canvas").first
    box = canvas.bounding_box()
    low = [min(ends) for ends in zip(*(one["low"] for one in both), strict=True)]
    high = [max(ends) for ends in zip(*(one["high"] for one in both), strict=True)]
    scale = min(box["width"] / (high[0] - low[0]), box["height"] / (high[1] - low[1]))
    x = box["width"] / 2 + (at[0] - (low[0] + high[0]) / 2) * scale
    y = box["height"] / 2 - (at[1] - (low[1] + high[1]) / 2) * scale
    canvas.hover(position={"x": x, "y": y})
    page.wait_for_function("() => document.querySelector('.mind').textContent.includes('agent_0')")


def test_dead_broken_and_hostile_runs_are_shown_as_what_they_are(page, serve, tmp_path):
    write_run(tmp_path / "dead")
    write_run(tmp_path / EVIL, ended={})
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / folder.CONFIG).write_text("{")
    address, _ = serve(tmp_path)
    page.goto(address)
    page.wait_for_selector(".live.on")
    page.wait_for_selector(".card canvas")
    assert page.locator(".pill.dead").count() == page.locator(".pill.broken").count() == 1
    page.get_by_role("link", name=EVIL).click()
    page.wait_for_selector(".card canvas")
    page.goto(address)
    page.get_by_role("link", name="broken").click()
    page.wait_for_selector("text=no readable config.json")


def test_two_hundred_runs(page, serve, tmp_path):
    first = write_run(tmp_path / "run-000", ended={})
    for i in range(1, 200):
        shutil.copytree(first, tmp_path / f"run-{i:03d}")
    address, _ = serve(tmp_path)
    page.goto(address)
    page.wait_for_selector(".live.on")
    assert page.locator("tr[data-slug]").count() == 200
    page.get_by_label("find runs").fill("run-19")
    page.wait_for_function("() => document.querySelectorAll('tr[data-slug]').length === 10")


def test_a_narrow_screen_needs_no_scrolling_sideways(browser, serve, tmp_path):
    record(some_runs(tmp_path) / "ippo")
    address, index = serve(tmp_path)
    for page in opened(browser, viewport={"width": 390, "height": 844}, has_touch=True):
        slug = next(run.slug for run in index.runs.values() if run.id == "ippo")
        for path in ("", f"run/{slug}"):
            page.goto(address + path)
            page.wait_for_selector(".card canvas")
            assert page.evaluate("() => document.documentElement.scrollWidth") <= 390


def test_dark_mode(browser, serve, tmp_path):
    address, _ = serve(some_runs(tmp_path))
    for page in opened(browser, color_scheme="dark"):
        page.goto(address)
        page.wait_for_selector(".card canvas")
        back = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
        assert max(map(int, re.findall(r"\d+", back))) < 60


def test_the_keyboard_alone_does_it(page, serve, tmp_path):
    record(write_run(tmp_path / "mine", ended={}))
    address, _ = serve(tmp_path)
    page.goto(address)
    page.wait_for_selector(".card canvas")
    at = "document.activeElement"
    focused = f"() => {at}.getAttribute('aria-label') || {at}.textContent"
    seen = []
    for _ in range(40):
        page.keyboard.press("Tab")
        seen.append(page.evaluate(focused))
        if seen[-1] == "pick mine":
            page.keyboard.press("Space")
            assert not page.get_by_label("pick mine", exact=True).is_checked()
            page.keyboard.press("Space")
        if seen[-1] == "mine":
            page.keyboard.press("Enter")
            break
    assert "pick mine" in seen
    page.wait_for_function("() => document.querySelector('.scrub')?.max === '6'")
    page.get_by_label("instant").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert "step 2 of 6" in page.locator(".player").inner_text()
    page.locator(".stage canvas").first.focus()
    page.keyboard.press("ArrowLeft")
    assert "step 1 of 6" in page.locator(".player").inner_text()


def test_without_javascript_the_tables_are_there(browser, serve, tmp_path):
    address, _ = serve(some_runs(tmp_path))
    for page in opened(browser, java_script_enabled=False):
        page.goto(address)
        for box in page.locator('input[name="run"]').all():
            box.check()
        page.get_by_role("button", name="Compare picked").click()
        assert "teams.agent.options.lr" in page.content() and "final IQM" in page.content()


def test_the_exported_page_opens_from_a_file(browser, tmp_path):
    root = some_runs(tmp_path / "runs")
    record(root / "ippo")
    index = Index(root)
    index.refresh()
    site = export(index, tmp_path / "site")
    for page in opened(browser):
        page.goto(f"file://{site}/index.html")
        page.wait_for_selector(".card canvas")
        page.wait_for_function(
            "() => document.querySelector('.legend')?.textContent.includes('seeds')"
        )
        assert drawn(page) > 3
        page.get_by_label("find runs").fill("ippo")
        page.wait_for_function(
            "() => document.querySelectorAll('tr[data-slug]:not([hidden])').length === 1"
        )
        page.get_by_role("link", name="ippo").click()
        page.wait_for_function("() => document.querySelector('.scrub')?.max === '6'")
        page.get_by_label("instant").fill("3")
        assert "step 3 of 6" in page.locator(".player").inner_text()


def test_a_resumed_run_and_a_lost_server_do_no_harm(page, serve, tmp_path):
    run = write_run(tmp_path / "mine", ended={})
    address, _ = serve(tmp_path)
    page.goto(address)
    page.wait_for_selector(".card canvas")
    text = "".join(json.dumps(line) + "\n" for line in lines(10))
    (run / folder.METRICS).write_text(text)  # cut back, as by a resume
    (run / folder.SUMMARY).unlink()
    page.wait_for_selector(".pill.dead")
    points = "() => shoalCharts.plots.get('evaluation/agent/return').chart.data[0].length"
    page.wait_for_function(f"() => ({points})() === 1")
