"""The command line: find the command that the first word names; report mistakes in one sentence."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from .. import __version__
from ..config.trust import EVERYTHING, FLAG, Trust, of_files, trusted
from ..errors import FULL, ShoalError, did_you_mean, printable
from ..run import signals
from .words import Trusting

INTRO = """\
Shoal trains teams of agents.

  shoal train <algorithm> <env> [options]   train, evaluate, and leave a run folder
  shoal resume <run> [--steps <steps>]      go on with a run that was interrupted, or train further
  shoal fork <run> [options]                go on from it in a new run, with other settings
  shoal launch --hosts 2 train …            one run on several processes or hosts
  shoal evaluate <run> [options]            play a finished run's policy again, or a whole group's
  shoal watch <run> [options]               write a video of it, or of `random <env>`
  shoal live [folder]                       a page in the browser over all runs in a folder
  shoal export <run> --to <format>          the policy for ONNX, numpy, PyTorch, TensorFlow …
  shoal serve <run> [options]               the policy behind HTTP and WebSocket
  shoal zoo                                 small trained policies that come with it: zoo:<name>
  shoal campaign <algorithms> <envs> …      train all of them with several seeds, and write a report
  shoal sweep <algorithm> <env> --over …    search for settings, by trials or by a population
  shoal crossplay <run> <run> …             let policies of several runs play in pairs
  shoal exploit <run> [--team <team>]       how much a best response gains against it
  shoal report <folder> …                   the same report on all runs in some folders
  shoal reproduce <table> …                 train a published table, and compare: --list shows them
  shoal list                                the algorithms and environments there are
  shoal info <algorithm or env>             what one of them is, and its options
  shoal check-env <env>                     does an environment keep the contract?

Examples:
  shoal train mappo mpe/simple_spread --steps 2e6 --seed 1
  shoal train --team adversary=coma --team agent=ippo mpe/simple_tag --adversary.lr 1e-3
  shoal train ppo gym:CartPole-v1
  shoal train ippo pz:mpe2.simple_spread_v3 --env.N 5
  shoal train mappo mpe/simple_spread --from runs/my-run --env.max-cycles 50

