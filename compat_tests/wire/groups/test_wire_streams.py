"""The streams group APIs byte by byte: cases that Kafka Streams never lets one send.

What is expected here is what Apache Kafka answers (`--broker=both`), what 4.4 added is in `test_wire_streams_4_4.py`.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest

from compat_tests.brokers.process import BrokerProcess
from compat_tests.wire.groups.group_wire import GroupWire
from compat_tests.wire.wire import Wire
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.configs.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.kproto.messages.groups.delete_groups import DeleteGroupsRequest
from ottla.kproto.messages.groups.list_groups import ListGroupsRequest
from ottla.kproto.messages.groups.streams_group_describe import StreamsGroupDescribeRequest
from ottla.kproto.messages.groups.streams_group_heartbeat import (
    CopartitionGroup,
    Endpoint,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from ottla.kproto.messages.topics.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.kproto.messages.topics.metadata import MetadataRequest, MetadataRequestTopic

GROUP_RESOURCE = 32
NOTHING: list[TaskIds] = []
DELAYED = (5, "Assignment delayed due to the configured initial rebalance delay.")
INTERVAL = (5, "Assignment delayed due to the configured assignment interval.")


class Member:
    """A member of a group on a connection of its own; it says what it owns, as it was told."""

    def __init__(self, wire: Wire, group: str, member_id: str, *, version: int = 0) -> None:
        self.wire, self.group, self.member_id, self.version = wire, group, member_id, version
        self.epoch = 0
        self.tasks: dict[str, list[TaskIds]] = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}

    def beat(self, **fields: Any) -> Any:
        """One heartbeat with exactly these fields."""
        asked = {"group_id": self.group, "member_id": self.member_id, "member_epoch": self.epoch, **fields}
        answer = self.wire.call(StreamsGroupHeartbeatRequest(**asked), self.version)
        if not answer.error_code:
            self.epoch = answer.member_epoch
            if answer.active_tasks is not None:
                self.tasks = {role: getattr(answer, role) for role in self.tasks}
        return answer

    def join(self, topology: Topology, **fields: Any) -> Any:
        self.epoch = 0
        said = {"rebalance_timeout_ms": 10_000, "process_id": self.member_id, "topology": topology, **fields}
        return self.beat(active_tasks=NOTHING, standby_tasks=NOTHING, warmup_tasks=NOTHING, **said)

    def settle(self, *others: Member) -> None:
        """Beat, all in turn, until nobody's epoch or tasks change any more and nobody is told of a delay."""
        quiet, deadline = 0, time.monotonic() + 30
        while quiet < 3:
            assert time.monotonic() < deadline
            before = [(member.epoch, tasks_of(member.tasks)) for member in (self, *others)]
            answers = [member.beat(**member.tasks) for member in (self, *others)]
            assert [name(answer) for answer in answers] == ["NONE"] * len(answers)
            same = before == [(member.epoch, tasks_of(member.tasks)) for member in (self, *others)]
            quiet = quiet + 1 if same and not any(answer.status for answer in answers) else 0
            time.sleep(0.2)

    def leave(self) -> Any:
        self.epoch = -1
        return self.beat()


def name(answer: Any) -> str:
    return ErrorCode.of(answer.error_code).name


def told(answer: Any) -> list[tuple[int, str]]:
    return [(status.status_code, status.status_detail) for status in answer.status or ()]


def tasks_of(answer: Any) -> dict[str, dict[str, list[int]]]:
    """The tasks of an answer or of an assignment, by role; roles without tasks are left out."""
    found = {}
    for role in ("active_tasks", "standby_tasks", "warmup_tasks"):
        given = answer[role] if isinstance(answer, Mapping) else getattr(answer, role)
        if given:
            found[role.removesuffix("_tasks")] = {each.subtopology_id: list(each.partitions) for each in given}
    return found


def task(subtopology: str, *partitions: int) -> list[TaskIds]:
    return [TaskIds(subtopology_id=subtopology, partitions=list(partitions))]


