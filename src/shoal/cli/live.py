"""`shoal live`: a page in the browser over run folders, or the same page as files."""

from __future__ import annotations

import importlib.util
import socket
from dataclasses import dataclass
from pathlib import Path

from ..config.flags import parse
from ..errors import ShoalError
from .words import Trusting

TITLE = (
    "A page in the browser over all runs in a folder, while they train: shoal live runs/. With"
    " --export site/, the same page as files that open without a server"
)
PORTS = 20  # ports that are tried, from the first on, where none is said


@dataclass(frozen=True)
class Live:
    """Where the page is served."""

    host: str = "127.0.0.1"
    """Address to listen on; any other than this machine's own needs the token for everything."""
    port: int = 0
    """Port; 0 takes 8765, or the next that is free."""
    token: str = ""
    """Token to ask for; empty makes one."""
    export: str = ""
    """Folder to write the page to, instead of serving it."""

    def __post_init__(self) -> None:
        if not 0 <= self.port < 2**16:
            raise ShoalError(f"port must be between 0 and 65535, not {self.port}")
        if self.token and (len(self.token) < 16 or not self.token.isascii()):
            raise ShoalError("token must be 16 plain characters or more: leave it out to get one")


def live(args: list[str], trust: Trusting) -> int:
    """Serve or export the page."""
    place = "runs"
    if args and not args[0].startswith("-"):
        place, *args = args
    options = parse(Live, Live(), args, "shoal live [folder]", TITLE)
    missing = [name for name in ("starlette", "uvicorn") if not importlib.util.find_spec(name)]
    if missing and not options.export:
        raise ShoalError("shoal live needs starlette and uvicorn: pip install 'shoal[live]'")
    root = Path(place)
    if not root.is_dir():
        raise ShoalError(f"there is no folder {place}: say the folder that runs are in")
    from ..live.index import Index

    index = Index(root)
    index.refresh()
    if options.export:
        from ..live.export import export

        print(f"wrote {export(index, Path(options.export), trust.files) / 'index.html'}")
        return 0
    from ..live.guard import Rules
    from ..live.server import serve

    port = options.port or _free(options.host)
    rules = Rules(options.host, port=port, **({"token": options.token} if options.token else {}))
    host = f"[{options.host}]" if ":" in options.host else options.host
    print(f"{len(index.runs):,} runs in {root}: http://{host}:{port}/?token={rules.token}")
    if rules.local:
        print("without the token the page shows everything and changes nothing; Ctrl-C ends it")
    else:
        print("others can reach this address, unencrypted: give the token to nobody else")
    serve(index, rules, trust.files)
    return 0


def _free(host: str, first: int = 8765) -> int:
    """The first free port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    why = ""
    for port in range(first, first + PORTS):
        with socket.socket(family) as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                one.bind((host, port))
                return port
            except OSError as error:
                why = error.strerror or str(error)
    raise ShoalError(f"no port of {host} can be listened on ({why}): choose another with --port")
