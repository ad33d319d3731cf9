"""The application that a web server runs (ASGI).

It reads the address as it was sent: a subject may have a slash in it, written `%2F`, which frameworks decode before
they look for the handler.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

import trio

from ottla.registry.errors import RegistryError, forwarding_failed, leader_unknown, too_large, unprocessable
from ottla.registry.formats import InvalidSchemaError
from ottla.registry.formats.json_text import check_depth, strict_json
from ottla.registry.http.access import Access, Everybody, RefusedError
from ottla.registry.http.call import Call, Text
from ottla.registry.http.forwarding import (
    HEADER,
    Answer,
    OpenStream,
    UnreachableWriterError,
    forward,
    open_plain,
    passed_on,
)
from ottla.registry.http.routes import find
from ottla.registry.limits import MAX_BODY_BYTES, MAX_MESSAGES
from ottla.registry.names import DEFAULT_CONTEXT, context_name
from ottla.registry.registry import ForwardError, Registry
from ottla.registry.requests import Query

logger = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_V1: Final = "application/vnd.schemaregistry.v1+json"
_TYPES: Final = (_V1, "application/vnd.schemaregistry+json", "application/json")
_SENT_TYPES: Final = frozenset({*_TYPES, "application/octet-stream"})
_SMALL_BYTES: Final = 64 * 1024
_MAX_QUERY_FIELDS: Final = 50
_FORWARD_SECONDS: Final = 20.0
_FORWARD_PAUSE_SECONDS: Final = 0.2
_HEADERS: Final = [(b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store")]


class RegistryApp:
    """The registry's addresses, for callers that `access` lets in and that ask by a name that `knows_host` knows."""

    def __init__(
        self,
        registry: Registry,
        access: Access | None = None,
        knows_host: Callable[[str], bool] = lambda _: True,
        open_stream: OpenStream = open_plain,
    ) -> None:
        self._registry = registry
        self._access: Access = access or Everybody()
        self._knows_host = knows_host
        self._open_stream = open_stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
        elif scope["type"] == "http":
            await self._serve(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        more: list[tuple[bytes, bytes]] = []
        media_type = _V1
        try:
            media_type = _media_type(headers.get("accept", ""))
            status, answer = 200, await self._answer(scope, headers, receive)
        except RefusedError as error:
            status, answer = error.status, _error(error)
            more = [(name.encode(), value.encode()) for name, value in error.headers.items()]
        except RegistryError as error:
            status, answer = error.status, _error(error)
        except Exception:
            logger.exception("a request to the schema registry has failed")
            status, answer = 500, {"error_code": 500, "message": "HTTP 500 Internal Server Error"}
        if isinstance(answer, Answer):
            status, data = answer.status, answer.body
            more = [item for item in answer.headers if item[0] != b"content-type"]
        elif isinstance(answer, Text):
            data = answer.text.encode("utf-8", "replace")
        else:
            data = json.dumps(answer, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")
        own = [(b"content-type", media_type.encode()), (b"content-length", str(len(data)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": own + _HEADERS + more})
        body = b"" if scope["method"] == "HEAD" else data
        await send({"type": "http.response.body", "body": body})

    async def _answer(self, scope: Scope, headers: Mapping[str, str], receive: Receive) -> Any:
        if not self._knows_host(headers.get("host", "")):
            raise RegistryError(421, "The registry is not known by this name")
        client = scope.get("client")
        certificate = scope.get("extensions", {}).get("tls", {}).get("client_cert_name")
        caller = await self._access.caller(headers, client[0] if client else "", certificate)
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        context, segments = _address(scope)
        found = find(method, segments)
        query, data, body = _query(scope), b"", {}
        if method in ("POST", "PUT"):
            if headers.get("content-type", "").partition(";")[0].strip().lower() not in _SENT_TYPES:
                raise RegistryError(415, "HTTP 415 Unsupported Media Type")
            data = await self._body(receive)
            body = await self._understood(data)
        call = Call(
            registry=self._registry,
            caller=caller,
            parameters=found.parameters,
            query=query,
            context=context,
            body=body,
        )
        await self._registry.log.wait_ready()
        deadline = trio.current_time() + _FORWARD_SECONDS
        while True:
            try:
                return await found.handler(call)
            except ForwardError as error:
                if headers.get(HEADER) == "false":
                    raise leader_unknown("this one was asked to write, and another one does") from None
                writer = error.writer
            try:
                target = _target(scope)
                answer = await forward(self._open_stream, writer, method, target, passed_on(headers, caller), data)
            except UnreachableWriterError as error:
                # Its session may still last for some seconds.
                if trio.current_time() > deadline:
                    raise forwarding_failed(str(error)) from None
                await trio.sleep(_FORWARD_PAUSE_SECONDS)
            else:
                await self._registry.log.catch_up()
                return answer

    async def _understood(self, data: bytes) -> dict[str, Any]:
        if len(data) <= _SMALL_BYTES:
            return _parsed(data)
        return await self._registry.parser.in_thread(lambda: _parsed(data))

    async def _body(self, receive: Receive) -> bytes:
        parts, size_bytes = [], 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise RegistryError(400, "The request ended early")
            size_bytes += len(message.get("body", b""))
            if size_bytes > MAX_BODY_BYTES:
                raise too_large(f"Write failed because schema is too large: a request may have {MAX_BODY_BYTES} bytes")
            parts.append(message.get("body", b""))
            if not message.get("more_body", False):
                break
        return b"".join(parts)


def _parsed(data: bytes) -> dict[str, Any]:
    try:
        text = data.decode()
        check_depth(text)
        body = strict_json(text)
    except InvalidSchemaError as error:
        raise RegistryError(400, f"The request cannot be read: {error}") from None
    except (ValueError, RecursionError) as error:
        raise RegistryError(400, f"The request is not JSON: {error}"[:500]) from None
    if not isinstance(body, dict):
        raise unprocessable("The request is no object")
    return body


def _address(scope: Scope) -> tuple[str, Sequence[str]]:
    """The context that an address is in, and its other parts, decoded."""
    raw = scope.get("raw_path") or scope["path"].encode()
    path = raw.partition(b"?")[0].decode("latin-1")
    root = scope.get("root_path", "")
    segments = [unquote(part, errors="replace") for part in path.removeprefix(root).split("/") if part]
    if len(segments) > 1 and segments[0] == "contexts":
        return context_name(segments[1]), segments[2:]
    return DEFAULT_CONTEXT, segments


def _target(scope: Scope) -> bytes:
    """The address as it was sent, with its parameters."""
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    query: bytes = scope.get("query_string", b"")
    return path.partition(b"?")[0] + (b"?" + query if query else b"")


def _query(scope: Scope) -> Query:
    try:
        fields = parse_qsl(
            scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True, max_num_fields=_MAX_QUERY_FIELDS
        )
    except ValueError:
        raise RegistryError(400, f"An address may have {_MAX_QUERY_FIELDS} parameters") from None
    return Query(reversed(fields))


def _media_type(accept: str) -> str:
    """The type that a client accepts. Raises RegistryError 406."""
    accepted = [part.partition(";")[0].strip().lower() for part in accept.split(",")[:MAX_MESSAGES]]
    if accept.strip() == "" or "*/*" in accepted or "application/*" in accepted:
        return next((name for name in _TYPES if name in accepted), _V1)
    for name in _TYPES:
        if name in accepted:
            return name
    raise RegistryError(406, "HTTP 406 Not Acceptable")


def _error(error: RegistryError) -> dict[str, Any]:
    return {"error_code": error.code, "message": error.message}


async def _live(receive: Receive, send: Send) -> None:
    """Nothing begins or ends with the server: the creator of the registry runs its log."""
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