@pytest.fixture
def wire(broker: BrokerProcess) -> Iterator[Wire]:
    with closing(Wire(broker.bootstrap)) as connection:
        yield connection


@pytest.fixture
def group(wire: Wire) -> str:
    """The id of a group whose coordinator answers."""
    group_id = f"streams-{uuid.uuid4().hex[:8]}"
    GroupWire(wire, group_id).find()
    return group_id


@pytest.fixture
def members(broker: BrokerProcess, group: str) -> Iterator[list[Member]]:
    made = [Member(Wire(broker.bootstrap), group, f"member-{letter}") for letter in "abc"]
    yield made
    for member in made:
        member.wire.close()


@pytest.fixture
def topic(wire: Wire) -> str:
    return create(wire, 2)


def create(wire: Wire, partitions: int, topic: str | None = None) -> str:
    made = topic or f"in-{uuid.uuid4().hex[:8]}"
    asked = CreatableTopic(name=made, num_partitions=partitions, replication_factor=1)
    (created,) = wire.call(CreateTopicsRequest(topics=[asked], timeout_ms=5000), 7).topics
    assert not created.error_code, created.error_message

    def is_known() -> bool:
        """In Kafka the group coordinator hears of it a moment later."""
        probe = GroupWire(wire, f"probe-{uuid.uuid4().hex[:8]}")
        probe.find()
        return bool(probe.start(created).assignment.topic_partitions)

    until(is_known)
    return made


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def configure(wire: Wire, group: str, **configs: str) -> None:
    changes = [
        AlterableConfig(name=key.replace("_", "."), config_operation=0, value=value) for key, value in configs.items()
    ]
    resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group, configs=changes)
    (answer,) = wire.call(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    assert not answer.error_code, answer.error_message


def describe(wire: Wire, group: str) -> Any:
    (described,) = wire.call(StreamsGroupDescribeRequest(group_ids=[group]), 0).groups
    return described


def plain(*sources: str, **fields: Any) -> Topology:
    """A topology of one subtopology, "0", without state."""
    return Topology(epoch=0, subtopologies=[Subtopology(subtopology_id="0", source_topics=list(sources), **fields)])


def counting(source: str, prefix: str) -> Topology:
    """As a word count's: lines are cut into words, which are counted behind a repartition topic."""
    repartition, changelog = f"{prefix}-repartition", f"{prefix}-changelog"
    configs = [KeyValue(key="cleanup.policy", value="compact")]
    counted = Subtopology(
        subtopology_id="1",
        repartition_source_topics=[TopicInfo(name=repartition)],
        state_changelog_topics=[TopicInfo(name=changelog, topic_configs=configs)],
    )
    cut = Subtopology(subtopology_id="0", source_topics=[source], repartition_sink_topics=[repartition])
    return Topology(epoch=0, subtopologies=[cut, counted])


JOINING: dict[str, Any] = {
    "rebalance_timeout_ms": 1000,
    "topology": plain("t"),
    "active_tasks": [],
    "standby_tasks": [],
    "warmup_tasks": [],
}
REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"instance_id": " "}, "INVALID_REQUEST", "InstanceId can't be empty."),
    (
        {"warmup_tasks": task("0", 1)},
        "INVALID_REQUEST",
        "WarmupTasks must be empty when (re-)joining.",
    ),
    (
        {"topology": plain(source_topic_regex=["a.*"])},
        "INVALID_REQUEST",
        "Regular expressions for source topics are not supported yet.",
    ),
    ({"member_id": ""}, "INVALID_REQUEST", "MemberId can't be empty."),
    ({"group_id": "  "}, "INVALID_REQUEST", "GroupId can't be empty."),
    ({"rack_id": ""}, "INVALID_REQUEST", "RackId can't be empty."),
    ({"rebalance_timeout_ms": -1}, "INVALID_REQUEST", "RebalanceTimeoutMs must be provided in first request."),
    ({"active_tasks": task("0", 0)}, "INVALID_REQUEST", "ActiveTasks must be empty when (re-)joining."),
    ({"standby_tasks": task("0", 0)}, "INVALID_REQUEST", "StandbyTasks must be empty when (re-)joining."),
    ({"topology": None}, "INVALID_REQUEST", "Topology must be non-null when (re-)joining."),
    ({"active_tasks": None}, "INVALID_REQUEST", "ActiveTasks must be empty when (re-)joining."),
    ({"warmup_tasks": None}, "INVALID_REQUEST", "WarmupTasks must be empty when (re-)joining."),
    (
        {"member_epoch": 1, "active_tasks": None},
        "INVALID_REQUEST",
        "If one task-type is non-null, all must be non-null.",
    ),
    ({"member_epoch": 1}, "INVALID_REQUEST", "Topology can only be provided when (re-)joining."),
    ({"member_epoch": -2}, "INVALID_REQUEST", "InstanceId can't be null."),
    ({"member_epoch": -3}, "INVALID_REQUEST", "MemberEpoch is -3, but must be greater than or equal to -2."),
    (
        {"topology": plain("t", state_changelog_topics=[TopicInfo(name="c", partitions=3)])},
        "STREAMS_INVALID_TOPOLOGY",
        "Changelog topic c must have an undefined partition count, but it is set to 3.",
    ),
    (
        {"topology": plain("t", "__consumer_offsets", repartition_sink_topics=["__transaction_state"])},
        "STREAMS_INVALID_TOPOLOGY",
        "Use of Kafka internal topics __consumer_offsets,__transaction_state in a Kafka Streams topology is "
        "prohibited.",
    ),
    (
        {"topology": plain("a b", "t", "c/d")},
        "STREAMS_INVALID_TOPOLOGY",
        "Topic names a b,c/d are not valid topic names.",
    ),
]


