"""Requests that name a topic twice, or without partitions, or with numbers that mean nothing, on both brokers.

What is expected here is what Apache Kafka 4.3 answers (`--broker=both`). No client sends them; a program that does
finds its topics in the answer by their places.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from compat_tests.brokers.process import BrokerProcess
from compat_tests.wire.test_wire_produce_fetch import Topic, data_of, make_topic, nothing, records, topic, wire
from compat_tests.wire.transaction_wire import Peer, new_peers
from compat_tests.wire.wire import Wire
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.data import delete_records as dr
from ottla.kproto.messages.data import fetch as f
from ottla.kproto.messages.data import list_offsets as lo
from ottla.kproto.messages.data import produce as p
from ottla.kproto.messages.groups import offset_commit as oc
from ottla.kproto.messages.groups import offset_delete as od
from ottla.kproto.messages.groups import offset_fetch as of
from ottla.kproto.messages.topics import alter_partition_reassignments as ar
from ottla.kproto.messages.topics import create_topics as ct
from ottla.kproto.messages.topics import describe_topic_partitions as dtp
from ottla.kproto.messages.transactions import add_partitions_to_txn as ap
from ottla.kproto.records import HEADER_SIZE_BYTES, assemble_batch, iter_batches, parse_batch_header

__all__ = ["make_topic", "nothing", "topic", "wire"]

TRANSACTIONAL_FLAG = 0x10
OK, UNKNOWN, UNKNOWN_ID = 0, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), int(ErrorCode.UNKNOWN_TOPIC_ID)

#: Topics of a request with the partitions that are named, and the answer: (topic, [(partition, error)]). "t" has two
#: partitions, "u" does not exist.
Named = list[tuple[str, list[int]]]
Answered = list[tuple[str, list[tuple[int, int]]]]

MERGED: list[tuple[Named, Answered]] = [
    ([("t", [])], []),
    ([("t", []), ("t", [])], []),
    ([("u", [])], [("u", [])]),
    ([("u", []), ("u", [])], [("u", [])]),
    ([("u", [0]), ("u", [0])], [("u", [(0, UNKNOWN), (0, UNKNOWN)])]),
    ([("t", [0]), ("t", [0])], [("t", [(0, OK)]), ("t", [(0, OK)])]),
    ([("t", [0, 9])], [("t", [(9, UNKNOWN), (0, OK)])]),
    (
        [("t", [0]), ("u", [0]), ("t", [1, 9])],
        [("u", [(0, UNKNOWN)]), ("t", [(9, UNKNOWN), (0, OK), (1, OK)])],
    ),
]
"""What is refused at once is answered first, and only then topics are merged."""


@pytest.fixture
def group(wire: Wire, topic: Topic) -> str:
    """A group that has committed, so that its coordinator is there."""
    name = f"odd-{uuid.uuid4().hex[:8]}"
    peer = new_peers(wire, 1)()
    peer.add_offsets(group=name)
    commit = oc.OffsetCommitRequest(
        group_id=name,
        topics=[oc.OffsetCommitRequestTopic(name=topic.name, partitions=[_committed(1)])],
    )
    (answered,) = wire.call(commit, 9).topics
    assert answered.partitions[0].error_code == OK
    return name


def _committed(index: int) -> oc.OffsetCommitRequestPartition:
    return oc.OffsetCommitRequestPartition(partition_index=index, committed_offset=5)


def _names(topic: Topic, nothing: Topic) -> dict[str, Topic]:
    return {"t": topic, "u": nothing}


def _told(answered: Any, places: dict[str, Topic], *, by_id: bool = False) -> Answered:
    known = {place.topic_id if by_id else place.name: name for name, place in places.items()}
    return [
        (
            known[each.topic_id if by_id else each.name],
            [(partition.partition_index, partition.error_code) for partition in each.partitions],
        )
        for each in answered
    ]


@pytest.mark.parametrize("case", range(len(MERGED)))
@pytest.mark.parametrize("version", [2, 9, 10])
def test_topics_of_offset_commit(wire: Wire, topic: Topic, nothing: Topic, group: str, version: int, case: int) -> None:
    named, expected = MERGED[case]
    places = _names(topic, nothing)
    by_id = version >= 10
    request = oc.OffsetCommitRequest(group_id=group)
    for name, indexes in named:
        asked = oc.OffsetCommitRequestTopic(partitions=[_committed(index) for index in indexes])
        if by_id:
            asked.topic_id = places[name].topic_id
        else:
            asked.name = places[name].name
        request.topics.append(asked)
    if by_id:
        expected = [
            (name, [(index, UNKNOWN_ID if name == "u" else code) for index, code in partitions])
            for name, partitions in expected
        ]
    assert _told(wire.call(request, version).topics, places, by_id=by_id) == expected


@pytest.mark.parametrize("case", range(len(MERGED)))
def test_topics_of_offset_delete(wire: Wire, topic: Topic, nothing: Topic, group: str, case: int) -> None:
    named, expected = MERGED[case]
    places = _names(topic, nothing)
    request = od.OffsetDeleteRequest(group_id=group)
    for name, indexes in named:
        partitions = [od.OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
        request.topics.append(od.OffsetDeleteRequestTopic(name=places[name].name, partitions=partitions))
    assert _told(wire.call(request, 0).topics, places) == expected


@pytest.mark.parametrize("version", [1, 7, 8, 9])
def test_topics_of_offset_fetch(wire: Wire, topic: Topic, nothing: Topic, group: str, version: int) -> None:
    named: Named = [("u", []), ("t", [0, 0]), ("t", []), ("u", [3]), ("t", [1])]
    places = _names(topic, nothing)
    if version >= 8:
        topics = [of.OffsetFetchRequestTopics(name=places[name].name, partition_indexes=its) for name, its in named]
        request = of.OffsetFetchRequest(groups=[of.OffsetFetchRequestGroup(group_id=group, topics=topics)])
        answered = wire.call(request, version).groups[0].topics
    else:
        old = [of.OffsetFetchRequestTopic(name=places[name].name, partition_indexes=its) for name, its in named]
        answered = wire.call(of.OffsetFetchRequest(group_id=group, topics=old), version).topics
    assert _told(answered, places) == [(name, [(index, OK) for index in indexes]) for name, indexes in named]


def test_topics_of_offset_fetch_by_id(wire: Wire, topic: Topic, nothing: Topic, group: str) -> None:
    """Those that are not known come last."""
    named: Named = [("u", [0]), ("t", [0]), ("t", []), ("u", []), ("t", [1])]
    places = _names(topic, nothing)
    topics = [of.OffsetFetchRequestTopics(topic_id=places[name].topic_id, partition_indexes=its) for name, its in named]
    request = of.OffsetFetchRequest(groups=[of.OffsetFetchRequestGroup(group_id=group, topics=topics)])
    answered = wire.call(request, 10).groups[0].topics
    assert _told(answered, places, by_id=True) == [
        ("t", [(0, OK)]),
        ("t", []),
        ("t", [(1, OK)]),
        ("u", [(0, UNKNOWN_ID)]),
        ("u", []),
    ]


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ([("t", [])], []),
        ([("u", [])], []),
        ([("t", [(0, 1), (0, 2)])], [("t", [(0, 2, OK)])]),
        ([("t", [(0, 2)]), ("t", [(0, 1)])], [("t", [(0, 1, OK)])]),
        ([("u", []), ("u", [(0, 1), (0, 1)])], [("u", [(0, -1, UNKNOWN)])]),
    ],
)
def test_delete_records_answers_each_partition_once(
    wire: Wire, topic: Topic, nothing: Topic, named: list[Any], expected: list[Any]
) -> None:
    topic.produce(records(3))
    places = _names(topic, nothing)
    request = dr.DeleteRecordsRequest(timeout_ms=5000)
    for name, partitions in named:
        asked = [dr.DeleteRecordsPartition(partition_index=index, offset=offset) for index, offset in partitions]
        request.topics.append(dr.DeleteRecordsTopic(name=places[name].name, partitions=asked))
    known = {place.name: name for name, place in places.items()}
    assert [
        (known[each.name], [(it.partition_index, it.low_watermark, it.error_code) for it in each.partitions])
        for each in wire.call(request, 2).topics
    ] == expected


@pytest.mark.parametrize("version", [8, 12])
def test_produce_leaves_topics_without_partitions_out(wire: Wire, topic: Topic, nothing: Topic, version: int) -> None:
    data = topic.produce_request(records(), version).topic_data
    empty = [p.TopicProduceData(name=each.name) for each in (topic, nothing)]
    request = p.ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[*empty[1:], *data])
    assert [each.name for each in wire.call(request, version).responses] == [topic.name]
    assert wire.call(p.ProduceRequest(acks=-1, timeout_ms=5000, topic_data=empty), version).responses == []


@pytest.mark.parametrize("version", [8, 11, 12])
@pytest.mark.parametrize("sequence", [-1, 3])
def test_a_transactional_batch_without_a_producer_id_is_like_any_other(
    wire: Wire, topic: Topic, version: int, sequence: int
) -> None:
    batch = bytearray(records(producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True))
    answer = topic.produce(_without_producer(batch, sequence), version=version, transactional_id="odd")
    assert (answer.error_code, answer.base_offset) == (OK, 0)
    assert topic.list_offset(-1, isolation_level=1)[0][2] == 1
    ((_, header),) = iter_batches(data_of(topic.fetch(isolation_level=1)))
    assert (header.attributes & TRANSACTIONAL_FLAG, header.producer_id) == (TRANSACTIONAL_FLAG, -1)


def _without_producer(batch: bytearray, sequence: int) -> bytes:
    header = parse_batch_header(batch)._replace(producer_id=-1, producer_epoch=-1, base_sequence=sequence)
    return bytes(assemble_batch(header, bytes(batch[HEADER_SIZE_BYTES:])))


def test_why_a_transactional_batch_is_refused(wire: Wire) -> None:
    """Before version 11 the code says less than the coordinator did, and a sentence says the rest."""
    peer: Peer = new_peers(wire, 1)()
    assert peer.init() == "NONE"
    batch = records(
        producer_id=peer.identity.producer_id,
        producer_epoch=peer.identity.epoch,
        base_sequence=0,
        is_transactional=True,
    )
    for version, code, has_sentence in (
        (8, ErrorCode.INVALID_TXN_STATE, True),
        (11, ErrorCode.TRANSACTION_ABORTABLE, False),
    ):
        data = p.TopicProduceData(name=peer.topic, partition_data=[p.PartitionProduceData(index=0, records=batch)])
        request = p.ProduceRequest(transactional_id=peer.transactional_id, acks=-1, timeout_ms=5000, topic_data=[data])
        (answer,) = wire.call(request, version).responses[0].partition_responses
        assert (answer.error_code, answer.error_message is not None) == (code, has_sentence)


@pytest.mark.parametrize("field", ["current_leader_epoch", "last_fetched_epoch"])
@pytest.mark.parametrize("version", [12, 18])
def test_negative_epochs_of_a_fetch_are_none(topic: Topic, version: int, field: str) -> None:
    topic.produce(records(2))
    epoch: dict[str, Any] = {field: -2}
    answered = topic.fetch_all([(0, 1)], version=version, **epoch)
    (partition,) = answered.responses[0].partitions
    assert (partition.error_code, partition.high_watermark) == (OK, 2)
    assert answered.node_endpoints == []
    assert partition.diverging_epoch is None or partition.diverging_epoch.epoch == -1


@pytest.mark.parametrize("version", [11, 12])
def test_what_is_not_known_stands_at_the_end_of_a_fetch(
    wire: Wire, make_topic: Callable[..., Topic], nothing: Topic, version: int
) -> None:
    first, second = make_topic(1), make_topic(1)
    named = [(nothing, 0), (first, 0), (first, 7), (second, 0)]
    topics = [f.FetchTopic(topic=each.name, partitions=[f.FetchPartition(partition=index)]) for each, index in named]
    request = f.FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1000, topics=topics)
    told = [
        (each.topic, partition.partition_index, partition.error_code)
        for each in wire.call(request, version).responses
        for partition in each.partitions
    ]
    assert told == [(first.name, 0, OK), (second.name, 0, OK), (nothing.name, 0, UNKNOWN), (first.name, 7, UNKNOWN)]


@pytest.mark.parametrize("level", [-1, 2])
def test_an_isolation_level_that_is_none_is_looked_at_after_the_session(topic: Topic, level: int) -> None:
    nothing_asked = topic.fetch_all([], version=12, isolation_level=level, max_wait_ms=0)
    assert (nothing_asked.error_code, nothing_asked.responses) == (OK, [])
    refused = topic.fetch_all([(0, 0)], version=12, isolation_level=level, session_id=7, session_epoch=-1)
    assert (refused.error_code, refused.session_id) == (ErrorCode.UNKNOWN_SERVER_ERROR, 7)
    no_session = topic.fetch_all([], version=12, isolation_level=level, session_epoch=1)
    assert no_session.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert topic.fetch_all([(0, 0)], version=12, isolation_level=level).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    (absent,) = topic.fetch_all([(9, 0)], version=12, isolation_level=level).responses[0].partitions
    assert absent.error_code == UNKNOWN


def test_the_cursor_must_be_among_the_topics(wire: Wire, topic: Topic, broker: BrokerProcess) -> None:
    asked = [dtp.TopicRequest(name=topic.name)]
    for name, code in (
        ("", ErrorCode.INVALID_REQUEST),
        ("zzz", ErrorCode.INVALID_REQUEST),
        (topic.name, ErrorCode.NONE),
    ):
        request = dtp.DescribeTopicPartitionsRequest(
            topics=asked, response_partition_limit=10, cursor=dtp.Cursor(topic_name=name, partition_index=0)
        )
        (answered,) = wire.call(request, 0).topics
        assert answered.error_code == code


def test_a_new_topic_is_told_with_its_settings_as_they_were_given(wire: Wire) -> None:
    config = ct.CreatableTopicConfig(name="preallocate", value="TRUE")
    topic = ct.CreatableTopic(name="odd", num_partitions=1, replication_factor=1, configs=[config])
    (answered,) = wire.call(ct.CreateTopicsRequest(topics=[topic], validate_only=True, timeout_ms=5000), 7).topics
    assert answered.configs is not None
    assert [each.value for each in answered.configs if each.name == "preallocate"] == ["TRUE"]


@pytest.mark.parametrize("version", [1, 11])
def test_list_offsets_leaves_topics_without_partitions_out(
    wire: Wire, topic: Topic, nothing: Topic, version: int
) -> None:
    asked = [lo.ListOffsetsTopic(name=each.name) for each in (topic, nothing)]
    assert wire.call(lo.ListOffsetsRequest(replica_id=-1, topics=asked), version).topics == []


@pytest.mark.parametrize("version", [1, 11])
def test_list_offsets_answers_a_topic_that_is_named_twice_once(wire: Wire, topic: Topic, version: int) -> None:
    def told(*entries: list[int]) -> list[list[tuple[int, int]]]:
        """Of each topic that is answered, its partitions and their errors."""
        asked = [
            lo.ListOffsetsTopic(
                name=topic.name,
                partitions=[lo.ListOffsetsPartition(partition_index=index, timestamp=-1) for index in indexes],
            )
            for indexes in entries
        ]
        answered = wire.call(lo.ListOffsetsRequest(replica_id=-1, topics=asked), version).topics
        return [sorted((each.partition_index, each.error_code) for each in one.partitions) for one in answered]

    assert told([0], [1]) == [[(0, OK), (1, OK)]]
    assert told([0], [7]) == [[(0, OK), (7, UNKNOWN)]]
    assert told([0], [0]) == [[(0, ErrorCode.INVALID_REQUEST)]]
    assert told([0], [], [1, 0]) == [[(0, ErrorCode.INVALID_REQUEST), (1, OK)]]


def test_pages_of_topics_that_are_not_there(wire: Wire, topic: Topic, nothing: Topic) -> None:
    """A page that is full ends before them, too."""
    names = sorted([topic.name, f"zz-{nothing.name}"])
    request = dtp.DescribeTopicPartitionsRequest(
        topics=[dtp.TopicRequest(name=name) for name in names], response_partition_limit=2
    )
    answered = wire.call(request, 0)
    assert [each.name for each in answered.topics] == [topic.name]
    assert (answered.next_cursor.topic_name, answered.next_cursor.partition_index) == (names[1], 0)


NOT_ATTEMPTED = int(ErrorCode.OPERATION_NOT_ATTEMPTED)


@pytest.mark.parametrize("version", [3, 4, 5])
@pytest.mark.parametrize("verify_only", [False, True])
def test_partitions_that_a_transaction_names_twice(wire: Wire, version: int, *, verify_only: bool) -> None:
    """Each is answered once where the answers may differ: if one is not there, or if it is only asked about."""
    peer: Peer = new_peers(wire, 2)()
    assert peer.init() == "NONE"
    assert peer.add(0, 1) == "NONE, NONE"

    def told(*named: list[int]) -> list[list[tuple[int, int]]]:
        topics = [ap.AddPartitionsToTxnTopic(name=peer.topic, partitions=each) for each in named]
        who: dict[str, Any] = {
            "transactional_id": peer.transactional_id,
            "producer_id": peer.identity.producer_id,
            "producer_epoch": peer.identity.epoch,
        }
        if version < 4:
            request = ap.AddPartitionsToTxnRequest(
                **{f"v3_and_below_{key}": value for key, value in who.items()}, v3_and_below_topics=topics
            )
            answered = wire.call(request, version).results_by_topic_v3_and_below
        else:
            asked = ap.AddPartitionsToTxnTransaction(**who, verify_only=verify_only, topics=topics)
            (result,) = wire.call(ap.AddPartitionsToTxnRequest(transactions=[asked]), version).results_by_transaction
            answered = result.topic_results
        return [
            sorted((it.partition_index, it.partition_error_code) for it in topic.results_by_partition)
            for topic in answered
        ]

    assert told([0, 0, 9], [0, 9]) == [[(0, NOT_ATTEMPTED), (9, UNKNOWN)]]
    if verify_only and version >= 4:
        assert told([0, 0, 1], [0], []) == [[(0, OK), (1, OK)]]
    else:
        assert told([0, 0, 1], [0], []) == [[(0, OK), (0, OK), (1, OK)], [(0, OK)], []]


@pytest.mark.parametrize("version", [0, 1])
def test_a_reassignment_of_nothing_is_answered_with_defaults(wire: Wire, version: int) -> None:
    request = ar.AlterPartitionReassignmentsRequest(allow_replication_factor_change=version == 0)
    answered = wire.call(request, version)
    assert (answered.allow_replication_factor_change, answered.error_message, answered.responses) == (True, "", [])


@pytest.mark.parametrize("version", [3, 9, 13])
def test_a_time_limit_is_for_other_replicas_and_not_for_the_leaders_own_write(
    make_topic: Callable[..., Topic], version: int
) -> None:
    """Also where the write is the first of its topic, and takes longer."""
    for _ in range(8):
        topic = make_topic(1)
        request = topic.produce_request(records(), version)
        request.timeout_ms = 0
        (answer,) = topic.wire.call(request, version).responses[0].partition_responses
        assert (answer.error_code, answer.base_offset) == (OK, 0)
