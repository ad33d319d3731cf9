"""Reads `_schemas` into a `State`, and appends to it.

One registry writes at a time (`writer/`), but what it has sent may arrive when the next one does so already, and others
may write without asking. So each decision is bound to the position in the log at which it was taken (`append`):

- What is decided at another position than the present one is not written; the caller decides again.
- If somebody else's records came in between, the reader goes on until it has read what was written here. Where that has
  an id or a version that another schema had taken meanwhile, the state has skipped it: what counts is written back, for
  compaction and for other registries, and the caller decides again.

So what is answered to a client has been read back from the log, and no id is ever given to two schemas.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any, Final
from uuid import UUID

import trio

from ottla.client.errors import BrokerError, ClientError, ConnectionLostError
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.data.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.kproto.messages.data.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.kproto.records import Record, RecordError, iter_batches, iter_records
from ottla.registry.errors import RegistryError, UnavailableError
from ottla.registry.store import records
from ottla.registry.store.connections import Connect, Leader, Wish, connected
from ottla.registry.store.producer import Producer, Written
from ottla.registry.store.state import State
from ottla.runtime.time_slice import TimeSlice

logger = logging.getLogger(__name__)

TOPIC: Final = "_schemas"
_FETCH_BYTES: Final = 4 * 1024 * 1024
_FETCH_WAIT_MS: Final = 5_000
_WAIT_SECONDS: Final = 10.0
_SETTLE_SECONDS: Final = 30.0
_MAX_WAITING: Final = 1_000
_PAUSES_SECONDS: Final = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
_NO_SESSION: Final = -1
_LATEST: Final = -1
_MAX_REPAIRS: Final = 10
_SCHEMA_KEY: Final = b'{"keytype":"SCHEMA"'


class StaleError(Exception):
    """The log has grown since this was decided: nothing of it counts, decide again."""


class _Job:
    """A batch on its way into the log."""

    def __init__(self, position: int, written: Sequence[Written]) -> None:
        self.position = position
        self.written = written
        self.keys = {key for key, _ in written}
        #: What was read at these keys since the job began: the offset, and the values before and after it.
        self.seen: list[tuple[int, bytes, bytes | None, bytes | None]] = []
        self.done = trio.Event()
        self.failure: Exception | None = None


class SchemaLog:
    """The topic, and the state at `position`. The task that calls `run` owns its connections."""

    def __init__(self, connect: Connect, bootstrap: Sequence[tuple[str, int]], topic: str = TOPIC) -> None:
        self.topic = topic
        self.state = State()
        #: The offset of the next record to be read.
        self.position = 0
        #: The cluster's id, once it is known.
        self.cluster_id = ""
        self._connect = connect
        self._bootstrap = tuple(bootstrap)
        self._topic_id: UUID | None = None
        self._leader: Leader | None = None
        self._producer = Producer(topic)
        self._ready = trio.Event()
        self._emptied = trio.Event()
        self._wish = Wish(self)
        self._connected = trio.Event()
        self._grown = trio.Condition()
        self._jobs, self._queued = trio.open_memory_channel[_Job](_MAX_WAITING)
        self._job: _Job | None = None
        self._ends_soon = False

    def expect_end(self) -> None:
        """The broker stops: lost connections are no failures from now on."""
        self._ends_soon = True

    @property
    def is_ready(self) -> bool:
        """Whether everything that was in the topic has been read."""
        return self._ready.is_set()

    async def wait_ready(self) -> None:
        """Return when the topic has been read. Raises UnavailableError if that takes too long."""
        if self._ready.is_set():
            return
        with trio.move_on_after(_WAIT_SECONDS):
            await self._ready.wait()
            return
        raise UnavailableError(f"The topic {self.topic} cannot be read: the broker does not answer")

    async def wait_until_ready(self) -> None:
        """Return when the topic has been read, however long that takes."""
        while not self._ready.is_set():
            await self._ready.wait()

    async def wait_empty(self) -> None:
        """Return when nothing is in the topic any more, because it was deleted."""
        while self.state.version_count or self.position or not self._ready.is_set():
            await self._emptied.wait()
            await self.wait_until_ready()

    async def run(self) -> None:
        """Read and write until cancelled. Failures are logged, and tried again."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._write)
            failures = 0
            while True:
                try:
                    await self._follow()
                except* (ClientError, RecordError) as group:
                    reason = _reason(group)
                    if failures == 0 and not _is_gone(group) and not self._ends_soon:
                        logger.warning("the schemas' topic is read again: %s", reason, extra={"error": reason})
                was_connected = self._connected.is_set()
                self._leader, self._connected = None, trio.Event()
                failures = 0 if was_connected else failures + 1
                await trio.sleep(_PAUSES_SECONDS[min(failures, len(_PAUSES_SECONDS) - 1)])

    async def append(self, position: int, written: Sequence[Written]) -> None:
        """Append what was decided at `position`; `state` contains it when this returns.

        StaleError if the log had grown meanwhile in a way that matters; UnavailableError if it is not known whether
        it was written. A caller that is cancelled leaves the writing to go on.
        """
        job = _Job(position, written)
        try:
            self._jobs.send_nowait(job)
        except trio.WouldBlock:
            raise UnavailableError("Too many changes wait to be written") from None
        await job.done.wait()
        if job.failure is not None:
            raise job.failure

    async def catch_up(self) -> None:
        """Return when what is in the topic now has been read, or cannot be read for now. Somebody has written."""
        with trio.move_on_after(_WAIT_SECONDS):
            while self._leader is None:
                self._wish.make()
                with trio.move_on_after(_PAUSES_SECONDS[0]):
                    await self._connected.wait()
        leader = self._leader
        if leader is None:
            return
        partition = ListOffsetsPartition(partition_index=0, timestamp=_LATEST)
        request = ListOffsetsRequest(
            replica_id=-1, isolation_level=1, topics=[ListOffsetsTopic(name=self.topic, partitions=[partition])]
        )
        try:
            answer = await leader.writing.call(request)
            await self._reach(answer.topics[0].partitions[0].offset)
        except (ClientError, UnavailableError) as error:
            logger.debug("the end of the schemas' topic is not known: %s", error)

    # Reading

    async def _follow(self) -> None:
        self._wish = Wish(self)
        async with connected(self._connect, self._bootstrap, self.topic, self._wish) as leader:
            if self._topic_id is not None and self._topic_id != leader.topic_id:
                logger.info("the topic %s is another one: it is read from its start", self.topic)
                self._start_over()
            self._topic_id, self.cluster_id = leader.topic_id, leader.cluster_id
            while True:
                answer = await self._fetch(leader)
                if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    if self.position == max(0, answer.log_start_offset):
                        raise BrokerError(answer.error_code, what=self.topic)
                    self._start_over()
                    self.position = max(0, answer.log_start_offset)
                    continue
                if answer.error_code != ErrorCode.NONE:
                    raise BrokerError(answer.error_code, what=self.topic)
                await self._take(memoryview(answer.records or b""))
                if self.position >= answer.last_stable_offset:
                    self._leader = leader
                    self._connected.set()
                    self._ready.set()

    def topic_is_missing(self, cluster_id: str) -> None:
        """There is no topic, so there are no schemas; it is created when there is something to write."""
        if self._topic_id is not None:
            self._start_over()
        self._topic_id, self.cluster_id = None, cluster_id
        self._ready.set()

    def _start_over(self) -> None:
        self._emptied.set()
        self._emptied = trio.Event()
        self.state = State()
        self.position = 0
        self._ready = trio.Event()
        self._producer.forget()

    async def _fetch(self, leader: Leader) -> Any:
        wait_ms = _FETCH_WAIT_MS if self._connected.is_set() else 0
        partition = FetchPartition(partition=0, fetch_offset=self.position, partition_max_bytes=_FETCH_BYTES)
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=_FETCH_BYTES,
            isolation_level=1,
            session_epoch=_NO_SESSION,
            topics=[FetchTopic(topic=self.topic, topic_id=leader.topic_id, partitions=[partition])],
        )
        response = await leader.reading.call(request)
        if response.error_code != ErrorCode.NONE:
            raise BrokerError(response.error_code, what=self.topic)
        return response.responses[0].partitions[0]

    async def _take(self, batches: memoryview) -> None:
        """Apply fetched records, in slices."""
        time_slice = TimeSlice()
        for start, header in iter_batches(batches):
            for record in () if header.is_control else iter_records(batches, start, header):
                if record.offset >= self.position:
                    self._apply(record)
                if time_slice.is_over:
                    await time_slice.maybe_yield()
            self.position = max(self.position, header.next_offset)
        async with self._grown:
            self._grown.notify_all()

    def _apply(self, record: Record) -> None:
        job, key = self._job, record.key
        is_watched = job is not None and key is not None and key in job.keys
        former = self._stored(key) if is_watched and key is not None else None
        self.state.apply(key, record.value)
        self.position = record.offset + 1
        if is_watched and job is not None and key is not None:
            job.seen.append((record.offset, key, former, self._stored(key)))

    def _stored(self, key_bytes: bytes) -> bytes | None:
        """The value at a key as the state has it; None for what is not kept by key."""
        key = records.parse_key(key_bytes)
        if key is None or key.keytype != records.SCHEMA or key.subject is None:
            return None
        version = self.state.version(key.subject, key.version)
        return None if version is None else version.value().encode()

    # Writing

    async def _write(self) -> None:
        async for job in self._queued:
            try:
                await self._carry_out(job)
            except (StaleError, RegistryError) as error:
                job.failure = error
            except trio.Cancelled:
                job.failure = UnavailableError("The registry stops; it is not known whether this was written")
                job.done.set()
                raise
            finally:
                self._job = None
            job.done.set()

    async def _carry_out(self, job: _Job) -> None:
        if not self._ready.is_set() or self.position != job.position:
            raise StaleError
        before = {key: self._stored(key) for key in job.keys}
        self._job = job
        base_offset = await self._send(job.written)
        if base_offset == self.position == job.position:
            for index, (key, value) in enumerate(job.written):
                self._apply(Record(base_offset + index, -1, key, value))
            return
        end = base_offset + len(job.written)
        await self._reach(end)
        await self._check(job, before, range(base_offset, end))

    async def _reach(self, offset: int) -> None:
        """Wait until everything before an offset has been read."""
        with trio.move_on_after(_WAIT_SECONDS):
            async with self._grown:
                while self.position < offset:
                    await self._grown.wait()
            return
        raise UnavailableError("What was written cannot be read back")

    async def _check(self, job: _Job, before: dict[bytes, bytes | None], ours: range) -> None:
        """Others have written at the same time: see whether what was written here holds, and take it back if not."""
        wanted = dict(job.written)
        wrong = {
            key
            for offset, key, former, found in job.seen
            if offset in ours and key.startswith(_SCHEMA_KEY) and (former != before[key] or found != wanted[key])
        }
        if not wrong:
            return
        repairs: list[Written] = [(key, self._stored(key)) for key in wrong]
        for _ in range(_MAX_REPAIRS):
            logger.info("another registry has written at the same time: %d records are taken back", len(repairs))
            self._job = repair = _Job(self.position, repairs)
            base_offset = await self._send(repairs)
            await self._reach(base_offset + len(repairs))
            # Keys that another writer has changed between the decision and the write get that value back.
            wanted = dict(repairs)
            repairs = [
                (key, former)
                for offset, key, former, _ in repair.seen
                if offset >= base_offset and former != wanted[key]
            ]
            if not repairs:
                break
        raise StaleError

    async def _send(self, written: Sequence[Written]) -> int:
        """Append until the outcome is known; returns the offset."""
        topic_id = self._topic_id
        with trio.move_on_after(_SETTLE_SECONDS):
            while True:
                if self._topic_id != topic_id:
                    raise StaleError
                leader = self._leader
                if leader is None:
                    self._wish.make()
                    with trio.move_on_after(_PAUSES_SECONDS[-1]):
                        await self._connected.wait()
                    continue
                try:
                    return await self._producer.append(leader.writing, leader.topic_id, written)
                except ConnectionLostError:
                    leader.reading.close()
                except BrokerError as error:
                    if error.code == ErrorCode.MESSAGE_TOO_LARGE:
                        self._producer.forget()
                        raise RegistryError(42209, "Write failed because schema is too large") from None
                    if not ErrorCode.of(error.code).retriable:
                        self._producer.forget()
                        raise UnavailableError(f"Error while writing to the topic: {error}") from None
                    leader.reading.close()
                except ClientError as error:
                    raise UnavailableError(f"Error while writing to the topic: {error}") from None
                await trio.sleep(_PAUSES_SECONDS[0])
        self._producer.forget()
        raise RegistryError(50002, "Write to the Kafka store timed out; it is not known whether this was written")


def _leaves(found: BaseException) -> Iterator[BaseException]:
    if isinstance(found, BaseExceptionGroup):
        for part in found.exceptions:
            yield from _leaves(part)
    else:
        yield found


def _reason(group: BaseExceptionGroup[BaseException]) -> str:
    return "; ".join(dict.fromkeys(str(leaf) for leaf in _leaves(group)))


def _is_gone(group: BaseExceptionGroup[BaseException]) -> bool:
    """Whether the topic was deleted, which is no fault."""
    gone = (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return all(isinstance(leaf, BrokerError) and leaf.code in gone for leaf in _leaves(group))