@pytest.mark.parametrize(("fields", "code", "message"), REFUSED, ids=lambda value: str(value)[:40])
def test_requests_that_are_refused(members: list[Member], fields: Mapping[str, Any], code: str, message: str) -> None:
    answer = members[0].beat(**JOINING | dict(fields))
    assert (name(answer), answer.error_message) == (code, message)
    assert (answer.status, answer.active_tasks) == ([], None)


def test_groups_and_members_that_are_not_there(wire: Wire, members: list[Member], group: str) -> None:
    answer = members[0].beat(member_epoch=1)
    assert (name(answer), answer.error_message) == ("GROUP_ID_NOT_FOUND", f"Streams group {group} not found.")
    answer = members[0].beat(member_epoch=-1)
    assert (name(answer), answer.error_message) == ("GROUP_ID_NOT_FOUND", f"Group {group} not found.")
    described = describe(wire, group)
    assert (name(described), described.error_message) == ("GROUP_ID_NOT_FOUND", f"Group {group} not found.")
    assert (name(describe(wire, "")), describe(wire, "").group_id) == ("INVALID_GROUP_ID", "")


def test_a_members_life(wire: Wire, members: list[Member], group: str, topic: str) -> None:
    a, b, _ = members
    joined = a.join(counting(topic, group), client_tags=[KeyValue(key="zone", value="z")], rack_id="r")
    assert (name(joined), joined.member_id, joined.member_epoch, joined.heartbeat_interval_ms) == (
        "NONE",
        "member-a",
        1,
        500,
    )
    assert (joined.acceptable_recovery_lag_legacy, joined.task_offset_interval_ms) == (0, 60_000)
    assert tasks_of(joined) == {}
    assert (joined.endpoint_information_epoch, joined.partitions_by_user_endpoint) == (0, None)
    internal = [f"{group}-changelog", f"{group}-repartition"]
    assert told(joined)[0] == DELAYED
    code, detail = told(joined)[1]
    assert code == 3
    assert detail.startswith("Internal topics are missing: ")
    assert sorted(detail.removeprefix("Internal topics are missing: ").split(", ")) == internal
    a.settle()
    assert tasks_of(a.tasks) == {"active": {"0": [0, 1], "1": [0, 1]}}
    made = wire.call(MetadataRequest(topics=[MetadataRequestTopic(name=each) for each in internal]), 12)
    assert [len(each.partitions) for each in made.topics] == [2, 2]

    said = a.beat(**a.tasks)
    assert (said.active_tasks, said.standby_tasks, said.warmup_tasks, said.status) == (None, None, None, [])
    assert tasks_of(a.beat(**a.tasks | {"topology": None})) == {}
    wrong = a.beat(**a.tasks | {"active_tasks": task("7", 0)})
    assert (name(wrong), wrong.error_message) == (
        "INVALID_REQUEST",
        "Subtopology 7 does not exist in the topology.",
    )
    wrong = a.beat(**a.tasks | {"active_tasks": task("0", 2)})
    assert wrong.error_message == "Task 2 for subtopology 0 is invalid. Number of tasks for this subtopology: 2"

    epoch = a.epoch
    joined = b.join(counting(topic, group), process_id="p")
    assert told(joined) in ([], [INTERVAL])
    a.settle(b)
    assert a.epoch == b.epoch == epoch + 1
    both = [tasks_of(member.tasks)["active"] for member in (a, b)]
    held = sorted((each, index) for tasks in both for each, indexes in tasks.items() for index in indexes)
    assert held == [("0", 0), ("0", 1), ("1", 0), ("1", 1)]
    assert [sum(map(len, tasks.values())) for tasks in both] == [2, 2]

    described = describe(wire, group)
    assert (name(described), described.group_state, described.group_epoch, described.assignment_epoch) == (
        "NONE",
        "Stable",
        epoch + 1,
        epoch + 1,
    )
    assert described.topology.epoch == 0
    cut, counted = described.topology.subtopologies
    assert (cut.subtopology_id, cut.source_topics, cut.repartition_sink_topics) == ("0", [topic], [internal[1]])
    assert [(each.name, each.partitions, each.replication_factor) for each in counted.repartition_source_topics] == [
        (internal[1], 2, 0)
    ]
    (changelog,) = counted.state_changelog_topics
    assert (changelog.name, changelog.partitions) == (internal[0], 2)
    assert [(each.key, each.value) for each in changelog.topic_configs] == [("cleanup.policy", "compact")]
    first, second = sorted(described.members, key=lambda member: str(member.member_id))
    assert (first.rack_id, first.client_id, first.client_host, first.topology_epoch, first.process_id) == (
        "r",
        "wire",
        "/127.0.0.1",
        0,
        "member-a",
    )
    assert [(tag.key, tag.value) for tag in first.client_tags] == [("zone", "z")]
    assert (first.instance_id, first.user_endpoint, first.is_classic) == (None, None, False)
    assert (second.process_id, second.member_epoch) == ("p", b.epoch)
    assert tasks_of(first.assignment) == tasks_of(first.target_assignment) == tasks_of(a.tasks)

    listed = wire.call(ListGroupsRequest(types_filter=["streams"]), 5).groups
    assert [(each.protocol_type, each.group_state, each.group_type) for each in listed if each.group_id == group] == [
        ("streams", "Stable", "streams")
    ]
    refused = wire.call(DeleteGroupsRequest(groups_names=[group]), 2).results[0]
    assert name(refused) == "NON_EMPTY_GROUP"

    left = b.leave()
    assert (name(left), left.member_epoch, left.status, left.heartbeat_interval_ms) == ("NONE", -1, [], 0)
    a.settle()
    assert tasks_of(a.tasks) == {"active": {"0": [0, 1], "1": [0, 1]}}
    assert name(b.beat(member_epoch=3)) == "UNKNOWN_MEMBER_ID"
    a.leave()
    assert describe(wire, group).group_state == "Empty"
    assert name(wire.call(DeleteGroupsRequest(groups_names=[group]), 2).results[0]) == "NONE"
    assert name(describe(wire, group)) == "GROUP_ID_NOT_FOUND"


