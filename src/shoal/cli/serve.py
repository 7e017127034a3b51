"""`shoal serve`: a policy behind HTTP and WebSocket."""

from __future__ import annotations

import gc
import importlib
import os
import secrets
import signal
import socket
from dataclasses import dataclass

from .. import plugins
from ..access import is_local
from ..config.flags import parse
from ..devices import compute_in_the_calling_thread
from ..errors import ShoalError
from ..store.player import load
from .words import Trusting, first

TOKEN = "SHOAL_TOKEN"  # variable of the environment
NEEDED = ("starlette", "uvicorn", "websockets", "prometheus_client")
TITLE = (
    "Serve a run's policy: POST /act with observations by agent name answers actions; a WebSocket"
    " at the same place keeps a session. For example: shoal serve runs/my-run --port 9000. Without"
    f" --token, {TOKEN} of the environment is taken; whoever serves to other machines needs one"
)


@dataclass(frozen=True)
class Serving:
    """What to serve, and to whom."""

    host: str = "127.0.0.1"
    """Address to listen on; one that others can reach needs a token."""
    port: int = 8000
    """Port to listen on; 0 takes a free one."""
    token: str = ""
    """What clients must send as bearer token; empty asks for none on this machine, and makes one up
    elsewhere."""
    best: bool = False
    """The policy that was evaluated best instead of the last one."""
    team: str = ""
    """One team alone; empty for all."""
    sampled: bool = False
    """Sample actions instead of taking the most likely ones."""
    seed: int = 0
    """Decides what is drawn."""
    games: int = 512
    """Games in a batch, and in one request, at most."""
    sessions: int = 1000
    """Sessions and WebSockets that may be open."""
    idle: float = 600.0
    """Seconds after which a session that is not used is forgotten."""
    body: int = 1_000_000
    """Bytes that a request may have."""

    def __post_init__(self) -> None:
        if not 0 <= self.port < 2**16 or not 0 <= self.seed < 2**32:
            raise ShoalError("port must be 0 to 65535, and seed between 0 and 2**32")
        if not 1 <= self.games <= 65_536 or self.sessions < 1 or self.body < 1:
            raise ShoalError("games must be 1 to 65536, sessions and body at least 1")
        if not self.idle > 0:  # also rejects NaN
            raise ShoalError(f"idle must be greater than 0, not {self.idle}")


def serve(args: list[str], trust: Trusting) -> int:
    """Serve a policy until a signal ends it."""
    run, args = first(args, "say which run to serve: shoal serve <run>")
    options = parse(Serving, Serving(), args, "shoal serve <run>", TITLE)
    for name in NEEDED:  # before anything is read
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise plugins.missing(name, error) from None
    import uvicorn

    from ..serve.app import Limits, Server
    from ..serve.policy import Policies

    compute_in_the_calling_thread()
    player = load(run, best=options.best, trust=trust.files.everything)
    player = player.team(options.team) if options.team else player
    token = options.token or os.environ.get(TOKEN, "")
    if not token and not is_local(options.host):
        token = secrets.token_urlsafe(24)
        print(f"token: {token}", flush=True)
    limits = Limits(options.body, sessions=options.sessions, idle=options.idle)
    with _listening(options) as listening:
        policies = Policies(player, not options.sampled, options.games, options.seed)
        print(f"compiling {player!r} for {', '.join(map(str, policies.sizes))} games", flush=True)
        policies.warm()
        app = Server(policies, limits, repr(player)).app(options.host, token)
        config = uvicorn.Config(
            app,
            log_level="warning",
            ws_max_size=options.body,
            timeout_graceful_shutdown=5,
            server_header=False,
        )
        host, port = listening.getsockname()[:2]
        place = f"[{host}]" if ":" in host else host
        print(f"serving on http://{place}:{port}; Ctrl-C ends it", flush=True)
        gc.collect()
        gc.freeze()  # to look through all that JAX has made would hold up everybody for 80 ms
        for number in (signal.SIGINT, signal.SIGTERM):  # uvicorn raises them again when it ended
            signal.signal(number, lambda *_: None)
        uvicorn.Server(config).run(sockets=[listening])
    print("stopped", flush=True)
    return 0


def _listening(options: Serving) -> socket.socket:
    """A socket on the address; refuses one that is taken."""
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    try:
        return socket.create_server((options.host, options.port), family=family, backlog=512)
    except OSError as error:
        raise ShoalError(
            f"{options.host}:{options.port} cannot be listened on ({error.strerror}): choose"
            " another host or port"
        ) from None
