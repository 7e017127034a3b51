"""The command line: the words of `shoal --help`, each a function here or in a module of its own."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ..config.trust import EVERYTHING, FLAG, Trust, trusted
from ..errors import ShoalError, nearest

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # what a disk says that takes no more
INTRO = """\
Shoal trains teams of agents.

  shoal train <algorithm> <env> [options]   train, evaluate, and leave a run folder
  shoal resume <run>                        go on with a run that was interrupted
  shoal evaluate <run> [options]            play a finished run's policy again
  shoal watch <run> [options]               write a video of it, or of `random <env>`
  shoal campaign <algorithms> <envs> …      train all of them with several seeds, and write a report
  shoal report <folder> …                   the same report on all runs in some folders
  shoal list                                the algorithms and environments there are
  shoal info <algorithm or env>             what one of them is, and its options
  shoal check-env <env>                     does an environment keep the contract?

Examples:
  shoal train mappo mpe/simple_spread --steps 2e6 --seed 1
  shoal train --team adversary=coma --team agent=ippo mpe/simple_tag --adversary.lr 1e-3
  shoal train ppo gym:CartPole-v1
  shoal train ippo pz:mpe2.simple_spread_v3 --env.N 5

`shoal train <algorithm> <env> --help` explains every option of that pair.
`shoal --completion bash`, zsh or fish prints what makes the shell complete these words.
With --trust, an environment of somebody's own that a run folder or a file names is run as well.
"""


def main(argv: Sequence[str] | None = None, handed: Trust | None = None) -> int:
    """Run a command; the exit code. One that another process gives trusts only what that one hands on."""
    argv = list(sys.argv[1:] if argv is None else argv)
    typed = Trusting(EVERYTHING, trusted(FLAG in argv))
    try:
        return _dispatch([word for word in argv if word != FLAG], typed if handed is None else Trusting(handed, handed))
    except ShoalError as error:
        detail = f"{error.detail.rstrip()}\n" if error.detail else ""
        print(f"{detail}shoal: {' '.join(str(error).split())}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("shoal: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output has gone
        sys.stderr.close()
        return 141
    except OSError as error:
        if error.errno not in FULL:
            raise
        print(f"shoal: nothing more can be written ({error.strerror}): make room, then shoal resume", file=sys.stderr)
        return 1


class Trusting(NamedTuple):
    """Whose code a command may run."""

    words: Trust  # what stands in the command itself
    files: Trust  # what folders and files say that it leads to


def _dispatch(argv: list[str], trust: Trusting) -> int:
    verbs: dict[str, Callable[[list[str]], int]] = {
        "train": partial(_train, trust=trust),
        "resume": partial(_resume, trust=trust),
        "evaluate": partial(_evaluate, trust=trust),
        "watch": partial(_watch, trust=trust),
        "campaign": partial(_campaign, trust=trust),
        "report": _report,
        "list": _list,
        "info": _info,
        "check-env": _check_env,
    }
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(INTRO, end="")
        return 0
    if argv[0] == "--completion":
        from .completion import script

        print(script(argv[1] if len(argv) == 2 else ""), end="")
        return 0
    if argv[0] == "--version":
        from .. import __version__

        print(__version__)
        return 0
    if argv[0] not in verbs:
        raise ShoalError(f"there is no command {argv[0]!r}{nearest(argv[0], verbs)}: `shoal --help` shows them")
    return verbs[argv[0]](argv[1:])


def _train(args: list[str], trust: Trusting) -> int:
    from ..config.compose import assemble

    config, note = assemble(args, trust.words, trust.files)
    from ..run import trainer
    from ..sweep import seeds

    if note:
        print(note, flush=True)
    result = (seeds if config.settings.seeds > 1 else trainer).train(config)
    return 128 + result.stopped if result.stopped else 0


def _resume(args: list[str], trust: Trusting) -> int:
    if len(args) != 1 or args[0].startswith("-"):
        if "--help" in args or "-h" in args:
            print("shoal resume <run>: go on with a run that was interrupted, from its newest checkpoint, or with")
            print("what is left of a group (--seeds) or a campaign. Nothing is to be repeated: the folder says all.")
            print(f"An environment of somebody's own, which it names, is only run with {FLAG}.")
            return 0
        raise ShoalError("say one run and nothing else: shoal resume <run>")
    if (Path(args[0]) / "campaign.json").exists():
        return _campaign(args, trust)
    from ..run import trainer
    from ..sweep import seeds

    run = Path(args[0])
    result = (seeds if seeds.is_group(run) else trainer).resume(run, trust=trust.files)
    return 128 + result.stopped if result.stopped else 0


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """How to play a finished run's policy again."""

    episodes: int = 100
    """Episodes to play."""
    sampled: bool = False
    """Sample actions instead of taking the most likely ones."""
    best: bool = False
    """The policy that was evaluated best instead of the last one."""
    seed: int = 0
    """Decides the games that are played."""
    json: bool = False
    """Print one JSON object instead of text."""

    def __post_init__(self) -> None:
        if self.episodes < 1 or not 0 <= self.seed < 2**32:
            raise ShoalError("episodes must be at least 1 and seed between 0 and 2**32")