def test_epochs_that_are_fenced(members: list[Member], topic: str) -> None:
    a, b, _ = members
    a.join(plain(topic))
    a.settle()
    epoch, tasks = a.epoch, a.tasks
    greater = a.beat(member_epoch=epoch + 1, **tasks)
    assert (name(greater), greater.error_message) == (
        "FENCED_MEMBER_EPOCH",
        f"The streams group member has a greater member epoch ({epoch + 1}) than the one known by the group "
        f"coordinator ({epoch}). The member must abandon all its partitions and rejoin.",
    )
    b.join(plain(topic))
    b.settle(a)
    assert a.epoch > epoch
    repeated = a.beat(member_epoch=epoch, **a.tasks)
    assert (name(repeated), repeated.member_epoch) == ("NONE", a.epoch)
    smaller = a.beat(member_epoch=epoch, **tasks)
    assert (name(smaller), smaller.error_message) == (
        "FENCED_MEMBER_EPOCH",
        f"The streams group member has a smaller member epoch ({epoch}) than the one known by the group "
        f"coordinator ({a.epoch}). The member must abandon all its partitions and rejoin.",
    )
    assert name(a.beat(member_epoch=epoch)) == "FENCED_MEMBER_EPOCH"
    rejoined = a.join(plain(topic))
    assert (name(rejoined), rejoined.member_epoch) == ("NONE", b.epoch)
    assert tasks_of(rejoined) == tasks_of(a.tasks) != {}


