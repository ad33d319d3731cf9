"""Clients that move records from one topic to another, exactly once: a transaction commits offsets with records."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import trio

from ottla.client.aborted_transactions import AbortedTransactions
from ottla.client.errors import ClientError
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.data.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.kproto.messages.groups.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.kproto.messages.groups.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.kproto.messages.transactions.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.kproto.records import iter_batches, iter_records
from ottla.kproto.schema import Request
from ottla.simulation.cluster.clients.producer import RETRIABLE
from ottla.simulation.cluster.clients.transactions import COORDINATOR_MOVES, TransactionalProducer, find_coordinator
from ottla.simulation.cluster.histories.attempts import Move
from ottla.simulation.cluster.histories.moves import NOTHING, wrong_offset

if TYPE_CHECKING:
    from ottla.simulation.cluster.histories.attempts import Partition
    from ottla.simulation.cluster.histories.client_environment import ClientEnvironment

__all__ = ["MOVED", "Mover", "with_moved"]

MOVED: Final = "moved"
"""The topic that records are moved to, each to the partition of the same number."""
_GROUP: Final = "movers"


def with_moved(partitions: Sequence[Partition]) -> list[Partition]:
    """These partitions, and those that their records are moved to."""
    return [*partitions, *((MOVED, index) for _, index in partitions)]


class Mover(TransactionalProducer):
    """One of several with the same transactional id: one that begins fences the last one and ends what it has open."""

    def __init__(self, world: ClientEnvironment, name: str, partitions: Sequence[Partition]) -> None:
        super().__init__(world, name, partitions, transactional_id="mover")
        self._max_bytes = world.rng.choice((200, 1000))
        self._group_coordinator = -1
        #: The group's offsets as this one has read them, or written them since; empty if it has to read them again.
        self._offsets: dict[Partition, int] = {}
        self._positions: dict[Partition, int] = {}

    async def work(self) -> None:
        count = 0
        while not self.world.is_ending:
            if self._producer_id < 0:
                # The other one may go on for a while.
                await trio.sleep(self.rng.choice((0.0, 1.0, 3.0)) * self.rng.random())
                await self._begin_anew()
                self._offsets = {}
            if not self._offsets and not await self._read_offsets():
                continue
            await trio.sleep(self.rng.uniform(0, self._pause_s))
            move = Move(f"{self.name}#{count}", self.transactional_id)
            count += 1
            await self._move(move)
        if self._producer_id < 0:
            await self._begin_anew()

    async def _move(self, move: Move) -> None:
        for partition in self.rng.sample(self._partitions, self.rng.randint(1, len(self._partitions))):
            await self._take(move, partition)
        if not move.read:
            return
        self.world.history.moves.append(move)
        await self._transact(move, partial(self._write, move), is_committed=self.rng.random() < 0.8)
        if move.outcome:
            self._offsets.update(move.written)
        else:
            self._offsets = {}

    async def _write(self, move: Move) -> None:
        for partition, records in move.inputs.items():
            target = (MOVED, partition[1])
            await self._add(target)
            batch = self._batch(target, len(records), move)
            move.outputs += batch
            await self._deliver(target, batch)
        await self._commit_offsets(move)

    async def _take(self, move: Move, partition: Partition) -> None:
        """Let the transaction move what readers of committed records find next, if there is anything."""
        begins = self._positions[partition]
        found, ends = await self._fetch(partition, begins)
        self._positions[partition] = ends
        if found:
            move.read[partition], move.written[partition] = self._offsets[partition], ends
            move.inputs[partition] = found

    async def _fetch(self, partition: Partition, offset: int) -> tuple[dict[int, bytes], int]:
        """The records that a reader finds there, and where to go on."""
        leader = await self.leader(partition)
        asked = FetchPartition(
            partition=partition[1],
            current_leader_epoch=self.leader_epoch(partition),
            fetch_offset=offset,
            partition_max_bytes=self._max_bytes,
        )
        topic = FetchTopic(topic=partition[0], topic_id=self.topic_id(partition[0]), partitions=[asked])
        request = FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=100_000, isolation_level=1, topics=[topic])
        try:
            answer = await self.call(leader, request, channel="fetch", at_most=12)
        except ClientError:
            answer = None
        if answer is None or answer.error_code:
            self.forget_leader(partition)
            return {}, offset
        data = answer.responses[0].partitions[0]
        code = ErrorCode(data.error_code)
        if code is not ErrorCode.NONE:
            self.world.check(
                self.reads_again(code, RETRIABLE), f"{self.name} is told {code.name} for {partition} at {offset}"
            )
            self.forget_leader(partition)
            return {}, offset
        records = bytes(data.records or b"")
        aborted = AbortedTransactions((each.producer_id, each.first_offset) for each in data.aborted_transactions or ())
        found: dict[int, bytes] = {}
        ends = offset
        for position, header in iter_batches(records):
            if not (aborted.hides(header) or header.is_control):
                for record in iter_records(records, position, header):
                    if record.offset >= offset:
                        found[record.offset] = record.value or b""
            ends = max(ends, header.next_offset)
        return found, ends

    async def _read_offsets(self) -> bool:
        """Read the group's offsets, when no transaction that writes them is open; False if that fails for now."""
        moves = self.world.history.moves
        least = {
            partition: max((it.written.get(partition, NOTHING) for it in moves if it.outcome), default=NOTHING)
            for partition in self._partitions
        }
        topic = self._partitions[0][0]
        named = OffsetFetchRequestTopics(name=topic, partition_indexes=[index for _, index in self._partitions])
        group = OffsetFetchRequestGroup(group_id=_GROUP, topics=[named])
        answer = await self._ask_group(OffsetFetchRequest(groups=[group], require_stable=True), at_most=9)
        if answer is None:
            return False
        told = answer.groups[0]
        codes = [told.error_code, *(it.error_code for topic in told.topics for it in topic.partitions)]
        if any(codes):
            await self._group_moved()
            return False
        found = {(topic, it.partition_index): it.committed_offset for it in told.topics[0].partitions}
        for partition, offset in found.items():
            finding = wrong_offset(moves, partition, offset, least[partition])
            self.world.check(not finding, f"{self.name}: {finding}")
        self._offsets = found
        self._positions = {partition: max(0, offset) for partition, offset in found.items()}
        self.note(f"goes on from {list(found.values())}")
        return True

    async def _commit_offsets(self, move: Move) -> None:
        """Let the offsets be committed with the transaction."""
        if not self._is_implicit:
            added = AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self._producer_id,
                producer_epoch=self._epoch,
                group_id=_GROUP,
            )
            while (answer := await self._ask(added, "adds the group", at_most=3)) is None or answer.error_code:
                if answer is not None and ErrorCode(answer.error_code) not in COORDINATOR_MOVES:
                    self._check_over(ErrorCode(answer.error_code), "adds the group")
        parts = [
            TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata="")
            for (_, index), offset in move.written.items()
        ]
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=_GROUP,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            topics=[TxnOffsetCommitRequestTopic(name=self._partitions[0][0], partitions=parts)],
        )
        while True:
            answer = await self._ask_group(request, at_most=5 if self._is_implicit else 3)
            if answer is None:
                continue
            code = max(ErrorCode(it.error_code) for it in answer.topics[0].partitions)
            if code is ErrorCode.NONE:
                return
            self.note(f"commits offsets: {code.name}")
            if code not in COORDINATOR_MOVES and code not in RETRIABLE:
                self._check_over(code, "commits offsets")
            await self._group_moved()

    async def _ask_group(self, request: Request, *, at_most: int) -> Any:
        """The answer of the group's coordinator, None if there was none."""
        if self._group_coordinator < 0:
            self._group_coordinator = await find_coordinator(self, _GROUP, is_transaction=False)
        try:
            return await self.call(self._group_coordinator, request, at_most=at_most)
        except ClientError:
            await self._group_moved()
            return None

    async def _group_moved(self) -> None:
        self._group_coordinator = -1
        await trio.sleep(self.rng.uniform(0, 0.2))
