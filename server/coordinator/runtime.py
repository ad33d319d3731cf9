"""One runtime for every coordinator: it replays an internal topic's partition into state and changes it by records.

The contract, whatever the state is (groups, transactions, share groups):

- A partition's shard exists from `elect` (this node became its leader) to `resign`. Until the replay has ended every
  operation raises CoordinatorLoadInProgressError.
- Records reach a shard's `replay` once they are committed and in log order: first those of the log, then those of each
  write. So memory never runs ahead of what a restart would bring back, and what is answered is stored.
- Writes that arrive while an append is under way gather and leave as one batch, and so do those that arrive in quick
  succession: group commit without a timer.
- A write survives the cancellation of the request that asked for it: either its records are replayed into the shard
  or they are not in the log.

Kafka's counterpart is org.apache.kafka.coordinator.common.runtime.CoordinatorRuntime. It applies records at once and
rolls back when an append fails; this one applies them when the append is committed.
"""

import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

import trio

from ottla.kproto.records import (
    BatchBuilder,
    BatchHeader,
    EndTxnMarker,
    build_end_txn_marker,
    iter_batches,
    iter_records,
    parse_end_txn_marker,
)
from ottla.server.coordinator.errors import (
    CoordinatorError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    NotCoordinatorError,
)
from ottla.server.coordinator.log import CoordinatorLog
from ottla.server.waiting import remote_time
from ottla.storage.clock import Clock

logger = logging.getLogger(__name__)

MAX_BATCH_BYTES: Final = 512 * 1024
"""A gathered batch is closed beyond this: it must stay below the internal topic's max.message.bytes."""
STEP_SECONDS: Final = 250e-6
"""For so long is replayed before others may run."""
RECORDS_A_STEP: Final = 32
MAX_LINGER_SECONDS: Final = 0.005
MAX_QUEUED_BYTES: Final = 64 * 1024 * 1024
"""More than this waiting for one partition is refused with CoordinatorNotAvailableError."""


class CoordinatorRecord(NamedTuple):
    """One record of a coordinator's topic; a value of None is a tombstone."""

    key: bytes
    value: bytes | None

    @property
    def size_bytes(self) -> int:
        return len(self.key) + len(self.value or b"") + 32


class Producer(NamedTuple):
    """The transactional producer on whose behalf records are written."""

    producer_id: int
    producer_epoch: int


class Shard(Protocol):
    """The state of one partition. Its methods are synchronous and never fail on a record that Kafka could write."""

    def replay(self, offset: int, producer: Producer | None, record: CoordinatorRecord) -> None:
        """Apply one committed record; `producer` is set if it belongs to that producer's open transaction."""
        ...

    def replay_marker(self, marker: EndTxnMarker) -> None:
        """Apply the end of a producer's transaction."""
        ...

    def loaded(self) -> None:
        """The replay has ended: start sessions and timers."""
        ...

    def unloaded(self) -> None:
        """The partition moved away: answer everyone who waits with NotCoordinatorError and end all timers."""
        ...


S = TypeVar("S", bound=Shard)


def replay_records(shard: Shard, batches: memoryview, position: int, header: BatchHeader) -> Iterator[None]:
    """Replay the records of a batch that lies at `position`, in short steps: one each time that this is advanced."""
    producer = Producer(header.producer_id, header.producer_epoch) if header.is_transactional else None
    replay = shard.replay
    for count, (offset, _, key, value, _) in enumerate(iter_records(batches, position, header), 1):
        assert key is not None, "a coordinator's record without a key"
        replay(offset, producer, CoordinatorRecord(key, value))
        if not count % RECORDS_A_STEP:
            yield
    yield


class Write:
    """Records on their way to the log: `begin_write` returns it, `wait` says how it ended."""

    __slots__ = ("_done", "error", "marker", "producer", "records", "size_bytes")

    def __init__(
        self, records: Sequence[CoordinatorRecord], producer: Producer | None, marker: EndTxnMarker | None
    ) -> None:
        self.records = records
        self.producer = producer
        self.marker = marker
        self.size_bytes = sum([record.size_bytes for record in records])
        self.error: CoordinatorError | None = None
        self._done = trio.Event()

    @property
    def is_done(self) -> bool:
        return self._done.is_set()

    def settle(self, error: CoordinatorError | None) -> None:
        """It is committed and replayed, or will never be."""
        self.error = error
        self._done.set()

    async def wait(self) -> None:
        """Return when the records are committed and replayed. Raises CoordinatorError if they were not."""
        await self._done.wait()
        if self.error is not None:
            raise self.error


