"""Transactional producers: records of several partitions that are to be seen together, or never."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import trio

from ottla.client.errors import ClientError
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.data.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.kproto.messages.groups.find_coordinator import FindCoordinatorRequest
from ottla.kproto.messages.transactions.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.kproto.messages.transactions.end_txn import EndTxnRequest
from ottla.kproto.messages.transactions.init_producer_id import InitProducerIdRequest
from ottla.kproto.records import BatchBuilder
from ottla.kproto.schema import Request
from ottla.simulation.cluster.clients.client import Client
from ottla.simulation.cluster.clients.producer import RETRIABLE
from ottla.simulation.cluster.histories.attempts import Attempt, Transaction

if TYPE_CHECKING:
    from ottla.simulation.cluster.histories.attempts import Partition
    from ottla.simulation.cluster.histories.client_environment import ClientEnvironment

__all__ = ["COORDINATOR_MOVES", "TransactionalProducer", "find_coordinator"]

COORDINATOR_MOVES: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    }
)
_OVER: Final = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    }
)
"""The transaction has ended already, as it took too long: the producer begins anew."""
_GROUP, _TRANSACTION = 0, 1


class _OverError(Exception):
    """The transaction cannot be committed any more."""


async def find_coordinator(client: Client, key: str, *, is_transaction: bool) -> int:
    """Which broker coordinates a group or a transactional id; asks until it is known."""
    kind = _TRANSACTION if is_transaction else _GROUP
    while True:
        answer = await client.any_node(FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]))
        found = answer.coordinators[0]
        if found.error_code == ErrorCode.NONE:
            return int(found.node_id)
        await trio.sleep(client.rng.uniform(0.05, 0.3))


class TransactionalProducer(Client):
    """One transaction after the other, with either version of the protocol."""

    def __init__(
        self,
        world: ClientEnvironment,
        name: str,
        partitions: Sequence[Partition],
        *,
        transactional_id: str | None = None,
    ) -> None:
        super().__init__(world, name)
        self.transactional_id = transactional_id or name
        self._partitions = partitions
        self._is_implicit = (
            world.rng.random() < 0.6
        )  # KIP-890: Produce adds its partitions, and EndTxn raises the epoch
        self._pause_s = world.rng.choice((0.2, 0.6))
        self._coordinator = -1
        self._producer_id = -1
        self._epoch = -1
        self._sequences: dict[Partition, int] = {}
        self._numbers: dict[Partition, int] = {}
        self._may_be_committed = False

    async def work(self) -> None:
        count = 0
        while not self.world.is_ending:
            if self._producer_id < 0:
                await self._begin_anew()
            await trio.sleep(self.rng.uniform(0, 2 * self._pause_s))
            transaction = Transaction(f"{self.name}#{count}", self.transactional_id)
            count += 1
            send = partial(self._send_some, transaction)
            await self._transact(transaction, send, is_committed=self.rng.random() < 0.7)
        if self._producer_id < 0:
            await self._begin_anew()  # which aborts what is left open

    async def _send_some(self, transaction: Transaction) -> None:
        for partition in self.rng.sample(self._partitions, self.rng.randint(1, len(self._partitions))):
            await self._add(partition)
            await self._deliver(partition, self._batch(partition, self.rng.randint(1, 2), transaction))

    async def _transact(
        self, transaction: Transaction, send: Callable[[], Awaitable[None]], *, is_committed: bool
    ) -> None:
        """Send, and commit or abort."""
        self._may_be_committed = False
        try:
            await send()
            if not is_committed:
                transaction.outcome = False
            await self._end(transaction, is_committed=is_committed)
        except _OverError as error:
            if transaction.outcome is None and not self._may_be_committed:
                transaction.outcome = False
            self.note(f"gives {transaction.name} up: {error}; {self._told(transaction)}")
            self._producer_id = -1

    @staticmethod
    def _told(transaction: Transaction) -> str:
        return {None: "nobody knows", True: "committed", False: "aborted"}[transaction.outcome]

    def _batch(self, partition: Partition, count: int, transaction: Transaction) -> list[Attempt]:
        first = self._numbers.get(partition, 0)
        self._numbers[partition] = first + count
        return [self.world.history.begin(self.name, partition, first + each, transaction) for each in range(count)]

    async def _begin_anew(self) -> None:
        """Ask for a producer id and epoch, which ends what was open."""
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=8_000)
        while True:
            answer = await self._ask(request, "begins anew", at_most=4)
            if answer is not None and answer.error_code == ErrorCode.NONE:
                break
            if answer is not None and ErrorCode(answer.error_code) not in COORDINATOR_MOVES:
                self.world.fail(f"{self.name} cannot begin: {ErrorCode(answer.error_code).name}")
                return
        self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
        self._sequences = {}
        self.note(f"is producer {self._producer_id} in epoch {self._epoch}")

    async def _ask(self, request: Request, what: str, *, at_most: int) -> Any:
        """The coordinator's answer, None if there was none; one that has moved is looked up the next time."""
        if self._coordinator < 0:
            self._coordinator = await find_coordinator(self, self.transactional_id, is_transaction=True)
        try:
            answer = await self.call(self._coordinator, request, at_most=at_most)
        except ClientError:
            self.note(f"{what}: no answer of {self._coordinator}")
            self._coordinator = -1
            return None
        code = ErrorCode(getattr(answer, "error_code", 0))
        if code is not ErrorCode.NONE:
            self.note(f"{what}: {code.name} by {self._coordinator}")
            if code in COORDINATOR_MOVES:
                self._coordinator = -1
                await trio.sleep(self.rng.uniform(0, 0.2))
        return answer

    async def _add(self, partition: Partition) -> None:
        """Tell the coordinator of a partition, where the protocol asks for it."""
        if self._is_implicit:
            return
        topic = AddPartitionsToTxnTopic(name=partition[0], partitions=[partition[1]])
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self._producer_id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=[topic],
        )
        while True:
            answer = await self._ask(request, f"adds {partition[1]}", at_most=3)
            if answer is None:
                continue
            code = ErrorCode(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)
            if code is ErrorCode.NONE:
                return
            if code in COORDINATOR_MOVES:
                self._coordinator = -1
                await trio.sleep(self.rng.uniform(0, 0.2))
            elif code not in RETRIABLE:
                self._check_over(code, f"adds {partition[1]}")

    def _check_over(self, code: ErrorCode, what: str) -> None:
        if code not in _OVER:
            self.world.fail(f"{self.name} {what} and is told {code.name}")
        raise _OverError(f"{what}: {code.name}")

    async def _deliver(self, partition: Partition, batch: Sequence[Attempt]) -> None:
        sequence = self._sequences.get(partition, 0)
        builder = BatchBuilder(
            producer_id=self._producer_id, producer_epoch=self._epoch, base_sequence=sequence, is_transactional=True
        )
        for attempt in batch:
            builder.append(None, attempt.value, 1_700_000_000_000)
        records = builder.build()
        what = f"{batch[0].value.decode()}+{len(batch)}"
        while True:
            leader = await self.leader(partition)
            code, offset = await self._send(leader, partition, records)
            if code == ErrorCode.NONE:
                self.note(f"{what} acknowledged by {leader} at {offset}")
                self._sequences[partition] = sequence + len(batch)
                for index, attempt in enumerate(batch):
                    self.world.history.acknowledge(attempt, offset + index if offset >= 0 else -1)
                return
            self.note(f"{what} not by {leader}: {'no answer' if code is None else code.name}")
            if code is not None and code not in RETRIABLE and code not in COORDINATOR_MOVES:
                self._check_over(code, f"sends {what}")
            if code not in COORDINATOR_MOVES:
                self.forget_leader(partition)
            await trio.sleep(self.rng.uniform(0, 0.1))

    async def _send(self, leader: int, partition: Partition, records: bytes) -> tuple[ErrorCode | None, int]:
        topic, index = partition
        data = PartitionProduceData(index=index, records=records)
        named = TopicProduceData(name=topic, topic_id=self.topic_id(topic), partition_data=[data])
        request = ProduceRequest(transactional_id=self.transactional_id, acks=-1, timeout_ms=2_000, topic_data=[named])
        try:
            answer = await self.call(leader, request, at_most=13 if self._is_implicit else 11)
        except ClientError:
            return None, -1
        (told,) = answer.responses[0].partition_responses
        return ErrorCode(told.error_code), told.base_offset

    async def _end(self, transaction: Transaction, *, is_committed: bool) -> None:
        what = f"{'commits' if is_committed else 'aborts'} {transaction.name}"
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            committed=is_committed,
        )
        while True:
            answer = await self._ask(request, what, at_most=5 if self._is_implicit else 4)
            code = None if answer is None else ErrorCode(answer.error_code)
            if code is None or code is ErrorCode.REQUEST_TIMED_OUT or code in COORDINATOR_MOVES:
                # The former coordinator may have decided it, and the next one may no longer say so.
                self._may_be_committed = is_committed
                continue
            if code is ErrorCode.NONE:
                transaction.outcome = is_committed
                self.note(what)
                self._may_be_committed = False
                if answer.producer_epoch >= 0:
                    if (answer.producer_id, answer.producer_epoch) != (self._producer_id, self._epoch):
                        self._sequences = {}
                    self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
                return
            self._check_over(code, what)
