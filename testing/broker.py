"""The broker that tests use."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ottla.testing import topics
from ottla.testing.access import Access
from ottla.testing.clock import AdjustableClock, BrokerClock
from ottla.testing.contents import Contents, setting
from ottla.testing.errors import BrokerError
from ottla.testing.faults.faults import Faults
from ottla.testing.faults.plan import FaultPlan
from ottla.testing.nodes.node_thread import NodeThread
from ottla.testing.requests import Requests

if TYPE_CHECKING:
    import os
    from tempfile import TemporaryDirectory

    from ottla.testing.nodes.node_process import NodeProcess

T = TypeVar("T")

DEFAULT_SETTINGS: Final[Mapping[str, str]] = {
    # A cluster needs these delays; a test would only wait.
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    # A test that sets the clock forward by a week does not mean to close its connections.
    "connections.max.idle.ms": "-1",
}
"""Settings that differ from a broker in production, unless the test says otherwise."""


class Broker(Contents):
    """A real broker on a free port of 127.0.0.1. Use it as a context manager, or call `start` and `close`.

    It runs in a thread of this process and keeps its data in memory, at most `memory_bytes` of it, or in `data_dir`.
    With `process=True` it is a process of its own, with its data on disk, that can be killed (`kill`); then request
    faults cannot be planned and the clock cannot be set. `config` holds broker settings by Kafka's names; `seed`
    decides random faults.

    With `users` (passwords by name), clients have to log in, by PLAIN or SCRAM. With `acls` (entries as `ottla acl add`
    takes them), they may do only what these allow. With `tls`, connections are encrypted. `client_config` and
    `java_config` say how a user connects.

    With `max_versions`, as "3.7", the broker passes for that release of Apache Kafka: it offers no later API, version
    or feature.

    Every method may be called from any thread. It blocks for as long as it takes: some milliseconds, except for
    `wait_for`. In asyncio and Trio, use `wait_for_async` for that. Failures raise BrokerError.
    """

    #: The pytest fixture that provides it, for reports of failed tests.
    fixture = "ottla_broker"

    def __init__(
        self,
        *,
        config: Mapping[str, object] | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        process: bool = False,
        users: Mapping[str, str] | None = None,
        acls: Iterable[str] | None = None,
        tls: bool = False,
        port: int = 0,
        memory_bytes: int | None = None,
        max_versions: str | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(Access(users, acls, tls=tls))
        given = {name: setting(value) for name, value in (config or {}).items()}
        if max_versions is not None:
            given["ottla.kafka.release"] = max_versions
        self._settings = {**DEFAULT_SETTINGS, **given, **self._access.settings(given)}
        self._settings.setdefault("listeners", f"{self._access.protocol}://127.0.0.1:{port}")
        self._is_prepared = False
        self._temporary: TemporaryDirectory[str] | None = None
        self._thread: NodeThread | None = None
        self._process: NodeProcess | None = None
        if process:
            self._make_process(data_dir)
        else:
            self._make_thread(data_dir, memory_bytes, seed)

    def _make_process(self, data_dir: str | os.PathLike[str] | None) -> None:
        from tempfile import TemporaryDirectory

        from ottla.testing.nodes.node_process import NodeProcess

        if data_dir is None:
            self._temporary = TemporaryDirectory(prefix="ottla-")
            data_dir = self._temporary.name
        self._process = NodeProcess(self._settings, Path(data_dir), secrets=self._access.secrets())

    def _make_thread(self, data_dir: str | os.PathLike[str] | None, memory_bytes: int | None, seed: int) -> None:
        self._clock = AdjustableClock()
        self._plan = FaultPlan(seed)
        self._requests = Requests()
        disk = store = None
        if data_dir is None:
            from ottla.metastore.memory import MemoryMetadataStore
            from ottla.storage.disk.memory_disk import DEFAULT_LIMIT_BYTES, MemoryDisk

            disk = MemoryDisk(memory_bytes or DEFAULT_LIMIT_BYTES, self._clock)
            store = MemoryMetadataStore(self._clock.time_ms)
        self._settings["log.dirs"] = "/memory" if data_dir is None else str(Path(data_dir).absolute())
        settings = self._settings | self._access.secrets()
        self._thread = NodeThread(
            settings,
            disk=disk,
            metadata_store=store,
            clock=self._clock,
            faults=self._plan,
            requests=self._requests,
        )
        self._faults = Faults(self._plan, self._call_sync, None if disk is None else disk.faults)
        self._broker_clock = BrokerClock(self._advance, self._clock.time_ms)
        audit = logging.getLogger("ottla.audit")
        if self._access.authorizes and audit.level == logging.NOTSET:
            audit.setLevel(logging.INFO)  # pytest's report of a failed test shows what was denied

    # Life.

    def __enter__(self) -> Broker:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start, or start again after `stop`, on the same port and data."""
        self._node.start()
        if not self._is_prepared:
            self._let_in()
            self._is_prepared = True

    def stop(self) -> None:
        """Stop in order. Clients lose their connections; the data is kept for the next `start`."""
        self._forget_clients()
        self._node.stop()

    def restart(self) -> None:
        """Stop in order and start again, with the same port and data."""
        self.stop()
        self.start()

    def kill(self) -> None:
        """End the process by SIGKILL, whatever it is doing. Only with `process=True`."""
        if self._process is None:
            raise BrokerError("only a broker with process=True can be killed")
        self._forget_clients()
        self._process.kill()

    def close(self) -> None:
        """Stop for good, and forget what was kept in memory or in a temporary folder."""
        self._close_ports()
        self._forget_clients()
        self._node.close()
        if self._temporary is not None:
            self._temporary.cleanup()

    @property
    def is_running(self) -> bool:
        """Whether it serves."""
        return self._node.is_running

    @property
    def bootstrap(self) -> str:
        """What clients connect to: `127.0.0.1:port`."""
        return "{}:{}".format(*self._address)

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._address[1]

    @property
    def faults(self) -> Faults:
        """Faults that happen to its requests. Not with `process=True`, which has `kill` and `frozen` instead."""
        if self._thread is None:
            raise BrokerError("request faults need a broker in this process; this one can only be killed and frozen")
        return self._faults

    @property
    def requests(self) -> Requests:
        """What clients have asked it, except for this class. Not with `process=True`."""
        if self._thread is None:
            raise BrokerError("requests are noted by a broker in this process; this one is a process of its own")
        return self._requests

    @property
    def clock(self) -> BrokerClock:
        """Its clock, which can be set forward. Not with `process=True`."""
        if self._thread is None:
            raise BrokerError("the clock of another process cannot be set")
        return self._broker_clock

    def apply_retention(self) -> None:
        """Delete now what retention would delete some time: what is older or more than the topics keep."""
        self._clean(compact=False)

    def compact(self) -> None:
        """Compact all compacted topics now, however little of them is dirty and also their newest records.

        What `min.compaction.lag.ms` or an open transaction keeps is kept.
        """
        self._clean(compact=True)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Nothing is answered during a `with` block: the process is frozen, or all requests wait.

        A frozen process does not answer the methods of this class either.
        """
        if self._process is None:
            with self.faults.stalled():
                yield
            return
        self._process.freeze()
        try:
            yield
        finally:
            self._process.thaw()

    def reset(self) -> None:
        """Make the broker as new, except for what it started with: forget topics, groups, transactions, quotas,
        settings, users, rights and faults. Its clients stay connected.

        For them it looks like a deletion: deleted topics are unknown, waiting fetches return, members are unknown. A
        clock that was set forward shows the right date again.
        """
        self._forget_consumers()
        if self._thread is not None:
            from ottla.testing.reset import reset

            self.faults.clear()
            self._thread.call(reset, self._thread.ready.broker)
            self._clock.correct_date()
            self._requests.clear()
        else:
            with self._client() as client:
                topics.delete_all(client)
        self._let_in()
        self._reset_schemas()

    # Below.

    def _let_in(self) -> None:
        """Its users are the ones that the test has named."""
        if not self._access.is_open:
            with self._client() as client:
                self._access.prepare(client)

    @property
    def _node(self) -> NodeThread | NodeProcess:
        node = self._thread or self._process
        assert node is not None
        return node

    @property
    def _address(self) -> tuple[str, int]:
        if self._thread is not None:
            endpoint = self._thread.ready.endpoints[0]
            return endpoint.host, endpoint.port
        assert self._process is not None
        if self._process.address is None:
            raise BrokerError("the broker is not running")
        return self._process.address

    @property
    def _addresses(self) -> Sequence[tuple[str, int]]:
        return [self._address]

    def _now_ms(self) -> int:
        return self._clock.time_ms() if self._thread is not None else super()._now_ms()

    def _clean(self, *, compact: bool) -> None:
        if self._thread is None:
            raise BrokerError("a broker that is a process of its own compacts and deletes in its own time")
        log_manager = self._thread.ready.broker.log_manager
        self._thread.call(log_manager.compact if compact else log_manager.clean)

    def _advance(self, seconds: float) -> None:
        assert self._thread is not None
        log_manager = self._thread.ready.broker.log_manager

        async def advance() -> None:
            self._clock.advance(seconds)
            await log_manager.clean()

        self._thread.call(advance)

    def _call_sync(self, function: Callable[..., T], *args: Any) -> T:
        async def call() -> T:
            return function(*args)

        assert self._thread is not None
        return self._thread.call(call)
