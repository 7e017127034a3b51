"""Where run folders are: on this machine, or elsewhere by a URL that fsspec knows.

A folder elsewhere is written in a staging folder of this machine first, whose path says the URL.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..devices import cache
from ..errors import ShoalError

MANIFEST = "manifest.json"  # lists what was uploaded
STAGING = "SHOAL_STAGING"  # variable that names another staging folder
URL = re.compile(r"[a-z][a-z0-9+.-]*://.+")
NOT_FILES = ("ray", "http", "https")  # addresses that runs cannot be written to
ROOTED = ("file", "local")  # protocols whose paths begin with a slash


def is_url(word: str) -> bool:
    """Whether a word is the URL of a folder elsewhere."""
    return URL.fullmatch(word) is not None and word.partition(":")[0] not in NOT_FILES


def local(out: str) -> Path:
    """The folder on this machine that stands for a path or a URL."""
    if not is_url(out):
        return Path(out)
    scheme, _, rest = out.partition("://")
    parts = [part for part in rest.split("/") if part]
    if not parts or any(part in (".", "..") for part in parts):
        raise ShoalError(f"{out!r} is no place for a run: write it as s3://bucket/runs")
    return _staging() / scheme / Path(*parts)


def url_of(path: Path) -> str:
    """The URL that a folder is mirrored to; empty for a folder of this machine alone."""
    if not (staging := _staged()):
        return ""
    try:
        scheme, *parts = path.absolute().relative_to(staging).parts
    except ValueError:
        return ""
    return f"{scheme}://{'/' * (scheme in ROOTED)}{'/'.join(parts)}"


def word_of(path: Path) -> str:
    """How a command names a folder: by its URL, if it has one."""
    return url_of(path) or str(path)


def _staging() -> Path:
    """The staging folder, which must be there for runs elsewhere."""
    staging = _staged()
    if not staging:
        raise ShoalError(f"there is no folder to write runs to first: set {STAGING} to one")
    return staging


def _staged() -> Path | None:
    """The staging folder; None for a user without a home who names none."""
    own = os.environ.get(STAGING)
    if own:
        return Path(own).absolute()
    home = cache()
    return home / "staging" if home else None


def opened(url: str) -> tuple[Any, str]:
    """The file system of a URL, and the path in it."""
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise ShoalError(f"{url} needs fsspec: pip install 'shoal[remote]'") from None
    try:
        return url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise ShoalError(f"{url} cannot be used: {str(error).rstrip('.')}") from None


@contextlib.contextmanager
def errors_name(url: str) -> Iterator[None]:
    """Name the URL in errors of its file system."""
    try:
        yield
    except ShoalError:
        raise
    except Exception as error:  # every file system has its own
        why = str(error).strip().splitlines()
        raise ShoalError(
            f"{url} cannot be reached ({why[0] if why else type(error).__name__}): check the"
            " address and your access to it"
        ) from None


def exists(url: str) -> bool:
    """Whether there is a run or a group of runs at a URL."""
    fs, place = opened(url)
    with errors_name(url):
        return bool(fs.exists(f"{place}/{MANIFEST}"))
