"""Consumers without a group: each reads all partitions from their beginning, and tells the history what it finds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import trio

from ottla.client.aborted_transactions import AbortedTransactions
from ottla.client.errors import ClientError
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.data.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.kproto.records import Record, iter_batches, iter_records
from ottla.simulation.cluster.clients.client import Client
from ottla.simulation.cluster.clients.producer import RETRIABLE

if TYPE_CHECKING:
    from ottla.simulation.cluster.histories.attempts import Partition
    from ottla.simulation.cluster.histories.client_environment import ClientEnvironment

__all__ = ["Consumer"]

_MAX_WAIT_MS = 500


class Consumer(Client):
    """Has one task for each broker, which fetches what that one leads."""

    def __init__(
        self, world: ClientEnvironment, name: str, partitions: Sequence[Partition], *, is_committed: bool
    ) -> None:
        super().__init__(world, name)
        self._is_committed = is_committed
        self._max_bytes = world.rng.choice((200, 1000, 100_000))
        self._at_most = world.rng.choice((11, 12, 17))
        self.positions = dict.fromkeys(partitions, 0)
        #: What it has found, by offset.
        self.records: dict[Partition, dict[int, bytes]] = {partition: {} for partition in partitions}
        #: The high watermarks in the last answers: transactions end, so every reader gets there.
        self.ends: dict[Partition, int] = {}

    async def work(self) -> None:
        async with trio.open_nursery() as nursery:
            followed: list[int] = []
            while not self.is_done:
                for node_id in [each for each in self.known_nodes if each not in followed]:
                    followed.append(node_id)
                    nursery.start_soon(self._follow, node_id)
                await trio.sleep(0.1)
            nursery.cancel_scope.cancel()

    @property
    def is_done(self) -> bool:
        return self.world.is_ending

    async def _follow(self, node_id: int) -> None:
        while True:
            led = [each for each in self.positions if self.known_leader(each) == node_id]
            if led:
                await self._fetch(node_id, led)
            elif any(self.known_leader(each) < 0 for each in self.positions):
                await self.refresh(*dict.fromkeys(topic for topic, _ in self.positions))
                await trio.sleep(0.05)
            else:
                await trio.sleep(0.3)

    async def _fetch(self, node_id: int, led: Sequence[Partition]) -> None:
        asked = {partition: self.positions[partition] for partition in led}
        topics: dict[str, FetchTopic] = {}
        for (topic, index), offset in asked.items():
            named = topics.setdefault(topic, FetchTopic(topic=topic, topic_id=self.topic_id(topic), partitions=[]))
            named.partitions.append(
                FetchPartition(
                    partition=index,
                    # Without it a former leader that follows now would answer for what it has (KIP-320, KIP-392).
                    current_leader_epoch=self.leader_epoch((topic, index)),
                    fetch_offset=offset,
                    partition_max_bytes=self._max_bytes,
                )
            )
        request = FetchRequest(
            max_wait_ms=_MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=1_000_000,
            isolation_level=int(self._is_committed),
            topics=list(topics.values()),
        )
        try:
            answer = await self.call(node_id, request, channel="fetch", at_most=self._at_most)
        except ClientError:
            answer = None
        if answer is None or answer.error_code:
            for partition in led:
                self.forget_leader(partition)
            await trio.sleep(self.rng.uniform(0, 0.2))
            return
        names = {self.topic_id(topic): topic for topic in topics}
        for found in answer.responses:
            for data in found.partitions:
                partition = (found.topic or names[found.topic_id], data.partition_index)
                await self._take(partition, asked[partition], data)

    async def _take(self, partition: Partition, offset: int, data: Any) -> None:
        code = ErrorCode(data.error_code)
        if code is not ErrorCode.NONE:
            self.world.check(
                self.reads_again(code, RETRIABLE),
                f"{self.name} was told {code.name} for {partition} at {offset}, which it had reached",
            )
            self.forget_leader(partition)
            await trio.sleep(self.rng.uniform(0, 0.1))
            return
        if self.positions[partition] != offset:
            return  # another broker was faster
        self.ends[partition] = data.high_watermark
        records = bytes(data.records or b"")
        aborted = AbortedTransactions((each.producer_id, each.first_offset) for each in data.aborted_transactions or ())
        visible_end = data.last_stable_offset if self._is_committed else data.high_watermark
        for position, header in iter_batches(records):
            self.world.check(
                header.next_offset <= visible_end,
                f"{self.name} is shown {partition} up to {header.next_offset}, and only {visible_end} is committed",
            )
            if not (self._is_committed and aborted.hides(header)) and not header.is_control:
                for record in iter_records(records, position, header):
                    if record.offset >= offset:
                        self._found(partition, record)
            self.positions[partition] = max(self.positions[partition], header.next_offset)

    def _found(self, partition: Partition, record: Record) -> None:
        value = record.value or b""
        self.records[partition][record.offset] = value
        self.world.history.saw(self.name, partition, record.offset, value, is_committed=self._is_committed)


class Auditor(Consumer):
    """Reads everything that there is in the end."""

    @property
    def is_done(self) -> bool:
        return all(self.positions[each] >= self.ends.get(each, 1 << 62) for each in self.positions)
