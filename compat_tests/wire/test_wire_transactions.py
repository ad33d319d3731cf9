"""Transactions byte by byte: what clients never send, or only after faults.

What is expected here is what Apache Kafka 4.3 answers (`--broker=both`). Where Ottla differs on purpose it says so.
A request that is told that the last transaction is still being ended is sent again, as every client does.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from compat_tests.brokers.process import BrokerProcess
from compat_tests.wire.transaction_wire import (
    TOLD_TO_WAIT,
    Ending,
    Identity,
    Peer,
    epoch,
    name,
    other_id,
)
from compat_tests.wire.wire import Wire
from ottla.kproto.messages.data import describe_producers as dp
from ottla.kproto.messages.topics import delete_topics as de
from ottla.kproto.messages.transactions import add_partitions_to_txn as ap
from ottla.kproto.messages.transactions import describe_transactions as dt
from ottla.kproto.messages.transactions import init_producer_id as ip
from ottla.kproto.messages.transactions import list_transactions as lt
from ottla.kproto.messages.transactions import write_txn_markers as wm

FENCED_SINCE_2 = {version: "INVALID_PRODUCER_EPOCH" if version < 2 else "PRODUCER_FENCED" for version in range(6)}
UNHEARD: dict[str, Any] = {"transactional_id": "unheard"}
NAMELESS: dict[str, Any] = {"transactional_id": ""}


# InitProducerId -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(6))
def test_every_initialization_raises_the_epoch(peer: Peer, version: int) -> None:
    before = peer.identity
    assert before.epoch == 0
    assert peer.init(version=version) == "NONE"
    assert peer.identity == epoch(before, 1)


@pytest.mark.parametrize("version", [3, 4, 5])
def test_initialization_by_a_producer_that_says_who_it_was(peer: Peer, version: int) -> None:
    for _ in range(3):
        peer.init()
    before = peer.identity
    assert peer.init(before, version=version) == "NONE"
    assert peer.identity == epoch(before, 1)
    assert peer.init(before, version=version) == "NONE"  # a retry
    assert peer.identity == epoch(before, 1)
    fenced = "INVALID_PRODUCER_EPOCH" if version == 3 else "PRODUCER_FENCED"
    for stranger in (epoch(before, -2), epoch(before, 2), other_id(before), Identity(-7, 5)):
        assert peer.init(stranger, version=version) == fenced


@pytest.mark.parametrize("version", [3, 4, 5])
@pytest.mark.parametrize("begins", ["by adding a partition", "by adding offsets", "by producing"])
def test_a_producer_that_recovers_while_its_transaction_is_open(peer: Peer, version: int, begins: str) -> None:
    """It is aborted, which raises the epoch, and the producer goes on in that one."""
    before = peer.identity
    if begins == "by producing":
        assert peer.produce(version=12) == "NONE"
    else:
        assert (peer.add_offsets() if begins == "by adding offsets" else peer.add(0)) == "NONE"
    assert peer.init(before, version=version) == "NONE"
    assert peer.identity == epoch(before, 1)
    assert peer.settle() == "Empty"


def test_initializations_that_are_no_use(peer: Peer) -> None:
    assert peer.init(Identity(5, -1)) == peer.init(Identity(-1, 5)) == peer.init(**NAMELESS) == "INVALID_REQUEST"
    for timeout_ms in (0, -1, 900_001):
        assert peer.init(timeout_ms=timeout_ms) == "INVALID_TRANSACTION_TIMEOUT"
    assert peer.init(timeout_ms=900_000) == "NONE"


def test_initialization_of_what_nobody_knows(peer: Peer) -> None:
    peer.transactional_id += "-other"
    assert peer.init(Identity(77, 3)) == "NONE"
    assert peer.identity.producer_id != 77
    assert peer.identity.epoch == 0
    assert peer.init(peer.identity, transactional_id=None, timeout_ms=0) == "NONE"
    assert peer.identity.epoch == 0


# AddPartitionsToTxn, AddOffsetsToTxn ----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(4))
def test_adding_partitions(peer: Peer, version: int) -> None:
    fenced = FENCED_SINCE_2[version]
    assert peer.add(0, 1, version=version) == "NONE, NONE"
    assert peer.add(0, version=version) == "NONE"
    assert peer.add(0, 7, version=version) == "OPERATION_NOT_ATTEMPTED, UNKNOWN_TOPIC_OR_PARTITION"
    assert peer.add(0, version=version, topic="no-such") == "UNKNOWN_TOPIC_OR_PARTITION"
    assert peer.add(0, version=version, topic="__consumer_offsets") == "TOPIC_AUTHORIZATION_FAILED"
    assert peer.add(0, 1, version=version, identity=epoch(peer.identity, -1)) == f"{fenced}, {fenced}"
    assert peer.add(0, version=version, identity=epoch(peer.identity, 1)) == fenced
    assert peer.add(0, version=version, identity=other_id(peer.identity)) == "INVALID_PRODUCER_ID_MAPPING"
    assert peer.add(0, version=version, **NAMELESS) == "INVALID_REQUEST"
    assert peer.add(0, version=version, **UNHEARD) == "INVALID_PRODUCER_ID_MAPPING"


@pytest.mark.parametrize("version", range(5))
def test_adding_offsets(peer: Peer, version: int) -> None:
    assert peer.add_offsets(version=version) == "NONE"
    assert peer.add_offsets(version=version, group="") == "NONE"
    assert peer.add_offsets(version=version, identity=epoch(peer.identity, -1)) == FENCED_SINCE_2[version]
    assert peer.add_offsets(version=version, identity=other_id(peer.identity)) == "INVALID_PRODUCER_ID_MAPPING"
    assert peer.add_offsets(version=version, **NAMELESS) == "INVALID_REQUEST"
    assert peer.add_offsets(version=version, **UNHEARD) == "INVALID_PRODUCER_ID_MAPPING"


# EndTxn ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(6))
def test_ending_what_is_empty(peer: Peer, version: int) -> None:
    before = peer.identity
    assert peer.end(commit=True, version=version) == "INVALID_TXN_STATE"
    assert peer.end(commit=False, version=version) == ("NONE" if version == 5 else "INVALID_TXN_STATE")
    assert peer.identity == epoch(before, 1 if version == 5 else 0)
    assert peer.settle() == ("CompleteAbort" if version == 5 else "Empty")


@pytest.mark.parametrize("version", range(6))
def test_ending_what_belongs_to_another(peer: Peer, version: int) -> None:
    peer.add(0)
    for by in (-1, -2, 1):
        assert peer.end(commit=True, version=version, identity=epoch(peer.identity, by)) == FENCED_SINCE_2[version]
    assert peer.end(commit=True, version=version, identity=other_id(peer.identity)) == "INVALID_PRODUCER_ID_MAPPING"
    assert peer.end(commit=True, version=version, **NAMELESS) == "INVALID_REQUEST"
    assert peer.end(commit=True, version=version, **UNHEARD) == "INVALID_PRODUCER_ID_MAPPING"
    assert peer.settle() == "Ongoing"


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", range(5))
def test_ending_again_before_transactions_v2(peer: Peer, version: int, commit: bool) -> None:
    before = peer.identity
    peer.add(0)
    assert peer.end(commit=commit, version=version) == "NONE"
    assert peer.end(commit=commit, version=version) == "NONE"
    assert peer.end(commit=not commit, version=version) == "INVALID_TXN_STATE"
    assert peer.settle() == ("CompleteCommit" if commit else "CompleteAbort")
    assert peer.identity == before


@pytest.mark.parametrize("commit", [True, False])
def test_ending_again_under_transactions_v2(peer: Peer, commit: bool) -> None:
    before = peer.identity
    peer.add(0)
    assert peer.end(commit=commit, version=5) == "NONE"
    after = peer.identity
    assert after == epoch(before, 1)
    # A retry is told by the epoch before; with the new one it would be another transaction, and that is empty.
    assert peer.end(commit=commit, version=5, identity=before) == "NONE"
    assert peer.identity == after
    assert peer.end(commit=not commit, version=5, identity=before) == "INVALID_TXN_STATE"
    assert peer.end(commit=True, version=5, identity=after) == "INVALID_TXN_STATE"
    assert peer.end(commit=False, version=5, identity=after) == "NONE"
    assert peer.identity == epoch(after, 1)
    assert peer.settle() == "CompleteAbort"


FIRST_ENDINGS = [Ending(version, commit) for version in (4, 5) for commit in (True, False)]
# What the second end is told, in columns by the first: w for CONCURRENT_TRANSACTIONS while the markers are written;
# and for good, f for PRODUCER_FENCED, i for INVALID_TXN_STATE, n for NONE.
TOLD = {
    Ending(4, True, -1): "f  f  f  f",
    Ending(4, True, 0): "wn wi f  f",
    Ending(4, True, 1): "f  f  wn wi",
    Ending(4, False, -1): "f  f  f  f",
    Ending(4, False, 0): "wi wn f  f",
    Ending(4, False, 1): "f  f  wi wn",
    Ending(5, True, -1): "wn wi wf wf",
    Ending(5, True, 0): "wi wi wn wi",
    Ending(5, True, 1): "wf wf wi wi",
    Ending(5, False, -1): "wi wn wf wf",
    Ending(5, False, 0): "wn wn wi wn",
    Ending(5, False, 1): "wf wf wn wn",
}
ANSWERS = {"w": TOLD_TO_WAIT, "f": "PRODUCER_FENCED", "i": "INVALID_TXN_STATE", "n": "NONE"}


@pytest.mark.parametrize("topic_partitions", [64])
@pytest.mark.parametrize("first", FIRST_ENDINGS, ids=str)
def test_ending_again_while_the_markers_are_written(new_peer: Callable[[], Peer], first: Ending) -> None:
    column = FIRST_ENDINGS.index(first)
    told, expected = {}, {}
    waited = 0
    for second, row in TOLD.items():
        peer = new_peer()
        peer.init()  # so that there is an epoch before
        peer.add(*range(64))
        answers = peer.end_twice(first, second)
        told[str(second)] = answers
        expected[str(second)] = [ANSWERS[letter] for letter in row.split()[column]]
        waited += answers[0] == TOLD_TO_WAIT
        if answers == expected[str(second)][1:]:
            told[str(second)].insert(0, TOLD_TO_WAIT)  # the markers were written before it came
    assert told == expected
    assert waited > 0


def _code_of_beginning(answer: Any) -> int:
    if isinstance(answer, ip.InitProducerIdResponse):
        return int(answer.error_code)
    (result,) = answer.results_by_topic_v3_and_below[0].results_by_partition
    return int(result.partition_error_code)


STRANGERS: list[Callable[[Identity], Identity]] = [partial(epoch, by=-1), partial(epoch, by=5), lambda it: other_id(it)]


@pytest.mark.parametrize("topic_partitions", [64])
@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("begins", ["init", "add"])
def test_whoever_begins_while_the_markers_are_written_waits(
    new_peer: Callable[[], Peer], version: int, begins: str
) -> None:
    """Who it is, and whether the id is still its own, is asked later."""
    told = []
    for stranger in STRANGERS * 3:
        peer = new_peer()
        peer.init()
        peer.add(*range(64))
        identity = stranger(peer.identity)
        request: Any
        if begins == "init":
            request = ip.InitProducerIdRequest(transaction_timeout_ms=60_000, **peer._fields({"identity": identity}))
        else:
            topics = [ap.AddPartitionsToTxnTopic(name=peer.topic, partitions=[0])]
            fields = peer._fields({"identity": identity}, "v3_and_below_")
            request = ap.AddPartitionsToTxnRequest(v3_and_below_topics=topics, **fields)
        told.append(peer.end_and_ask(Ending(version, commit=True), request, 3, _code_of_beginning)[0])
    assert TOLD_TO_WAIT in told
    assert set(told) <= {TOLD_TO_WAIT, "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING"}


@pytest.mark.parametrize("commit", [True, False])
def test_a_topic_that_is_deleted_needs_no_marker(new_peer: Callable[[], Peer], commit: bool) -> None:
    peer = new_peer()
    peer.add(0, 1)
    assert peer.produce() == "NONE"
    deleted = de.DeleteTopicState(name=peer.topic)
    (answer,) = peer.wire.call(de.DeleteTopicsRequest(topics=[deleted], timeout_ms=5_000), 6).responses
    assert name(answer.error_code) == "NONE"
    assert peer.add(0) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert peer.end(commit=commit) == "NONE"
    assert peer.settle() == ("CompleteCommit" if commit else "CompleteAbort")


# TxnOffsetCommit ------------------------------------------------------------------------------------------------------


@pytest.mark.nodes
@pytest.mark.parametrize("version", range(6))
def test_committing_offsets(peer: Peer, version: int) -> None:
    outside = {4: "TRANSACTION_ABORTABLE", 5: "NONE"}.get(version, "INVALID_TXN_STATE")
    assert peer.commit_offsets(version=version) == outside
    assert peer.settle() == ("Ongoing" if version == 5 else "Empty")
    peer.add_offsets()
    assert peer.commit_offsets(version=version) == "NONE"
    assert peer.commit_offsets(version=version, topic="no-such") == "UNKNOWN_TOPIC_OR_PARTITION"
    assert peer.commit_offsets(version=version, metadata="x" * 5000) == "OFFSET_METADATA_TOO_LARGE"
    assert peer.commit_offsets(version=version, group="") == "INVALID_GROUP_ID"
    for by in (-1, 1):
        answer = peer.commit_offsets(version=version, identity=epoch(peer.identity, by))
        assert answer == "INVALID_PRODUCER_EPOCH"
    answer = peer.commit_offsets(version=version, identity=other_id(peer.identity))
    assert answer == "INVALID_PRODUCER_ID_MAPPING"


@pytest.mark.parametrize("version", range(6))
def test_ottla_checks_the_transactional_id_of_every_offset_commit(
    peer: Peer, version: int, broker: BrokerProcess
) -> None:
    """Kafka trusts a producer that has a transaction open in the group's partition, whatever id it names."""
    peer.add_offsets()
    assert peer.commit_offsets(version=version) == "NONE"
    trusts = broker.name == "kafka"
    assert peer.commit_offsets(version=version, **NAMELESS) == ("NONE" if trusts else "INVALID_REQUEST")
    assert peer.commit_offsets(version=version, **UNHEARD) == ("NONE" if trusts else "INVALID_PRODUCER_ID_MAPPING")


