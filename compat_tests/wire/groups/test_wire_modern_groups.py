"""Consumer and share groups byte by byte: epochs, changed subscriptions, and the settings that say what is offered.

What is expected here is what Apache Kafka 4.3 answers (`--broker=both`).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from compat_tests.brokers.process import BrokerProcess
from compat_tests.conftest import BROKERS
from compat_tests.wire.groups.group_wire import SUBSCRIPTION, GroupWire, Topic, name, new_topic
from compat_tests.wire.transaction_wire import new_peers
from compat_tests.wire.wire import Wire
from ottla.kproto.messages.cluster.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.kproto.messages.configs.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.kproto.messages.groups.consumer_group_heartbeat import TopicPartitions
from ottla.kproto.messages.groups.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from ottla.kproto.messages.share.share_group_describe import ShareGroupDescribeRequest
from ottla.kproto.messages.share.share_group_heartbeat import ShareGroupHeartbeatRequest

GROUP_RESOURCE = 32
DOWNGRADE, UPGRADE = 2, 1
KAFKAS_RANGE = "org.apache.kafka.coordinator.group.assignor.RangeAssignor"


@pytest.fixture
def wire(broker: BrokerProcess) -> Iterator[Wire]:
    connection = Wire(broker.bootstrap)
    yield connection
    connection.close()


@pytest.fixture(scope="module")
def other_wire(broker_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wire]:
    """A broker on which groups may not migrate, and which assigns by range unless it is told otherwise."""
    settings = {"group.consumer.migration.policy": "disabled", "group.consumer.assignors": f"{KAFKAS_RANGE},uniform"}
    with BROKERS[broker_kind](tmp_path_factory.mktemp(f"{broker_kind}-disabled"), overrides=settings) as process:
        connection = Wire(process.bootstrap)
        yield connection
        connection.close()


def group_of(wire: Wire, **settings: str) -> GroupWire:
    """A new group that can be used, with these settings of its own (`_` for `.`)."""
    group = GroupWire(wire, f"modern-{uuid.uuid4().hex[:8]}")
    group.find()
    configure(group, **settings)
    return group


def configure(group: GroupWire, **settings: str) -> None:
    configs = [
        AlterableConfig(name=key.replace("_", "."), config_operation=0, value=value) for key, value in settings.items()
    ]
    resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group.group_id, configs=configs)
    answer = group.wire.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert name(answer.responses[0].error_code) == "NONE"


@pytest.fixture
def topics(wire: Wire) -> list[Topic]:
    """Two topics of two partitions that the group coordinator knows: Apache Kafka's learns of them a little later."""
    made = [new_topic(wire), new_topic(wire)]
    for topic in made:
        until(lambda: group_of(wire).start(topic).assignment.topic_partitions)  # noqa: B023 - called at once
    return made


