"""2,000 command lines and saved configs, each made wrong in some way: taken, or refused in one
sentence.

Good ones are mutated by hypothesis, which shows the shortest that breaks. Commands are called as a
user calls them and cut where training, playing or checking would begin; what they printed, left
behind and warned of is looked at.
"""

from __future__ import annotations

import collections
import contextlib
import copy
import functools
import inspect
import io
import json
import os
import shutil
import subprocess
import sys
import warnings
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from helpers import quick
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shoal import algorithms, envs
from shoal.cli import campaign as campaign_command
from shoal.cli import report as report_command
from shoal.cli.main import COMMANDS, _command, main
from shoal.config import campaign
from shoal.config.settings import Settings
from shoal.engine import loop
from shoal.envs import watched_check
from shoal.monitor import film
from shoal.monitor.console import Console
from shoal.run import trainer
from shoal.store import folder as runs
from shoal.store import player
from shoal.sweep import seeds

SIZES = "--steps 400 --games 4 --window 5 --eval-episodes 2 --evaluations 0 --hidden 4 --layers 1"
ON = f"{SIZES} --minibatches 1"
OFF = f"{SIZES} --warmup 20 --capacity 200 --batch 4 --length 4 --updates 1"
TRAIN = (
    f"train ppo test/identity {ON}",
    f"train ippo test/mortal {ON} --torso gru --seed 3 --lr 1e-3 --env.n 2",
    f"train mappo test/memory {ON} --no-anneal --sharing own --name a --out b",
    f"train dqn test/identity {OFF} --epsilon 0.5 --priority 0.6",
    f"train qmix test/mortal {OFF} --reward sum --devices 2 --save-every 100 --keep 3",
    f"train maddpg test/continuous_identity {OFF} --tau 0.01 --env.length 7",
    "train --team even=coma --team odd=random matrix/matching_pennies --steps 800 --games 4"
    " --window 8 --even.lr 1e-3",
    "train ppo --self-play=latest matrix/matching_pennies --odd.groups 2 --games 8 --window 5",
    "train mappo mpe/simple_spread --no-preset --steps 2e6 --hidden 4 --env.N 5"
    " --env.local-ratio 0.2",
    "train run/config.json --seed 3 --name again",
    "train ppo gym:CartPole-v1 --games 2 --window 4 --workers 0 --patience 5 --minibatches 2",
)
OTHERS = (
    "resume run",
    "evaluate run --episodes 3 --sampled --seed 5 --json",
    "evaluate run --team agent=random",
    "evaluate run --team agent=frozen:run --agent.no-greedy",
    "watch run --episodes 2 --best --fps 5 --out film.gif",
    "watch random test/mortal --seed 2 --env.n 2 --sampled",
    "campaign ppo,a2c test/identity,test/mortal --seeds 2 --steps 64 --games 2 --window 8"
    " --at-once 1 --out camp",
    "campaign plan.toml --steps 4000",
    "report done",
    "reproduce papoudakis2021 --tasks Climbing --algorithms IPPO,QMIX --seeds 2 --budget 0.1"
    " --jobs 1 --out table",
    "reproduce --list",
    "check-env test/mortal --steps 20 --seed 1",
    "check-env gym:CartPole-v1 --steps 20 --env.limit 5",
    "info ppo",
    "info mpe/simple_tag",
    "list",
    "--help",
    "--version",
)
LIKELY = ("1", "2", "4", "8", "10", "40", "1e3", "0.5", "0.9", "1e-3", "own", "gru", "mean")
NUMBERS = (
    *(
        "0",
        "-0",
        "1",
        "-1",
        "7",
        "1e3",
        "0.5",
        "1e-45",
        "1e300",
        "nan",
        "inf",
        "-inf",
        "1e999",
        "2147483648",
    ),
    *(
        "4294967296",
        "9" * 30,
        "1e30",
        "0x10",
        "1_000",
        "1,5",
        "1/2",
        "2**3",
        "١٢",
        "½",
        "1e",
        "+5",
        ".5",
        "5.",
    ),
)
WORDS = (
    *(
        "",
        " ",
        "-",
        "--",
        "---",
        "=",
        "--=",
        "a=b",
        "=b",
        "a=",
        ":",
        "frozen:",
        "random:x",
        "past:",
        "None",
        "true",
    ),
    *(
        "True",
        "no",
        "[1,2]",
        "{}",
        '"x"',
        "~",
        ".",
        "..",
        "/",
        "/dev/null",
        "afile",
        "afile/b",
        "locked/b",
        "*",
        "%s",
    ),
    *(
        "{0}",
        "\n",
        "a\tb",
        "é",
        "🐟",
        "\udcff",
        "x" * 5000,
        "-h",
        "--help",
        "--team",
        "--team=",
        "--no-preset",
    ),
    *(
        "--self-play",
        "--self-play=",
        "--self-play=x",
        "--env",
        "--env.",
        "--env.x",
        "--env.x=1",
        "--no-",
        "-5",
        "-x",
    ),
    *(
        "pz:",
        "gym:",
        "gym:Nothing-v0",
        "os:getcwd",
        "nowhere:f",
        "football:",
        "test/",
        "mpe/simple_tga",
    ),
)
VALUES = st.one_of(*map(st.sampled_from, (LIKELY, LIKELY, NUMBERS, WORDS)))
FLAGS = sorted(
    {
        f"--{field.replace('_', '-')}"
        for kind in (*algorithms.ALGORITHMS.values(), *envs.GAMES.values())
        for field in getattr(kind, "Config", kind).__dataclass_fields__
    }
)
MANY: dict[str, Any] = {
    "derandomize": True,
    "database": None,
    "deadline": None,
    "suppress_health_check": list(HealthCheck),
}