@pytest.mark.nodes
@pytest.mark.parametrize("version", [3, 4, 5])
def test_committing_offsets_as_a_member(peer: Peer, version: int) -> None:
    group = f"group-{uuid.uuid4()}"
    peer.add_offsets(group=group)
    commit: dict[str, Any] = {"version": version, "group": group}
    assert peer.commit_offsets(**commit, generation_id_or_member_epoch=4, member_id="m") == "ILLEGAL_GENERATION"
    assert peer.commit_offsets(**commit) == "NONE"
    assert peer.commit_offsets(**commit, generation_id_or_member_epoch=4, member_id="m") == "UNKNOWN_MEMBER_ID"
    assert peer.commit_offsets(**commit, generation_id_or_member_epoch=-1, member_id="m") == "NONE"
    assert (
        peer.commit_offsets(**commit, generation_id_or_member_epoch=-1, member_id="", group_instance_id="i") == "NONE"
    )


# Produce --------------------------------------------------------------------------------------------------------------

PRODUCE_VERSIONS = [3, 8, 10, 11, 12]
NOT_TAKING_PART = dict.fromkeys([3, 8, 10], "INVALID_TXN_STATE") | {11: "TRANSACTION_ABORTABLE", 12: "NONE"}


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_producing_outside_of_a_transaction(peer: Peer, version: int) -> None:
    assert peer.produce(version=version) == NOT_TAKING_PART[version]
    assert peer.settle() == ("Ongoing" if version == 12 else "Empty")


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_producing_in_a_transaction(peer: Peer, version: int) -> None:
    peer.add(0)
    assert peer.produce(version=version) == "NONE"
    assert peer.produce(version=version, sequence=9) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert peer.produce(version=version, sequence=0) == "NONE"  # a duplicate
    assert peer.produce(version=version, identity=epoch(peer.identity, -1)) == "INVALID_PRODUCER_EPOCH"
    assert peer.produce(version=version, identity=epoch(peer.identity, 1), sequence=0) == "INVALID_PRODUCER_EPOCH"
    answer = peer.produce(version=version, identity=other_id(peer.identity), sequence=0)
    assert answer == "INVALID_PRODUCER_ID_MAPPING"
    for stranger, expected in [(NAMELESS, "INVALID_REQUEST"), (UNHEARD, "INVALID_PRODUCER_ID_MAPPING")]:
        assert peer.produce(version=version, partition=1, sequence=0, **stranger) == expected
    answer = peer.produce(version=version, partition=1, sequence=0, transactional_id=None)
    assert answer == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
    assert peer.produce(version=version, partition=1, sequence=0) == NOT_TAKING_PART[version]


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_producing_after_the_end(peer: Peer, version: int) -> None:
    peer.add(0)
    assert peer.produce(version=version) == "NONE"
    assert peer.end(commit=True, version=5 if version == 12 else 4) == "NONE"
    assert peer.settle() == "CompleteCommit"
    assert peer.produce(version=version, sequence=0 if version == 12 else 1) == NOT_TAKING_PART[version]


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_a_producer_of_transactions_v2_begins_with_sequence_0(peer: Peer, version: int) -> None:
    peer.add(0)
    expected = "OUT_OF_ORDER_SEQUENCE_NUMBER" if version == 12 else "NONE"
    assert peer.produce(version=version, sequence=3) == expected


