"""Requests of many elements on a whole node: answered as others are, within limits, and with nothing kept of them."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Generator
from itertools import pairwise
from typing import Any

import pytest
import trio

from ottla.kproto import codec
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.configs.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from ottla.kproto.messages.configs.alter_configs import AlterConfigsRequest, AlterConfigsResource
from ottla.kproto.messages.configs.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.kproto.messages.data.describe_log_dirs import DescribeLogDirsRequest
from ottla.kproto.messages.data.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.kproto.messages.data.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.kproto.messages.data.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla.kproto.messages.data.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.kproto.messages.groups.find_coordinator import FindCoordinatorRequest
from ottla.kproto.messages.groups.streams_group_heartbeat import StreamsGroupHeartbeatRequest, Subtopology, Topology
from ottla.kproto.messages.topics.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.kproto.messages.topics.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest
from ottla.kproto.messages.topics.describe_topic_partitions import TopicRequest as TopicRequestOfDescribe
from ottla.kproto.messages.topics.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.kproto.messages.topics.metadata import MetadataRequest, MetadataRequestTopic
from ottla.kproto.messages.transactions.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from ottla.runtime.work import LIGHT_ELEMENTS, Work
from ottla.server.apis.data.fetch import MAX_PARTITIONS
from ottla.server.apis.errors import error_response_in_steps
from ottla.server.apis.topics import describe_topic_partitions
from ottla.server.network import large_requests
from ottla.server.network.large_requests import _drop, _emptied, _keep_elements

Serve = Callable[..., Any]


async def test_more_elements_than_allowed_close_the_connection(
    serve_node: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve_node({"ottla.request.max.elements": "10000"}) as node:
        client = await node.connect()
        await client.send(FindCoordinatorRequest(coordinator_keys=[""] * 10_500), 4)
        assert await client.is_closed()
        assert "more than 10000 elements (ottla.request.max.elements)" in caplog.text
        other = await node.connect()
        answer = await other.call(FindCoordinatorRequest(coordinator_keys=["g"] * 4_900), 4)
        assert {it.error_code for it in answer.coordinators} == {0}
        # What was asked counts together with what is answered.
        await other.send(FindCoordinatorRequest(coordinator_keys=["g"] * 5_100), 4)
        assert await other.is_closed()


async def test_an_answer_larger_than_its_request_counts_too(
    serve_node: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve_node({"ottla.request.max.elements": "10000"}) as node:
        client = await node.connect()
        resources = [DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None)] * 100
        await client.send(DescribeConfigsRequest(resources=resources), 4)
        assert await client.is_closed()
    assert "ottla.request.max.elements" in caplog.text


@pytest.mark.parametrize("version", [1, 6, 11])
async def test_many_partitions_are_answered_in_order(serve_node: Serve, version: int) -> None:
    async with serve_node() as node:
        await node.create_topic("t", 3)
        client = await node.connect()
        partitions = [ListOffsetsPartition(partition_index=n, timestamp=-1) for n in range(4_000)]
        answer = await client.call(
            ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=partitions)]), version
        )
        (topic,) = answer.topics
        assert [it.partition_index for it in topic.partitions] == list(range(4_000))
        assert [it.error_code for it in topic.partitions[:4]] == [0, 0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        metrics = next(api.metrics for api in node.broker.apis if api.key is ApiKey.LIST_OFFSETS)
        assert metrics.errors == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 3_997}
        assert metrics.requests == 1


async def test_a_fetch_of_many_partitions_that_waits_holds_up_no_other_large_request(serve_node: Serve) -> None:
    async with serve_node() as node:
        await node.create_topic("t", 3_000)
        waiting, other = await node.connect(), await node.connect()
        partitions = [FetchPartition(partition=n, partition_max_bytes=1000) for n in range(3_000)]
        topics = [FetchTopic(topic="t", partitions=partitions)]
        await waiting.send(FetchRequest(max_wait_ms=600_000, min_bytes=1, topics=topics), 12)
        with trio.fail_after(10):
            while not node.broker.replica_manager.fetch_purgatory.watching:  # noqa: ASYNC110 - nobody tells
                await trio.sleep(0.01)
        names = [MetadataRequestTopic(name=f"n{n}") for n in range(3_000)]
        answer = await other.call(MetadataRequest(topics=names, allow_auto_topic_creation=False), 12)
        assert len(answer.topics) == 3_000
        assert node.broker.budget.parsed.used_bytes > 0
        assert node.broker.budget.small.used_bytes == 0  # the frame was let go of


async def test_a_fetch_of_too_many_partitions_is_refused(serve_node: Serve) -> None:
    async with serve_node() as node:
        client = await node.connect()
        partitions = [FetchPartition(partition=n) for n in range(MAX_PARTITIONS + 1)]
        answer = await client.call(FetchRequest(topics=[FetchTopic(topic="t", partitions=partitions)]), 12)
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        answer = await client.call(FetchRequest(topics=[FetchTopic(topic="t", partitions=partitions[:-1])]), 12)
        assert len(answer.responses[0].partitions) == MAX_PARTITIONS


async def test_a_produce_to_many_partitions(serve_node: Serve) -> None:
    async with serve_node() as node:
        client = await node.connect()
        partitions = [PartitionProduceData(index=n, records=b"") for n in range(2_000)]
        request = ProduceRequest(
            acks=1, timeout_ms=0, topic_data=[TopicProduceData(name="t", partition_data=partitions)]
        )
        for version in (7, 12):
            (topic,) = (await client.call(request, version)).responses
            assert [it.index for it in topic.partition_responses] == list(range(2_000))


class Steps(trio.abc.Instrument):
    """Counts the steps of all tasks."""

    def __init__(self) -> None:
        self.count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += 1


async def test_a_long_refusal_lets_others_run(serve_node: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Steps()
    counted: list[int] = []

    def refuse(*asked: Any) -> codec.Steps[Any]:
        before = steps.count
        refused = yield from error_response_in_steps(*asked)
        counted.append(steps.count - before)
        return refused

    monkeypatch.setattr(describe_topic_partitions, "error_response_in_steps", refuse)
    async with serve_node() as node:
        client = await node.connect()
        asked = DescribeTopicPartitionsRequest(cursor=Cursor(topic_name="t", partition_index=-1))
        assert not (await client.call(asked, 0)).topics
        asked.topics = [TopicRequestOfDescribe(name=f"{n:05}") for n in range(20_000)]
        trio.lowlevel.add_instrument(steps)
        answer = await client.call(asked, 0)
        trio.lowlevel.remove_instrument(steps)
        assert {it.error_code for it in answer.topics} == {ErrorCode.INVALID_REQUEST}
        assert len(answer.topics) == 20_000
        # It takes tens of milliseconds, and a slice is a fifth of one.
        assert counted[0] == 0
        assert counted[1] > 10


def test_objects_are_freed_a_few_at_a_time_and_lists_that_others_keep_stay() -> None:
    alive = 0

    class Traced(ListOffsetsPartition):
        __slots__ = ()

        def __init__(self) -> None:
            nonlocal alive
            super().__init__()
            alive += 1

        def __del__(self) -> None:
            nonlocal alive
            alive -= 1

    kept_list = [ListOffsetsPartition(partition_index=n) for n in range(1_000)]
    topics = [
        ListOffsetsTopic(name="kept", partitions=kept_list),
        ListOffsetsTopic(name="lost", partitions=[Traced() for _ in range(1_000)]),
    ]
    messages = [ListOffsetsRequest(topics=topics)]
    del topics
    kept: deque[list[object]] = deque()
    for _ in _keep_elements(messages[0], kept):
        pass
    messages.clear()
    counts = [alive, *(alive for _ in _drop(kept))]
    assert (counts[0], counts[-1]) == (1_000, 0)
    assert max(before - after for before, after in pairwise(counts)) <= 128
    assert len(kept_list) == 1_000


def test_lists_inside_of_a_structure_are_freed_a_few_at_a_time_too() -> None:
    topology = Topology(subtopologies=[Subtopology(subtopology_id=str(n)) for n in range(1_000)])
    kept: deque[list[object]] = deque()
    for _ in _keep_elements(StreamsGroupHeartbeatRequest(topology=topology), kept):
        pass
    subtopologies = [it for some in kept for it in some if isinstance(it, Subtopology)]
    assert subtopologies == topology.subtopologies
    assert max(len(some) for some in kept) <= 128


async def test_what_was_parsed_of_a_request_that_is_given_up_is_freed_a_few_at_a_time(
    serve_node: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    freed: list[int] = []
    empty = large_requests._empty

    async def watched(begun: codec.Begun) -> None:
        freed.append(sum(map(len, begun)))
        lists = list(begun)
        await empty(begun)
        assert not any(lists)

    monkeypatch.setattr(large_requests, "_empty", watched)
    async with serve_node({"ottla.request.max.elements": "10000"}) as node:
        client = await node.connect()
        topics = [
            ListOffsetsTopic(name=str(n), partitions=[ListOffsetsPartition(partition_index=i) for i in range(400)])
            for n in range(100)
        ]
        await client.send(ListOffsetsRequest(topics=topics), 6)
        assert await client.is_closed()
    assert len(freed) == 1
    # What is between two stops when it is given up is not in its list yet.
    assert 10_000 - 128 <= freed[0] <= 10_000 + 128


async def test_an_answer_is_freed_a_few_at_a_time_before_it_is_sent(
    serve_node: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[int] = []
    asked = range(1_000_000_000, 1_000_001_000)  # nobody else has any of these
    drop = large_requests._drop

    def watched(kept: deque[list[object]]) -> Generator[None, None, None]:
        yield from drop(kept)
        answers = (it for it in gc.get_objects() if isinstance(it, ListOffsetsPartitionResponse))
        left.append(sum(it.partition_index in asked for it in answers))

    monkeypatch.setattr(large_requests, "_drop", watched)
    async with serve_node() as node:
        client = await node.connect()
        partitions = [ListOffsetsPartition(partition_index=index) for index in asked]
        await client.call(ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=partitions)]), 6)
    assert left == [0]


@pytest.mark.parametrize("make", [list, dict.fromkeys])
def test_what_was_needed_on_the_way_is_freed_a_few_at_a_time(make: Callable[[Any], Any]) -> None:
    work = Work()
    few, many = make(range(LIGHT_ELEMENTS)), make(range(LIGHT_ELEMENTS + 1))
    work.leave(few, many)
    assert len(work.left) == 1
    counts = [len(many), *(len(many) for _ in _emptied(many))]
    assert counts[-1] == 0
    assert max(before - after for before, after in pairwise(counts)) <= 128
    assert len(few) == LIGHT_ELEMENTS


async def test_a_partition_of_many_producers_counts_each_time_that_it_is_named(serve_node: Serve) -> None:
    async with serve_node({"ottla.request.max.elements": "10000"}) as node:
        await node.create_topic("t", 1)
        client = await node.connect()
        markers = [
            WritableTxnMarker(
                producer_id=n,
                transaction_result=True,
                topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0, 0])],
            )
            for n in range(50)
        ]
        await client.call(WriteTxnMarkersRequest(markers=markers), 1)
        for count in (10, 300):
            topics = [TopicRequest(name="t", partition_indexes=[0] * count)]
            await client.send(DescribeProducersRequest(topics=topics), 0)
            if count == 300:
                assert await client.is_closed()
            else:
                _, answer = await client.receive(ApiKey.DESCRIBE_PRODUCERS, 0)
                assert [len(it.active_producers) for it in answer.topics[0].partitions] == [50] * 10


async def test_a_partition_may_be_named_any_number_of_times(serve_node: Serve) -> None:
    """Where its state is changed it is changed once, and each is answered."""
    async with serve_node() as node:
        await node.create_topic("t", 2)
        client = await node.connect()
        asked = ReassignableTopic(
            name="t", partitions=[ReassignablePartition(partition_index=n % 3, replicas=[1]) for n in range(3_000)]
        )
        answer = await client.call(AlterPartitionReassignmentsRequest(timeout_ms=1000, topics=[asked]), 1)
        codes = [it.error_code for it in answer.responses[0].partitions]
        assert codes == [0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 1_000
        elected = TopicPartitions(topic="t", partitions=[0, 1, 2] * 1_000)
        unknown = TopicPartitions(topic="u", partitions=[0])
        answer = await client.call(ElectLeadersRequest(topic_partitions=[elected, unknown], timeout_ms=1000), 2)
        codes = [it.error_code for topic in answer.replica_election_results for it in topic.partition_result]
        unneeded = ErrorCode.ELECTION_NOT_NEEDED
        assert codes[:-1] == [unneeded, unneeded, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 1_000
        assert codes[-1] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_an_entity_of_too_many_quotas_is_refused(serve_node: Serve) -> None:
    async with serve_node() as node:
        client = await node.connect()
        ops = [OpData(key=f"k{n}", value=1.0) for n in range(1_001)]
        entry = EntryData(entity=[EntityData(entity_type="user", entity_name="u")], ops=ops)
        answer = await client.call(AlterClientQuotasRequest(entries=[entry]), 1)
        assert [it.error_code for it in answer.entries] == [ErrorCode.INVALID_REQUEST]


async def test_topics_may_come_while_the_folder_is_described(serve_node: Serve) -> None:
    async with serve_node() as node:
        await node.create_topic("t", 2_000)
        client = await node.connect()
        async with trio.open_nursery() as nursery:
            for n in range(5):
                nursery.start_soon(node.create_topic, f"t{n}", 20)
            for _ in range(5):
                assert (await client.call(DescribeLogDirsRequest(topics=None), 4)).results[0].error_code == 0


async def test_more_changes_of_the_metadata_than_kafka_takes_are_refused(serve_node: Serve) -> None:
    async with serve_node() as node:
        client = await node.connect()
        for count, code in ((10_001, ErrorCode.POLICY_VIOLATION), (10_000, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)):
            resources = [AlterConfigsResource(resource_type=2, resource_name=f"t{n}", configs=[]) for n in range(count)]
            answer = await client.call(AlterConfigsRequest(resources=resources), 2)
            assert {it.error_code for it in answer.responses} == {code}
            assert len(answer.responses) == count