def test_tasks_are_revoked_before_they_are_given_on(members: list[Member], topic: str) -> None:
    a, b, _ = members
    a.join(plain(topic))
    a.settle()
    all_tasks, epoch = a.tasks, a.epoch
    time.sleep(1.1)  # the assignment interval
    joined = b.join(plain(topic))
    assert (tasks_of(joined), joined.member_epoch) == ({}, epoch + 1)
    asked = a.beat(**all_tasks)
    kept = tasks_of(asked)["active"]["0"]
    assert (asked.member_epoch, len(kept)) == (epoch, 1)
    assert b.beat(**b.tasks).active_tasks is None
    # It has not let go yet.
    assert a.beat(**all_tasks).active_tasks is None
    assert b.beat(**b.tasks).active_tasks is None
    revoked = a.beat(**a.tasks)
    assert (revoked.member_epoch, revoked.active_tasks) == (epoch + 1, None)
    given = b.beat(active_tasks=[], standby_tasks=[], warmup_tasks=[])
    assert tasks_of(given) == {"active": {"0": [1 - kept[0]]}}


def test_a_member_that_does_not_revoke_is_removed(members: list[Member], topic: str) -> None:
    a, b, _ = members
    a.join(plain(topic), rebalance_timeout_ms=800)
    a.settle()
    time.sleep(1.1)
    b.join(plain(topic))
    everything = a.tasks
    a.beat(**everything)
    until(lambda: len(describe(a.wire, a.group).members) == 1)
    assert name(a.beat(**everything)) == "UNKNOWN_MEMBER_ID"
    b.settle()
    assert tasks_of(b.tasks) == {"active": {"0": [0, 1]}}


def test_topics_that_are_missing_or_do_not_fit(wire: Wire, members: list[Member], group: str) -> None:
    a, b, _ = members
    missing = f"missing-{uuid.uuid4().hex[:8]}"
    joined = a.join(plain(missing))
    assert told(joined)[1:] == [(1, f"Source topics {missing} are missing.")]
    until(lambda: DELAYED not in told(a.beat(**a.tasks)))
    assert told(a.beat(**a.tasks)) == [(1, f"Source topics {missing} are missing.")]
    assert describe(b.wire, group).group_state == "NotReady"
    create(wire, 1, missing)
    a.settle()
    assert tasks_of(a.tasks) == {"active": {"0": [0]}}


def test_topics_that_are_to_have_as_many_partitions_and_have_not(wire: Wire, members: list[Member]) -> None:
    topics = sorted((create(wire, 2), create(wire, 3)))
    counts = {each: 2 if len(metadata(wire, each)) == 2 else 3 for each in topics}
    topology = plain(*topics, copartition_groups=[CopartitionGroup(source_topics=[0, 1])])
    listed = ", ".join(f"{each}={counts[each]}" for each in topics)
    joined = members[0].join(topology)
    assert told(joined)[1:] == [(2, f"Following topics do not have the same number of partitions: [{{{listed}}}]")]
    assert tasks_of(joined) == {}