ASKED = 4  # one of so many runs is asked how large it is, which takes a while to tell


class Reached(BaseException):
    """As far as a command is followed."""


@dataclass
class Told:
    """What a command said."""

    code: int
    out: str
    err: str


def reach(*_: Any, **__: Any) -> Any:
    raise Reached


def planned(config: Any, *_: Any, **__: Any) -> Any:
    """`trainer.train` up to its first program."""
    under_way, path = trainer.Trainer(config, Console(quiet=True)), runs.plan(config)
    if zlib.crc32(repr(config).encode(errors="ignore")) % ASKED == 0:
        under_way._introduce(path)
    raise Reached


@contextlib.contextmanager
def cut() -> Iterator[None]:
    """Nothing is trained, played or checked; tyro need not read our source again for every
    command."""
    for word in COMMANDS:  # a command imported below would keep what stands in for a while
        _command(word)
    with contextlib.ExitStack() as stack:
        for owner, name, instead in (
            (trainer, "train", planned),
            (seeds, "train", planned),
            (loop.Loop, "restored", reach),
            (player.Player, "evaluate", reach),
            (film, "camera", reach),
            (campaign, "save", reach),
            (campaign_command, "publish", reach),
            (report_command, "publish", reach),
            (watched_check, "check_env", reach),
            (inspect, "findsource", functools.cache(inspect.findsource)),
        ):
            stack.enter_context(patch.object(owner, name, instead))
        yield


def call(words: list[str]) -> Told:
    """A command as the console runs it."""
    out = io.TextIOWrapper(io.BytesIO(), "utf-8")
    err = io.TextIOWrapper(io.BytesIO(), "utf-8", errors="backslashreplace")
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("error")
        try:
            code = main(words)
        except Reached:
            code = 0
        except SystemExit as leaving:
            code = int(leaving.code or 0)
        for stream in (out, err):
            stream.flush()
    return Told(code, *(stream.buffer.getvalue().decode() for stream in (out, err)))  # type: ignore[attr-defined]


def well_told(words: list[str]) -> Told:
    """Taken in silence, or refused in one line."""
    told = call(words)
    if told.code == 0:
        assert told.err == "", told.err
    else:
        assert told.code in (1, 2), told
        assert (
            told.err.startswith("shoal: ") and told.err.count("\n") == 1 and len(told.err) > 20
        ), told.err
        assert told.out == "", told.out
    for sign in ("Traceback", "Error(", "Errno", "<class '", "object at 0x", "╭", "│"):
        assert sign not in told.err, told.err
    return told


# -- command lines ---------------------------------------------------------------------------------


def _typo(draw: Callable, word: str) -> str:
    """One letter too many, too few, or another."""
    at = draw(st.integers(0, max(len(word) - 1, 0)))
    letter = draw(st.sampled_from("aeio-_=.:/ 0159é🐟"))
    return draw(
        st.sampled_from(
            (word[:at] + word[at + 1 :], word[:at] + letter + word[at:], word[:at] + word[at::-1])
        )
    )


def _dropped(draw: Callable, words: list[str], at: int) -> None:
    del words[at]


def _doubled(draw: Callable, words: list[str], at: int) -> None:
    words.insert(at, words[at])


def _swapped(draw: Callable, words: list[str], at: int) -> None:
    other = draw(st.integers(0, len(words) - 1))
    words[at], words[other] = words[other], words[at]


def _mistyped(draw: Callable, words: list[str], at: int) -> None:
    words[at] = _typo(draw, words[at])


def _another(draw: Callable, words: list[str], at: int) -> None:
    words[at] = draw(st.sampled_from(WORDS))


def _other_value(draw: Callable, words: list[str], at: int) -> None:
    """In the place of a value, if there is one."""
    places = [i for i, word in enumerate(words) if i > 1 and words[i - 1].startswith("--")]
    words[draw(st.sampled_from(places)) if places else at] = draw(VALUES)


