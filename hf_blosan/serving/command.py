"""``hf-blosan serve``."""

from __future__ import annotations

import ipaddress
import logging
import math
import os
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..errors import InputError, require
from ..hub.saved import load
from .arguments import TOKEN_VARIABLE, ServeArguments

if TYPE_CHECKING:
    import uvicorn
    from fastapi import FastAPI

logger = logging.getLogger(__name__)


def serve(arguments: ServeArguments) -> None:
    """Serve a model until the process is interrupted or terminated.

    Accepted requests are answered first. Then the signal has its usual effect: the status is 130 after Ctrl-C, and 143
    after SIGTERM.

    Raises:
        InputError: the model, the token or the address cannot be used, or a package is missing.
    """
    options = {"cpu": arguments.cpu, "trust_remote_code": arguments.trust_remote_code}
    run(arguments, lambda: load(arguments.model, arguments.task, **options))


def run(arguments: ServeArguments, load_model: Callable[[], tuple[PreTrainedModel, PreTrainedTokenizerBase]]) -> None:
    """Serve the model and the tokenizer that a function returns, as :func:`serve`."""
    require("the server needs", "serve", "fastapi", "orjson", "prometheus_client", "uvicorn")
    import uvicorn

    from .app import make_app
    from .connections import allow_files

    token = read_token(arguments.token_file)
    allow_files(arguments.max_connections)
    if token is None and not is_loopback(arguments.host):
        logger.warning("anyone who can reach %s can use this server; --token_file requires a token", arguments.host)
    with bound_socket(arguments.host, arguments.port) as listener:
        config = configure(make_app(*load_model(), arguments, token=token), arguments)
        listener.listen(config.backlog)
        host, port = listener.getsockname()[:2]
        print(f"http://{f'[{host}]' if ':' in host else host}:{port} (Ctrl-C to stop)", flush=True)
        uvicorn.Server(config).run(sockets=[listener])


def configure(app: FastAPI, arguments: ServeArguments) -> uvicorn.Config:
    """uvicorn's configuration: HTTP only, limits on connections, no access log."""
    import uvicorn

    from .connections import BACKLOG, make_protocol

    return uvicorn.Config(
        app,
        http=make_protocol(arguments.max_connections, arguments.timeout),
        backlog=BACKLOG,
        ws="none",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        # As long as a request may take: once the timeout for sending it, and once for answering it.
        timeout_graceful_shutdown=math.ceil(2 * arguments.timeout) + 1,
    )


def read_token(path: str | None) -> str | None:
    """The token in a file, or in the environment; raises InputError if the file cannot be read, or the token has
    characters that are invalid in a header.
    """
    place, token = TOKEN_VARIABLE, os.environ.get(TOKEN_VARIABLE)
    if path is not None:
        try:
            place, token = path, Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"--token_file {path} cannot be read ({error}); give a text file") from error
    if token is not None and not re.fullmatch(r"[!-~]+", token := token.strip()):
        raise InputError(f"the token in {place} is empty or has spaces or special characters; give another one")
    return token


def is_loopback(host: str) -> bool:
    """Whether the address can be reached only from this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def bound_socket(host: str, port: int) -> socket.socket:
    """A socket bound to the address, which does not listen yet; raises InputError if the address cannot be used."""
    # asyncio sets TCP_NODELAY only if the protocol is given; without it, answers wait 40 ms for acknowledgements.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise InputError(f"cannot listen on {host}:{port} ({error}); give another --host or --port") from error
    return listener
