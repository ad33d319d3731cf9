"""The transaction APIs request by request: one transactional id of one connection, with each field as a test wants it.

A request that is told that the last transaction is still being ended is sent again, as every client does.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

from compat_tests.wire.wire import Wire
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.data import describe_producers as dp
from ottla.kproto.messages.data import produce as pr
from ottla.kproto.messages.groups import find_coordinator as fc
from ottla.kproto.messages.groups import txn_offset_commit as tc
from ottla.kproto.messages.topics import create_topics as ct
from ottla.kproto.messages.transactions import add_offsets_to_txn as ao
from ottla.kproto.messages.transactions import add_partitions_to_txn as ap
from ottla.kproto.messages.transactions import describe_transactions as dt
from ottla.kproto.messages.transactions import end_txn as et
from ottla.kproto.messages.transactions import init_producer_id as ip
from ottla.kproto.messages.transactions import write_txn_markers as wm
from ottla.kproto.records import Record, build_batch

PASSING = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
)
PATIENCE_S = 120.0
TOLD_TO_WAIT = "CONCURRENT_TRANSACTIONS"


class Identity(NamedTuple):
    producer_id: int
    epoch: int


NOBODY = Identity(-1, -1)


class Ending(NamedTuple):
    """An EndTxn: its version, its outcome, and its epoch beside the one that the transaction began with."""

    version: int
    commit: bool
    epoch: int = 0

    def __str__(self) -> str:
        return f"v{self.version} {'commit' if self.commit else 'abort'} {self.epoch:+}"


class Peer:
    """A transactional id on a connection. Every call answers the error's name."""

    def __init__(self, wire: Wire, topic: str) -> None:
        self.wire = wire
        self.topic = topic
        self.transactional_id = f"wire-{uuid.uuid4().hex}"
        self.identity = NOBODY
        self.sequence = 0
        #: What the last batch was answered with.
        self.log_start_offset = -1

    def _ask(self, request: Any, version: int, code_of: Callable[[Any], int]) -> Any:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = self.wire.call(request, version)
            if code_of(answer) not in PASSING or time.monotonic() > deadline:
                return answer
            time.sleep(0.02)

    def init(self, expected: Identity = NOBODY, *, version: int = 4, timeout_ms: int = 60_000, **fields: Any) -> str:
        """Takes the identity over if there is one."""
        fields = {"transactional_id": self.transactional_id} | fields
        request = ip.InitProducerIdRequest(
            transaction_timeout_ms=timeout_ms,
            producer_id=expected.producer_id,
            producer_epoch=expected.epoch,
            **fields,
        )
        answer = self._ask(request, version, lambda answer: answer.error_code)
        if answer.error_code == 0:
            self.identity, self.sequence = Identity(answer.producer_id, answer.producer_epoch), 0
        else:
            assert (answer.producer_id, answer.producer_epoch) == (-1, -1)
        return name(answer.error_code)

    def add(self, *partitions: int, version: int = 3, topic: str | None = None, **changed: Any) -> str:
        """The names of all partitions' errors."""
        topics = [ap.AddPartitionsToTxnTopic(name=topic or self.topic, partitions=list(partitions))]
        fields = self._fields(changed, "v3_and_below_") | {"v3_and_below_topics": topics}
        request = ap.AddPartitionsToTxnRequest(**fields)

        def codes(answer: Any) -> list[int]:
            results = [p for t in answer.results_by_topic_v3_and_below for p in t.results_by_partition]
            return [p.partition_error_code for p in sorted(results, key=lambda p: p.partition_index)]

        answer = self._ask(request, version, lambda answer: codes(answer)[0])
        return ", ".join(map(name, codes(answer)))

    def add_offsets(self, *, version: int = 3, group: str = "group", **changed: Any) -> str:
        request = ao.AddOffsetsToTxnRequest(group_id=group, **self._fields(changed))
        return name(self._ask(request, version, lambda answer: answer.error_code).error_code)

    def end(self, *, commit: bool, version: int = 4, **changed: Any) -> str:
        """From version 5 on the answer's identity is taken over."""
        request = et.EndTxnRequest(committed=commit, **self._fields(changed))
        answer = self._ask(request, version, lambda answer: answer.error_code)
        if answer.error_code == 0 and version >= 5:
            self.identity = Identity(answer.producer_id, answer.producer_epoch)
        return name(answer.error_code)

    def end_and_ask(self, first: Ending, request: Any, version: int, code_of: Callable[[Any], int]) -> list[str]:
        """End the transaction and, without waiting for the answer, ask something else: while the markers are written.

        All answers to what was asked: the first, and if that says so the one after the wait.
        """
        self.wire.send_together((self._end_request(first), first.version), (request, version))
        assert self.wire.receive(et.EndTxnRequest.API_KEY, first.version).error_code == 0
        told = [name(code_of(self.wire.receive(request.API_KEY, version)))]
        if told == [TOLD_TO_WAIT]:
            told.append(name(code_of(self._ask(request, version, code_of))))
        return told

    def end_twice(self, first: Ending, second: Ending) -> list[str]:
        return self.end_and_ask(first, self._end_request(second), second.version, lambda answer: int(answer.error_code))

    def _end_request(self, ending: Ending) -> et.EndTxnRequest:
        identity = epoch(self.identity, ending.epoch)
        return et.EndTxnRequest(committed=ending.commit, **self._fields({"identity": identity}))

    def commit_offsets(
        self, *, version: int = 4, group: str = "group", topic: str | None = None, metadata: str = "", **changed: Any
    ) -> str:
        member = {
            key: changed.pop(key)
            for key in ("generation_id_or_member_epoch", "member_id", "group_instance_id")
            if key in changed
        }
        offset = tc.TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=1, committed_leader_epoch=-1, committed_metadata=metadata
        )
        topics = [tc.TxnOffsetCommitRequestTopic(name=topic or self.topic, partitions=[offset])]
        request = tc.TxnOffsetCommitRequest(group_id=group, topics=topics, **self._fields(changed), **member)
        answer = self._ask(request, version, lambda answer: answer.topics[0].partitions[0].error_code)
        return name(answer.topics[0].partitions[0].error_code)

    def produce(
        self,
        *,
        version: int = 11,
        partition: int = 0,
        sequence: int | None = None,
        is_transactional: bool = True,
        **changed: Any,
    ) -> str:
        fields = self._fields(changed)
        batch = build_batch(
            [Record(value=b"v", timestamp_ms=int(time.time() * 1000))],
            producer_id=fields["producer_id"],
            producer_epoch=fields["producer_epoch"],
            base_sequence=self.sequence if sequence is None else sequence,
            is_transactional=is_transactional,
        )
        data = pr.TopicProduceData(
            name=self.topic, partition_data=[pr.PartitionProduceData(index=partition, records=batch)]
        )
        request = pr.ProduceRequest(
            transactional_id=fields["transactional_id"] if is_transactional else None,
            acks=-1,
            timeout_ms=5000,
            topic_data=[data],
        )
        answer = self._ask(request, version, lambda answer: answer.responses[0].partition_responses[0].error_code)
        (partition_answer,) = answer.responses[0].partition_responses
        code, self.log_start_offset = partition_answer.error_code, partition_answer.log_start_offset
        if code == 0 and sequence is None:
            self.sequence += 1
        return name(code)

    def describe(self) -> dt.TransactionState:
        request = dt.DescribeTransactionsRequest(transactional_ids=[self.transactional_id])
        (state,) = self.wire.call(request, 0).transaction_states
        assert isinstance(state, dt.TransactionState)
        return state

    def settle(self) -> str:
        """The state once it is no longer being ended."""
        deadline = time.monotonic() + PATIENCE_S
        while (state := self.describe().transaction_state).startswith("Prepare") and time.monotonic() < deadline:
            time.sleep(0.02)
        return state

    def producers(self, partition: int = 0) -> list[dp.ProducerState]:
        topics = [dp.TopicRequest(name=self.topic, partition_indexes=[partition])]
        (answer,) = self.wire.call(dp.DescribeProducersRequest(topics=topics), 0).topics[0].partitions
        return list(answer.active_producers)

    def mark(self, *, commit: bool, partition: int = 0, version: int = 1, **changed: Any) -> str:
        fields = {
            "producer_id": self.identity.producer_id,
            "producer_epoch": self.identity.epoch,
            "coordinator_epoch": 0,
        } | changed
        topics = [wm.WritableTxnMarkerTopic(name=fields.pop("topic", self.topic), partition_indexes=[partition])]
        marker = wm.WritableTxnMarker(transaction_result=commit, topics=topics, **fields)
        answer = self.wire.call(wm.WriteTxnMarkersRequest(markers=[marker]), version)
        return name(answer.markers[0].topics[0].partitions[0].error_code)

    def _fields(self, changed: dict[str, Any], prefix: str = "") -> dict[str, Any]:
        identity = changed.pop("identity", self.identity)
        fields = {
            "transactional_id": changed.pop("transactional_id", self.transactional_id),
            "producer_id": identity.producer_id,
            "producer_epoch": identity.epoch,
        }
        assert not changed, changed
        return {prefix + key: value for key, value in fields.items()}


