"""Run folders written as a run writes them, without training."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

from shoal.config.config import Config
from shoal.store import folder

TEAMS = ("adversary", "agent")


def lines(count: int, scale: float = 1.0, every: int = 10) -> list[dict[str, Any]]:
    """Log points, each tenth an evaluation."""
    found: list[dict[str, Any]] = []
    for i in range(count):
        at = {"env_step": 100 * i, "seconds": 0.5 * i}
        values = {f"{team}/return": scale * i for team in TEAMS}
        if i % every == 0:
            told = {f"evaluation/{name}": x for name, x in values.items()}
            found.append(at | told | {"evaluation/length": 25.0})
        more = {"agent/actor_loss": 1 / (i + 1), "agent/agent_0/return": scale * i}
        found.append(at | values | more | {"steps_per_second": 200.0})
    return found


def write_run(
    path: Path,
    algorithm: str = "mappo",
    seed: int = 0,
    count: int = 40,
    ended: dict[str, Any] | None = None,
    **options: Any,
) -> Path:
    """A run folder with a real config; `ended` is its summary, if it has one."""
    settings = {"steps": 4_000, "seed": seed, "evaluations": 2, "devices": 1, "games": 4}
    sides = {team: (algorithm, options) for team in TEAMS}
    config = Config.build("mpe/simple_tag", sides, {}, settings)
    path.parent.mkdir(parents=True, exist_ok=True)
    folder.create(path, config)
    with (path / folder.METRICS).open("w") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines(count, 1 + seed))
    (path / folder.EPISODES).write_text("env_step,episode,team,agent,return,length\n")
    if ended is not None:
        (path / folder.SUMMARY).write_text(json.dumps(finished(path) | ended))
    return path


def finished(path: Path) -> dict[str, Any]:
    """The summary of a finished run."""
    zero = dict.fromkeys(TEAMS, 0.0)
    return {
        "format": 1,
        "path": str(path),
        "reason": "finished",
        "stopped": 0,
        "steps": 4_000,
        "seconds": 20.0,
        "steps_per_second": 200.0,
        "scores": dict.fromkeys(TEAMS, 3.0),
        "before": zero,
        "random": zero,
    }


def held_elsewhere(path: Path) -> None:
    """Let a run look as if another machine trained it."""
    (path / folder.LOCK).write_text(json.dumps({"host": f"not-{socket.gethostname()}", "pid": 7}))