def _one_more(draw: Callable, words: list[str], at: int) -> None:
    words.insert(
        at,
        draw(
            st.one_of(
                st.sampled_from(WORDS), st.text(max_size=8).filter(lambda word: "\0" not in word)
            )
        ),
    )


def _own_option(draw: Callable, words: list[str], at: int) -> None:
    """Any option of an algorithm, a game or a run that is named."""
    kinds = [
        Settings,
        *(algorithms.ALGORITHMS[word].Config for word in words if word in algorithms.ALGORITHMS),
    ]
    games = [envs.GAMES[word] for word in words if word in envs.GAMES]
    flags = [f"--{name}" for kind in kinds for name in kind.__dataclass_fields__]
    flags += [f"--env.{name}" for kind in games for name in kind.__dataclass_fields__]
    words += [draw(st.sampled_from(flags)), draw(VALUES)]


def _foreign_option(draw: Callable, words: list[str], at: int) -> None:
    """An option of some algorithm or game, perhaps without a value."""
    flag, prefix = (
        draw(st.sampled_from(FLAGS)),
        draw(st.sampled_from(("", "", "env.", "agent.", "even."))),
    )
    words += [f"--{prefix}{flag[2:]}", draw(VALUES)][: draw(st.integers(1, 4))]


def _other_name(draw: Callable, words: list[str], at: int) -> None:
    """Another algorithm, or another game."""
    place = draw(st.integers(1, 2))
    if len(words) > place:
        words[place] = draw(
            st.sampled_from((*algorithms.ALGORITHMS,) if place == 1 else (*envs.GAMES,))
        )


FORM = (_dropped, _doubled, _swapped, _mistyped, _another, _one_more, _foreign_option, _other_name)
CONTENT = (_other_value, _own_option, _other_name)


