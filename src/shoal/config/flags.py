"""Flags from dataclasses: tyro reads them, and every mistake becomes one sentence."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import io
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar, get_type_hints

from ..errors import ShoalError

T = TypeVar("T")
FLAG = "flag"  # key in a field's metadata: the name of its flag, if not the field's
SHORT = {"--from": "--from-run"}  # `from` is a Python keyword, so the field is called from_run
THEIRS = {  # other libraries' names of options -> ours
    "learning-rate": "lr",
    "actor-lr": "lr",
    "lr-actor": "lr",
    "num-envs": "games",
    "n-envs": "games",
    "n-rollout-threads": "games",
    "num-parallel": "games",
    "batch-size": "batch",
    "minibatch-size": "minibatches",
    "num-minibatches": "minibatches",
    "num-mini-batch": "minibatches",
    "n-minibatches": "minibatches",
    "total-timesteps": "steps",
    "num-env-steps": "steps",
    "total-steps": "steps",
    "num-steps": "window",
    "n-steps": "window",
    "rollout-length": "window",
    "episode-length": "window",
    "t-max": "steps",
    "ent-coef": "entropy",
    "entropy-coef": "entropy",
    "gae-lambda": "lam",
    "td-lambda": "lam",
    "discount": "gamma",
    "buffer-size": "capacity",
    "replay-size": "capacity",
    "learning-starts": "warmup",
    "clip-coef": "clip",
    "clip-range": "clip",
    "clip-param": "clip",
    "update-epochs": "epochs",
    "n-epochs": "epochs",
    "ppo-epoch": "epochs",
    "hidden-size": "hidden",
    "hidden-dim": "hidden",
    "rnn-hidden-dim": "hidden",
    "epsilon-start": "epsilon",
    "epsilon-finish": "epsilon-end",
    "epsilon-anneal-time": "epsilon-steps",
    "target-update-interval": "target-every",
    "target-network-frequency": "target-every",
    "polyak": "tau",
    "eval-freq": "evaluations",
    "n-eval-episodes": "eval-episodes",
    "test-nepisode": "eval-episodes",
    "save-freq": "save-every",
    "save-model-interval": "save-every",
    "num-workers": "workers",
    "num-seeds": "seeds",
    "anneal-lr": "anneal",
    "use-popart": "popart",
    "data-chunk-length": "chunk",
    "value-loss-coef": "value-weight",
    "vf-coef": "value-weight",
    "norm-obs": "normalise-obs",
    "norm-reward": "normalise-reward",
    "standardise-rewards": "normalise-reward",
    "log-dir": "out",
    "run-name": "name",
    "exp-name": "name",
    "wandb-project-name": "project",
    "use-rnn": "torso",
    "recurrent": "torso",
    "share-params": "sharing",
    "share-policy": "sharing",
    "obs-agent-id": "agent-id",
    "obs-last-action": "last-action",
}


def parse(cls: type[T], default: T, args: Sequence[str], prog: str, description: str) -> T:
    """Read flags into a copy of `default`. Nested fields are `--env.x`, unless their prefix is
    omitted."""
    import tyro

    known = dict(flags(cls, default))
    args = list(_spelled(args, known))
    tyro._experimental_options["ansi_codes"] = not os.environ.get("NO_COLOR")
    if "--help" in args or "-h" in args:
        with _flowing_texts():
            tyro.cli(
                cls,
                default=default,
                args=["--help"],
                prog=prog,
                description=description,
                registry=_registry(),
            )
    complaint = io.StringIO()
    try:
        with _flowing_texts(), contextlib.redirect_stderr(complaint):
            return tyro.cli(cls, default=default, args=args, prog=prog, registry=_registry())
    except SystemExit:
        raise ShoalError(_sentence(complaint.getvalue())) from None


def given(cls: type, default: Any, args: Sequence[str]) -> list[str]:
    """Names of the options that flags set, with prefix: `adversary.lr` for `--adversary.lr
    1e-3`."""
    known = dict(flags(cls, default))
    named = [
        re.sub(r"^--(.*\.)?no-", r"--\1", flag) if not takes else flag
        for flag, takes in known.items()
    ]
    options = dict(zip(known, named, strict=True))
    return [
        options[word].removeprefix("--").replace("-", "_")
        for word in _spelled(args, known)
        if word in options
    ]


def flags(cls: type, default: Any, prefix: str = "") -> Iterator[tuple[str, bool]]:
    """Every flag and whether it takes a value."""
    import tyro

    hints = get_type_hints(cls, include_extras=True)
    for field in dataclasses.fields(cls):
        value = getattr(default, field.name)
        name = field.metadata.get(FLAG, field.name).replace("_", "-")
        if dataclasses.is_dataclass(value):
            bare = tyro.conf.OmitArgPrefixes in getattr(hints[field.name], "__metadata__", ())
            yield from flags(type(value), value, prefix if bare else f"{prefix}{name}.")
        elif isinstance(value, bool):
            yield f"--{prefix}{name}", False
            yield f"--{prefix}no-{name}", False
        else:
            yield f"--{prefix}{name}", True


def _spelled(args: Sequence[str], known: dict[str, bool]) -> Iterator[str]:
    """Spell every flag as declared (`--env.n` for `--env.N`, `-` for `_`); refuse missing
    values."""
    folded = {_fold(flag): flag for flag in [*known, "--help"]}
    folded |= {short: flag for short, flag in SHORT.items() if flag in known}
    rest = list(args)
    while rest:
        token = rest.pop(0)
        if not _is_flag(token):
            raise ShoalError(f"{token!r} is one word too many: options begin with --")
        flag, equals, value = token.partition("=")
        if _fold(flag) not in folded:
            raise ShoalError(f"there is no option {flag}{_hint(_fold(flag), known)}")
        flag = flag if flag in known else folded[_fold(flag)]
        yield flag
        if known.get(flag):
            if not equals and (not rest or _is_flag(rest[0])):
                raise ShoalError(f"{flag} needs a value")
            yield value if equals else rest.pop(0)
        elif equals:
            raise ShoalError(f"{flag} takes no value: write {flag} or its --no- form")


def _hint(flag: str, known: Iterable[str]) -> str:
    """Suggest a flag: our name for another library's, the same option with a prefix, or a similar
    one."""
    ours = f"--{THEIRS.get(flag.removeprefix('--'), '')}"
    if ours in known:
        return f": what other libraries call so is {ours} here"
    elsewhere = [other for other in known if other.rpartition(".")[2] == flag.removeprefix("--")]
    near = elsewhere or difflib.get_close_matches(flag, list(known), 1, cutoff=0.5)
    return f" (did you mean {' or '.join(near)}?)" if near else ": --help shows all"


def _is_flag(token: str) -> bool:
    return token == "-h" or token.startswith("--")


def _fold(flag: str) -> str:
    return "--help" if flag == "-h" else flag.replace("_", "-").lower()


@contextlib.contextmanager
def _flowing_texts() -> Iterator[None]:
    """Join the lines of each field's docstring: tyro takes their indentation for line breaks."""
    from tyro import _docstrings

    texts = _docstrings.parse_docstring_from_object

    def joined(thing: object) -> dict[str, str]:
        return {name: " ".join(text.split()) for name, text in texts(thing).items()}

    _docstrings.parse_docstring_from_object = joined
    try:
        yield
    finally:
        _docstrings.parse_docstring_from_object = texts


