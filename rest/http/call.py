"""One request that was let in, and how it is answered."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final, Protocol
from urllib.parse import quote, unquote

import trio
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from ottla.client.errors import ClientError
from ottla.rest.access import Access, Caller
from ottla.rest.cluster import Cluster
from ottla.rest.consumers.consumers import Consumers
from ottla.rest.errors import RestError, of_kafka
from ottla.rest.groups import Groups
from ottla.rest.limits import MAX_ARRIVAL_SECONDS, MAX_BODY_BYTES
from ottla.rest.producing import Producing
from ottla.rest.schemas import SchemaStore
from ottla.rest.work import Held, Work
from ottla.rest.worked_time import WorkedTime, counted

logger = logging.getLogger(__name__)

V2: Final = "application/vnd.kafka.v2+json"
JSON: Final = "application/json"
_HEADERS: Final = {"x-content-type-options": "nosniff", "cache-control": "no-store"}
_MAX_ACCEPTED: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """The parts of the proxy that the handlers use."""

    cluster: Cluster
    producing: Producing
    consumers: Consumers
    groups: Groups
    work: Work
    access: Access
    schemas: SchemaStore
    knows_host: Callable[[str], bool]
    now_ms: Callable[[], int]


class Answer(Protocol):
    """An ASGI application that answers one request."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...


@dataclass(frozen=True, slots=True)
class Call:
    """A request. `media_type` is that of the answer."""

    proxy: Proxy
    caller: Caller
    request: Request
    media_type: str
    worked: WorkedTime = field(default_factory=WorkedTime)

    def part(self, name: str) -> str:
        """A part of the address, decoded."""
        return unquote(str(self.request.path_params[name]), errors="replace")

    async def body(self, held: Held) -> bytes:
        """The whole body. Raises RestError 408, 413 or 429."""
        parts = []
        with trio.move_on_after(MAX_ARRIVAL_SECONDS) as patience:
            async with aclosing(self.request.stream()) as stream:
                async for part in stream:
                    if held.size_bytes + len(part) > MAX_BODY_BYTES:
                        raise RestError(413, f"A request may have {MAX_BODY_BYTES} bytes")
                    held.change(len(part))
                    parts.append(part)
        if patience.cancelled_caught:
            raise RestError(408, f"The request did not come within {MAX_ARRIVAL_SECONDS:g} seconds")
        return b"".join(parts)

    def content_type(self) -> str:
        """The body's media type, without parameters."""
        return self.request.headers.get("content-type", "").partition(";")[0].strip().lower()


Handler = Callable[[Call], Awaitable[Any]]
"""Returns a value that is sent as JSON, or an Answer of its own."""


def quoted(name: str) -> str:
    """A name as a part of an address, which `Call.part` decodes."""
    return quote(name, safe="")


def route(proxy: Proxy, path: str, methods: Mapping[str, Handler], produced: tuple[str, ...]) -> Route:
    """One address. It answers in the first of the media types that the client accepts."""

    async def endpoint(request: Request) -> Any:
        media_type = produced[0]
        try:
            media_type = _accepted(request.headers.get("accept", ""), produced)
            caller = await _let_in(proxy, request)
            handler = methods["GET" if request.method == "HEAD" else request.method]
            call = Call(proxy, caller, request, media_type)
            answer = await counted(call.worked, _handled(handler, call))
            await caller.has_worked(call.worked.take())
        except RestError as error:
            return error_answer(error, media_type)
        except ClientDisconnect:
            return error_answer(RestError(400, "The request ended early"), media_type)
        except Exception:
            logger.exception("a request to the REST proxy has failed")
            return error_answer(RestError(500, "HTTP 500 Internal Server Error"), media_type)
        return answer if callable(answer) else json_answer(answer, 200, media_type)

    return Route(path, endpoint, methods=list(methods))


async def _handled(handler: Handler, call: Call) -> Any:
    """The answer, or the error response; the time of a refused request counts, too."""
    try:
        return await handler(call)
    except RestError as error:
        return error_answer(error, call.media_type)
    except ClientError as error:
        return error_answer(of_kafka(error), call.media_type)


async def _let_in(proxy: Proxy, request: Request) -> Caller:
    if not proxy.knows_host(request.headers.get("host", "")):
        raise RestError(421, "The REST proxy is not known by this name")
    headers = {name.lower(): value for name, value in request.headers.items()}
    certificate = request.scope.get("extensions", {}).get("tls", {}).get("client_cert_name")
    return await proxy.access.caller(headers, "" if request.client is None else request.client.host, certificate)


def json_answer(content: Any, status: int, media_type: str, headers: Mapping[str, str] | None = None) -> Response:
    """An answer in JSON."""
    data = json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")
    return Response(data, status, {**_HEADERS, **(headers or {})}, media_type)


def error_answer(error: RestError, media_type: str) -> Response:
    """An answer with an error code."""
    content = {"error_code": error.code, "message": error.message}
    return json_answer(content, error.status, media_type, error.headers)


def _accepted(accept: str, produced: tuple[str, ...]) -> str:
    wanted = [part.partition(";")[0].strip().lower() for part in accept.split(",")[:_MAX_ACCEPTED]]
    for name in produced:
        if name in wanted:
            return name
    if accept.strip() == "" or "*/*" in wanted or "application/*" in wanted:
        return produced[0]
    raise RestError(406, "HTTP 406 Not Acceptable")
