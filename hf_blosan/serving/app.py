"""The web application: one model, answering ``POST /`` in the JSON of the Hub's inference API."""

import asyncio
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from fastapi.security import HTTPBearer
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from .. import __version__
from ..inference.batches import Batches, SentenceVectors
from ..tasks.kinds import kind_of
from .arguments import ServeArguments
from .guard import CLIENT_GONE, Guard, refusal
from .queue import Queue
from .schemas import ANSWERS, Error, mistake, request_model, texts_of

STATUSES = {
    400: "The request is not JSON in UTF-8.",
    401: "The token is missing or wrong.",
    408: "The request did not arrive in time.",
    413: "The request is too large, has too many texts, or a text has too many tokens.",
    422: "The request is not as described here.",
    429: "The queue is full. The header Retry-After has the seconds to wait before retrying.",
    500: "The model failed.",
    503: "The server has too many connections.",
    504: "The answer took too long.",
}
"""The other responses of ``POST /``, each with one sentence as ``{"error": ...}``."""

SENTENCES = {
    400: "the request is not JSON in UTF-8; correct it",
    404: "there is nothing at this address; predictions are at /",
    405: "this address does not support this method; send POST / for predictions",
}
"""These replace the framework's messages."""


def make_app(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, arguments: ServeArguments, *, token: str | None = None
) -> FastAPI:
    """The application around a model.

    Args:
        model, tokenizer: from :func:`hf_blosan.hub.saved.load`.
        arguments: limits of requests and batches.
        token: required as ``Authorization: Bearer TOKEN``; ``None`` if requests need none.
    """
    kind = kind_of(model.config) if "For" in type(model).__name__ else SentenceVectors(model.config)
    pairs = kind.task.num_sentences == 2
    task = ANSWERS[kind.pipeline]
    batches = Batches(model, tokenizer, kind, batch_size=arguments.batch_size, max_length=arguments.max_length)
    queue = Queue(batches, size=arguments.queue_size, batch_tokens=arguments.batch_tokens)
    batches([("a", "b")[: 1 + pairs]])  # the first one takes longest

    @asynccontextmanager
    async def lifespan(app: FastAPI):
        queue.start()
        yield
        queue.close()

    app = FastAPI(
        title="hf_blosan",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,  # its scripts would come from another host
        redoc_url=None,
        dependencies=[Depends(HTTPBearer(auto_error=False))] if token is not None else [],  # for the description
    )
    app.state.queue = queue
    guard = {"token": token, "max_bytes": arguments.max_request_bytes, "seconds": arguments.timeout}
    app.add_middleware(Guard, metrics=queue.metrics, **guard)
    body_model = request_model(task, pairs=pairs, max_texts=arguments.max_texts)
    errors = {status: {"model": Error, "description": text} for status, text in STATUSES.items()}

    @app.post("/", response_model=task.answer, responses=errors, summary=task.name)
    async def predict(request: Request, body: body_model) -> Response:
        texts = texts_of(body.inputs)
        if len(texts) > arguments.max_texts:
            raise HTTPException(
                413, f"the request has {len(texts)} texts, {arguments.max_texts} are allowed; send fewer at once"
            )
        answer = queue.answer(texts, truncate=task.truncates(body))
        outputs = await wait_for(answer, request, arguments.timeout)
        if outputs is None:
            return Response(status_code=CLIENT_GONE)
        return Response(task.encode(model.config, body, outputs), media_type="application/json")

    @app.get("/health", responses={503: errors[500] | {"description": "A batch takes too long."}})
    async def health() -> dict[str, str]:
        if queue.is_stuck(arguments.timeout):
            raise HTTPException(503, f"a batch has been computed for more than {arguments.timeout:g} seconds")
        return {"status": "ok"}

    @app.get("/metrics", response_class=PlainTextResponse, responses={401: errors[401]} if token is not None else {})
    async def metrics() -> Response:
        return Response(generate_latest(queue.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        return refusal(422, mistake(error.errors(), pairs=pairs))

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> JSONResponse:
        return refusal(error.status_code, SENTENCES.get(error.status_code, error.detail), error.headers)

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> JSONResponse:
        return refusal(500, "the server failed; see its log")

    return app


async def wait_for(answer: Any, request: Request, seconds: float) -> np.ndarray | None:
    """The result of a coroutine; if the client disconnects, the coroutine is cancelled and the result is ``None``.
    Raises HTTPException 504 after `seconds`.
    """
    answer, gone = asyncio.ensure_future(answer), asyncio.ensure_future(disconnection(request))
    try:
        done, _ = await asyncio.wait({answer, gone}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if answer in done:
            return answer.result()
        if not done:
            raise HTTPException(504, f"there was no answer within {seconds:g} seconds; send fewer texts, or try later")
        return None
    finally:
        answer.cancel()
        gone.cancel()
        await asyncio.wait({answer, gone})  # the queue is freed before the client is answered


async def disconnection(request: Request) -> None:
    """Returns when the client has closed the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
