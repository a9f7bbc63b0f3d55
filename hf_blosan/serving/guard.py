"""Checks before the application: token, size of the request, time to receive it."""

from __future__ import annotations

import asyncio
import hmac
import time

from fastapi.responses import JSONResponse
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .metrics import Metrics

OPEN = ("/health",)
"""Paths that need no token."""

CLIENT_GONE = 499
"""Status of a request whose client disconnected; used only in the metrics."""

NOT_COUNTED = ("/health", "/metrics")
"""Paths whose requests are not counted in the metrics."""

TOO_MANY = "too_many_connections"
"""Key in the state of a scope whose connection exceeds the limit."""


def refusal(status: int, sentence: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """The response to a refused request."""
    return JSONResponse({"error": sentence}, status, headers)


class Guard:
    """ASGI middleware: reads the whole request before the application sees it, refuses bad ones, counts all of them.

    Args:
        app: the application.
        token: required as ``Authorization: Bearer TOKEN``; ``None`` requires none.
        max_bytes: maximum size; larger requests are read to the end so that the client can read the refusal.
        seconds: time limit for sending a request.
        metrics: counts the requests.
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
        """Refuse a request or pass it to the application."""
        body = b""
        if scope.get("state", {}).get(TOO_MANY):
            headers = {"Connection": "close", "Retry-After": "1"}
            refused = refusal(503, "the server has too many connections; send this request again later", headers)
        elif not self.has_token(scope):
            challenge = {"WWW-Authenticate": "Bearer"}
            refused = refusal(401, "the token is missing or wrong; send Authorization: Bearer TOKEN", challenge)
        else:
            try:
                body, refused = await asyncio.wait_for(self.read(Request(scope, receive)), self.seconds), None
            except asyncio.TimeoutError:
                refused = refusal(408, f"the request did not arrive within {self.seconds:g} seconds; send it again")
            except ClientDisconnect:
                return
        if len(body) > self.max_bytes:
            refused = refusal(413, f"the request has more than {self.max_bytes} bytes; send fewer texts at once")
        if refused:
            return await refused(scope, receive, send)
        messages = [{"type": "http.request", "body": body, "more_body": False}]

        async def read_again() -> Message:
            return messages.pop() if messages else await receive()

        await self.app(scope, read_again, send)

    async def read(self, request: Request) -> bytes:
        """The body, cut after ``max_bytes + 1``."""
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            del body[self.max_bytes + 1 :]
        return bytes(body)

    def has_token(self, scope: Scope) -> bool:
        """Whether the request has the token, or needs none."""
        if self.token is None or scope["path"] in OPEN:
            return True
        scheme, _, token = Headers(scope=scope).get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(token.strip().encode("latin-1"), self.token)