class _Partition(Generic[S]):
    __slots__ = ("is_loaded", "is_writing", "last_batch", "queue", "queued_bytes", "scope", "shard")

    def __init__(self, shard: S) -> None:
        self.shard = shard
        self.is_loaded = False
        self.is_writing = False
        self.last_batch = 0
        self.queue: deque[Write] = deque()
        self.queued_bytes = 0
        self.scope = trio.CancelScope()  # of its one task at a time: the loading, later a writer


class CoordinatorRuntime(Generic[S]):
    """Runs the shards of one internal topic on one broker. `nursery` owns the loading and writing tasks."""

    def __init__(
        self,
        name: str,
        *,
        log: CoordinatorLog,
        clock: Clock,
        nursery: trio.Nursery,
        new_shard: Callable[[int], S],
        replay_batch: Callable[[S, memoryview, int, BatchHeader], Iterator[None]] | None = None,
    ) -> None:
        """`replay_batch` takes the place of `replay_records` while a partition is loaded."""
        self._name = name
        self._log = log
        self._clock = clock
        self._nursery = nursery
        self._new_shard = new_shard
        self._replay_batch = replay_batch or replay_records
        self._partitions: dict[int, _Partition[S]] = {}
        # They load one after the other, those that somebody asked for first: most clients are answered long before all
        # is loaded, and no more than one read of the log is in memory.
        self._unloaded: OrderedDict[int, _Partition[S]] = OrderedDict()
        self._is_loading = False
        #: Partitions that this node leads and whose state could not be loaded.
        self.failed: set[int] = set()

    # Lifecycle

    def loading(self) -> int:
        """How many partitions are still to be replayed."""
        return sum(not state.is_loaded for state in self._partitions.values())

    def elect(self, partition: int) -> None:
        """This node leads the partition now: start to replay it."""
        if partition not in self._partitions:
            self.failed.discard(partition)
            self._unloaded[partition] = self._partitions[partition] = _Partition(self._new_shard(partition))
            if not self._is_loading:
                self._is_loading = True
                self._nursery.start_soon(self._load_all)

    def resign(self, partition: int) -> None:
        """This node leads the partition no longer: drop its state."""
        state = self._partitions.pop(partition, None)
        self._unloaded.pop(partition, None)
        self.failed.discard(partition)
        if state is not None:
            state.scope.cancel()
            self._fail_queued(state, NotCoordinatorError(f"{self._name} partition {partition} moved away"))
            state.shard.unloaded()

    async def _load_all(self) -> None:
        while self._unloaded:
            await self._load(*self._unloaded.popitem(last=False))
        self._is_loading = False

    async def _load(self, partition: int, state: _Partition[S]) -> None:
        count = 0
        with state.scope:
            try:
                async for batches in self._log.read(partition):
                    count += await self._replay_batches(state.shard, batches)
            except CoordinatorError as error:
                logger.exception(
                    "%s partition %d cannot be loaded: its groups are unavailable",
                    self._name,
                    partition,
                    extra={"topic": self._name, "partition": partition},
                )
                del self._partitions[partition]
                self.failed.add(partition)
                self._fail_queued(state, error)
                return
            state.is_loaded = True
            state.shard.loaded()
            logger.debug("%s partition %d loaded, %d records", self._name, partition, count)

    async def _replay_batches(self, shard: S, batches: memoryview) -> int:
        count = 0
        until = perf_counter() + STEP_SECONDS
        for position, header in iter_batches(batches):
            count += header.record_count
            if header.is_control:
                marker = parse_end_txn_marker(batches, position, header)
                if marker is not None:
                    shard.replay_marker(marker)
                continue
            for _ in self._replay_batch(shard, batches, position, header):
                if perf_counter() >= until:
                    await trio.lowlevel.checkpoint()
                    until = perf_counter() + STEP_SECONDS
        return count

    # Operations

    def shard(self, partition: int) -> S:
        """The partition's state, for reading and for synchronous decisions.

        Raises NotCoordinatorError or CoordinatorLoadInProgressError.
        """
        state = self._loaded(partition)
        return state.shard

    def shards(self) -> list[S]:
        """All shards here. Raises CoordinatorLoadInProgressError while one of them is being replayed."""
        return [self._loaded(partition).shard for partition in sorted(self._partitions)]

    def loaded_shards(self) -> list[S]:
        """The shards here whose replay has ended."""
        return [state.shard for _, state in sorted(self._partitions.items()) if state.is_loaded]

    def _loaded(self, partition: int) -> _Partition[S]:
        state = self._partitions.get(partition)
        if state is None:
            raise NotCoordinatorError(f"{self._name} partition {partition} is not led here")
        if not state.is_loaded:
            if partition in self._unloaded:
                self._unloaded.move_to_end(partition, last=False)
            raise CoordinatorLoadInProgressError(f"{self._name} partition {partition} is being loaded")
        return state

    async def write(
        self, partition: int, records: Sequence[CoordinatorRecord], *, producer: Producer | None = None
    ) -> None:
        """Commit records, all or none; returns when they are committed and replayed into the shard.

        Raises CoordinatorError if they were not committed. Writes of one partition are committed in call order.
        """
        await _wait_noted(self.begin_write(partition, records, producer=producer))

    def begin_write(
        self, partition: int, records: Sequence[CoordinatorRecord], *, producer: Producer | None = None
    ) -> Write:
        """The first half of `write`: the records have their place in the order of the partition's writes."""
        write = Write(records, producer, None)
        if records:
            return self._submit(partition, write)
        write.settle(None)
        return write

    async def write_marker(self, partition: int, marker: EndTxnMarker) -> None:
        """Commit the end of a producer's transaction, in order with the writes of that transaction."""
        await _wait_noted(self._submit(partition, Write((), None, marker)))

    def _submit(self, partition: int, write: Write) -> Write:
        state = self._loaded(partition)
        if state.queued_bytes + write.size_bytes > MAX_QUEUED_BYTES:
            raise CoordinatorNotAvailableError(f"{self._name} partition {partition} has too many writes waiting")
        state.queue.append(write)
        state.queued_bytes += write.size_bytes
        if not state.is_writing:
            state.is_writing = True
            state.scope = trio.CancelScope()
            self._nursery.start_soon(self._drain, partition, state)
        return write

    async def _drain(self, partition: int, state: _Partition[S]) -> None:
        """The partition's one writer: it lives while there is something to write."""
        remote_time.begin_background()
        with state.scope:
            while state.queue:
                await self._linger(state)
                writes = self._gather(state)
                state.last_batch = len(writes)
                await self._commit(partition, state, writes)
            state.is_writing = False

    async def _linger(self, state: _Partition[S]) -> None:
        """Let a batch grow as long as turns of the event loop bring more writes, but not for long.

        A lone write goes at once. Kafka's counterpart is `group.coordinator.append.linger.ms=-1`.
        """
        if len(state.queue) == 1 and state.last_batch <= 1:
            return
        until = perf_counter() + MAX_LINGER_SECONDS
        count = quiet_turns = 0
        # Trio runs the tasks of a turn in any order: one turn without a write says nothing yet.
        while quiet_turns < 2 and state.queued_bytes < MAX_BATCH_BYTES and perf_counter() < until:
            quiet_turns = quiet_turns + 1 if len(state.queue) == count else 0
            count = len(state.queue)
            await trio.lowlevel.checkpoint()

    def _gather(self, state: _Partition[S]) -> list[Write]:
        """The writes that can go as one batch: of one producer, and no more than fits."""
        writes = [state.queue.popleft()]
        size_bytes = writes[0].size_bytes
        while state.queue and writes[0].marker is None:
            following = state.queue[0]
            size_bytes += following.size_bytes
            if following.marker or following.producer != writes[0].producer or size_bytes > MAX_BATCH_BYTES:
                break
            writes.append(state.queue.popleft())
        return writes

    async def _commit(self, partition: int, state: _Partition[S], writes: list[Write]) -> None:
        error: CoordinatorError | None = NotCoordinatorError(f"{self._name} partition {partition} moved away")
        try:
            offset = await self._log.append(partition, self._build(writes))
            error = None
            for write in writes:
                offset = self._replay_write(state.shard, write, offset)
        except CoordinatorError as refused:
            error = refused
        finally:
            for write in writes:
                state.queued_bytes -= write.size_bytes
                write.settle(error)

    def _replay_write(self, shard: S, write: Write, offset: int) -> int:
        if write.marker is not None:
            shard.replay_marker(write.marker)
        for record in write.records:
            shard.replay(offset, write.producer, record)
            offset += 1
        return offset

    def _build(self, writes: list[Write]) -> bytes:
        producer, marker = writes[0].producer, writes[0].marker
        now_ms = self._clock.time_ms()
        if marker is not None:
            assert len(writes) == 1
            return build_end_txn_marker(marker, timestamp_ms=now_ms)
        builder = BatchBuilder(
            producer_id=-1 if producer is None else producer.producer_id,
            producer_epoch=-1 if producer is None else producer.producer_epoch,
            is_transactional=producer is not None,
        )
        for write in writes:
            for record in write.records:
                builder.append(key=record.key, value=record.value, timestamp_ms=now_ms)
        return builder.build()

    def _fail_queued(self, state: _Partition[S], error: CoordinatorError) -> None:
        while state.queue:
            write = state.queue.popleft()
            write.settle(error)


async def _wait_noted(write: Write) -> None:
    """Wait for a write, and count the time as one that a request waits for others."""
    started = perf_counter()
    try:
        await write.wait()
    finally:
        remote_time.note(perf_counter() - started)
