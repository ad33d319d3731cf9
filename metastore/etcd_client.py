"""Requests to the members of an etcd cluster, over the JSON gateway of its API version 3."""

from __future__ import annotations

import json
import logging
import os
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple, TypeVar

import httpx
import trio

from ottla.client.keepalive import keepalive_options
from ottla.metastore.address import EtcdAddress
from ottla.metastore.clock_difference import ClockWatch
from ottla.metastore.errors import PolicyViolationError, StoreUnavailableError
from ottla.metastore.etcd_encoding import dump
from ottla.storage.clock import SystemClock

T = TypeVar("T")

CONNECT_SECONDS: Final = 2.0
ANSWER_SECONDS: Final = 5.0
#: How long a request that may be repeated is tried again, at another member or at the same one.
INSIST_SECONDS: Final = 2.0
_PAUSE_SECONDS: Final = 0.1

#: Anything larger is built or parsed in a worker thread.
LARGE_BYTES: Final = 32 * 1024
_MAX_LINE_BYTES: Final = 64 * 1024 * 1024

_MAX_CONNECTIONS: Final = 64
#: A member whose machine is gone is noticed within ten seconds, even by a watch that only listens to it.
_SOCKET_OPTIONS: Final = (
    *keepalive_options(idle_s=4, interval_s=2, count=3),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
)

# Codes of gRPC.
_UNAUTHENTICATED: Final = 16
#: Unavailable, cancelled, deadline exceeded: by the member, or by the cluster while it elects a leader.
_PASSING: Final = frozenset({1, 4, 14})
_NO_SPACE: Final = "database space exceeded"


class EtcdAccess(NamedTuple):
    """How to log in to etcd; None for what is not needed."""

    user: str | None = None
    password: str | None = None
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None


