"""The command line: `shoal train`, `evaluate`, `list`, `info`."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from .types import ShoalError, nearest

INTRO = """\
Shoal trains teams of agents.

  shoal train <algorithm> <env> [options]   train, evaluate, and leave a run folder
  shoal evaluate <run> [options]            play a finished run's policy again
  shoal list                                the algorithms and environments there are
  shoal info <algorithm or env>             what one of them is, and its options

Examples:
  shoal train mappo mpe/simple_spread --steps 2e6 --seed 1
  shoal train --team adversary=coma --team agent=ippo mpe/simple_tag --adversary.lr 1e-3

`shoal train <algorithm> <env> --help` explains every option of that pair.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; the exit code."""
    argv = list(sys.argv[1:] if argv is None else argv)
    try:
        return _dispatch(argv)
    except ShoalError as error:
        print(f"shoal: {' '.join(str(error).split())}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("shoal: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output has gone
        sys.stderr.close()
        return 141


def _dispatch(argv: list[str]) -> int:
    verbs: dict[str, Callable[[list[str]], int]] = {
        "train": _train,
        "evaluate": _evaluate,
        "list": _list,
        "info": _info,
    }
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(INTRO, end="")
        return 0
    if argv[0] == "--version":
        from . import __version__

        print(__version__)
        return 0
    if argv[0] not in verbs:
        raise ShoalError(f"there is no command {argv[0]!r}{nearest(argv[0], verbs)}: `shoal --help` shows them")
    return verbs[argv[0]](argv[1:])


def _train(args: list[str]) -> int:
    from .assemble import assemble
    from .devices import setup

    setup()
    config, note = assemble(args)
    from .trainer import train

    if note:
        print(note, flush=True)
    result = train(config)
    return 128 + result.stopped if result.stopped else 0


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """How to play a finished run's policy again."""

    episodes: int = 100
    """Episodes to play."""
    sampled: bool = False
    """Sample actions instead of taking the most likely ones."""
    seed: int = 0
    """Decides the games that are played."""
    json: bool = False
    """Print one JSON object instead of text."""

    def __post_init__(self) -> None:
        if self.episodes < 1 or not 0 <= self.seed < 2**32:
            raise ShoalError("episodes must be at least 1 and seed between 0 and 2**32")


def _evaluate(args: list[str]) -> int:
    from .flags import parse

    description = "Play a finished run's policy again: shoal evaluate runs/my-run --episodes 1000 --sampled"
    if args and not args[0].startswith("-"):
        run, args = args[0], args[1:]
    elif "--help" in args or "-h" in args:
        run = ""
    else:
        raise ShoalError("say which run to evaluate: shoal evaluate <run>")
    how = parse(Evaluation, Evaluation(), args, "shoal evaluate <run>", description)
    from .player import load

    player = load(Path(run))
    played = player.evaluate(how.episodes, not how.sampled, how.seed)
    teams = {
        team: {"return": float(rows.mean()), "deviation": float(rows.mean(1).std())}
        for team, rows in played.returns.items()
    }
    actions = "sampled" if how.sampled else "greedy"
    if how.json:
        facts = {"run": run, "episodes": how.episodes, "actions": actions, "seed": how.seed, "teams": teams}
        print(json.dumps(facts | {"length": float(played.length.mean())}))
        return 0
    print(
        f"{player.config.label} on {player.config.env} after {player.steps:,} steps, {how.episodes} {actions} episodes"
    )
    for team, score in teams.items():
        print(f"team {team}: return of one agent {score['return']:.2f} ± {score['deviation']:.2f} between episodes")
    return 0


def _list(args: list[str]) -> int:
    from .describe import overview

    if args:
        raise ShoalError(f"`shoal list` takes no arguments, not {args[0]!r}")
    print(overview())
    return 0


def _info(args: list[str]) -> int:
    from .describe import about

    if len(args) != 1:
        raise ShoalError("say one algorithm or environment: shoal info <name>")
    print(about(args[0]))
    return 0


def entry() -> None:
    """The console script."""
    sys.exit(main())


if __name__ == "__main__":
    entry()