# WriteTxnMarkers, DescribeProducers -----------------------------------------------------------------------------------


def known(peer: Peer) -> list[tuple[int, int, int, bool]]:
    """Epoch, last sequence, coordinator epoch, whether a transaction is open: of the peer's producer."""
    return [
        (state.producer_epoch, state.last_sequence, state.coordinator_epoch, state.current_txn_start_offset >= 0)
        for state in peer.producers()
        if state.producer_id == peer.identity.producer_id
    ]


@pytest.mark.nodes
def test_markers_of_an_administrator(peer: Peer) -> None:
    assert peer.mark(commit=True) == "NONE"
    assert peer.mark(commit=True, topic="no-such") == "UNKNOWN_TOPIC_OR_PARTITION"
    assert peer.mark(commit=True, partition=9) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert peer.mark(commit=True, topic="__consumer_offsets") == "NONE"
    peer.add(0)
    peer.produce()
    assert known(peer) == [(0, 0, 0, True)]
    for _ in range(2):
        assert peer.mark(commit=False) == "NONE"
        assert known(peer) == [(0, 0, 0, False)]
    assert peer.mark(commit=False, coordinator_epoch=-1) == "TRANSACTION_COORDINATOR_FENCED"


def test_markers_of_one_producer_are_answered_together_and_those_of_no_partition_not_at_all(peer: Peer) -> None:
    def mark(
        *asked: tuple[int, list[tuple[str, list[int]]]],
    ) -> list[tuple[int, list[tuple[str, list[tuple[int, str]]]]]]:
        markers = [
            wm.WritableTxnMarker(
                producer_id=peer.identity.producer_id + offset,
                producer_epoch=peer.identity.epoch,
                transaction_result=False,
                topics=[wm.WritableTxnMarkerTopic(name=topic, partition_indexes=indexes) for topic, indexes in topics],
            )
            for offset, topics in asked
        ]
        answer = peer.wire.call(wm.WriteTxnMarkersRequest(markers=markers), 1)
        return sorted(
            (
                each.producer_id - peer.identity.producer_id,
                sorted(
                    (topic.name, sorted((found.partition_index, name(found.error_code)) for found in topic.partitions))
                    for topic in each.topics
                ),
            )
            for each in answer.markers
        )

    unknown = "UNKNOWN_TOPIC_OR_PARTITION"
    assert mark() == []
    assert mark((0, []), (0, [(peer.topic, [])])) == []
    assert mark((0, [(peer.topic, [0]), ("no-such", [1])]), (0, [("no-such", [0, 0])]), (1, [(peer.topic, [0])])) == [
        (0, [("no-such", [(0, unknown), (1, unknown)]), (peer.topic, [(0, "NONE")])]),
        (1, [(peer.topic, [(0, "NONE")])]),
    ]