def until(holds: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def held(topic: Topic) -> list[TopicPartitions]:
    return [TopicPartitions(topic_id=topic.topic_id, partitions=[0, 1])]


def share_beat(group: GroupWire, epoch: int, *names: str, member_id: str = "m" * 22) -> Any:
    request = ShareGroupHeartbeatRequest(
        group_id=group.group_id,
        member_id=member_id,
        member_epoch=epoch,
        subscribed_topic_names=list(names) or None,
    )
    return group.wire.call(request, 1)


def share_description(group: GroupWire) -> Any:
    return group.wire.call(ShareGroupDescribeRequest(group_ids=[group.group_id]), 1).groups[0]


def test_first_epochs(wire: Wire, topics: list[Topic]) -> None:
    group = group_of(wire, consumer_assignment_interval_ms="15000")
    assert group.start(topics[0], "one").member_epoch == 2
    described = group.describe_consumer_group()
    assert (described.group_epoch, described.assignment_epoch) == (2, 2)
    assert group.start(topics[0], "two").member_epoch == 2
    described = group.describe_consumer_group()
    assert (described.group_epoch, described.assignment_epoch, described.group_state) == (3, 2, "Assigning")

    shared = group_of(wire, share_assignment_interval_ms="15000")
    assert share_beat(shared, 0, topics[0].name).member_epoch == 2
    described = share_description(shared)
    assert described.assignment_epoch == 2


@pytest.mark.parametrize("says", ["all it has", "nothing", "no partition"])
def test_a_changed_subscription_takes_effect_at_once(wire: Wire, topics: list[Topic], says: str) -> None:
    before, after = topics
    owned = {"all it has": held(before), "nothing": None, "no partition": []}[says]
    group = group_of(wire, consumer_assignment_interval_ms="15000")
    assert [each.topic_id for each in group.start(before, "m").assignment.topic_partitions] == [before.topic_id]
    answer = group.beat("m", 2, subscribed_topic_names=[after.name], topic_partitions=owned)
    assert (name(answer.error_code), answer.member_epoch, answer.assignment.topic_partitions) == ("NONE", 2, [])
    (member,) = group.describe_consumer_group().members
    kept = [] if says == "no partition" else [(before.name, [0, 1])]
    assert [(each.topic_name, sorted(each.partitions)) for each in member.assignment.topic_partitions] == kept

    configure(group, consumer_assignment_interval_ms="0")
    beats: list[Any] = []

    def has_the_other() -> bool:
        beats.append(group.beat("m", beats[-1].member_epoch if beats else 2, topic_partitions=[]))
        assigned = beats[-1].assignment
        return assigned is not None and [each.topic_id for each in assigned.topic_partitions] == [after.topic_id]

    until(has_the_other)


def test_a_subscription_changes_while_partitions_are_given_up(wire: Wire, topics: list[Topic]) -> None:
    before, after = topics
    group = group_of(wire, consumer_assignment_interval_ms="15000")
    group.start(before, "m", subscribed_topic_names=[before.name, after.name])
    both = [*held(before), *held(after)]
    answer = group.beat("m", 2, subscribed_topic_names=[after.name], topic_partitions=both)
    assert [each.topic_id for each in answer.assignment.topic_partitions] == [after.topic_id]
    answer = group.beat("m", 2, subscribed_topic_names=[], topic_partitions=both)
    assert (answer.member_epoch, answer.assignment.topic_partitions) == (2, [])
    (member,) = group.describe_consumer_group().members
    assert {each.topic_name for each in member.assignment.topic_partitions} == {before.name, after.name}
    answer = group.beat("m", 2, topic_partitions=held(before))
    assert (answer.member_epoch, answer.assignment) == (2, None)
    answer = group.beat("m", 2, topic_partitions=[])
    assert (name(answer.error_code), answer.member_epoch) == ("NONE", 2)
    assert group.describe_consumer_group().members[0].assignment.topic_partitions == []


def test_a_partition_that_is_not_given_up_is_described(wire: Wire, topics: list[Topic]) -> None:
    group = group_of(wire, consumer_assignment_interval_ms="0")
    group.start(topics[0], "one")
    group.start(topics[0], "two")
    answer = group.beat("one", 2, topic_partitions=held(topics[0]))
    assert [len(each.partitions) for each in answer.assignment.topic_partitions] == [1]
    members = {each.member_id: each for each in group.describe_consumer_group().members}
    assert [sorted(each.partitions) for each in members["one"].assignment.topic_partitions] == [[0, 1]]
    assert members["two"].assignment.topic_partitions == []


def test_a_changed_subscription_of_a_share_group(wire: Wire, topics: list[Topic]) -> None:
    before, after = topics
    group = group_of(wire, share_assignment_interval_ms="0")
    answers = [share_beat(group, 0, before.name)]

    def has_partitions() -> bool:
        answers.append(share_beat(group, answers[-1].member_epoch, before.name))
        return bool(answers[-1].assignment.topic_partitions)

    until(has_partitions)
    configure(group, share_assignment_interval_ms="15000")
    epoch = answers[-1].member_epoch
    answer = share_beat(group, epoch, after.name)
    assert (answer.member_epoch, answer.assignment.topic_partitions) == (epoch, [])
    assert share_description(group).members[0].assignment.topic_partitions == []
    answer = share_beat(group, epoch, before.name)
    assert (answer.member_epoch, [each.topic_id for each in answer.assignment.topic_partitions]) == (
        epoch,
        [before.topic_id],
    )


def test_refused_joins_of_classic_members_name_no_member(wire: Wire, topics: list[Topic]) -> None:
    group = group_of(wire)
    group.start(topics[0], "native")
    shared = group_of(wire)
    share_beat(shared, 0, topics[0].name)
    asked: list[tuple[GroupWire, dict[str, Any]]] = [(group, {"protocol_type": "connect"}), (shared, {})]
    for each, options in asked:
        for member_id in ("", "m", "native"):
            refused = each.join(member_id, **options)
            assert (name(refused.error_code), refused.member_id) == ("INCONSISTENT_GROUP_PROTOCOL", "")
    classic = group_of(wire)
    member_id, _ = classic.joined()
    refused = classic.join(member_id, protocols=[("other", SUBSCRIPTION)])
    assert (name(refused.error_code), refused.member_id) == ("INCONSISTENT_GROUP_PROTOCOL", member_id)


# Settings -------------------------------------------------------------------------------------------------------------


def test_groups_may_not_migrate(other_wire: Wire) -> None:
    topic = new_topic(other_wire)
    group = group_of(other_wire)
    assert group.start(topic, "native").error_code == 0
    for member_id in ("", "m", "native"):
        refused = group.join(member_id)
        assert (name(refused.error_code), refused.member_id) == ("INCONSISTENT_GROUP_PROTOCOL", "")
    assert [each.member_id for each in group.describe_consumer_group().members] == ["native"]
    classic = group_of(other_wire)
    classic.joined()
    refused = classic.start(topic, "native")
    assert (name(refused.error_code), refused.error_message) == (
        "GROUP_ID_NOT_FOUND",
        f"Cannot upgrade classic group {classic.group_id} to consumer group because online upgrade is disabled.",
    )
    assert group.beat("native", -1).error_code == 0
    assert name(group.join().error_code) == "MEMBER_ID_REQUIRED"


def test_the_first_assignor_is_the_default(other_wire: Wire) -> None:
    topic = new_topic(other_wire)
    group = group_of(other_wire)
    group.start(topic, "m")
    assert group.describe_consumer_group().assignor_name == "range"
    group.start(topic, "n", server_assignor="uniform")
    assert group.describe_consumer_group().assignor_name == "uniform"
    refused = group.start(topic, "o", server_assignor="simple")
    assert name(refused.error_code) == "UNSUPPORTED_ASSIGNOR"
    assert refused.error_message.startswith("ServerAssignor simple is not supported. Supported assignors: ")


def test_the_feature_of_consumer_groups(other_wire: Wire) -> None:
    topic = new_topic(other_wire)
    group = group_of(other_wire)
    epoch = group.start(topic, "m").member_epoch
    assert update_group_version(other_wire, 0, DOWNGRADE) == "NONE"

    def is_refused() -> bool:
        return name(group.beat("m", epoch).error_code) == "UNSUPPORTED_VERSION"

    until(is_refused)
    answer = group.start(topic, "n")
    assert (name(answer.error_code), answer.error_message, answer.member_epoch) == ("UNSUPPORTED_VERSION", None, 0)
    described = group.describe_consumer_group()
    assert (name(described.error_code), described.error_message) == ("UNSUPPORTED_VERSION", None)
    assert update_group_version(other_wire, 1, UPGRADE) == "NONE"
    until(lambda: name(group.start(topic, "m").error_code) == "NONE")


def update_group_version(wire: Wire, level: int, kind: int) -> str:
    update = FeatureUpdateKey(feature="group.version", max_version_level=level, upgrade_type=kind)
    return name(wire.call(UpdateFeaturesRequest(feature_updates=[update], timeout_ms=10_000), 1).error_code)


def test_only_classic_groups_are_offered(broker_kind: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    settings = {"group.coordinator.rebalance.protocols": "classic"}
    with BROKERS[broker_kind](tmp_path_factory.mktemp(f"{broker_kind}-classic"), overrides=settings) as process:
        wire = Wire(process.bootstrap)
        topic = new_topic(wire)
        group = group_of(wire)
        assert name(group.start(topic, "m").error_code) == "UNSUPPORTED_VERSION"
        assert name(group.describe_consumer_group().error_code) == "UNSUPPORTED_VERSION"
        streams = StreamsGroupHeartbeatRequest(group_id=group.group_id, member_id="m", member_epoch=0)
        assert name(wire.call(streams, 0).error_code) == "UNSUPPORTED_VERSION"
        group.joined()
        assert name(share_beat(group_of(wire), 0, topic.name).error_code) == "NONE"
        wire.close()


@pytest.mark.parametrize("generation_id", [-1, 1])
@pytest.mark.parametrize("version", [2, 8, 9, 10])
def test_nobody_commits_offsets_of_a_share_group(
    wire: Wire, topics: list[Topic], version: int, generation_id: int
) -> None:
    """It says that there is no such group, also in versions that otherwise say ILLEGAL_GENERATION for that."""
    shared, absent = group_of(wire), group_of(wire)
    share_beat(shared, 0, topics[0].name)
    options: dict[str, Any] = {"version": version, "member_id": "m"}
    assert shared.commit(topics[0], generation_id=generation_id, **options) == "GROUP_ID_NOT_FOUND"
    missing = "GROUP_ID_NOT_FOUND" if version >= 9 else "ILLEGAL_GENERATION"
    assert absent.commit(topics[0], generation_id=1, **options) == missing


@pytest.mark.parametrize("version", [2, 3, 5])
def test_nobody_commits_offsets_of_a_share_group_in_a_transaction(
    wire: Wire, topics: list[Topic], version: int
) -> None:
    shared, absent = group_of(wire), group_of(wire)
    share_beat(shared, 0, topics[0].name)
    peer = new_peers(wire, 1)()
    answers = []
    for each in (shared, absent):
        assert peer.add_offsets(group=each.group_id) == "NONE"
        answers.append(
            each.commit_in_transaction(
                topics[0],
                peer.transactional_id,
                *peer.identity,
                version=version,
                member_id="m" if version >= 3 else "",
                generation_id=1 if version >= 3 else -1,
            )
        )
    assert answers == ["GROUP_ID_NOT_FOUND", "ILLEGAL_GENERATION" if version >= 3 else "NONE"]


@pytest.mark.parametrize("member_id", ["", " "])
@pytest.mark.parametrize("epoch", [-1, -2, 0, 3])
def test_a_member_without_an_id_can_only_join(wire: Wire, epoch: int, member_id: str) -> None:
    answer = group_of(wire).beat(member_id, epoch, version=0)
    assert name(answer.error_code) == "INVALID_REQUEST"
    assert answer.error_message == {
        -2: "InstanceId can't be null.",
        0: "RebalanceTimeoutMs must be provided in first request.",
    }.get(epoch, "MemberId can't be empty.")