def test_an_internal_topic_that_is_there_with_other_partitions(
    wire: Wire, members: list[Member], group: str, topic: str
) -> None:
    create(wire, 5, f"{group}-changelog")
    joined = members[0].join(counting(topic, group))
    detail = f"Existing topic {group}-changelog has different number of partitions: expected 2, found 5"
    assert told(joined)[1:] == [(2, detail)]


def test_topologies_that_can_never_run(members: list[Member], group: str, topic: str) -> None:
    loop = Subtopology(
        subtopology_id="0",
        repartition_source_topics=[TopicInfo(name=f"{group}-r")],
        repartition_sink_topics=[f"{group}-r"],
    )
    answer = members[0].join(Topology(epoch=0, subtopologies=[loop]))
    assert (name(answer), answer.error_message) == (
        "STREAMS_INVALID_TOPOLOGY",
        "Failed to compute number of partitions for all repartition topics. There may be loops in the topology that "
        "cannot be resolved.",
    )
    answer = members[0].join(plain(topic, repartition_source_topics=[TopicInfo(name=f"{group}-r")]))
    assert (name(answer), answer.error_message) == (
        "STREAMS_INVALID_TOPOLOGY",
        "Failed to compute number of partitions for all repartition topics, because a repartition source topic is "
        "never used as a sink topic.",
    )


def test_topologies_do_not_change(members: list[Member], topic: str) -> None:
    a, b, c = members
    newer, other = plain(topic), plain(topic, repartition_sink_topics=["x"])
    newer.epoch = 3
    a.join(newer)
    answer = b.join(Topology(epoch=4, subtopologies=newer.subtopologies))
    assert (name(answer), answer.error_message) == ("INVALID_REQUEST", "Topology updates are not supported yet.")
    other.epoch = 3
    assert name(b.join(other)) == "INVALID_REQUEST"
    stale = c.join(plain(topic))
    assert told(stale)[0] == (0, "The member's topology epoch 0 is behind the group's topology epoch 3.")
    a.settle()


def test_standbys_endpoints_and_the_end_of_the_application(
    wire: Wire, members: list[Member], group: str, topic: str
) -> None:
    configure(wire, group, streams_num_standby_replicas="1")
    a, b, _ = members
    topology = counting(topic, group)
    a.join(topology, user_endpoint=Endpoint(host="a", port=1))
    b.join(topology, user_endpoint=Endpoint(host="b", port=2))
    a.settle(b)
    for one, other in ((a, b), (b, a)):
        mine, theirs = tasks_of(one.tasks), tasks_of(other.tasks)
        assert mine["standby"] == {"1": theirs["active"]["1"]}
    news = a.beat(**a.tasks, endpoint_information_epoch=-1)
    epoch = news.endpoint_information_epoch
    assert epoch > 0
    places = {each.user_endpoint.host: each for each in news.partitions_by_user_endpoint}
    assert [each.user_endpoint.host for each in news.partitions_by_user_endpoint][-1] == "a"
    found = {
        (each.topic, index)
        for place in places.values()
        for each in place.active_partitions
        for index in each.partitions
    }
    repartition = f"{group}-repartition"
    assert found == {(source, index) for source in (topic, repartition) for index in (0, 1)}
    standby = {each.topic for place in places.values() for each in place.standby_partitions}
    assert standby == {repartition}
    assert a.beat(**a.tasks, endpoint_information_epoch=epoch).partitions_by_user_endpoint is None

    a.beat(**a.tasks, shutdown_application=True)
    ended = (
        4,
        "Streams group member member-a encountered a fatal error and requested a shutdown for the entire application.",
    )
    assert told(b.beat(**b.tasks)) == [ended]
    a.leave()
    assert ended in told(b.beat(**b.tasks))
    b.leave()
    joined = a.join(topology)
    assert ended not in told(joined)


