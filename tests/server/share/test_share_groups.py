"""Share groups on a whole node, on the wire: delivery, locks, sessions, administration, restarts, and what overlaps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
import trio
import trio.testing

from ottla.coordinator.errors import (
    CoordinatorError,
    FencedShareLeaderError,
    FencedStateEpochError,
    GroupIdNotFoundError,
    UninitializedShareError,
)
from ottla.coordinator.share.cluster import ClusterPersister
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.groups.delete_groups import DeleteGroupsRequest
from ottla.kproto.messages.groups.list_groups import ListGroupsRequest
from ottla.kproto.messages.share.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from ottla.kproto.messages.share.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from ottla.kproto.messages.share.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from ottla.kproto.messages.share.share_group_describe import ShareGroupDescribeRequest
from ottla.kproto.messages.topics.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.kproto.records import BatchBuilder
from ottla.metadata.changes.config_changes import ConfigChange, ConfigOperation
from ottla.metadata.image import ConfigResource, ResourceType
from ottla.replica.append import Records, TopicIdPartition
from ottla.server.network.connection import Connection
from ottla.server.share.in_flight import ACCEPT, REJECT, RELEASE
from ottla.server.share.sessions import SessionKey
from tests.servers import Client, RunningNode

from .conftest import ShareClient, acquired_of

Serve = Callable[..., Any]

SETTINGS = {
    "group.share.assignment.interval.ms": "0",
    "group.share.record.lock.duration.ms": "1000",
    "group.share.min.record.lock.duration.ms": "1000",
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "2",
}
PATIENT = SETTINGS | {"group.share.record.lock.duration.ms": "60000"}
TOPIC = "t"


async def produce(node: RunningNode, topic_id: UUID, *values: bytes, index: int = 0) -> None:
    """One batch of records."""
    builder = BatchBuilder()
    for value in values:
        builder.append(key=None, value=value, timestamp_ms=1_700_000_000_000)
    entries = {TopicIdPartition(topic_id, index): Records(memoryview(bytearray(builder.build())))}
    results = await node.broker.replica_manager.append(entries, required_acks=-1, timeout_ms=10_000)
    assert [result.error for result in results.values()] == [None]


async def begin_early(node: RunningNode, group: str) -> None:
    """Let a group begin with the first record."""
    resource = ConfigResource(ResourceType.GROUP, group)
    change = ConfigChange("share.auto.offset.reset", ConfigOperation.SET, "earliest")
    assert await node.broker.controller.alter_configs({resource: [change]}) == {resource: None}


async def offsets_of(client: Client, group: str) -> dict[int, tuple[int, int]]:
    """(start offset, lag) by partition."""
    asked = DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)
    answer = await client.call(DescribeShareGroupOffsetsRequest(groups=[asked]), 1)
    assert not answer.groups[0].error_code, answer.groups[0].error_message
    return {
        each.partition_index: (each.start_offset, each.lag)
        for topic in answer.groups[0].topics
        for each in topic.partitions
    }


async def test_what_is_accepted_is_over_and_what_is_released_comes_again(serve_node: Serve) -> None:
    async with serve_node(PATIENT) as node:
        topic_id = await node.create_topic(TOPIC)
        await produce(node, topic_id, b"a", b"b", b"c")
        await begin_early(node, "g")
        member = await ShareClient.join(node, "g", "m", TOPIC)

        assert await member.acquire() == [(0, 2, 1)]
        assert await offsets_of(member.client, "g") == {0: (0, 3)}
        assert await member.acquire((0, 0, ACCEPT), (1, 1, RELEASE), (2, 2, REJECT)) == [(1, 1, 2)]
        # Stored is the start before the change, and how many records behind it are over.
        assert await offsets_of(member.client, "g") == {0: (0, 1)}
        assert await member.acknowledge(1, 1) == ErrorCode.NONE
        assert await offsets_of(member.client, "g") == {0: (1, 0)}


async def test_the_answer_holds_the_batches_of_what_was_acquired(serve_node: Serve) -> None:
    async with serve_node(PATIENT) as node:
        topic_id = await node.create_topic(TOPIC)
        for value in (b"a", b"b", b"c"):
            await produce(node, topic_id, value)
        await begin_early(node, "g")
        member = await ShareClient.join(node, "g", "m", TOPIC)
        answer = await member.fetch(max_wait_ms=500, max_records=2)
        while not acquired_of(answer):
            answer = await member.fetch(max_wait_ms=500, max_records=2)
        data = bytes(answer.responses[0].partitions[0].records)
        assert acquired_of(answer) == [(0, 1, 1)]
        assert b"a" in data
        assert b"b" in data
        assert b"c" not in data


async def test_two_members_never_have_one_record(serve_node: Serve) -> None:
    async with serve_node(PATIENT) as node:
        topic_id = await node.create_topic(TOPIC)
        await begin_early(node, "g")
        members = [await ShareClient.join(node, "g", name, TOPIC) for name in ("m1", "m2")]
        taken: list[int] = []

        async def consume(member: ShareClient) -> None:
            acknowledged: list[tuple[int, int, int]] = []
            while len(taken) < 50:
                acquired = acquired_of(await member.fetch(*acknowledged, max_wait_ms=50, max_records=3))
                taken.extend(offset for first, last, _ in acquired for offset in range(first, last + 1))
                acknowledged = [(first, last, ACCEPT) for first, last, _ in acquired]

        with trio.fail_after(30):
            async with trio.open_nursery() as nursery:
                for member in members:
                    nursery.start_soon(consume, member)
                for number in range(25):
                    await produce(node, topic_id, b"%d" % number, b"x")
        assert sorted(taken) == list(range(50))


async def test_a_fetch_waits_for_records(serve_node: Serve) -> None:
    async with serve_node(PATIENT) as node:
        topic_id = await node.create_topic(TOPIC)
        await begin_early(node, "g")
        member = await ShareClient.join(node, "g", "m", TOPIC)
        assert acquired_of(await member.fetch(max_wait_ms=100)) == []
        await member.client.send(member.fetch_request(max_wait_ms=20_000), 2)
        while not node.broker.replica_manager.share_fetch_purgatory.watching:  # noqa: ASYNC110 - there is no event
            await trio.sleep(0.005)
        await produce(node, topic_id, b"a")
        with trio.fail_after(10):
            _, answer = await member.client.receive(member.fetch_request().API_KEY, 2)
        assert acquired_of(answer) == [(0, 0, 1)]


async def test_a_stop_answers_who_waits(serve_node: Serve) -> None:
    async with serve_node(PATIENT) as node:
        await node.create_topic(TOPIC)
        member = await ShareClient.join(node, "g", "m", TOPIC)
        await member.fetch(max_wait_ms=100)
        await member.client.send(member.fetch_request(max_wait_ms=60_000), 2)
        while not node.broker.replica_manager.share_fetch_purgatory.watching:  # noqa: ASYNC110 - there is no event
            await trio.sleep(0.005)
        node.node.stop()
        with trio.fail_after(10):
            _, answer = await member.client.receive(member.fetch_request().API_KEY, 2)
        assert acquired_of(answer) == []


async def test_a_lock_that_ends_lets_another_member_have_the_record(serve_node: Serve) -> None:
    async with serve_node(SETTINGS) as node:
        topic_id = await node.create_topic(TOPIC)
        await produce(node, topic_id, b"a")
        await begin_early(node, "g")
        slow = await ShareClient.join(node, "g", "slow", TOPIC)
        quick = await ShareClient.join(node, "g", "quick", TOPIC)
        assert await slow.acquire() == [(0, 0, 1)]
        assert await quick.acquire() == [(0, 0, 2)]
        assert await slow.acknowledge(0, 0) == ErrorCode.INVALID_RECORD_STATE
        assert await quick.acknowledge(0, 0) == ErrorCode.NONE


async def test_a_lost_connection_gives_back_what_the_member_held(serve_node: Serve) -> None:
    async with serve_node(PATIENT) as node:
        topic_id = await node.create_topic(TOPIC)
        await produce(node, topic_id, b"a")
        await begin_early(node, "g")
        lost = await ShareClient.join(node, "g", "lost", TOPIC)
        stays = await ShareClient.join(node, "g", "stays", TOPIC)
        assert await lost.acquire() == [(0, 0, 1)]
        await trio.aclose_forcefully(lost.client.stream)
        # It counts as delivered: nobody can tell.
        assert await stays.acquire() == [(0, 0, 2)]


async def test_a_lost_connection_does_not_end_the_session_that_the_member_has_begun_since(serve_node: Serve) -> None:
    async with serve_node(PATIENT) as node:
        topic_id = await node.create_topic(TOPIC)
        await produce(node, topic_id, b"a")
        await begin_early(node, "g")
        member = await ShareClient.join(node, "g", "m", TOPIC)
        assert await member.acquire() == [(0, 0, 1)]
        sessions = node.broker.share.manager.sessions
        key = SessionKey("g", "m")
        former = sessions.remove(key)
        assert former is not None
        asked = list(former.partitions)
        sessions.fetch(key, 0, asked, has_acknowledgements=False, owner=former.owner)
        # The connection ends, and before anything else runs the member is there again.
        node.broker.share.manager.connection_closed(former.owner)
        again = sessions.fetch(key, 0, asked, has_acknowledgements=False, owner="another connection")
        await trio.testing.wait_all_tasks_blocked()
        assert sessions.fetch(key, 1, (), has_acknowledgements=False, owner=None) is again


async def test_a_connection_of_many_sessions_remembers_none_of_them(
    serve_node: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Members come and go on one connection: what they leave there must not grow."""
    noted: set[Any] = set()
    on_close = Connection.on_close

    def note(connection: Connection, key: Any, callback: Callable[[], None]) -> None:
        noted.add(key)
        on_close(connection, key, callback)

    monkeypatch.setattr(Connection, "on_close", note)
    async with serve_node(PATIENT) as node:
        topic_id = await node.create_topic(TOPIC)
        client = await node.connect()
        for number in range(3):
            member = ShareClient(client, "g", f"m{number}")
            member.assigned = {topic_id: [0]}
            await member.fetch()
        assert len(node.broker.share.manager.sessions) == 3
        assert len(noted) == 1
        await trio.aclose_forcefully(client.stream)
        with trio.fail_after(10):
            while len(node.broker.share.manager.sessions):  # noqa: ASYNC110 - there is no event
                await trio.sleep(0.005)


