"""The schema registry of a broker or cluster under test, in a thread of this process."""

from __future__ import annotations

import json
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import ProxyHandler, Request, build_opener

import trio

from ottla.testing.errors import BrokerError
from ottla.testing.faults.dispatcher import EXEMPT_CLIENT_ID

if TYPE_CHECKING:
    from ottla.client.security import Security
    from ottla.registry.standalone import Running

T = TypeVar("T")

_START_SECONDS: Final = 30.0
_REQUEST_SECONDS: Final = 30.0
_TYPE: Final = "application/vnd.schemaregistry.v1+json"
# The registry is on this machine, whatever proxy the environment names.
_OPENER: Final = build_opener(ProxyHandler({}))


class Schemas:
    """A registry, started when this is made. Failures raise BrokerError."""

    def __init__(self, bootstrap: Sequence[tuple[str, int]], security: Security) -> None:
        self._bootstrap = bootstrap
        self._security = security
        self._scope = trio.CancelScope()
        self._token: trio.lowlevel.TrioToken
        self._running: Running
        started: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, args=[started], name="ottla schema registry", daemon=True)
        self._thread.start()
        started.result(_START_SECONDS)

    @property
    def url(self) -> str:
        """Its address: `http://127.0.0.1:port`."""
        return self._running.url

    def register(
        self,
        subject: str,
        schema: str | Mapping[str, Any] | Sequence[Any],
        schema_type: str = "AVRO",
        references: Iterable[Mapping[str, Any]] = (),
    ) -> int:
        """Register a schema, as text or as what JSON can write, and return its id. `schema_type` is AVRO, JSON or
        PROTOBUF; each reference has a name, a subject and a version.
        """
        text = schema if isinstance(schema, str) else json.dumps(schema)
        body = {"schema": text, "schemaType": schema_type, "references": [dict(it) for it in references]}
        return int(self._ask("POST", f"/subjects/{quote(subject, safe='')}/versions", body)["id"])

    def schema(self, schema_id: int) -> str:
        """The schema of an id, as text."""
        return str(self._ask("GET", f"/schemas/ids/{schema_id}")["schema"])

    def subjects(self) -> list[str]:
        """The subjects that have schemas, in order."""
        return list(self._ask("GET", "/subjects"))

    def set_compatibility(self, level: str, subject: str | None = None) -> None:
        """Set the compatibility level, such as NONE or FULL, of a subject or (None) of everything."""
        path = "/config" if subject is None else f"/config/{quote(subject, safe='')}"
        self._ask("PUT", path, {"compatibility": level})

    def wait_empty(self) -> None:
        """Return when it has seen that its topic was deleted, and has a new one."""
        self._call(self._wait_empty)

    def close(self) -> None:
        """Stop it."""
        if self._thread.is_alive():
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self._scope.cancel)
            self._thread.join()

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = Request(self.url + path, data=data, method=method, headers={"Content-Type": _TYPE})
        try:
            with _OPENER.open(request, timeout=_REQUEST_SECONDS) as response:
                return json.load(response)
        except HTTPError as error:
            with error:
                answer = json.load(error)
            raise BrokerError(f"{answer['message']} ({answer['error_code']})") from None

    def _call(self, function: Callable[[], Awaitable[T]]) -> T:
        async def bounded() -> T:
            with trio.fail_after(_REQUEST_SECONDS):
                return await function()

        return trio.from_thread.run(bounded, trio_token=self._token)

    # In its thread.

    def _run(self, started: Future[None]) -> None:
        try:
            trio.run(self._main, started, strict_exception_groups=True)
        except BaseException as error:  # noqa: BLE001 - told to whoever waits for it
            if not started.done():
                started.set_exception(error)

    async def _main(self, started: Future[None]) -> None:
        from functools import partial

        from ottla.registry import standalone

        self._token = trio.lowlevel.current_trio_token()
        with self._scope:
            async with trio.open_nursery() as nursery:
                serve = partial(
                    standalone.run,
                    self._bootstrap,
                    ("127.0.0.1", 0),
                    security=self._security,
                    client_id=EXEMPT_CLIENT_ID,
                )
                self._running = await nursery.start(serve)
                started.set_result(None)

    async def _wait_empty(self) -> None:
        await self._running.log.wait_empty()
