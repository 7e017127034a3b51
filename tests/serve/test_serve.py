"""A served policy does what the policy does, for many at once, and refuses the rest in a
sentence."""

from __future__ import annotations

import asyncio
import gc
import json
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import uvicorn
from starlette.testclient import TestClient, WebSocketDenialResponse

import shoal
from shoal import envs
from shoal.access import Rules
from shoal.cli.main import main
from shoal.config.config import Config
from shoal.errors import ShoalError
from shoal.serve.app import Limits, Server
from shoal.serve.guard import Guard
from shoal.serve.policy import Policies, sizes
from shoal.serve.sessions import Sessions, TooMany, Unknown
from shoal.store.player import Player

SPREAD = "mpe/simple_spread"
AGENTS = [f"agent_{i}" for i in range(3)]
TOKEN = "a-token"
LOCAL = "http://127.0.0.1"
SOCKET = "ws://127.0.0.1/act"


@pytest.fixture(scope="module")
def spread() -> Policies:
    return Policies(shoal.load("zoo:spread"), True, 64)


@pytest.fixture
def plain(spread: Policies) -> Server:
    return Server(spread, Limits(body=100_000), "spread")


def recurrent() -> Player:
    teams = envs.make(SPREAD).teams
    config = Config.build(
        SPREAD, {"agent": ("mappo", {"hidden": 4, "torso": "gru"})}, {}, {}, specs=teams
    )
    rng = np.random.default_rng(1)
    return Player(config, {team: a.init(rng) for team, a in config.algorithms.items()}, 0)


@pytest.fixture(scope="module")
def gru() -> Policies:
    return Policies(recurrent(), True, 8)


@pytest.fixture
def remembering(gru: Policies) -> Server:
    return Server(gru, Limits(sessions=2), "gru")


def client(server: Server, host: str = "127.0.0.1", token: str = "") -> TestClient:
    return TestClient(server.app(host, token), LOCAL)  # type: ignore[arg-type]


def seen(rng: np.random.Generator, *games: int) -> dict[str, np.ndarray]:
    return {agent: rng.normal(size=(*games, 18)).astype(np.float32) for agent in AGENTS}


def body(observations: dict[str, np.ndarray], **more: Any) -> dict[str, Any]:
    return {"observations": {agent: rows.tolist() for agent, rows in observations.items()}} | more


def test_it_answers_what_the_policy_does(plain: Server):
    rng = np.random.default_rng(0)
    player = shoal.load("zoo:spread")
    with client(plain) as ask:
        one = seen(rng)
        assert ask.post("/act", json=body(one)).json() == {"actions": player.act(one)}
        many = seen(rng, 5)
        legal = {"agent_1": [True, False, False, True, False]}
        got = ask.post("/act", json=body(many, legal=legal)).json()["actions"]
        wanted = player.act(many, legal=legal)
        assert got == {agent: rows.tolist() for agent, rows in wanted.items()}
        alone = {"agent_2": many["agent_2"]}
        got = ask.post("/act", json=body(alone)).json()["actions"]
        assert got == {"agent_2": player.act(alone)["agent_2"].tolist()}


def test_sessions_remember_their_games_in_any_batch(remembering: Server):
    """Two sessions, asked at once, beside a player each."""
    rng = np.random.default_rng(3)
    with client(remembering) as ask:
        names = [ask.post("/sessions").json()["session"] for _ in range(2)]
        players = [recurrent(), recurrent()]
        for step in range(4):
            rows = [seen(rng, 2), seen(rng, 3)]
            reset = [[1]] if step == 2 else []
            for name, player, own in zip(names, players, rows, strict=True):
                for some in reset:
                    player.reset(rows=some)
                more = {"session": name} | ({"reset": reset[0]} if reset else {})
                got = ask.post("/act", json=body(own, **more)).json()["actions"]
                assert got == {agent: act.tolist() for agent, act in player.act(own).items()}
        carry = remembering.sessions.use(names[0]).carries["agent"].hidden
        np.testing.assert_allclose(carry, players[0].carries["agent"].hidden, atol=1e-6)
        assert "429" in str(ask.post("/sessions").status_code)
        wrong = ask.post("/act", json=body(seen(rng, 4), session=names[0]))
        assert wrong.status_code == 400 and "the session has 2: reset" in wrong.json()["error"]
        whole = ask.post("/act", json=body(seen(rng, 4), session=names[0], reset=True))
        assert whole.status_code == 200
        for name in names:
            assert ask.delete(f"/sessions/{name}").status_code == 204
        gone = ask.post("/act", json=body(seen(rng), session=names[0]))
        assert gone.status_code == 404 and "has expired" in gone.json()["error"]
        unopened = ask.post("/act", json=body(seen(rng)))
        assert unopened.status_code == 400 and "open a session" in unopened.json()["error"]