async def test_a_session_that_ends_gives_back_what_the_member_held(serve_node: Serve) -> None:
    async with serve_node(PATIENT) as node:
        topic_id = await node.create_topic(TOPIC)
        await produce(node, topic_id, b"a", b"b")
        await begin_early(node, "g")
        first = await ShareClient.join(node, "g", "first", TOPIC)
        second = await ShareClient.join(node, "g", "second", TOPIC)
        assert await first.acquire() == [(0, 1, 1)]
        first.session_epoch = -1
        assert acquired_of(await first.fetch((0, 0, ACCEPT))) == []
        assert await second.acquire() == [(1, 1, 2)]
        first.session_epoch = 1
        assert (await first.fetch()).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


async def test_all_is_as_it_was_after_a_restart(serve_node: Serve) -> None:
    async with serve_node(PATIENT) as node:
        topic_id = await node.create_topic(TOPIC)
        await produce(node, topic_id, *(b"%d" % number for number in range(6)))
        await begin_early(node, "g")
        member = await ShareClient.join(node, "g", "m", TOPIC)
        assert await member.acquire() == [(0, 5, 1)]
        assert await member.acknowledge(0, 1) == ErrorCode.NONE
        assert await member.acknowledge(3, 3) == ErrorCode.NONE
        assert await member.acknowledge(4, 4, RELEASE) == ErrorCode.NONE
        assert await offsets_of(member.client, "g") == {0: (2, 3)}
    async with serve_node(PATIENT) as node:
        client = await node.connect()
        described = await client.call(ShareGroupDescribeRequest(group_ids=["g"]), 1)
        assert [each.member_id for each in described.groups[0].members] == ["m"]
        member = ShareClient(client, "g", "m")
        await member.beat(subscribed_topic_names=[TOPIC])
        assert member.assigned == {topic_id: [0]}
        # What was held is given back, with the deliveries that were stored.
        assert await member.acquire() == [(2, 2, 2), (4, 5, 2)]
        assert await offsets_of(client, "g") == {0: (2, 3)}