def test_markers_of_older_epochs(peer: Peer, broker: BrokerProcess) -> None:
    peer.add(0)
    peer.produce()
    # Kafka has no code for it at this place.
    expected = "UNKNOWN_SERVER_ERROR" if broker.name == "kafka" else "INVALID_PRODUCER_EPOCH"
    assert peer.mark(commit=False, producer_epoch=-1) == expected
    assert peer.mark(commit=False, producer_id=77_777, producer_epoch=-1) == expected
    assert peer.mark(commit=False, producer_id=-1, producer_epoch=0) == expected
    assert peer.mark(commit=False, version=2, coordinator_epoch=5) == "NONE"
    peer.produce()
    assert peer.mark(commit=False, version=2, coordinator_epoch=4) == "TRANSACTION_COORDINATOR_FENCED"
    assert known(peer) == [(0, 1, 5, True)]


def test_markers_of_transactions_v2_need_the_next_epoch(peer: Peer) -> None:
    peer.add(0)
    peer.produce()
    v2: dict[str, Any] = {"commit": False, "version": 2, "transaction_version": 2, "coordinator_epoch": 5}
    assert peer.mark(**v2) == "INVALID_PRODUCER_EPOCH"
    assert known(peer) == [(0, 0, -1, True)]
    assert peer.mark(**v2, producer_epoch=1) == "NONE"
    assert known(peer) == [(1, -1, 5, False)]


