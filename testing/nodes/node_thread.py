"""A node in a thread of this process, with an event loop of its own."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import trio

from ottla.metastore.errors import MetadataError
from ottla.runtime.errors import StartupError
from ottla.server.main import Node, Ready
from ottla.settings.config import ConfigError
from ottla.settings.sources import load
from ottla.storage.errors import StorageError
from ottla.testing.clock import AdjustableClock
from ottla.testing.errors import BrokerError
from ottla.testing.faults.dispatcher import FaultyDispatcher
from ottla.testing.faults.plan import FaultPlan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.metastore.store import MetadataStore
    from ottla.storage.disk import Disk
    from ottla.testing.requests import Requests

T = TypeVar("T")

_STOP_SECONDS: Final = 0.2
"""How long requests under way may hold up a stop; a test's client may be waiting for something for a long time."""


_SESSION_TIMEOUT_MS: Final = str(2**31 - 1)
"""A test that sets the clock forward does not mean the broker's own session: nobody else would notice its end."""


class NodeThread:
    """Starts and stops nodes on the same disk and port, one after the other. Its methods block and are thread-safe."""

    def __init__(
        self,
        settings: Mapping[str, str],
        *,
        disk: Disk | None,
        metadata_store: MetadataStore | None,
        clock: AdjustableClock,
        faults: FaultPlan,
        requests: Requests,
    ) -> None:
        self._settings = {"broker.session.timeout.ms": _SESSION_TIMEOUT_MS, **settings}
        self._disk = disk
        self._metadata_store = metadata_store
        self._clock = clock
        self._faults = faults
        self._requests = requests
        self._thread: threading.Thread | None = None
        self._token: trio.lowlevel.TrioToken
        self._nursery: trio.Nursery
        self._node: Node | None = None
        self._scope = trio.CancelScope()
        self._ended: trio.Event
        self._ready: Ready | None = None
        self._failure: BaseException | None = None

    @property
    def is_running(self) -> bool:
        return self._ready is not None

    @property
    def ready(self) -> Ready:
        """The node that serves now. Raises BrokerError if none does."""
        if self._ready is None:
            why = f": {self._failure}" if self._failure is not None else ""
            raise BrokerError(f"the broker is not running{why}")
        return self._ready

    def start(self) -> None:
        """Start a node; returns when it serves. Raises BrokerError if it cannot."""
        if self._thread is None:
            self._start_thread()
        self.call(self._start_node)
        port = self.ready.listening[0].port
        protocol = self._settings["listeners"].partition("://")[0]
        self._settings["listeners"] = f"{protocol}://127.0.0.1:{port}"

    def stop(self) -> None:
        """Stop the node in order: its data is flushed, its port is free."""
        if self._ready is not None:
            self.call(self._stop_node)

    def close(self) -> None:
        """End the thread."""
        if self._thread is None:
            return
        try:
            self.stop()
        finally:
            if self._thread.is_alive():
                self._token.run_sync_soon(lambda: self._nursery.cancel_scope.cancel())
            self._thread.join()
            self._thread = None

    def call(self, function: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Run an async function on the node's loop and return its result."""
        if self._thread is None or not self._thread.is_alive():
            raise BrokerError("the broker is not running")
        answer: Future[T] = Future()
        try:
            self._token.run_sync_soon(self._begin, answer, function, args)
        except trio.RunFinishedError:
            raise BrokerError("the broker has ended") from self._failure
        return answer.result()

    def _start_thread(self) -> None:
        running: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, args=[running], name="ottla broker", daemon=True)
        self._thread.start()
        running.result()

    # On the loop.

    def _run(self, running: Future[None]) -> None:
        try:
            trio.run(self._main, running, clock=self._clock, strict_exception_groups=True)
        except BaseException as error:  # noqa: BLE001 - raised by the next call
            self._failure = error
        self._ready = None

    async def _main(self, running: Future[None]) -> None:
        self._token = trio.lowlevel.current_trio_token()
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            running.set_result(None)
            await trio.sleep_forever()

    def _begin(self, answer: Future[T], function: Callable[..., Awaitable[T]], args: tuple[Any, ...]) -> None:
        try:
            self._nursery.start_soon(self._answer, answer, function, args)
        except RuntimeError:  # The nursery has ended, and the loop is about to.
            answer.set_exception(BrokerError("the broker has ended"))

    async def _answer(self, answer: Future[T], function: Callable[..., Awaitable[T]], args: tuple[Any, ...]) -> None:
        try:
            result = await function(*args)
        except Exception as error:  # noqa: BLE001 - told to the caller
            answer.set_exception(error)
        except BaseException:
            answer.set_exception(BrokerError("the broker was stopped meanwhile"))
            raise
        else:
            answer.set_result(result)

    async def _start_node(self) -> None:
        try:
            config = load(environment={}, flags=self._settings)
        except ConfigError as error:
            raise BrokerError(str(error)) from None
        node = Node(
            config,
            disk=self._disk,
            clock=self._clock,
            metadata_store=self._metadata_store,
            dispatcher=partial(FaultyDispatcher, plan=self._faults, requests=self._requests),
        )
        self._ended = trio.Event()
        self._scope = trio.CancelScope()
        try:
            self._ready = await self._nursery.start(self._serve, node)
        except (ConfigError, StartupError, MetadataError, StorageError) as error:
            raise BrokerError(str(error)) from None
        except BaseExceptionGroup as group:
            known = group.subgroup((ConfigError, StartupError, MetadataError, StorageError))
            if known is None:
                raise
            raise BrokerError(str(_first(known))) from None
        self._node = node

    async def _serve(self, node: Node, *, task_status: trio.TaskStatus[Ready]) -> None:
        try:
            with self._scope:
                await node.serve(task_status=task_status)
        finally:
            self._ready = None
            self._ended.set()

    async def _stop_node(self) -> None:
        assert self._node is not None
        self._node.stop()
        with trio.move_on_after(_STOP_SECONDS):
            await self._ended.wait()
        self._scope.cancel()
        await self._ended.wait()


def _first(group: BaseExceptionGroup[Any]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
