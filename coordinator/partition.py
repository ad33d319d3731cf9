"""One partition of a coordinator's topic on this broker: its life, its shard, and the writes under way to its log."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing
from enum import Enum
from functools import partial
from typing import Any, Final, Generic

import trio

from ottla.coordinator.errors import CoordinatorError, CoordinatorNotAvailableError, NotCoordinatorError
from ottla.coordinator.log import CoordinatorLog
from ottla.coordinator.replay import (
    CoordinatorRecord,
    Producer,
    ReplayBatch,
    S,
    Skipped,
    UnreadableRecordError,
    replay_batches,
)
from ottla.kproto.errors import DecodeError
from ottla.kproto.records import EndTxnMarker, RecordError, build_end_txn_marker, build_keyed
from ottla.runtime import remote_time
from ottla.runtime.stages import Rest, Stages, TurnWait, Wait, go_on
from ottla.runtime.supervisor import Tasks
from ottla.storage.clock import Clock

logger = logging.getLogger(__name__)

MAX_BATCH_BYTES: Final = 512 * 1024
"""A batch of several records is closed beyond this: it must stay below the internal topic's max.message.bytes."""
MAX_QUEUED_BYTES: Final = 64 * 1024 * 1024
"""Beyond this, more writes to one partition are refused with CoordinatorNotAvailableError."""

PLANNED_RECORDS: Final = 32
"""What one plan writes of more: to plan, append and replay these, which is done at once, takes less than 0.5 ms."""

MAX_REASONS: Final = 10
"""How many different reasons for passing over records are logged for one load."""


class Life(Enum):
    """The life of a partition, and the transitions between its states."""

    LOADING = "loading"  # its log is being replayed, or waits for its turn: SERVING, FAILED or CLOSED
    SERVING = "serving"  # its shard answers and takes writes: FAILED or CLOSED
    FAILED = "failed"  # its log could not be replayed, everything is refused: CLOSED
    CLOSED = "closed"  # this broker no longer leads it, or stops: the end


# A member of an enumeration costs as much to look up as a call, and this one is asked for with every write.
_SERVING: Final = Life.SERVING


Plan = Callable[[], Sequence[CoordinatorRecord]]
"""Says what to write, given the shard as it is now. It may raise a CoordinatorError to refuse."""


_NO_PARTS: Final[Iterator[Sequence[CoordinatorRecord]]] = iter(())


class Write:
    """Records on their way to the log: `begin_write` returns it, `wait` says how it ended."""

    __slots__ = ("_parts", "_watchers", "error", "is_done", "marker", "plan", "producer", "records", "size_bytes")

    def __init__(
        self,
        records: Sequence[CoordinatorRecord] = (),
        producer: Producer | None = None,
        *,
        marker: EndTxnMarker | None = None,
        plan: Plan | None = None,
    ) -> None:
        self.producer = producer
        self.marker = marker
        self.plan = plan
        self.error: CoordinatorError | None = None
        self.is_done = False
        self._watchers: list[Callable[[], None]] | None = None  # mostly a write is done before anybody waits
        self._parts = _NO_PARTS
        self.records = records
        self.size_bytes = sum([record.size_bytes for record in records])

    def take_planned(self, records: Sequence[CoordinatorRecord]) -> None:
        """Take what the plan says: `records` are those of one batch, and `take_next` has the next ones follow."""
        self._parts = _parts_of(records)
        self.size_bytes = sum([record.size_bytes for record in records])
        self.take_next()

    def take_next(self) -> bool:
        """The records of the last batch are in the log: go on with those of the next. False if there are none."""
        self.records = next(self._parts, ())
        return bool(self.records)

    def settle(self, error: CoordinatorError | None) -> None:
        """It is committed and replayed, or `error` says why not. Once only."""
        assert not self.is_done, "a write is settled once"
        self.error = error
        self.is_done = True
        if self._watchers is not None:
            for settled in self._watchers:
                settled()

    def watch(self, settled: Callable[[], None]) -> None:
        """Call `settled` when it has ended, amid the change of state that ends it: so it only notes that."""
        assert not self.is_done
        if self._watchers is None:
            self._watchers = []
        self._watchers.append(settled)

    async def wait_settled(self) -> None:
        """Return when it has ended; `error` says how."""
        if self.is_done:
            await trio.lowlevel.checkpoint()
            return
        settled = trio.Event()
        self.watch(settled.set)
        await settled.wait()

    async def wait(self) -> None:
        """Return when the records are committed and replayed. Raises CoordinatorError if they were not."""
        await self.wait_settled()
        if self.error is not None:
            raise self.error


def _parts_of(records: Sequence[CoordinatorRecord]) -> Iterator[Sequence[CoordinatorRecord]]:
    """All records in order, as many at a time as one batch may have."""
    start = size_bytes = 0
    for index, record in enumerate(records):
        size_bytes += record.size_bytes
        if size_bytes > MAX_BATCH_BYTES and index > start:
            yield records[start:index]
            start, size_bytes = index, record.size_bytes
    yield records[start:]