def test_producers_of_what_does_not_exist(peer: Peer) -> None:
    def code(topic: str, partition: int) -> str:
        topics = [dp.TopicRequest(name=topic, partition_indexes=[partition])]
        return name(peer.wire.call(dp.DescribeProducersRequest(topics=topics), 0).topics[0].partitions[0].error_code)

    assert code(peer.topic, 9) == code("no-such", 0) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert code("", 0) == code("a/b", 0) == "INVALID_TOPIC_EXCEPTION"
    assert code("__transaction_state", 0) == "NONE"


# DescribeTransactions, ListTransactions -------------------------------------------------------------------------------


def test_describing_a_transaction(peer: Peer) -> None:
    state = peer.describe()
    assert (state.transaction_state, state.transaction_start_time_ms, state.topics) == ("Empty", -1, [])
    peer.add(1, 0)
    state = peer.describe()
    assert (state.transaction_state, state.transaction_timeout_ms) == ("Ongoing", 60_000)
    assert (state.producer_id, state.producer_epoch) == peer.identity
    assert state.transaction_start_time_ms > 0
    assert [(topic.topic, sorted(topic.partitions)) for topic in state.topics] == [(peer.topic, [0, 1])]
    peer.end(commit=True)
    assert peer.settle() == "CompleteCommit"
    assert (peer.describe().topics, peer.describe().transaction_start_time_ms > 0) == ([], True)


