"""A transactional client of a cluster that finds leaders and coordinators as clients do, and tries again as they do."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from itertools import count
from typing import Any, Final

import trio

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.data.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.kproto.messages.data.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.kproto.messages.groups.find_coordinator import FindCoordinatorRequest
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
from ottla.kproto.messages.transactions.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.kproto.messages.transactions.end_txn import EndTxnRequest
from ottla.kproto.messages.transactions.init_producer_id import InitProducerIdRequest
from ottla.kproto.records import Record, build_batch, iter_batches, iter_records
from ottla.kproto.schema import Request
from tests.clusters import Cluster
from tests.servers import Client

GROUP: Final = 0
TRANSACTION: Final = 1
RETRIABLE: Final = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
)


class LostError(Exception):
    """Whether the request was carried out is not known."""


class Router:
    """Connections to the nodes of a cluster, and where a request goes."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._clients: dict[tuple[int, int], Client] = {}

    async def call(self, node_id: int, request: Request, version: int) -> Any:
        """The node's answer; LostError if it went away before it came."""
        node = self.cluster.nodes.get(node_id)
        if node is None:
            raise LostError
        try:
            client = self._clients.get((node_id, node.port))
            if client is None:
                client = self._clients[node_id, node.port] = await self.cluster.connect(node_id)
            return await client.call(request, version)
        except (OSError, EOFError, trio.BrokenResourceError, trio.ClosedResourceError):
            self._clients.pop((node_id, node.port), None)
            raise LostError from None

    async def coordinator(self, key: str, key_type: int) -> int:
        """The node that coordinates, as any node says it."""
        while True:
            asked = next(iter(self.cluster.nodes))
            request = FindCoordinatorRequest(coordinator_keys=[key], key_type=key_type)
            with suppress(LostError):
                (found,) = (await self.call(asked, request, 6)).coordinators
                if not found.error_code:
                    return int(found.node_id)
                assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            await trio.sleep(0.02)

    def leader(self, topic: str, partition: int) -> int:
        image = next(iter(self.cluster.nodes.values())).image
        state = image.partition(topic, partition)
        assert state is not None
        return state.leader


async def key_at(router: Router, node_id: int, key_type: int) -> str:
    """A group's or transaction's name that a node coordinates."""
    for number in count():
        if await router.coordinator(f"k{number}", key_type) == node_id:
            return f"k{number}"
    raise AssertionError


class TransactionalProducer:
    """One transactional id; `is_v2` speaks as a client of transactions v2 does (KIP-890)."""

    def __init__(self, router: Router, transactional_id: str, *, is_v2: bool) -> None:
        self.router = router
        self.transactional_id = transactional_id
        self.is_v2 = is_v2
        self.producer_id = self.epoch = -1
        self.sequences: Counter[tuple[str, int]] = Counter()

    async def init(self) -> None:
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=60_000)
        response = await self._coordinated(self.transactional_id, TRANSACTION, request, 5)
        self._become(response.producer_id, response.producer_epoch)

    def _become(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self.sequences.clear()
        self.producer_id, self.epoch = producer_id, epoch

    async def send(self, topic: str, partition: int, value: bytes, *, joins: bool = True) -> ErrorCode:
        """Returns the error that is not tried again, or NONE. Without `joins` there is no AddPartitionsToTxn."""
        if joins and not self.is_v2:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[partition])],
            )
            await self._coordinated(self.transactional_id, TRANSACTION, request, 3)
        batch = build_batch(
            [Record(value=value, timestamp_ms=1_700_000_000_000)],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequences[topic, partition],
            is_transactional=True,
        )
        data = PartitionProduceData(index=partition, records=memoryview(bytearray(batch)))
        produce = ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=5_000,
            topic_data=[TopicProduceData(name=topic, partition_data=[data])],
        )
        while True:
            with suppress(LostError):
                leader = self.router.leader(topic, partition)
                answer = (await self.router.call(leader, produce, 12 if self.is_v2 else 11)).responses[0]
                code = ErrorCode(answer.partition_responses[0].error_code)
                if code not in RETRIABLE:
                    self.sequences[topic, partition] += code is ErrorCode.NONE
                    return code
            await trio.sleep(0.02)

    async def send_offset(self, group: str, topic: str, offset: int) -> None:
        if not self.is_v2:
            add = AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                group_id=group,
            )
            await self._coordinated(self.transactional_id, TRANSACTION, add, 3)
        partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[partition])],
        )
        await self._coordinated(group, GROUP, request, 5 if self.is_v2 else 4)

    async def end(self, *, commit: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        response = await self._coordinated(self.transactional_id, TRANSACTION, request, 5 if self.is_v2 else 4)
        if self.is_v2:
            self._become(response.producer_id, response.producer_epoch)

    async def _coordinated(self, key: str, key_type: int, request: Request, version: int) -> Any:
        while True:
            node_id = await self.router.coordinator(key, key_type)
            with suppress(LostError):
                response = await self.router.call(node_id, request, version)
                code = _code(response)
                if code not in RETRIABLE:
                    assert code is ErrorCode.NONE, f"{request.API_KEY.name}: {code.name}"
                    return response
            await trio.sleep(0.02)


def _code(response: Any) -> ErrorCode:
    if response.API_KEY is ApiKey.TXN_OFFSET_COMMIT:
        return ErrorCode(response.topics[0].partitions[0].error_code)
    if response.API_KEY is ApiKey.ADD_PARTITIONS_TO_TXN:
        return ErrorCode(response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)
    return ErrorCode(response.error_code)


async def read_committed(router: Router, topic: str, partition: int, count: int) -> list[bytes]:
    """Wait until so many values are committed, and no transaction is open: returns them."""
    topic_id = next(iter(router.cluster.nodes.values())).image.topics[topic].topic_id
    asked = FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=50, min_bytes=1, isolation_level=1, topics=[FetchTopic(topic_id=topic_id, partitions=[asked])]
    )
    while True:
        answer = (await router.call(router.leader(topic, partition), request, 16)).responses[0].partitions[0]
        values: list[bytes] = []
        if answer.last_stable_offset == answer.high_watermark and not answer.error_code:
            data = bytes(answer.records or b"")
            starts = sorted((it.first_offset, it.producer_id) for it in answer.aborted_transactions or ())
            aborted: set[int] = set()
            for position, header in iter_batches(data):
                while starts and starts[0][0] <= header.last_offset:
                    aborted.add(starts.pop(0)[1])
                if header.is_control:
                    aborted.discard(header.producer_id)
                elif header.producer_id not in aborted:
                    values += [bytes(record.value or b"") for record in iter_records(data, position, header)]
            if len(values) >= count:
                return values
        await trio.sleep(0.02)


async def committed_offset(router: Router, group: str, topic: str) -> int:
    """The group's stable offset of partition 0."""
    asked = OffsetFetchRequestTopics(name=topic, partition_indexes=[0])
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=[asked])], require_stable=True)
    while True:
        node_id = await router.coordinator(group, GROUP)
        answer = (await router.call(node_id, request, 9)).groups[0]
        code = ErrorCode(answer.error_code or answer.topics[0].partitions[0].error_code)
        if code not in RETRIABLE:
            assert code is ErrorCode.NONE
            return int(answer.topics[0].partitions[0].committed_offset)
        await trio.sleep(0.02)