async def test_a_partition_that_comes_to_a_topic_later_begins_with_its_first_record(serve_node: Serve) -> None:
    async with serve_node(PATIENT) as node:
        topic_id = await node.create_topic("t")
        await produce(node, topic_id, b"before")
        member = await ShareClient.join(node, "g", "m", "t")
        more = CreatePartitionsTopic(name="t", count=2, assignments=None)
        answer = await member.client.call(CreatePartitionsRequest(topics=[more], timeout_ms=5000), 3)
        assert not answer.results[0].error_code
        await produce(node, topic_id, b"a", b"b", index=1)
        with trio.fail_after(20):
            while member.assigned != {topic_id: [0, 1]}:
                await member.beat()
                await trio.sleep(0.01)
        offsets = await node.broker.group_coordinator.share_groups.describe_offsets("g", None)
        # The group begins at the end of what there was, and misses nothing of what comes later.
        assert {key.partition: each.start_offset for key, each in offsets.items()} == {0: -1, 1: 0}


async def test_where_a_group_began_is_kept_over_a_restart(serve_node: Serve) -> None:
    """Nothing was acknowledged yet: what was produced since the group began must not be passed by."""
    async with serve_node(PATIENT) as node:
        topic_id = await node.create_topic(TOPIC)
        await produce(node, topic_id, b"before")
        member = await ShareClient.join(node, "g", "m", TOPIC)
        assert acquired_of(await member.fetch(max_wait_ms=300)) == []
        await produce(node, topic_id, b"after")
        assert await member.acquire() == [(1, 1, 1)]
    async with serve_node(PATIENT) as node:
        member = await ShareClient.join(node, "g", "m", TOPIC)
        # That the member lost it when the node stopped may have been stored, or not.
        assert [acquired[:2] for acquired in await member.acquire()] == [(1, 1)]