@pytest.mark.parametrize(("asked", "code"), [("unheard", "TRANSACTIONAL_ID_NOT_FOUND"), ("", "INVALID_REQUEST")])
def test_describing_what_nobody_knows(peer: Peer, asked: str, code: str) -> None:
    (state,) = peer.wire.call(dt.DescribeTransactionsRequest(transactional_ids=[asked]), 0).transaction_states
    assert (name(state.error_code), state.transactional_id) == (code, asked)
    assert (state.transaction_state, state.producer_id, state.transaction_timeout_ms) == ("", 0, 0)


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({}, {"over", "open"}),
        ({"state_filters": ["Ongoing"]}, {"open"}),
        ({"state_filters": ["ongoing"]}, set()),
        ({"state_filters": ["Wrong", "Ongoing"]}, {"open"}),
        ({"state_filters": ["Dead", "PrepareEpochFence"]}, set()),
        ({"producer_id_filters": [-5]}, set()),
        ({"duration_filter": 0}, {"over", "open"}),
        ({"duration_filter": 100_000}, set()),
        ({"duration_filter": -2}, {"over", "open"}),
        ({"transactional_id_pattern": "wire-.*"}, {"over", "open"}),
        ({"transactional_id_pattern": "wire"}, set()),
        ({"transactional_id_pattern": ""}, {"over", "open"}),
    ],
    ids=lambda it: repr(sorted(it) if isinstance(it, set) else it),  # in the same order in each process
)
def test_listing_transactions(new_peer: Callable[[], Peer], filters: dict[str, Any], found: set[str]) -> None:
    over, still_open = new_peer(), new_peer()
    over.add(0)
    over.end(commit=False)
    assert over.settle() == "CompleteAbort"
    still_open.add(0)
    time.sleep(0.005)  # so that both are older than 0 ms
    names = {over.transactional_id: "over", still_open.transactional_id: "open"}

    answer = over.wire.call(lt.ListTransactionsRequest(**filters), 2)

    assert name(answer.error_code) == "NONE"
    assert set(answer.unknown_state_filters) == {"ongoing", "Wrong"} & set(filters.get("state_filters", []))
    listed = {s.transactional_id: s for s in answer.transaction_states if s.transactional_id in names}
    assert {names[transactional_id] for transactional_id in listed} == found
    if state := listed.get(still_open.transactional_id):
        assert (state.producer_id, state.transaction_state) == (still_open.identity.producer_id, "Ongoing")


def test_listing_by_a_pattern_that_is_none(wire: Wire) -> None:
    answer = wire.call(lt.ListTransactionsRequest(transactional_id_pattern="("), 2)
    assert name(answer.error_code) == "INVALID_REGULAR_EXPRESSION"