@st.composite
def mutated(draw: Callable, bases: tuple[str, ...], mutations: tuple[Callable, ...]) -> list[str]:
    """A good command line after one or two mutations."""
    words = draw(st.sampled_from(bases)).split()
    for mutate in draw(st.lists(st.sampled_from(mutations), min_size=1, max_size=2)):
        if words:
            mutate(draw, words, draw(st.integers(0, len(words) - 1)))
    return words


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the commands are called: with a run that was interrupted, a file, a folder that may not
    be entered."""
    home, place = Path.cwd(), tmp_path_factory.mktemp("mutations")
    os.chdir(place)
    assert call(f"train ppo test/mortal {ON} --out . --name run".split()).code == 0
    shutil.copytree(place / "run", place / "done" / "run")
    (place / "run" / runs.SUMMARY).unlink()
    (place / "plan.toml").write_text(
        'seeds = 1\nenvs = ["test/mortal"]\n[algorithms]\nppo = "ppo --minibatches 1"\n'
    )
    (place / "afile").write_text("hello")
    (place / "locked").mkdir(0o500)
    yield place
    os.chdir(home)


def _refused_or_taken(folder: Path, wrong: st.SearchStrategy, count: int) -> None:
    """So many of them, of both kinds, leaving nothing behind."""
    codes, before = collections.Counter(), sorted(folder.iterdir())

    @settings(max_examples=count, **MANY)
    @given(wrong)
    def each(words: list[str]) -> None:
        codes[well_told(words).code] += 1
        assert sorted(folder.iterdir()) == before

    with cut():
        each()
    assert codes.total() >= count and codes[0] > count / 20 and codes[2] > count / 3, codes


@pytest.mark.parametrize("command", [*TRAIN, *OTHERS])
def test_what_is_mutated_is_good(command: str, folder: Path) -> None:
    with cut():
        assert well_told(command.split()).code == 0


REFUSED = {  # what was taken once, and then broke or never came back
    ("--entropy", "nan"): "entropy must be a finite number",
    ("--lr", "inf"): "lr must be a finite number",
    ("--patience", "1e300"): "patience must be a finite number",
    ("--seed", "4294967296"): "smaller than 2**32",
    ("--hidden", "1e9"): "is too large: lower the sizes of the nets",
    ("--layers", "1e9"): "layers must be at most 100",
    ("--evaluations", "1e9"): "evaluations must be at most 10,000",
    ("--env.n", "1e9"): "n must be at most 1,000",
    ("--env.length", "1e30"): "length must be at most 1,000,000",
    ("--name", "x" * 300): "plain folder name",
    ("--out", "x" * 300): "File name too long",
    ("--name", "\udcff"): "plain folder name",
    ("--out", "a\nb"): "plain folder name",
}


@pytest.mark.parametrize("option", REFUSED)
def test_what_no_run_could_bear_is_refused_at_once(option: tuple[str, str], folder: Path) -> None:
    with cut(), patch(f"{__name__}.ASKED", 1):
        told = well_told([*TRAIN[0].split(), *option])
    assert told.code == 2 and REFUSED[option] in told.err, told.err


@pytest.mark.slow
def test_700_training_commands_with_other_values(folder: Path) -> None:
    _refused_or_taken(folder, mutated(TRAIN, CONTENT), 700)


@pytest.mark.slow
@pytest.mark.parametrize("count", quick([120, 500], 1))
def test_training_commands_with_other_words(count: int, folder: Path) -> None:
    _refused_or_taken(folder, mutated(TRAIN, FORM), count)


@pytest.mark.parametrize("count", quick([100, 400], 1))
def test_other_commands(count: int, folder: Path) -> None:
    _refused_or_taken(folder, mutated(OTHERS, (*FORM, _other_value)), count)


@pytest.mark.slow
def test_an_odd_command_that_is_taken_is_trained(folder: Path) -> None:
    """To its end, in a process of its own: what is printed and written has to bear it too."""
    odd = [
        "--name",
        "é 🐟 %s {0}",
        "--steps=+4_00",
        "--LR",
        "1e-30",
        "--window",
        "5.0",
        "--eval_episodes",
        "1",
    ]
    command = [
        sys.executable,
        "-W",
        "error::UserWarning",
        "-m",
        "shoal.cli.main",
        *TRAIN[0].split(),
        "--out",
        "a b",
        *odd,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert call(["evaluate", f"a b/{odd[1]}", "--episodes", "1"]).code == 0
    shutil.rmtree(folder / "a b")


# -- saved configs ---------------------------------------------------------------------------------

ODD = (
    None,
    True,
    0,
    -1,
    1.5,
    1e300,
    10**30,
    "",
    "x",
    "ppo",
    "test/identity",
    "nan",
    "\0",
    [],
    [1],
    {},
    {"x": 1},
)


def _places(plain: Any, path: tuple = ()) -> Iterator[tuple]:
    """The way to every value of a JSON tree."""
    inner = (
        plain.items()
        if isinstance(plain, dict)
        else enumerate(plain)
        if isinstance(plain, list)
        else ()
    )
    for key, value in inner:
        yield (*path, key)
        yield from _places(value, (*path, key))


def _odd(draw: Callable) -> Any:
    """An odd value, which may be damaged further."""
    return copy.deepcopy(draw(st.sampled_from(ODD)))


def _damage(draw: Callable, plain: Any) -> None:
    """Take one value away, call it otherwise, put another in its place, or one beside it."""
    path = draw(st.sampled_from(list(_places(plain))))
    holder = functools.reduce(lambda tree, key: tree[key], path[:-1], plain)
    how = draw(st.sampled_from(("gone", "other", "other", "nested", "renamed", "more")))
    value = holder.pop(path[-1])
    if how == "other":
        value = _odd(draw)
    elif how == "nested":
        value = draw(st.sampled_from(([value], {str(path[-1]): value})))
    key = _typo(draw, str(path[-1])) if how == "renamed" else path[-1]
    if isinstance(holder, list):
        holder.insert(path[-1], value)
    elif how != "gone":
        holder[key] = value
    if how == "more" and isinstance(holder, dict):
        holder[draw(st.sampled_from(("extra", "", "agent_7", "lr")))] = _odd(draw)


@st.composite
def damaged(draw: Callable, text: str) -> bytes:
    """A JSON file with one or two values wrong, or with its text cut or garbled."""
    if draw(st.integers(0, 4)):
        plain = json.loads(text)
        for _ in range(draw(st.integers(1, 2))):
            if plain:
                _damage(draw, plain)
        return json.dumps(plain).encode()
    at, blob = draw(st.integers(0, len(text) - 1)), text.encode()
    garbage = draw(
        st.sampled_from((b"", b"\xff", b"\0", b'"', b"}", b"9" * 5000, b"NaN", blob, b"[" * 2000))
    )
    return blob[:at] + garbage + draw(st.sampled_from((b"", blob[at:])))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "file"), [("resume run", runs.CONFIG), ("evaluate run", "policy/policy.json")]
)
@pytest.mark.parametrize("count", quick([60, 250], 1))
def test_saved_configs(command: str, file: str, count: int, folder: Path) -> None:
    """Read back by `resume` and by `evaluate`; whoever refuses one says where it is."""
    path, codes = folder / "run" / file, collections.Counter()
    good = path.read_text()

    @settings(max_examples=count, **MANY)
    @given(damaged(good))
    def each(blob: bytes) -> None:
        path.write_bytes(blob)
        told = well_told(command.split())
        codes[told.code] += 1
        assert told.code == 0 or str(path.parent.relative_to(folder)) in told.err, told.err

    with cut():
        assert well_told(command.split()).code == 0
        each()
    path.write_text(good)
    assert codes.total() >= count and codes[0] > count // 25 and codes[2] > count // 3, codes