def test_a_socket_is_a_session(remembering: Server):
    rng = np.random.default_rng(4)
    player = recurrent()
    with client(remembering) as ask, ask.websocket_connect(SOCKET) as socket:
        for _ in range(3):
            one = seen(rng)
            socket.send_text(json.dumps(body(one)))
            assert socket.receive_json() == {"actions": player.act(one)}
        socket.send_text("{")
        assert "not JSON" in socket.receive_json()["error"]
        socket.send_text(json.dumps(body(seen(rng, 2))))
        assert "reset it first" in socket.receive_json()["error"]
        one = seen(rng)
        socket.send_text(json.dumps(body(one)))  # what was refused is not remembered
        assert socket.receive_json() == {"actions": player.act(one)}


def test_what_arrives_together_is_one_batch_and_a_session_keeps_its_order(gru: Policies):
    """The second request of a session waits for the first, which it must remember."""
    rng = np.random.default_rng(5)
    steps = [seen(rng) for _ in range(3)]
    player = recurrent()
    wanted = [player.act(one) for one in steps]
    server = Server(gru, Limits(), "gru")
    batches: list[int] = []
    server.batcher.watch = lambda requests, games, seconds: batches.append(requests)

    async def play() -> list[list[dict[str, Any]]]:
        names = [server.sessions.open() for _ in range(4)]
        asked = [server.decide(body(one, session=name)) for one in steps for name in names]
        found = await asyncio.gather(*asked)
        return [found[i::4] for i in range(4)]

    for found in asyncio.run(play()):
        assert [one["actions"] for one in found] == wanted
    assert batches == [4, 4, 4]


def test_batches_have_few_sizes(plain: Server):
    assert sizes(512) == (1, 8, 64, 512) and sizes(1) == (1,) and sizes(10) == (1, 8, 10)
    rng = np.random.default_rng(6)
    traced: list[int] = []
    policies = Policies(plain.policies.player, True, 8)
    inner = policies.player.algorithms["agent"].act

    def counted(learner: Any, key: Any, view: Any, *more: Any) -> Any:
        traced.append(len(view.first))
        return inner(learner, key, view, *more)

    policies.player.algorithms["agent"].act = counted  # type: ignore[method-assign]
    try:
        policies.warm()
        with client(Server(policies, Limits(), "")) as ask:
            for games in (1, 3, 8, 5):
                assert ask.post("/act", json=body(seen(rng, games))).status_code == 200
    finally:
        del policies.player.algorithms["agent"].act
    assert traced == [1, 8]  # compiled before the first request, and never again