def name(code: int) -> str:
    return ErrorCode(code).name


def other_id(identity: Identity) -> Identity:
    return identity._replace(producer_id=identity.producer_id + 1_000_000)


def epoch(identity: Identity, by: int) -> Identity:
    return identity._replace(epoch=identity.epoch + by)


def new_peers(wire: Wire, partitions: int) -> Callable[[], Peer]:
    """What makes peers, each with an identity, that share a new topic of so many partitions."""
    topic = f"wire-{uuid.uuid4().hex[:8]}"
    creatable = ct.CreatableTopic(name=topic, num_partitions=partitions, replication_factor=1)
    (created,) = wire.call(ct.CreateTopicsRequest(topics=[creatable], timeout_ms=60_000), 7).topics
    assert created.error_code == ErrorCode.NONE
    indexes = list(range(partitions))
    ready = dp.DescribeProducersRequest(topics=[dp.TopicRequest(name=topic, partition_indexes=indexes)])
    deadline = time.monotonic() + PATIENCE_S
    while any(p.error_code for p in wire.call(ready, 0).topics[0].partitions) and time.monotonic() < deadline:
        time.sleep(0.02)
    for key_type in (0, 1):  # the internal topics come to be
        deadline = time.monotonic() + PATIENCE_S
        request = fc.FindCoordinatorRequest(key_type=key_type, coordinator_keys=["x"])
        while wire.call(request, 4).coordinators[0].error_code and time.monotonic() < deadline:
            time.sleep(0.05)

    def make() -> Peer:
        peer = Peer(wire, topic)
        assert peer.init() == "NONE"
        return peer

    return make