class EtcdError(Exception):
    """etcd has answered with an error; `code` is gRPC's."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


class _NotEtcdError(httpx.RemoteProtocolError):
    """Something else answers at the address."""


class EtcdClient:
    """Asks one member, and another one when that fails.

    Methods raise StoreUnavailableError if no member answers or etcd refuses, EtcdError only where they say so.
    """

    def __init__(self, address: EtcdAddress, access: EtcdAccess, time_ms: Callable[[], int] | None = None) -> None:
        """Raises StoreUnavailableError if the files for TLS cannot be used. `time_ms` is this machine's clock."""
        # Otherwise httpx logs a line for each request.
        logging.getLogger("httpx").setLevel(logging.WARNING)
        self._endpoints = address.endpoints
        self._access = access
        self._present = 0
        self._token: str | None = None
        self._time_ms = time_ms or SystemClock().time_ms
        #: How far the members' clocks are from this machine's.
        self.clocks = ClockWatch()
        self._http = httpx.AsyncClient(
            transport=httpx.AsyncHTTPTransport(
                verify=_ssl_context(access) if address.is_encrypted else False,
                trust_env=False,
                limits=httpx.Limits(max_connections=_MAX_CONNECTIONS, keepalive_expiry=30),
                socket_options=_SOCKET_OPTIONS,
            ),
            timeout=httpx.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS),
            trust_env=False,
        )

    async def close(self) -> None:
        await self._http.aclose()

    async def read(self, path: str, document: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request that may be repeated, to several members if need be. Raises EtcdError if etcd refuses it."""
        body = dump(document)
        give_up_at = trio.current_time() + INSIST_SECONDS
        while True:
            try:
                return await self._of_some_member(lambda url: self._ask(url, path, body), is_repeatable=True)
            except StoreUnavailableError:
                if trio.current_time() > give_up_at:
                    raise
            await trio.sleep(_PAUSE_SECONDS)

    async def write(self, path: str, body: bytes) -> dict[str, Any]:
        """Send a request that must not be carried out twice.

        Raises EtcdError if etcd refuses it, StoreUnavailableError if nobody knows whether it was carried out.
        """
        return await self._of_some_member(lambda url: self._ask(url, path, body), is_repeatable=False)

    async def read_at(self, url: str, path: str, document: Mapping[str, Any]) -> dict[str, Any]:
        """Ask this member and no other. Raises EtcdError."""
        try:
            return await self._ask(url, path, dump(document))
        except httpx.HTTPError as error:
            raise StoreUnavailableError(f"etcd cannot be reached at {url}: {_reason(error)}.") from None

    async def open_stream(self, path: str, document: Mapping[str, Any]) -> tuple[str, httpx.Response]:
        """The URL of a member and its streaming response, which the caller closes. Raises EtcdError."""

        async def ask(url: str) -> tuple[str, httpx.Response]:
            # A member that loses its leader should say so instead of falling silent.
            headers = {**await self._headers(url), "Grpc-Metadata-hasleader": "true"}
            request = self._http.build_request(
                "POST",
                url + path,
                content=dump(document),
                headers=headers,
                timeout=httpx.Timeout(None, connect=CONNECT_SECONDS),
            )
            with trio.fail_after(ANSWER_SECONDS):
                response = await self._http.send(request, stream=True)
            if response.status_code != httpx.codes.OK:
                content = await response.aread()
                raise _error(response.status_code, content)
            return url, response

        return await self._of_some_member(ask, is_repeatable=True)

    def avoid(self, url: str) -> None:
        """From now on ask another member first, if this one is the first now."""
        if self._endpoints[self._present] == url:
            self._present = (self._present + 1) % len(self._endpoints)

    async def _of_some_member(self, ask: Callable[[str], Awaitable[T]], *, is_repeatable: bool) -> T:
        failures: list[str] = []
        for _ in self._endpoints:
            url = self._endpoints[self._present]
            try:
                return await self._with_token(ask, url)
            except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
                # Nothing was asked yet.
                reason, is_known = _reason(error), True
            except (httpx.HTTPError, trio.TooSlowError) as error:
                reason, is_known = _reason(error), False
            except EtcdError as error:
                if error.code not in _PASSING:
                    raise
                reason, is_known = str(error), False
            failures.append(f"{url.partition('//')[2]}: {reason}")
            self.avoid(url)
            if not is_known and not is_repeatable:
                break
        raise StoreUnavailableError(f"The metadata store in etcd cannot be reached ({'; '.join(failures)}).")

    async def _with_token(self, ask: Callable[[str], Awaitable[T]], url: str) -> T:
        try:
            return await ask(url)
        except EtcdError as error:
            is_stale = error.code == _UNAUTHENTICATED or "revision of auth store is old" in str(error)
            if not is_stale or self._access.user is None:
                raise
        # Tokens expire after some minutes; a request with an expired one was not carried out.
        self._token = None
        return await ask(url)

    async def _ask(self, url: str, path: str, body: bytes) -> dict[str, Any]:
        headers = await self._headers(url)
        sent_ms = self._time_ms()
        response = await self._http.post(url + path, content=body, headers=headers)
        self.clocks.heard(url.partition("//")[2], response.headers.get("date"), sent_ms / 1000, self._time_ms() / 1000)
        if response.status_code != httpx.codes.OK:
            raise _error(response.status_code, response.content)
        answer = await parse(response.content)
        # Where the API streams, the gateway wraps the one message that comes here.
        if "error" in answer:
            raise _error(response.status_code, response.content)
        result: dict[str, Any] = answer.get("result", answer)
        if "header" not in result:
            raise _NotEtcdError("it does not answer as etcd does")
        return result

    async def _headers(self, url: str) -> dict[str, str]:
        if self._access.user is None:
            return {}
        if self._token is None:
            login = {"name": self._access.user, "password": self._access.password or ""}
            response = await self._http.post(url + "/v3/auth/authenticate", content=dump(login))
            if response.status_code != httpx.codes.OK:
                raise _error(response.status_code, response.content)
            self._token = str((await parse(response.content))["token"])
        return {"Authorization": self._token}


def refused(error: EtcdError) -> StoreUnavailableError | PolicyViolationError:
    """The error for the rest of Ottla if etcd refuses for a reason that no caller handles."""
    if _NO_SPACE in str(error):
        # Nothing is wrong with what was asked: it waits, as while etcd is away, until there is room again.
        return StoreUnavailableError(
            "etcd accepts no changes, because its database is full: make it smaller (etcdctl compact, defrag) or let "
            "it grow (--quota-backend-bytes), then end its alarm (etcdctl alarm disarm)."
        )
    if "request is too large" in str(error) or "larger than max" in str(error):
        return PolicyViolationError(
            "The change is larger than etcd accepts at once (--max-request-bytes there): ask for less at a time."
        )
    if "user name is empty" in str(error):
        return StoreUnavailableError(
            "etcd asks for a user: set ottla.metadata.store.user and ottla.metadata.store.password."
        )
    return StoreUnavailableError(f"The metadata store in etcd refuses: {error}.")


async def parse(text: bytes) -> dict[str, Any]:
    """The JSON object; raises httpx.RemoteProtocolError for anything else."""
    try:
        answer = json.loads(text) if len(text) < LARGE_BYTES else await trio.to_thread.run_sync(json.loads, text)
    except ValueError:
        raise _NotEtcdError("it does not answer as etcd does") from None
    if not isinstance(answer, dict):
        raise _NotEtcdError("it does not answer as etcd does")
    return answer


@asynccontextmanager
async def lines_of(response: httpx.Response) -> AsyncIterator[Callable[[], Awaitable[bytes | None]]]:
    """A function that returns the next line of a stream, None at its end. httpx.HTTPError if the connection breaks."""
    chunks = response.aiter_bytes()
    rest = bytearray()
    searched = 0

    async def next_line() -> bytes | None:
        nonlocal searched
        while (end := rest.find(b"\n", searched)) < 0:
            searched = len(rest)
            if len(rest) > _MAX_LINE_BYTES:
                raise httpx.RemoteProtocolError("a line of the stream is too long")
            try:
                rest.extend(await anext(chunks))
            except StopAsyncIteration:
                return None
        line = bytes(rest[:end])
        del rest[: end + 1]
        searched = 0
        return line

    try:
        yield next_line
    finally:
        await response.aclose()


def _error(status: int, content: bytes) -> EtcdError | _NotEtcdError:
    try:
        document = json.loads(content)
        error = document["error"]
        if isinstance(error, dict):
            return EtcdError(error["message"], error["grpc_code"])
        return EtcdError(document.get("message", error), document["code"])
    except (ValueError, KeyError, TypeError):
        return _NotEtcdError(f"it does not answer as etcd does (HTTP {status}; etcd 3.4 or later is needed)")


def _reason(error: BaseException) -> str:
    if isinstance(error, (httpx.TimeoutException, trio.TooSlowError)):
        return "no answer in time"
    # What httpx raises says little; its cause knows about the certificate, or the connection.
    reason = str(error) or type(error).__name__
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            number = 0 if isinstance(cause, ssl.SSLError) else cause.errno or 0
            reason = os.strerror(number) if number > 0 else cause.strerror
        cause = cause.exceptions[0] if isinstance(cause, BaseExceptionGroup) else cause.__cause__ or cause.__context__
    return reason


def _ssl_context(access: EtcdAccess) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=access.ca_file)
        if access.certificate_file is not None:
            context.load_cert_chain(access.certificate_file, access.key_file)
    except (OSError, ssl.SSLError) as error:
        raise StoreUnavailableError(
            f"The files for TLS to etcd (ottla.metadata.store.ssl.…) cannot be used: {error.strerror or error}."
        ) from None
    return context
