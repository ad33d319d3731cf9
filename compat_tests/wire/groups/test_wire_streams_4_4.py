"""What Apache Kafka 4.4 added to streams groups: static members, offsets of tasks, new versions of their APIs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from compat_tests.brokers.process import BrokerProcess
from compat_tests.wire.groups.test_wire_streams import (
    DELAYED,
    Member,
    configure,
    counting,
    name,
    plain,
    tasks_of,
    told,
    until,
)
from compat_tests.wire.groups.test_wire_streams import group as group
from compat_tests.wire.groups.test_wire_streams import topic as topic
from compat_tests.wire.groups.test_wire_streams import wire as wire
from compat_tests.wire.wire import Wire
from ottla.kproto.messages.configs.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.kproto.messages.groups.streams_group_describe import StreamsGroupDescribeRequest
from ottla.kproto.messages.groups.streams_group_heartbeat import Endpoint, KeyValue, TaskOffset
from ottla.kproto.messages.groups.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    TopologyDescription,
    TopologyDescriptionNode,
    TopologyDescriptionSubtopology,
)

AWAY, FOR_GOOD = -2, -1
SHUTDOWN = 4


@pytest.fixture(params=[0, 1])
def version(request: pytest.FixtureRequest) -> int:
    """Of StreamsGroupHeartbeat."""
    found: int = request.param
    return found


@pytest.fixture
def members(broker: BrokerProcess, group: str, version: int) -> Iterator[list[Member]]:
    made = [Member(Wire(broker.bootstrap), group, f"member-{letter}", version=version) for letter in "abcd"]
    yield made
    for member in made:
        member.wire.close()


def describe(wire: Wire, group: str, **options: Any) -> Any:
    (described,) = wire.call(StreamsGroupDescribeRequest(group_ids=[group], **options), 1).groups
    return described


def leave(member: Member, epoch: int, **fields: Any) -> Any:
    member.epoch = epoch
    return member.beat(**fields)


def refused(answer: Any) -> tuple[str, str | None]:
    return name(answer), answer.error_message


def test_a_static_member_comes_back_without_a_rebalance(wire: Wire, members: list[Member], topic: str) -> None:
    a, b, c, _ = members
    a.join(plain(topic), instance_id="i", process_id="p")
    b.join(plain(topic))
    a.settle(b)
    epoch, tasks = a.epoch, tasks_of(a.tasks)
    (first, _) = sorted(describe(wire, a.group).members, key=lambda member: str(member.member_id))
    assert (first.member_id, first.instance_id) == ("member-a", "i")

    left = leave(a, AWAY, instance_id="i")
    assert (name(left), left.member_id, left.member_epoch, left.status) == ("NONE", "member-a", -2, [])
    assert (left.heartbeat_interval_ms, left.task_offset_interval_ms) == (0, 0)
    described = describe(wire, a.group)
    assert (described.group_state, described.group_epoch) == ("Reconciling", epoch)
    (away,) = [member for member in described.members if member.member_id == "member-a"]
    assert (away.member_epoch, tasks_of(away.assignment)) == (-2, tasks)
    assert refused(a.beat(member_epoch=epoch, instance_id="i"))[0] == "FENCED_MEMBER_EPOCH"

    back = c.join(plain(topic), instance_id="i", process_id="p")
    assert (name(back), back.member_id, back.member_epoch, tasks_of(back), told(back)) == (
        "NONE",
        "member-c",
        epoch,
        tasks,
        [],
    )
    assert b.beat(**b.tasks).member_epoch == epoch
    described = describe(wire, a.group)
    assert (described.group_state, described.group_epoch) == ("Stable", epoch)
    assert sorted(member.member_id for member in described.members) == ["member-b", "member-c"]
    assert refused(a.beat(member_epoch=epoch, instance_id="i")) == (
        "FENCED_INSTANCE_ID",
        "Static member member-a with instance id i was fenced by member member-c.",
    )
    assert refused(a.beat(member_epoch=epoch))[0] == "UNKNOWN_MEMBER_ID"
    assert refused(leave(a, FOR_GOOD, instance_id="i"))[0] == "FENCED_INSTANCE_ID"
    assert name(leave(c, FOR_GOOD, instance_id="i")) == "NONE"
    assert [member.member_id for member in describe(wire, a.group).members] == ["member-b"]
    b.settle()
    assert b.epoch == epoch + 1


def test_an_instance_id_belongs_to_one_member(members: list[Member], topic: str) -> None:
    a, b, c, _ = members
    a.join(plain(topic), instance_id="i")
    for taker in (b, a):
        assert refused(taker.join(plain(topic), instance_id="i")) == (
            "UNRELEASED_INSTANCE_ID",
            f"Static member {taker.member_id} with instance id i cannot join the group because the instance id is "
            "owned by member-a member.",
        )
    a.epoch = 1
    a.settle()
    epoch = a.epoch
    assert refused(b.beat(member_epoch=epoch, instance_id="i"))[0] == "FENCED_INSTANCE_ID"
    assert refused(b.beat(member_epoch=epoch, instance_id="j")) == ("UNKNOWN_MEMBER_ID", "Instance id j is unknown.")
    for way in (AWAY, FOR_GOOD):
        assert refused(leave(b, way, instance_id="i"))[0] == "FENCED_INSTANCE_ID"
        assert refused(leave(b, way, instance_id="j")) == ("UNKNOWN_MEMBER_ID", "Instance id j is unknown.")
    assert name(a.beat(member_epoch=epoch)) == "NONE"
    assert name(leave(a, FOR_GOOD)) == "NONE"
    assert name(c.join(plain(topic), instance_id="i")) == "NONE"


def test_what_a_static_member_changes_calls_for_a_new_assignment_or_not(
    wire: Wire, members: list[Member], topic: str
) -> None:
    a, b, c, d = members
    a.join(plain(topic), instance_id="i", process_id="p")
    a.settle()
    epoch = a.epoch
    a.beat(instance_id="i", rebalance_timeout_ms=77_000, user_endpoint=Endpoint(host="h", port=1))
    assert describe(wire, a.group).group_epoch == epoch
    a.beat(instance_id="i", client_tags=[KeyValue(key="zone", value="1")])
    a.settle()
    assert a.epoch == epoch + 1
    leave(a, AWAY, instance_id="i")
    # A start with another folder is another process: that matters.
    b.join(plain(topic), instance_id="i", process_id="q", client_tags=[KeyValue(key="zone", value="1")])
    b.settle()
    assert b.epoch == epoch + 2
    leave(b, AWAY, instance_id="i")
    back = c.join(plain(topic), instance_id="i", client_tags=[KeyValue(key="zone", value="1")], process_id="q")
    assert (back.member_epoch, tasks_of(back)) == (epoch + 2, {"active": {"0": [0, 1]}})
    c.beat(rebalance_timeout_ms=78_000)
    c.settle()
    assert c.epoch == epoch + 3
    d.join(plain(topic), instance_id="j")
    c.settle(d)
    assert c.epoch == epoch + 4


def test_a_static_member_that_is_away_too_long_is_removed(wire: Wire, members: list[Member], topic: str) -> None:
    a, b, _, _ = members
    a.join(plain(topic), instance_id="i")
    b.join(plain(topic))
    a.settle(b)
    leave(a, AWAY, instance_id="i")

    def is_removed() -> bool:
        b.beat(**b.tasks)
        return len(describe(wire, b.group).members) == 1

    until(is_removed)
    b.settle()
    assert tasks_of(b.tasks) == {"active": {"0": [0, 1]}}


def test_offsets_of_tasks_are_kept_and_shown(wire: Wire, members: list[Member], group: str, topic: str) -> None:
    a = members[0]
    joined = a.join(
        counting(topic, group),
        task_offsets=[],
        task_end_offsets=[TaskOffset(subtopology_id="9", partition=0, offset=1)],
    )
    assert name(joined) == "NONE"
    assert joined.task_offset_interval_ms == 60_000
    a.settle()
    # What is said while the group is founded counts for nothing.
    assert not describe(wire, group).members[0].task_end_offsets
    a.beat(task_end_offsets=[TaskOffset(subtopology_id="1", partition=0, offset=9)])
    epoch = a.epoch
    said = [TaskOffset(subtopology_id=each, partition=index, offset=5) for each, index in (("9", 3), ("1", 1))]
    assert name(a.beat(task_offsets=said)) == "NONE"
    (member,) = describe(wire, group).members

    def shown(offsets: Any) -> list[tuple[str, int, int]]:
        return [(each.subtopology_id, each.partition, each.offset) for each in offsets]

    assert shown(member.task_offsets) == [("1", 1, 5), ("9", 3, 5)]
    assert shown(member.task_end_offsets) == [("1", 0, 9)]
    assert refused(a.beat(task_end_offsets=[said[0], said[0]])) == (
        "INVALID_REQUEST",
        "Task offsets contain a duplicate entry for subtopology 9 and partition 3.",
    )
    assert name(a.beat(task_offsets=[])) == "NONE"
    (member,) = describe(wire, group).members
    assert (shown(member.task_offsets), shown(member.task_end_offsets)) == ([], [("1", 0, 9)])
    a.settle()
    assert a.epoch == epoch


@pytest.mark.parametrize("has_other", [False, True])
@pytest.mark.parametrize("is_same", [False, True])
def test_what_is_forgotten_when_a_static_member_comes_back(
    wire: Wire, members: list[Member], topic: str, *, is_same: bool, has_other: bool
) -> None:
    """Kafka removes the member and adds it: a group of one is empty for a moment, in which nothing is to shut down."""
    a, b, c, _ = members
    a.join(plain(topic), instance_id="i")
    if has_other:
        b.join(plain(topic))
    a.beat(instance_id="i", shutdown_application=True)
    leave(a, AWAY, instance_id="i")
    back = a if is_same else c
    offset = TaskOffset(subtopology_id="0", partition=0, offset=1)
    answer = back.join(plain(topic), instance_id="i", task_offsets=[offset])
    assert SHUTDOWN in [status for status, _ in told(answer)]
    (member,) = [each for each in describe(wire, a.group).members if each.instance_id == "i"]
    assert [each.offset for each in member.task_offsets or []] == ([] if is_same else [1])
    assert (SHUTDOWN in [status for status, _ in told(back.beat(instance_id="i"))]) == has_other


def test_version_1(wire: Wire, members: list[Member], version: int, group: str, topic: str) -> None:
    a = members[0]
    configure(wire, group, streams_rack_aware_assignment_tags="zone,rack,row")
    joined = a.join(plain(topic), client_tags=[KeyValue(key="rack", value="r")])
    missing = (
        6,
        "Missing required client tags for rack-aware standby assignment: [zone, row]. Configure them via "
        "'client.tag.<tagKey>' in your Streams config.",
    )
    assert told(joined) == ([DELAYED, missing] if version else [DELAYED])
    assert joined.acceptable_recovery_lag == (10_000 if version else -1)
    assert joined.acceptable_recovery_lag_legacy == 0
    a.beat(client_tags=[KeyValue(key=each, value="1") for each in ("zone", "rack", "row")])
    a.settle()
    described = describe(wire, group)
    assert (described.assignor_name, described.topology_description, described.topology_description_status) == (
        "sticky",
        None,
        0,
    )
    assert describe(wire, group, include_topology_description=True).topology_description_status == 1
    unknown = describe(wire, f"{group}-2", include_topology_description=True)
    assert (name(unknown), unknown.assignor_name, unknown.topology_description_status) == (
        "GROUP_ID_NOT_FOUND",
        None,
        0,
    )


def test_a_topology_is_described(wire: Wire, members: list[Member], broker: BrokerProcess, topic: str) -> None:
    """Kafka needs a plugin for it, Ottla keeps the description."""
    a = members[0]
    a.join(plain(topic))
    a.settle()
    source = TopologyDescriptionNode(name="in", node_type=1, source_topics=[topic], stores=[], successors=[])
    described = TopologyDescription(
        subtopologies=[TopologyDescriptionSubtopology(subtopology_id="0", nodes=[source])], global_stores=[]
    )
    request = StreamsGroupTopologyDescriptionUpdateRequest(
        group_id=a.group, member_id=a.member_id, topology_epoch=0, topology_description=described
    )
    answer = wire.call(request, 0)
    if broker.name == "kafka":
        assert refused(answer) == (
            "UNSUPPORTED_VERSION",
            "The broker has no streams group topology description plugin configured.",
        )
        return
    assert refused(answer) == ("NONE", None)
    told = describe(wire, a.group, include_topology_description=True)
    assert told.topology_description_status == 3
    assert [it.nodes[0].name for it in told.topology_description.subtopologies] == ["in"]
    request.topology_epoch = 1
    assert name(wire.call(request, 0)) == "INVALID_REQUEST"
    request.topology_epoch, request.member_id = 0, "nobody"
    assert name(wire.call(request, 0)) == "UNKNOWN_MEMBER_ID"


def test_the_last_member_leaves_no_assignment_to_wait_for(wire: Wire, members: list[Member], topic: str) -> None:
    a, b, _, _ = members
    a.join(plain(topic))
    a.settle()
    leave(a, FOR_GOOD)
    described = describe(wire, a.group)
    assert (described.group_state, described.group_epoch, described.assignment_epoch) == (
        "Empty",
        a_epoch(a),
        a_epoch(a),
    )
    b.join(plain(topic))
    b.settle()


def a_epoch(member: Member) -> int:
    return int(describe(member.wire, member.group).group_epoch)


def test_endpoints_of_a_member_that_comes_back(members: list[Member], topic: str) -> None:
    a, b, c, _ = members
    a.join(plain(topic), instance_id="i", user_endpoint=Endpoint(host="a", port=1), process_id="p")
    b.join(plain(topic), user_endpoint=Endpoint(host="b", port=1))
    a.settle(b)
    known = b.beat(**b.tasks, endpoint_information_epoch=-1).endpoint_information_epoch
    again = b.join(plain(topic), user_endpoint=Endpoint(host="b", port=1))
    assert again.endpoint_information_epoch == known
    leave(a, AWAY, instance_id="i")
    back = c.join(
        plain(topic),
        instance_id="i",
        process_id="p",
        endpoint_information_epoch=-1,
        user_endpoint=Endpoint(host="c", port=1),
    )
    assert sorted(each.user_endpoint.host for each in back.partitions_by_user_endpoint) == ["b", "c"]
    assert back.endpoint_information_epoch == known + 1
    # Who names no endpoint when it joins has none any more.
    b.join(plain(topic))
    news = c.beat(**c.tasks, endpoint_information_epoch=-1)
    assert [each.user_endpoint.host for each in news.partitions_by_user_endpoint] == ["c"]


def out_of_range(key: str, least: int, most: int) -> str:
    return f"{key} must be in the range {least} to {most} inclusive."


CONFIGS: list[tuple[dict[str, str], str | None]] = [
    ({"streams.assignor.name": "sticky"}, None),
    (
        {"streams.assignor.name": "other"},
        "streams.assignor.name 'other' is not a registered task assignor. Registered assignors are: [sticky].",
    ),
    ({"streams.rack.aware.assignment.tags": "a,b"}, None),
    (
        {"streams.rack.aware.assignment.tags": "a, b,a"},
        "streams.rack.aware.assignment.tags must not contain duplicate tag keys.",
    ),
    ({"streams.task.offset.interval.ms": "15000"}, None),
    (
        {"streams.task.offset.interval.ms": "14999"},
        "streams.task.offset.interval.ms must be greater than or equal to 15000",
    ),
    ({"streams.num.warmup.replicas": "21"}, "streams.num.warmup.replicas must be less than or equal to 20"),
    ({"streams.num.standby.replicas": "3"}, "streams.num.standby.replicas must be less than or equal to 2"),
    (
        {"streams.acceptable.recovery.lag": "-1"},
        "Invalid value -1 for configuration streams.acceptable.recovery.lag: Value must be at least 0",
    ),
    ({"streams.session.timeout.ms": "5999"}, out_of_range("streams.session.timeout.ms", 6000, 60_000)),
    ({"consumer.heartbeat.interval.ms": "15001"}, out_of_range("consumer.heartbeat.interval.ms", 500, 15_000)),
    (
        {"share.session.timeout.ms": "6000", "share.heartbeat.interval.ms": "6000"},
        "share.session.timeout.ms must be greater than share.heartbeat.interval.ms",
    ),
]


@pytest.mark.parametrize(("configs", "message"), CONFIGS, ids=str)
def test_settings_of_groups(wire: Wire, group: str, configs: dict[str, str], message: str | None) -> None:
    changes = [AlterableConfig(name=key, config_operation=0, value=value) for key, value in configs.items()]
    resource = AlterConfigsResource(resource_type=32, resource_name=group, configs=changes)
    (answer,) = wire.call(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    if message is None:
        assert (name(answer), answer.error_message) == ("NONE", None)
    else:
        assert (name(answer), answer.error_message) == ("INVALID_CONFIG", message)