class _SkippedRecords:
    """Logs each reason for passing over records once."""

    def __init__(self, partition: CoordinatorPartition[Any]) -> None:
        self._partition = partition
        self._said: set[str] = set()

    def note(self, skipped: Skipped) -> None:
        if skipped.why not in self._said and len(self._said) < MAX_REASONS:
            self._said.add(skipped.why)
            keys = {"topic": self._partition.topic, "partition": self._partition.index, "offset": skipped.offset}
            text = "%s holds records that are passed over, the first at offset %d: %s"
            logger.warning(text, self._partition, skipped.offset, skipped.why, extra=keys)


class CoordinatorPartition(Generic[S]):
    """A partition from the moment this broker leads it until it no longer does. Led again, it is a new object.

    The runtime creates it, and ends it with `close`. The tasks that it starts (one loads, later one writes at a time)
    end with it. Every write that it takes is settled exactly once: by its append, by `close`, by the partition's
    failure, or by the cancellation of the task that writes; so a task that waits for one may be shielded.
    """

    def __init__(
        self,
        topic: str,
        index: int,
        shard: S,
        *,
        log: CoordinatorLog,
        clock: Clock,
        replay_batch: ReplayBatch[S],
        nursery: Tasks,
    ) -> None:
        self.index = index
        self.shard = shard
        self.life = Life.LOADING
        self.topic = topic
        self._log = log
        self._clock = clock
        self._replay_batch = replay_batch
        self._nursery = nursery
        self._queue: deque[Write] = deque()
        self._under_way: list[Write] = []
        self._unsettled_bytes = 0
        self._is_writing = False
        self._scope = trio.CancelScope()  # of its task; it has one at a time

    def __str__(self) -> str:
        return f"{self.topic} partition {self.index}"

    # Its life

    async def load(self, step_aside: Callable[[], None]) -> None:
        """Replay the log. Ends early, and quietly, if the partition is closed meanwhile.

        `step_aside` is called when it has to wait until the log is committed, which may take long.
        """
        count = 0
        skipped = _SkippedRecords(self)
        with self._scope:
            try:
                async with aclosing(self._log.read(self.index)) as read:
                    async for batches in read:
                        if not batches:
                            step_aside()
                        count += await replay_batches(self.shard, batches, self._replay_batch, skipped.note)
                # It may have been closed when nothing was left to wait for.
                if self.life is Life.LOADING:
                    self.life = Life.SERVING
                    self.shard.loaded()
                    logger.debug("%s loaded, %d records", self, count)
            except Exception as error:  # noqa: BLE001 - whatever it is, it ends this partition alone
                self._fail("cannot be loaded", error)

    def close(self, why: str) -> None:
        """End it, whatever it is doing: everyone who waits gets NotCoordinatorError. Closing it again does nothing."""
        if self.life is Life.CLOSED:
            return
        had_failed = self.life is Life.FAILED
        self.life = Life.CLOSED
        self._scope.cancel()
        self._settle_all(NotCoordinatorError(f"{self} {why}"))
        if not had_failed:
            self.shard.unloaded()

    def _fail(self, what: str, error: Exception) -> None:
        """The shard's state and the log differ: serve nothing of it until the partition is led again."""
        if self.life not in (Life.LOADING, Life.SERVING):
            return
        self.life = Life.FAILED
        if isinstance(error, NotCoordinatorError):
            # Leadership is gone; the metadata change that will close this partition has not arrived yet.
            logger.info("%s %s: %s", self, what, error)
        else:
            self._log_failure(what, error)
        self._settle_all(NotCoordinatorError(f"{self} {what}"))
        self.shard.unloaded()

    def _log_failure(self, what: str, error: Exception) -> None:
        cause = error.__cause__ if isinstance(error, UnreadableRecordError) else error
        foreseen = cause is None or isinstance(cause, CoordinatorError | DecodeError | RecordError)
        logger.error(
            "%s %s, what it keeps is unavailable: %s",
            self,
            what,
            error,
            exc_info=None if foreseen else error,
            extra={"topic": self.topic, "partition": self.index, "error": str(error)},
        )

    # Writing

    def submit(self, write: Write) -> None:
        """Queue a write: a partition's writes are committed in the order of these calls. The partition must be serving.

        Those of one turn of the event loop are appended when it ends, in one batch if they fit; those that come while
        an append is under way, at the end of the turn that ends it.
        """
        assert self.life is _SERVING
        if self._unsettled_bytes + write.size_bytes > MAX_QUEUED_BYTES:
            raise CoordinatorNotAvailableError(f"{self} has too many writes waiting")
        self._queue.append(write)
        self._unsettled_bytes += write.size_bytes
        if not self._is_writing:
            self._is_writing = True
            self._log.turn.commit(self._commit_queued)

    def _commit_queued(self) -> None:
        """The turn ends: begin to commit what has been submitted."""
        # There is nothing if it was closed, or has failed, in this turn.
        if self._queue:
            self._go_on(self._commit())
        else:
            self._is_writing = False

    def _go_on(self, commit: Stages[None]) -> None:
        """Commit up to where it has to wait: for the stores to write, at the turn's end, or for more, in a task."""
        try:
            wait = next(commit)
        except StopIteration:
            self._next()
        except Exception as error:  # noqa: BLE001 - whatever it is, it ends this partition alone
            self._fail("cannot follow its log", error)
            self._is_writing = False
        else:
            if isinstance(wait, TurnWait):
                self._log.turn.note(partial(self._note_written, commit, wait))
            else:
                self._wait_in_task(commit, wait)

    def _note_written(self, commit: Stages[None], wait: TurnWait) -> None:
        """The stores have written what they could at once."""
        if self.life is not _SERVING:
            commit.close()
            self._is_writing = False
        elif wait.is_over:
            self._go_on(commit)
        else:
            self._wait_in_task(commit, wait)

    def _wait_in_task(self, commit: Stages[None], wait: Wait) -> None:
        self._scope = trio.CancelScope()
        rest = go_on(commit, wait)
        try:
            self._nursery.start_soon(self._finish, rest)
        except RuntimeError:
            # The nursery has ended with all its tasks; the callers that still wait run in other nurseries.
            rest.close()
            self._give_up()

    def _next(self) -> None:
        """One batch is committed, or refused."""
        if self._queue:
            self._log.turn.commit(self._commit_queued)
        else:
            self._is_writing = False

    async def _finish(self, commit: Rest[None]) -> None:
        """Wait until a batch is committed, which takes more than the turn in which it was appended."""
        remote_time.begin_background()
        is_over = False
        try:
            with self._scope:
                await commit
                is_over = True
        except Exception as error:  # noqa: BLE001 - whatever it is, it ends this partition alone
            self._fail("cannot follow its log", error)
        finally:
            if is_over:
                self._next()
            else:
                # Nothing is left, unless this task was cancelled with all that its nursery runs.
                self._give_up()

    def _give_up(self) -> None:
        self._is_writing = False
        self._settle_all(NotCoordinatorError(f"{self} is no longer written to"))

    def _commit(self) -> Stages[None]:
        self._under_way = [self._queue.popleft()]
        if not self._decide(self._under_way[0]):
            return
        self._gather(self._under_way)
        while True:
            try:
                offset = yield from self._log.begin_append(self.index, self._build(self._under_way))
            except CoordinatorError as error:
                self._settle_under_way(error)
                return
            # There are none any more if the partition was closed in the turn in which the append ended.
            for write in self._under_way:
                offset = self._replay(write, offset)
            if not self._under_way or not self._under_way[0].take_next():
                break
            yield trio.lowlevel.checkpoint
        self._settle_under_way(None)

    def _decide(self, write: Write) -> bool:
        """Its turn has come: let its plan, if it has one, say what to write. False if that is nothing."""
        if write.plan is None:
            return True
        try:
            write.take_planned(write.plan())
        except CoordinatorError as refused:
            self._settle_under_way(refused)
            return False
        self._unsettled_bytes += write.size_bytes
        if not write.records:
            self._settle_under_way(None)
        return bool(write.records)

    def _gather(self, writes: list[Write]) -> None:
        """Add the writes that can go in one batch with the first: of one producer, and no more than fit."""
        producer, size_bytes = writes[0].producer, writes[0].size_bytes
        while self._queue and writes[0].marker is None:
            following = self._queue[0]
            size_bytes += following.size_bytes
            if following.marker or following.plan or following.producer != producer or size_bytes > MAX_BATCH_BYTES:
                break
            writes.append(self._queue.popleft())

    def _build(self, writes: list[Write]) -> bytes:
        producer, marker = writes[0].producer, writes[0].marker
        now_ms = self._clock.time_ms()
        if marker is not None:
            assert len(writes) == 1
            return build_end_txn_marker(marker, timestamp_ms=now_ms)
        records = writes[0].records if len(writes) == 1 else [record for write in writes for record in write.records]
        if producer is None:
            return build_keyed(records, now_ms)
        return build_keyed(
            records,
            now_ms,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            is_transactional=True,
        )

    def _replay(self, write: Write, offset: int) -> int:
        if write.marker is not None:
            self.shard.replay_marker(write.marker)
        for record in write.records:
            self.shard.replay(offset, write.producer, record)
            offset += 1
        return offset

    def _settle_under_way(self, error: CoordinatorError | None) -> None:
        writes, self._under_way = self._under_way, []
        for write in writes:
            self._unsettled_bytes -= write.size_bytes
            write.settle(error)

    def _settle_all(self, error: CoordinatorError) -> None:
        self._under_way = [*self._under_way, *self._queue]
        self._queue.clear()
        self._settle_under_way(error)
