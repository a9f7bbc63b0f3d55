"""Limits on the number of connections and on their idle time."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

from ..errors import InputError
from .guard import TOO_MANY

BACKLOG = 256
"""Length of the system's queue of connections waiting to be accepted."""
SPARE = 64
"""Connections beyond the limit, on which only the paths in ``guard.NOT_COUNTED`` are answered."""
OTHER_FILES = 128
"""File descriptors of the process that are not connections."""


def make_protocol(limit: int, seconds: float) -> type[asyncio.Protocol]:
    """uvicorn's HTTP protocol with timeouts and at most ``limit + SPARE`` connections; further ones are closed.

    uvicorn itself waits forever for a request that never arrives, or for a client that does not read the response.
    Every path is answered on ``limit`` connections. The head of a request may take ``seconds``; the request, its
    computation and the response together, three times as long.
    """

    class Connection(AutoHTTPProtocol):
        watch: asyncio.TimerHandle | None = None
        stage = "head"  # of a request; then "rest"; "end" once it is answered

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            if len(self.connections) > limit:
                self.app_state = {**self.app_state, TOO_MANY: True}
            if len(self.connections) > limit + SPARE:
                transport.abort()
            else:
                self.enter("head", seconds)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.cycle is not None and not self.cycle.response_complete:
                if self.stage != "rest":
                    self.enter("rest", 3 * seconds)
            elif self.stage == "end":
                self.enter("head", seconds)

        def on_response_complete(self) -> None:
            self.enter("end", seconds + self.timeout_keep_alive)
            super().on_response_complete()
            if not self.cycle.response_complete:  # the next request has already arrived
                self.enter("rest", 3 * seconds)

        def connection_lost(self, exc: Exception | None) -> None:
            if self.watch:
                self.watch.cancel()
            super().connection_lost(exc)

        def enter(self, stage: str, limit: float) -> None:
            """Begin a stage; the connection is closed if it is not over within ``limit`` seconds."""
            if self.watch:
                self.watch.cancel()
            self.stage, self.watch = stage, self.loop.call_later(limit, self.transport.abort)

    return Connection


def allow_files(max_connections: int) -> None:
    """Raise the limit on open files for that many connections. Raises InputError if the system does not allow it."""
    try:
        import resource
    except ImportError:  # Windows, which has no such limit
        return
    needed = max_connections + SPARE + BACKLOG + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise InputError(
            f"--max_connections is {max_connections}, for which {needed} files must be open at once, but the system "
            f"allows {hard}; lower it, or raise the limit (ulimit -n)"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