def test_settings_that_change_let_tasks_be_assigned_anew(
    wire: Wire, members: list[Member], group: str, topic: str
) -> None:
    a, b, _ = members
    a.join(counting(topic, group))
    b.join(counting(topic, group))
    a.settle(b)
    epoch = a.epoch
    assert "standby" not in tasks_of(a.tasks)
    configure(wire, group, streams_num_standby_replicas="1")
    deadline = time.monotonic() + 120
    while "standby" not in tasks_of(a.tasks):
        assert time.monotonic() < deadline
        a.settle(b)
    assert a.epoch == b.epoch == epoch + 1


def test_offsets_are_fenced(wire: Wire, members: list[Member], group: str, topic: str) -> None:
    offsets, read = GroupWire(wire, group), SimpleNamespace(name=topic, topic_id=uuid.UUID(int=0))
    a, b, _ = members
    assert offsets.commit(read) == "NONE"
    a.join(plain(topic))
    assert offsets.commit(read) == "UNKNOWN_MEMBER_ID"
    a.settle()
    first = a.epoch
    assert offsets.commit(read, member_id="member-a", generation_id=first) == "NONE"
    assert offsets.commit(read, member_id="member-b", generation_id=first) == "UNKNOWN_MEMBER_ID"
    assert offsets.commit(read, member_id="member-a", generation_id=first + 1) == "STALE_MEMBER_EPOCH"
    assert offsets.commit(read, member_id="member-a", generation_id=first, version=8) == "UNSUPPORTED_VERSION"
    assert offsets.fetch(read)[0] == "NONE"
    assert offsets.fetch(read, member_id="member-a", member_epoch=first)[0] == "NONE"
    assert offsets.fetch(read, member_id="member-a", member_epoch=first + 1)[0] == "STALE_MEMBER_EPOCH"
    assert offsets.fetch(read, member_id="x", member_epoch=first)[0] == "UNKNOWN_MEMBER_ID"
    b.join(plain(topic))
    a.settle(b)
    kept = tasks_of(a.tasks)["active"]["0"][0]
    asked: dict[str, Any] = {"member_id": "member-a", "generation_id": first}
    assert offsets.commit(read, partition=kept, **asked) == "NONE"
    assert offsets.commit(read, partition=1 - kept, **asked) == "STALE_MEMBER_EPOCH"
    assert offsets.commit(read, partition=1 - kept, **asked | {"generation_id": a.epoch}) == "NONE"
    assert offsets.delete_offset(read) == ("NONE", ["GROUP_SUBSCRIBED_TO_TOPIC"])


def test_groups_of_other_protocols(wire: Wire, members: list[Member], group: str, topic: str) -> None:
    other, read = GroupWire(wire, group), SimpleNamespace(name=topic, topic_id=uuid.UUID(int=0))
    members[0].join(plain(topic))
    answer = other.start(read)
    assert (name(answer), answer.error_message) == ("GROUP_ID_NOT_FOUND", f"Group {group} is not a consumer group.")
    assert name(other.join()) == "INCONSISTENT_GROUP_PROTOCOL"
    members[0].leave()
    generation = other.joined()[1]
    assert generation == 1
    answer = members[0].join(plain(topic))
    assert (name(answer), answer.error_message) == ("GROUP_ID_NOT_FOUND", f"Group {group} is not a streams group.")


def test_a_refused_classic_member_leaves_an_empty_group_as_it_is(
    broker: BrokerProcess, wire: Wire, members: list[Member], group: str, topic: str
) -> None:
    """On purpose, as with groups of the consumer protocol: Apache Kafka forgets the group without a record of it."""
    members[0].join(plain(topic))
    members[0].leave()
    assert ErrorCode(GroupWire(wire, group).join("nobody").error_code) is ErrorCode.UNKNOWN_MEMBER_ID
    deleted = wire.call(DeleteGroupsRequest(groups_names=[group]), 2).results[0]
    assert name(deleted) == ("GROUP_ID_NOT_FOUND" if broker.name == "kafka" else "NONE")


def metadata(wire: Wire, topic: str) -> Sequence[Any]:
    partitions: Sequence[Any] = (
        wire.call(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 12).topics[0].partitions
    )
    return partitions