async def test_a_group_is_listed_described_altered_and_deleted(serve_node: Serve) -> None:
    async with serve_node(PATIENT) as node:
        topic_id = await node.create_topic(TOPIC, 2)
        for index in (0, 1):
            await produce(node, topic_id, b"a", b"b", index=index)
        await begin_early(node, "g")
        member = await ShareClient.join(node, "g", "m", TOPIC)
        client = member.client
        listed = await client.call(ListGroupsRequest(types_filter=["share"]), 5)
        assert [(each.group_id, each.group_state, each.group_type, each.protocol_type) for each in listed.groups] == [
            ("g", "Stable", "share", "share")
        ]
        starts = [AlterShareGroupOffsetsRequestPartition(partition_index=1, start_offset=1)]
        topics = [AlterShareGroupOffsetsRequestTopic(topic_name=TOPIC, partitions=starts)]
        alter = AlterShareGroupOffsetsRequest(group_id="g", topics=topics)
        assert (await client.call(alter, 0)).error_code == ErrorCode.NON_EMPTY_GROUP
        deleted = await client.call(DeleteGroupsRequest(groups_names=["g"]), 2)
        assert deleted.results[0].error_code == ErrorCode.NON_EMPTY_GROUP

        member.epoch = -1
        await member.beat()
        assert not (await client.call(alter, 0)).responses[0].partitions[0].error_code
        assert (await offsets_of(client, "g"))[1] == (1, 1)
        member.epoch = 0
        await member.beat(subscribed_topic_names=[TOPIC])
        assert sorted(await member.acquire()) in ([(0, 1, 1), (1, 1, 1)], [(0, 1, 1)], [(1, 1, 1)])
        member.epoch = -1
        await member.beat()
        forget = DeleteShareGroupOffsetsRequest(
            group_id="g", topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=TOPIC)]
        )
        assert not (await client.call(forget, 0)).responses[0].error_code
        assert await offsets_of(client, "g") == {}
        deleted = await client.call(DeleteGroupsRequest(groups_names=["g"]), 2)
        assert deleted.results[0].error_code == ErrorCode.NONE
        described = await client.call(ShareGroupDescribeRequest(group_ids=["g"]), 1)
        assert described.groups[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_offsets_that_cannot_be_are_described(serve_node: Serve) -> None:
    async with serve_node(PATIENT) as node:
        topic_id = await node.create_topic(TOPIC, 1)
        await produce(node, topic_id, b"a", index=0)
        member = await ShareClient.join(node, "g", "m", TOPIC)
        member.epoch = -1
        await member.beat()
        starts = [AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=-(1 << 63))]
        topics = [AlterShareGroupOffsetsRequestTopic(topic_name=TOPIC, partitions=starts)]
        altered = await member.client.call(AlterShareGroupOffsetsRequest(group_id="g", topics=topics), 0)
        assert not altered.responses[0].partitions[0].error_code
        assert await offsets_of(member.client, "g") == {0: (-(1 << 63), (1 << 63) - 1)}


