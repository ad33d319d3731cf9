"""One consumer: what it is subscribed to, what it has, where it is, and what it reads.

One request at a time has it; so has the group, when it takes partitions away: a request that waits for records is then
ended, without records. So a record is never handed out of a partition that the member has given up.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Final, NamedTuple
from uuid import UUID

import trio

from ottla.client.errors import BrokerError, ClientError
from ottla.client.offsets import EARLIEST, LATEST, TopicPartition
from ottla.kproto.errors import ErrorCode
from ottla.kproto.records import Record, RecordError
from ottla.rest.cluster import Cluster
from ottla.rest.consumers.fetching import Fetched, Read, fetch, read
from ottla.rest.consumers.group import Committed, Group, Member
from ottla.rest.consumers.membership import Membership
from ottla.rest.errors import KAFKA_ERROR, RestError, consumer_not_found, illegal_state, partition_not_found
from ottla.rest.values import Format
from ottla.rest.work import Work

_ROUND_MS: Final = 500
_PAUSE_SECONDS: Final = 0.02
_LEAVE_SECONDS: Final = 5.0
_COMMIT_ATTEMPTS: Final = 20
_COMMIT_PAUSE_SECONDS: Final = 0.1
_EXCLUSIVE: Final = "Subscription to topics and assignment of partitions are mutually exclusive"


class Settings(NamedTuple):
    """The settings of a consumer. `reset` is earliest, latest or none."""

    form: Format
    reset: str
    commits_itself: bool
    timeout_ms: int


class Delivered(NamedTuple):
    """Records of one partition."""

    part: TopicPartition
    records: Sequence[Record]


class Consumer:
    """One of them. Its verbs raise RestError and ClientError; the task that calls `run` owns it."""

    def __init__(self, cluster: Cluster, fetching: Cluster, work: Work, group_id: str, settings: Settings) -> None:
        """`fetching` is a cluster of its own, whose connections it holds up; it runs it."""
        self.settings = settings
        self._cluster = cluster
        self._fetching = fetching
        self._work = work
        self._group_id = group_id
        self._group = Group(cluster, group_id)
        self._turn = trio.Lock()
        self._topics: tuple[str, ...] = ()
        self._membership: Membership | None = None
        self._membership_ends = trio.CancelScope()
        self._membership_ended = trio.Event()
        #: The next offset in each of its partitions; None before that was looked up.
        self._positions: dict[TopicPartition, int | None] = {}
        self._has_uncommitted = False
        self._assigned = trio.Event()
        #: The request that waits for records, and how many others need the consumer before anybody may wait again.
        self._waiting: trio.CancelScope | None = None
        self._urgent = 0
        self._nursery: trio.Nursery | None = None
        self._is_over = False
        self._last_used = trio.current_time()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Live until cancelled, or `end`."""
        async with trio.open_nursery() as self._nursery:
            self._nursery.start_soon(self._fetching.run)
            task_status.started()

    @property
    def idle_seconds(self) -> float:
        """How long it has not been used; 0 while a request uses it."""
        return 0.0 if self._turn.locked() else trio.current_time() - self._last_used

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Has it for the length of a block, as all verbs that await anything need. RestError 40403 if it has ended."""
        async with self._turn:
            if self._is_over:
                raise consumer_not_found()
            try:
                yield
            finally:
                self._last_used = trio.current_time()

    @asynccontextmanager
    async def _urgent_turn(self) -> AsyncIterator[None]:
        """Has it as soon as nobody but those who wait for records has it: these are ended, without records."""
        self._urgent += 1
        try:
            if self._waiting is not None:
                self._waiting.cancel()
            async with self._turn:
                yield
        finally:
            self._urgent -= 1

    async def end(self) -> None:
        """Commit if it does so itself, leave its group, and end `run`; a request that waits for records is ended."""
        async with self._urgent_turn():
            self._is_over = True
            with trio.move_on_after(_LEAVE_SECONDS):
                await self._commit_own()
                await self._end_membership()
            if self._nursery is not None:
                self._nursery.cancel_scope.cancel()

    def abandon(self) -> None:
        """End `run` without leaving the group, even while a request uses the consumer."""
        self._is_over = True
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()

    # Subscription and assignment.

    @property
    def subscription(self) -> tuple[str, ...]:
        return self._topics

    @property
    def assignment(self) -> list[TopicPartition]:
        return sorted(self._positions)

    async def subscribe(self, topics: Sequence[str]) -> None:
        """Take part in the group for these topics, in place of those before."""
        if self._positions and self._membership is None:
            raise illegal_state(_EXCLUSIVE)
        await self._end_membership()
        if not topics:
            return
        assert self._nursery is not None
        self._topics = tuple(sorted(set(topics)))
        self._membership = Membership(self._group, self._group_id, self._topics, self)
        self._membership_ends, self._membership_ended = trio.CancelScope(), trio.Event()
        self._nursery.start_soon(self._be_member, self._membership, self._membership_ends, self._membership_ended)

    async def assign(self, parts: Iterable[TopicPartition]) -> None:
        """Have these partitions, in place of those before, whatever others of the group have."""
        if self._membership is not None:
            raise illegal_state(_EXCLUSIVE)
        wanted = set(parts)
        await self._check_exist(wanted)
        await self._commit_own()
        self._positions = {part: self._positions.get(part) for part in wanted}
        self._assigned.set()

    async def _be_member(self, membership: Membership, scope: trio.CancelScope, ended: trio.Event) -> None:
        try:
            with scope:
                await membership.run()
        finally:
            ended.set()

    async def _end_membership(self) -> None:
        membership = self._membership
        if membership is not None:
            await self._commit_own()
            self._membership_ends.cancel()
            await self._membership_ended.wait()
            self._membership = None
            with suppress(ClientError):  # otherwise its session ends
                await membership.leave()
        self._topics, self._positions, self._has_uncommitted = (), {}, False
        self._assigned = trio.Event()

    async def take_assigned(self, parts: frozenset[TopicPartition]) -> None:
        """Take the group's new assignment. The offsets of partitions that are taken away are committed first."""
        if self._positions.keys() - parts:
            async with self._urgent_turn():
                await self._commit_own()
                self._set_assignment(parts)
        else:
            self._set_assignment(parts)

    def _set_assignment(self, parts: frozenset[TopicPartition]) -> None:
        self._positions = {part: self._positions.get(part) for part in parts}
        if parts:
            self._assigned.set()
        else:
            self._assigned = trio.Event()

    # Positions.

    def seek(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Go on at these offsets; RestError 40903 if it has not got the partitions."""
        self._check_has(offsets)
        self._positions.update(offsets)
        self._has_uncommitted = True

    async def seek_to(self, parts: Iterable[TopicPartition], timestamp_ms: int) -> None:
        """Go on at EARLIEST or LATEST."""
        wanted = list(parts)
        self._check_has(wanted)
        for part in wanted:
            offset = await self._cluster.offset_at(part.topic, part.partition, timestamp_ms)
            if part in self._positions:
                self._positions[part] = offset
        self._has_uncommitted = True

    async def committed(self, parts: Iterable[TopicPartition]) -> dict[TopicPartition, Committed]:
        """The group's committed offsets."""
        return await self._group.committed(parts)

    async def commit(self, offsets: Mapping[TopicPartition, Committed] | None) -> None:
        """Commit these offsets, or (None) where it is in all its partitions."""
        if offsets is None:
            positions = {part: Committed(it, "") for part, it in self._positions.items() if it is not None}
            await self._commit(positions)
            self._has_uncommitted = False
        else:
            await self._commit(offsets)

    async def _commit(self, offsets: Mapping[TopicPartition, Committed]) -> None:
        if not offsets:
            return
        for attempt in range(_COMMIT_ATTEMPTS):
            member = Member() if self._membership is None else self._membership.member
            try:
                await self._group.commit(member, offsets)
            except BrokerError as error:
                # The next heartbeat's answer has the present epoch.
                if error.code != ErrorCode.STALE_MEMBER_EPOCH or attempt == _COMMIT_ATTEMPTS - 1:
                    raise
                await trio.sleep(_COMMIT_PAUSE_SECONDS)
            else:
                return

    async def _commit_own(self) -> None:
        """Commit the positions if the consumer does so by itself. After a failure they are committed the next time."""
        if self._membership is not None and not self._membership.is_in_group:
            return
        if self.settings.commits_itself and self._has_uncommitted:
            with suppress(ClientError):
                await self.commit(None)

    # Records.

    async def records(self, max_bytes: int, timeout_ms: int) -> list[Delivered]:
        """The next records of its partitions; none if none come in time, or the group takes partitions away.

        It goes on behind them only with `deliver`.
        """
        if self._membership is None and not self._positions:
            raise illegal_state("Consumer is not subscribed to any topics or assigned any partitions")
        await self._commit_own()
        found: list[Delivered] = []
        if self._urgent:
            return found
        with trio.move_on_after(timeout_ms / 1000) as self._waiting:
            try:
                await self._assigned.wait()
                found = await self._next(max_bytes)
            finally:
                self._waiting = None
        if not found and self._membership is not None and self._membership.failure is not None:
            raise self._membership.failure
        return found

    def deliver(self, delivered: Iterable[Delivered]) -> None:
        """Go on behind these records, which the client gets now."""
        for part, records in delivered:
            if part in self._positions:
                self._positions[part] = records[-1].offset + 1
                self._has_uncommitted = True

    async def _next(self, max_bytes: int) -> list[Delivered]:
        wait_ms = 0
        while True:
            await self._look_up()
            offsets = {part: it for part, it in self._positions.items() if it is not None}
            found = await fetch(self._fetching, offsets, max_bytes, wait_ms)
            delivered = await self._read(found, offsets, max_bytes)
            if delivered:
                return delivered
            if not found:
                await trio.sleep(_PAUSE_SECONDS)  # an error after a change of leader comes at once
            wait_ms = _ROUND_MS

    async def _read(
        self, found: Mapping[TopicPartition, Fetched], offsets: Mapping[TopicPartition, int], max_bytes: int
    ) -> list[Delivered]:
        delivered: list[Delivered] = []
        left_bytes = max_bytes
        for part, fetched in found.items():
            if fetched.is_out_of_range:
                self._positions[part] = await self._reset(part)
                continue
            if left_bytes <= 0:
                break
            got = await self._records_of(part, fetched, offsets[part], left_bytes)
            if got.records:
                delivered.append(Delivered(part, got.records))
                left_bytes -= sum(len(it.key or b"") + len(it.value or b"") for it in got.records)
            elif self._positions.get(part) == offsets[part]:
                self._positions[part] = got.next_offset  # there is nothing for users in it
        return delivered

    async def _records_of(self, part: TopicPartition, fetched: Fetched, offset: int, limit_bytes: int) -> Read:
        try:
            return await self._work.do(len(fetched.data), partial(read, fetched.data, offset, limit_bytes))
        except RecordError as error:
            raise RestError(KAFKA_ERROR, f"Kafka error: {part} at offset {offset} cannot be read: {error}") from None

    async def _look_up(self) -> None:
        """Find the first offsets in new partitions."""
        unknown = [part for part, position in self._positions.items() if position is None]
        if not unknown:
            return
        committed = await self._group.committed(unknown)
        for part in unknown:
            offset = committed[part].offset if part in committed else await self._reset(part)
            if self._positions.get(part, 0) is None:
                self._positions[part] = offset

    async def _reset(self, part: TopicPartition) -> int:
        if self.settings.reset == "none":
            raise RestError(
                KAFKA_ERROR, f"Kafka error: {part} has no offset to go on at, and auto.offset.reset is none"
            )
        wanted = EARLIEST if self.settings.reset == "earliest" else LATEST
        return await self._cluster.offset_at(part.topic, part.partition, wanted)

    # What it asks of itself.

    def _check_has(self, parts: Iterable[TopicPartition]) -> None:
        for part in parts:
            if part not in self._positions:
                raise illegal_state(f"No current assignment for partition {part}")

    async def _check_exist(self, parts: Iterable[TopicPartition]) -> None:
        counts: dict[str, int] = {}
        for part in parts:
            if part.topic not in counts:
                counts[part.topic] = len((await self._cluster.topic(part.topic)).partitions)
            if part.partition >= counts[part.topic]:
                raise partition_not_found()

    async def topic_names(self) -> Mapping[UUID, str]:
        """The names of the topics that it has subscribed to."""
        answer = await self._cluster.metadata(self._topics)
        return {topic.topic_id: topic.name for topic in answer.topics if topic.name}