def _evaluate(args: list[str], trust: Trusting) -> int:
    from ..config.compose import evaluation

    title = (
        "Play a finished run's policy again: shoal evaluate runs/my-run --episodes 1000 --sampled. Another may take a"
        " team's place: --team <team>=random, --team <team>=frozen:runs/other; then --<team>.<option> sets it."
        f" An environment of somebody's own, which the run names, is only played with {FLAG}"
    )
    run, args = _first(args, "say which run to evaluate: shoal evaluate <run>")
    how, others = evaluation(Evaluation(), args, "shoal evaluate <run>", title)
    from ..store.player import load, outcomes

    player = load(Path(run), best=how.best, trust=trust.files.everything).against(others)
    played = player.evaluate(how.episodes, not how.sampled, how.seed)
    teams = {
        team: {"return": float(rows.mean()), "deviation": float(rows.mean(1).std())}
        for team, rows in played.returns.items()
    }
    for team, shares in outcomes(played).items():
        teams[team] |= shares
    actions = "sampled" if how.sampled else "greedy"
    instead = {team: name for team, (name, _) in others.items()}
    if how.json:
        facts = {"run": run, "episodes": how.episodes, "actions": actions, "seed": how.seed, "teams": teams}
        facts |= {"instead": instead} if instead else {}
        print(json.dumps(facts | {"length": float(played.length.mean())}))
        return 0
    print(
        f"{player.config.label} on {player.config.env} after {player.steps:,} steps, {how.episodes} {actions} episodes"
    )
    for team, score in teams.items():
        who = f" ({instead[team]})" if team in instead else ""
        won = f", won {score['win']:.1%}, drew {score['draw']:.1%}, lost {score['loss']:.1%}" if "win" in score else ""
        told = f"return of one agent {score['return']:.2f} ± {score['deviation']:.2f} between episodes"
        print(f"team {team}{who}: {told}{won}")
    return 0


def _campaign(args: list[str], trust: Trusting) -> int:
    from ..devices import setup
    from .campaign import campaign

    setup()
    return campaign(args, trust.files)


def _report(args: list[str]) -> int:
    from .campaign import report

    return report(args)


def _watch(args: list[str], trust: Trusting) -> int:
    from .watch import command

    return command(args, trust.files.everything)


def _list(args: list[str]) -> int:
    from .info import overview

    if args in (["--help"], ["-h"]):
        print("shoal list: the algorithms and environments there are, a line each.")
        return 0
    if args:
        raise ShoalError(f"`shoal list` takes no arguments, not {args[0]!r}")
    print(overview())
    return 0


def _info(args: list[str]) -> int:
    from .info import about

    if args in (["--help"], ["-h"]):
        print("shoal info <algorithm or env>: what one of them is, and its options, such as shoal info mappo.")
        return 0
    if len(args) != 1:
        raise ShoalError("say one algorithm or environment: shoal info <name>")
    print(about(args[0]))
    return 0


@dataclasses.dataclass(frozen=True)
class Check:
    """How to check an environment; its own options are given as for training, such as --env.N 5."""

    steps: int = 1000
    """Steps to play at random, four times over."""
    seed: int = 0
    """Decides the actions and the episodes."""
    patience: float = 60.0
    """Seconds a call of an environment on the host may take; making it may take 120 or more."""

    def __post_init__(self) -> None:
        if self.steps < 1 or not 0 <= self.seed < 2**31 or not self.patience > 0:
            raise ShoalError("steps must be at least 1, seed between 0 and 2**31 and patience greater than 0")


def _check_env(args: list[str]) -> int:
    from ..config.compose import env_options
    from ..config.flags import parse

    description = "Play an environment at random against the contract: shoal check-env pz:mpe2.simple_tag_v3"
    env, args = _first(args, "say which environment to check: shoal check-env <env>")
    options, args = env_options(args)
    how = parse(Check, Check(), args, "shoal check-env <env>", description)
    from .. import envs
    from ..envs import watched_check
    from .info import sides

    report = watched_check.check_env(envs.make(env, **options), how.steps, how.seed, how.patience)
    print("\n".join(sides(report.teams)))
    for rule, findings in report.findings.items():
        print(f"{'broken' if findings else 'kept  ' if report.steps else 'unseen'}  {rule}")
        for finding in findings[:3]:
            print(f"        {finding}")
        if len(findings) > 3:
            print(f"        and {len(findings) - 3} times more")
    broken = sum(bool(findings) for findings in report.findings.values())
    print(f"{env}: {report.steps} steps, {report.episodes} episodes begun, {broken or 'no'} rules broken")
    return 1 if broken else 0


def _first(args: list[str], otherwise: str) -> tuple[str, list[str]]:
    """The word that must come first, and the rest; none is needed for help."""
    if args and not args[0].startswith("-"):
        return args[0], args[1:]
    if "--help" in args or "-h" in args:
        return "", args
    raise ShoalError(otherwise)


def _ready() -> None:
    """Let every sentence through: what stdout cannot write becomes a question mark, and there is one."""
    if sys.stdout is None:  # closed: the next file that is opened must not take its place
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]


def entry() -> None:
    """The console script; a thread that somebody left running, such as a compiler's, ends with it."""
    _ready()
    code = main()
    others = set(threading.enumerate()) - {threading.current_thread()}
    if any(not thread.daemon for thread in others):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    entry()