`shoal train <algorithm> <env> --help` explains every option of that pair.
`shoal --completion bash`, zsh or fish prints what makes the shell complete these words.
With --trust, code of somebody's own that a run folder or a file names is run as well.
"""
# module and function of each command, imported when needed: help must not wait for JAX
COMMANDS = {
    "train": "train:train",
    "resume": "train:resume",
    "fork": "fork:fork",
    "launch": "launch:launch",
    "evaluate": "evaluate:evaluate",
    "watch": "watch:command",
    "live": "live:live",
    "export": "export:export",
    "serve": "serve:serve",
    "zoo": "zoo:list_zoo",
    "campaign": "campaign:campaign",
    "sweep": "sweep:sweep",
    "crossplay": "crossplay:command",
    "exploit": "exploit:command",
    "report": "report:report",
    "reproduce": "reproduce:reproduce",
    "list": "catalogue:list_all",
    "info": "info:info",
    "check-env": "check_env:check_env",
}
STOPPED = 130  # exit code after Ctrl-C
IMPATIENCE = 4.0  # seconds from a second Ctrl-C until the process ends, whatever it does
LAUNCHED = ("train", "resume")  # what several processes can do together
WRITTEN = ("--out", "--cluster")  # options whose URLs are not read


def main(argv: Sequence[str] | None = None, handed: Trust | None = None) -> int:
    """Run a command and return the exit code.

    `handed` is the trust of the parent process, if one started this; nothing else is trusted
    then."""
    argv = list(sys.argv[1:] if argv is None else argv)
    typed = Trusting(EVERYTHING, trusted(FLAG in argv))
    try:
        trust = typed if handed is None else Trusting(handed, handed)
        with of_files(trust.files):
            return _dispatch([word for word in argv if word != FLAG], trust)
    except ShoalError as error:
        if error.detail:
            print(printable(error.detail.rstrip(), 20_000), file=sys.stderr)
        print(printable(f"shoal: {' '.join(str(error).split())}"), file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("shoal: stopped", file=sys.stderr)
        return STOPPED
    except BrokenPipeError:  # the reader of our output is gone
        sys.stderr.close()
        return 141
    except OSError as error:
        if error.errno not in FULL:
            raise
        print(
            f"shoal: nothing more can be written ({error.strerror}): make room, then shoal resume",
            file=sys.stderr,
        )
        return 1


def _dispatch(argv: list[str], trust: Trusting) -> int:
    word, args = (argv[0], argv[1:]) if argv else ("--help", [])
    if word in ("-h", "--help", "help"):
        print(INTRO, end="")
        return 0
    if word == "--completion":
        from .completion import script

        print(script(args[0] if len(args) == 1 else ""), end="")
        return 0
    if word == "--version":
        print(__version__)
        return 0
    if word not in COMMANDS:
        raise ShoalError(
            f"there is no command {word!r}{did_you_mean(word, COMMANDS)}: `shoal --help` shows them"
        )
    args = _here(args)
    if word in LAUNCHED and not {"SHOAL_PEERS", "JAX_COORDINATOR_ADDRESS"}.isdisjoint(os.environ):
        return take_part([word, *args], trust)
    return _command(word)(args, trust)


def _here(args: list[str]) -> list[str]:
    """The arguments, with folders elsewhere that they name brought to this machine."""
    if not any("://" in word for word in args):
        return args
    from ..store.remote import fetched

    return [
        fetched(word) if "://" in word and before not in WRITTEN else word
        for before, word in zip(["", *args], args, strict=False)
    ]


def take_part(argv: list[str], trust: Trusting) -> int:
    """Run a command as one of the processes that train a run: the first leads, the others
    follow."""
    import jax

    from .. import devices, peers

    peers.join()
    if peers.rank():
        from ..engine.peer_loop import follow

        number = peers.devices()
        if number is None:  # the leader failed before JAX started, and would never meet ours
            return 0
        devices.setup(number)
        jax.devices()  # the leader's wait for ours
        return follow()
    try:
        return _command(argv[0])(argv[1:], trust)
    finally:
        peers.leave()


def _command(word: str) -> Callable[[list[str], Trusting], int]:
    """Import a command; Ctrl-C waits for that, as it makes JAX abort while it is imported."""
    module, _, function = COMMANDS[word].partition(":")
    told: list[int] = []
    before = signals.install(lambda number, _: told.append(number))
    try:
        command = getattr(import_module(f".{module}", __package__), function)
    finally:
        signals.restore(before)
    if told:
        signal.raise_signal(told[0])
    return command


def _ready() -> None:
    """Make sure that stdout and stderr exist, and that they replace characters they cannot
    encode."""
    if sys.stdout is None:  # closed: the next opened file must not take its place
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]


def entry(argv: Sequence[str] | None = None, handed: Trust | None = None) -> None:
    """The console script; exits even if a library left a thread running, or JAX waits for a process
    that is gone.

    When stopped it exits at once: a compiled program that still runs would crash as Python ends."""
    _ready()
    _raise_again_what_is_lost()
    _end_when_told_twice(IMPATIENCE if handed is None else IMPATIENCE / 2)
    try:
        code = main(argv, handed)
    except KeyboardInterrupt:  # another one, while the first was being reported
        code = STOPPED
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the command is over: another Ctrl-C is late
    others = set(threading.enumerate()) - {threading.current_thread()}
    if code == STOPPED or any(not thread.daemon for thread in others) or _cut_off():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _raise_again_what_is_lost() -> None:
    """Raise a Ctrl-C again that fell into what cannot raise it.

    That is a callback of the garbage collector, as JAX has one, or of an object that is deleted."""
    sys.unraisablehook = _lost
    signal.signal(signal.SIGALRM, _again)


def _lost(unraisable: Any) -> None:
    if isinstance(unraisable.exc_value, KeyboardInterrupt):
        signal.setitimer(signal.ITIMER_REAL, 0.01)
    else:
        sys.__unraisablehook__(unraisable)


def _again(_: int, frame: Any) -> None:
    handler = signal.getsignal(signal.SIGINT)
    if callable(handler):
        handler(signal.SIGINT, frame)


def _end_when_told_twice(seconds: float) -> None:
    """End this process so long after a second Ctrl-C or SIGTERM, whatever it does.

    While a library compiles, Python's own handlers have to wait. A child that runs ends sooner than
    the process that watches it."""
    bell, ring = os.pipe()
    os.set_blocking(ring, False)
    signal.set_wakeup_fd(ring, warn_on_full_buffer=False)
    threading.Thread(target=_listen, args=(bell, seconds), daemon=True).start()


def _listen(bell: int, seconds: float) -> None:
    told = 0
    while told < 2:
        told += sum(number in (signal.SIGINT, signal.SIGTERM) for number in os.read(bell, 64))
    time.sleep(seconds)
    with contextlib.suppress(OSError, ValueError):  # nobody may read it any more
        print("shoal: stopped", file=sys.stderr, flush=True)
    os._exit(STOPPED)


def _cut_off() -> bool:
    """Whether a process that trained together with this one is gone."""
    peers = sys.modules.get("shoal.peers")
    return bool(peers and peers.broken())


if __name__ == "__main__":
    entry()
