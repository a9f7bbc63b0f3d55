"""What stands before the application: the token, the size of requests, the time they take to arrive."""

from __future__ import annotations

import asyncio
import hmac
import time

from fastapi.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .metrics import Metrics

OPEN = ("/health",)
"""Paths that need no token."""

CLIENT_GONE = 499
"""Status of a request whose client did not wait; nobody reads it but the metrics."""

NOT_COUNTED = ("/health", "/metrics")
"""Paths whose requests are no requests for predictions."""

TOO_MANY = "too_many_connections"
"""Name in the state of a scope whose connection is beyond the limit."""


def refusal(status: int, sentence: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """The answer to a request that cannot be answered."""
    return JSONResponse({"error": sentence}, status, headers)


class Guard:
    """Reads the whole request before the application sees it, answers those it refuses, and counts all of them.

    Args:
        app: the application.
        token: what a request must have as ``Authorization: Bearer TOKEN``; ``None`` if it needs none.
        max_bytes: of a request; more is read and dropped, so that the client can read the refusal.
        seconds: for sending a request.
        metrics: where requests are counted.
    """

    def __init__(self, app: ASGIApp, *, token: str | None, max_bytes: int, seconds: float, metrics: Metrics):
        self.app, self.max_bytes, self.seconds, self.metrics = app, max_bytes, seconds, metrics
        self.token = token.encode() if token is not None else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in NOT_COUNTED and self.has_token(scope):
            return await self.app(scope, receive, send)
        began, status = time.monotonic(), str(CLIENT_GONE)

        async def count_and_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = str(message["status"])
            await send(message)

        try:
            await self.answer(scope, receive, count_and_send)
        except Exception:
            status = "500"
            raise
        finally:
            self.metrics.requests.labels(status).inc()
            self.metrics.seconds.observe(time.monotonic() - began)

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or have the application answer it."""
        refused = body = None
        if scope.get("state", {}).get(TOO_MANY):
            headers = {"Connection": "close", "Retry-After": "1"}
            refused = refusal(503, "the server has too many connections; send this request again later", headers)
        elif not self.has_token(scope):
            challenge = {"WWW-Authenticate": "Bearer"}
            refused = refusal(401, "the token is missing or wrong; send Authorization: Bearer TOKEN", challenge)
        else:
            try:
                body = await asyncio.wait_for(self.read(receive), self.seconds)
            except asyncio.TimeoutError:
                refused = refusal(408, f"the request did not arrive within {self.seconds:g} seconds; send it again")
            else:
                if body is None:
                    return
                if len(body) > self.max_bytes:
                    sentence = f"the request has more than {self.max_bytes} bytes; send fewer texts at once"
                    refused = refusal(413, sentence)
        if refused:
            return await refused(scope, receive, send)
        messages = [{"type": "http.request", "body": body, "more_body": False}]

        async def read_again() -> Message:
            return messages.pop() if messages else await receive()

        await self.app(scope, read_again, send)

    async def read(self, receive: Receive) -> bytes | None:
        """The whole request; of one that is too large, a byte more than is allowed; ``None`` if the client is gone."""
        body, more = bytearray(), True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            more = message.get("more_body", False)
            body += message.get("body", b"")
            del body[self.max_bytes + 1 :]
        return bytes(body)

    def has_token(self, scope: Scope) -> bool:
        """Whether the request has the token, or needs none."""
        if self.token is None or scope["path"] in OPEN:
            return True
        sent = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        scheme, _, token = sent.partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(token.strip(), self.token)