BAD = {
    "not JSON": (b"{", "not JSON"),
    "not an object": (b"[]", "a JSON object"),
    "deep": (b"[" * 90_000, "not JSON"),
    "unknown key": (b'{"observation": {}}', "did you mean 'observations'?"),
    "nothing": (b"{}", "observations must be a dictionary"),
    "unknown agent": (b'{"observations": {"agent_9": [0]}}', "no agent 'agent_9'"),
    "size": (b'{"observations": {"agent_0": [1, 2]}}', "observes 18 numbers"),
    "text": (b'{"observations": {"agent_0": "<script>"}}', "must be an array of numbers"),
    "NaN": (b'{"observations": {"agent_0": [%s]}}' % b",".join([b"NaN"] * 18), "finite numbers"),
    "mask": (
        json.dumps(
            {"observations": {"agent_0": [0] * 18}, "legal": {"agent_0": [False] * 5}}
        ).encode(),
        "no legal action",
    ),
    "session": (b'{"observations": {}, "session": {"a": 1}}', "no session"),
    "games": (
        json.dumps({"observations": {"agent_0": [[0] * 18] * 65}}).encode(),
        "a request may have 64",
    ),
    "body": (b" " * 100_001, "100,000 bytes"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_request_gets_a_sentence(case: str, plain: Server):
    sent, sentence = BAD[case]
    with client(plain) as ask:
        got = ask.post("/act", content=sent)
        assert 400 <= got.status_code < 500
        assert sentence in got.json()["error"] and not got.json()["error"].endswith(".")
        assert ask.get("/nowhere").status_code == 404
        assert "there is no GET /act" in ask.get("/act").json()["error"]


def test_who_may_ask(plain: Server):
    with client(plain, token=TOKEN) as ask:
        assert ask.get("/health").status_code == 200
        assert "Bearer" in ask.get("/spec").json()["error"]
        for wrong in ("Bearer no", "Basic a-token", "Bearer ä", TOKEN):
            bad = ask.get("/spec", headers={"Authorization": wrong.encode("latin-1")})
            assert bad.status_code == 401
        right = {"Authorization": f"Bearer {TOKEN}"}
        assert ask.get("/spec", headers=right).status_code == 200
        assert ask.get("/spec", headers=right | {"Host": "evil.example"}).status_code == 421
        for origin in ("http://evil.example", "null"):
            theirs = {"Origin": origin}
            assert ask.get("/spec", headers=right | theirs).status_code == 403
            with (
                pytest.raises(WebSocketDenialResponse),
                ask.websocket_connect(SOCKET, headers=theirs),
            ):
                pass
    with pytest.raises(ShoalError, match="give a token"):
        plain.app("0.0.0.0", "")
    elsewhere = Guard(plain.app("127.0.0.1", ""), Rules("0.0.0.0", TOKEN), plain._refused)
    wrong = elsewhere.why_not({"path": "/spec"}, {"host": "x"})
    assert wrong is not None and wrong.status == 401  # any name, never without the token
    for origin, status in (("http://localhost:3000", 401), ("http://x:80", 401), ("", 403)):
        wrong = elsewhere.why_not({"path": "/spec"}, {"host": "x", "origin": origin})
        assert wrong is not None and wrong.status == status


def test_spec_and_metrics(plain: Server):
    with client(plain) as ask:
        spec = ask.get("/spec").json()
        team = spec["teams"]["agent"]
        assert team["agents"][0] == {"name": "agent_0", "observation": [18], "actions": 5}
        assert team["action"] == {"Discrete": {"n": 5}} and not spec["remembers"]
        before = _metrics(ask.get("/metrics").text)
        ask.post("/act", json=body(seen(np.random.default_rng(0), 4)))
        ask.post("/act", content=b"{")
        after = _metrics(ask.get("/metrics").text)
        assert after["shoal_decisions_total"] - before["shoal_decisions_total"] == 12
        assert after["shoal_batch_games_total"] - before["shoal_batch_games_total"] == 4
        assert after['shoal_requests_total{status="400"}'] >= 1


def _metrics(text: str) -> dict[str, float]:
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in lines}


def test_sessions_expire():
    now = [0.0]
    sessions = Sessions(2, 10.0, lambda: now[0])
    one = sessions.open()
    now[0] = 6.0
    two = sessions.open()
    sessions.use(one)
    with pytest.raises(TooMany, match="2 sessions are open"):
        sessions.open()
    now[0] = 16.5
    with pytest.raises(Unknown, match="has expired"):
        sessions.use(two)
    assert len(sessions) == 0 or sessions.use(one)


@pytest.mark.parametrize(("seconds", "here"), [(0.0, True), (math.inf, False)])
def test_a_quick_batch_needs_no_other_thread(
    plain: Server, monkeypatch: pytest.MonkeyPatch, seconds: float, here: bool
):
    threads: set[int] = set()
    decide = plain.policies.decide

    def noted(batch: Any) -> Any:
        threads.add(threading.get_ident())
        return decide(batch)

    monkeypatch.setattr(plain.policies, "seconds", lambda games: seconds)
    monkeypatch.setattr(plain.policies, "decide", noted)
    rows = [seen(np.random.default_rng(i)) for i in range(5)]

    async def ask() -> list[dict[str, Any]]:
        return await asyncio.gather(*(plain.decide(body(one)) for one in rows))

    found = asyncio.run(ask())
    assert threads and (threads == {threading.get_ident()}) is here
    for one, answer in zip(rows, found, strict=True):
        assert answer["actions"] == plain.policies.player.act(one)


def test_how_long_a_size_takes_is_known_once_it_was_tried(spread: Policies):
    fresh = Policies(spread.player, True, 1)
    assert fresh.seconds(1) == math.inf
    fresh.warm()
    assert 0 < fresh.seconds(1) < 10


@pytest.fixture
def listening(plain: Server) -> Iterator[str]:
    """A real server on a port of this machine."""
    config = uvicorn.Config(plain.app("127.0.0.1", ""), port=0, log_level="error")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield f"{LOCAL}:{port}"
    server.should_exit = True
    thread.join()


def test_two_hundred_clients_at_once(plain: Server, listening: str):
    rng = np.random.default_rng(0)
    rows = [seen(rng) for _ in range(200)]
    player = shoal.load("zoo:spread")
    batch = player.act({agent: np.stack([one[agent] for one in rows]) for agent in AGENTS})

    async def ask() -> list[dict[str, Any]]:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(limits=limits, timeout=60) as http:
            asked = [http.post(f"{listening}/act", json=body(one)) for one in rows]
            return [answer.json() for answer in await asyncio.gather(*asked)]

    plain.policies.warm()
    calls = plain.policies.calls
    found = asyncio.run(ask())
    for agent in AGENTS:
        assert [one["actions"][agent] for one in found] == batch[agent].tolist()
    assert plain.policies.calls - calls < 200


def test_the_command_serves_until_it_is_told_to_stop(tmp_path: Path):
    words = ["serve", "zoo:climbing", "--port", "0", "--games", "1"]
    with subprocess.Popen(
        [sys.executable, "-m", "shoal", *words],
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    ) as server:
        assert server.stdout is not None
        lines = []
        while not (lines and lines[-1].startswith("serving on")):
            lines.append(server.stdout.readline())
            assert lines[-1], lines
        place = re.search(r"http://127\.0\.0\.1:\d+", lines[-1])
        assert place
        assert httpx.get(f"{place[0]}/health").json()["status"] == "ok"
        spec = httpx.get(f"{place[0]}/spec").json()["teams"]["agent"]["agents"]
        zeros = {one["name"]: [0.0] * one["observation"][0] for one in spec}
        got = httpx.post(f"{place[0]}/act", json={"observations": zeros})
        assert set(got.json()["actions"]) == set(zeros)
        server.send_signal(signal.SIGTERM)
        assert server.stdout.read().strip() == "stopped"
        assert server.wait(20) == 0


def test_what_was_made_before_it_listens_is_not_looked_through_again(
    monkeypatch: pytest.MonkeyPatch,
):
    frozen: list[int] = []
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(
        uvicorn.Server, "run", lambda *_, **__: frozen.append(gc.get_freeze_count())
    )
    try:
        assert main(["serve", "zoo:climbing", "--port", "0", "--games", "1"]) == 0
    finally:
        gc.unfreeze()
    assert frozen[0] > 50_000


def test_what_cannot_be_served_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    def said(*words: str) -> str:
        assert main(["serve", *words]) == 2
        return capsys.readouterr().err

    assert "say which run to serve" in said()
    assert "there is no folder" in said(str(tmp_path / "nowhere"))
    assert "did you mean 'climbing'?" in said("zoo:climbin")
    assert "port must be" in said("zoo:climbing", "--port", "70000")
    assert "cannot be listened on" in said("zoo:climbing", "--host", "192.0.2.1", "--token", "x")
    policy = shoal.load("zoo:climbing").save(tmp_path / "theirs")
    about = json.loads((policy / "policy.json").read_text())
    about["config"]["teams"]["agent"]["options"]["torso"] = "evil:Net"
    (policy / "policy.json").write_text(json.dumps(about))
    assert "a file names 'evil:Net'" in said(str(policy))
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert "pip install 'shoal[serve]'" in said("zoo:climbing")