async def test_a_group_that_is_deleted_under_an_acknowledgement(serve_node: Serve) -> None:
    """The member has left the group, but not its session: what it says after the deletion counts for nothing."""
    async with serve_node(PATIENT) as node:
        topic_id = await node.create_topic(TOPIC)
        await produce(node, topic_id, b"a", b"b")
        await begin_early(node, "g")
        member = await ShareClient.join(node, "g", "m", TOPIC)
        assert await member.acquire() == [(0, 1, 1)]
        member.epoch = -1
        await member.beat()
        other = await node.connect()
        codes: list[int] = []

        async def delete() -> None:
            answer = await other.call(DeleteGroupsRequest(groups_names=["g"]), 2)
            codes.append(answer.results[0].error_code)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(delete)
            outcome = await member.acknowledge(0, 0)
        assert codes == [ErrorCode.NONE]
        # It is stored before the deletion, meets it (members know no errors of share coordinators), or finds it over.
        assert outcome in (
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_SERVER_ERROR,
            ErrorCode.GROUP_ID_NOT_FOUND,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        )
        assert await member.acknowledge(1, 1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert len(node.broker.coordinators.shares.runtime.loaded_shards()) == 2
        assert [shard.entries for shard in node.broker.coordinators.shares.runtime.loaded_shards()] == [{}, {}]

        again = await ShareClient.join(node, "g", "again", TOPIC)
        assert await again.acquire() == [(0, 1, 1)]


async def test_the_state_of_a_deleted_topic_goes(serve_node: Serve) -> None:
    async with serve_node(PATIENT) as node:
        topic_id = await node.create_topic(TOPIC)
        await produce(node, topic_id, b"a")
        await begin_early(node, "g")
        member = await ShareClient.join(node, "g", "m", TOPIC)
        assert await member.acquire() == [(0, 0, 1)]
        await node.broker.controller.delete_topics([topic_id])
        shards = node.broker.coordinators.shares.runtime.loaded_shards
        with trio.fail_after(10):
            while any(shard.entries for shard in shards()):  # noqa: ASYNC110 - there is no event
                await trio.sleep(0.01)
            group = node.broker.group_coordinator.share_groups.describe("g")
            while group.state_partitions.topics():  # noqa: ASYNC110 - there is no event
                await trio.sleep(0.01)
        assert await member.acknowledge(0, 0) == ErrorCode.UNKNOWN_TOPIC_ID
        assert not list(node.broker.share.manager)


async def test_a_snapshot_is_written_after_so_many_updates_and_what_is_before_goes(serve_node: Serve) -> None:
    settings = PATIENT | {
        "share.coordinator.snapshot.update.records.per.snapshot": "3",
        "share.coordinator.state.topic.prune.interval.ms": "50",
        "share.coordinator.state.topic.num.partitions": "1",
    }
    async with serve_node(settings) as node:
        topic_id = await node.create_topic(TOPIC)
        await produce(node, topic_id, *(b"%d" % number for number in range(12)))
        await begin_early(node, "g")
        member = await ShareClient.join(node, "g", "m", TOPIC)
        assert await member.acquire() == [(0, 11, 1)]
        for offset in range(0, 10, 2):
            assert await member.acknowledge(offset, offset) == ErrorCode.NONE
        state_topic = node.broker.metadata.topic("__share_group_state")
        log = node.broker.replica_manager.get_partition(state_topic.topic_id, 0).log
        with trio.fail_after(10):
            while not log.log_start_offset:  # noqa: ASYNC110 - there is no event
                await trio.sleep(0.02)
    async with serve_node(settings) as node:
        member = await ShareClient.join(node, "g", "m", TOPIC)
        taken = await member.acquire()
        assert [offset for first, last, _ in taken for offset in range(first, last + 1)] == [1, 3, 5, 7, 9, 10, 11]


@pytest.mark.parametrize("epoch", [1, 5])
async def test_a_session_has_one_next_request(serve_node: Serve, epoch: int) -> None:
    async with serve_node(PATIENT) as node:
        await node.create_topic(TOPIC)
        member = await ShareClient.join(node, "g", "m", TOPIC)
        member.session_epoch = epoch
        assert (await member.fetch()).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
        assert await member.acknowledge(0, 0) == ErrorCode.SHARE_SESSION_NOT_FOUND
        member.session_epoch = 0
        await member.fetch()
        member.session_epoch = 7
        assert (await member.fetch()).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
        assert await member.acknowledge(0, 0) == ErrorCode.INVALID_SHARE_SESSION_EPOCH


async def test_sessions_are_limited(serve_node: Serve) -> None:
    async with serve_node(PATIENT | {"group.share.max.share.sessions": "1"}) as node:
        await node.create_topic(TOPIC)
        first = await ShareClient.join(node, "g", "m1", TOPIC)
        second = await ShareClient.join(node, "g", "m2", TOPIC)
        await first.fetch()
        assert (await second.fetch()).error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
        await trio.aclose_forcefully(first.client.stream)
        with trio.fail_after(10):
            while (await second.fetch()).error_code:  # noqa: ASYNC110 - there is no event
                await trio.sleep(0.01)


async def test_a_stop_answers_who_waits_for_a_session(serve_node: Serve) -> None:
    async with serve_node(PATIENT | {"group.share.max.share.sessions": "1"}) as node:
        await node.create_topic(TOPIC)
        first = await ShareClient.join(node, "g", "m1", TOPIC)
        second = await ShareClient.join(node, "g", "m2", TOPIC)
        await first.fetch()
        await second.client.send(second.fetch_request(max_wait_ms=60_000), 2)
        while not node.broker.replica_manager.share_fetch_purgatory.watching:  # noqa: ASYNC110 - there is no event
            await trio.sleep(0.005)
        node.node.stop()
        with trio.fail_after(10):
            _, answer = await second.client.receive(second.fetch_request().API_KEY, 2)
        assert answer.error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED


async def test_a_member_id_has_36_characters_at_most(serve_node: Serve) -> None:
    async with serve_node(PATIENT) as node:
        await node.create_topic(TOPIC)
        member = ShareClient(await node.connect(), "g", "m" * 37)
        assert (await member.beat(subscribed_topic_names=[TOPIC])).error_code == ErrorCode.INVALID_REQUEST
        assert (await ShareClient.join(node, "g", "m" * 36, TOPIC)).assigned


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (FencedStateEpochError("begun anew"), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (FencedShareLeaderError("another leads"), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (UninitializedShareError("forgotten"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (GroupIdNotFoundError("deleted"), ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
async def test_members_are_told_what_they_understand_of_the_state(
    error: CoordinatorError, code: ErrorCode, serve_node: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients know no errors of share coordinators (SharePartition.fetchPersisterError in Kafka)."""
    async with serve_node(PATIENT) as node:
        topic_id = await node.create_topic(TOPIC)
        await produce(node, topic_id, b"a")
        await begin_early(node, "g")
        member = await ShareClient.join(node, "g", "m", TOPIC)
        assert await member.acquire() == [(0, 0, 1)]

        async def refuse(*change: Any) -> None:
            raise error

        monkeypatch.setattr(ClusterPersister, "write", refuse)
        assert await member.acknowledge(0, 0) == code
        monkeypatch.undo()
        assert await member.acquire() == [(0, 0, 1)]