def _registry() -> Any:
    """tyro's registry, extended so that whole numbers may be written 2e6."""
    import tyro

    registry = tyro.constructors.ConstructorRegistry()
    registry.primitive_rule(_whole_number)
    return registry


def _whole_number(info: Any) -> Any:
    import tyro

    if info.type is not int:
        return None
    return tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar="INT",
        instance_from_str=lambda words: whole(words[0]),
        is_instance=lambda value: isinstance(value, int) and not isinstance(value, bool),
        str_from_instance=lambda value: [str(value)],
    )


def whole(word: str) -> int:
    """25, 2e6 or 1_000_000 as an int."""
    try:
        value = float(word)
        if value == int(value):
            return int(word) if word.lstrip("+-").replace("_", "").isdigit() else int(value)
    except (ValueError, OverflowError):
        pass
    raise ValueError(f"{word!r} is not a whole number")


def _sentence(box: str) -> str:
    """The first paragraph inside tyro's error box, on one line."""
    box = re.sub(r"\x1b\[[0-9;]*m", "", box)
    lines = [line.strip("│ ") for line in box.splitlines() if not line.startswith(("╭", "╰"))]
    words: list[str] = []
    for line in lines:
        if set(line) <= {"─"}:
            break
        words.append(line)
    text = " ".join(words).rstrip(".").replace(". ", ": ")
    return text[:1].lower() + text[1:] or "the options could not be read: --help shows them"
