"""What Apache Kafka 4.4 changed for administrators, byte by byte (`--broker=both`), on a broker with an authorizer.

Everybody is ANONYMOUS and may do what no entry speaks of.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from compat_tests.brokers.process import BrokerProcess
from compat_tests.conftest import BROKERS
from compat_tests.wire.groups.group_wire import GroupWire, new_topic
from compat_tests.wire.test_wire_4_4 import UNKNOWN_ID, Transaction
from compat_tests.wire.wire import Wire
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.access.create_acls import AclCreation, CreateAclsRequest
from ottla.kproto.messages.access.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.kproto.messages.access.describe_acls import DescribeAclsRequest
from ottla.kproto.messages.access.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from ottla.kproto.messages.cluster.unregister_controller import UnregisterControllerRequest
from ottla.kproto.messages.cluster.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.kproto.messages.configs.alter_configs import AlterableConfig as ReplacedConfig
from ottla.kproto.messages.configs.alter_configs import AlterConfigsRequest
from ottla.kproto.messages.configs.alter_configs import AlterConfigsResource as ReplacedResource
from ottla.kproto.messages.configs.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.kproto.messages.topics.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.kproto.messages.topics.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.kproto.messages.topics.metadata import MetadataRequest, MetadataRequestTopic
from ottla.metadata.acls import AclOperation, AclPermission, AclResource

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "group.consumer.max.size": "1",
}
TOPIC, CLUSTER = AclResource.TOPIC, AclResource.CLUSTER
ALLOW, DENY = AclPermission.ALLOW, AclPermission.DENY
SET, DELETE = 0, 1
BROKER_TYPE, LOGGER_TYPE, TOPIC_TYPE, METRICS_TYPE = 4, 8, 2, 16
DEADLINE_S = 60


@pytest.fixture(scope="module")
def guarded(broker_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BROKERS[broker_kind](tmp_path_factory.mktemp(broker_kind), overrides=SETTINGS) as process:
        yield process


@pytest.fixture
def wire(guarded: BrokerProcess) -> Iterator[Wire]:
    connection = Wire(guarded.bootstrap)
    yield connection
    connection.close()


def entry(host: str, *, resource: AclResource = TOPIC, name: str = "t", **fields: Any) -> AclCreation:
    common: dict[str, Any] = {
        "principal": "User:ANONYMOUS",
        "operation": AclOperation.DESCRIBE,
        "permission_type": ALLOW,
    }
    return AclCreation(
        resource_type=resource, resource_name=name, resource_pattern_type=3, host=host, **(common | fields)
    )


def create(wire: Wire, *entries: AclCreation) -> list[tuple[str, str | None]]:
    results = wire.call(CreateAclsRequest(creations=list(entries)), 3).results
    return [(ErrorCode(result.error_code).name, result.error_message) for result in results]


def delete(wire: Wire, **fields: Any) -> None:
    any_of_it = {"resource_name_filter": None, "principal_filter": None, "host_filter": None}
    asked = DeleteAclsFilter(pattern_type_filter=3, permission_type=1, **(any_of_it | {"operation": 1} | fields))
    assert not wire.call(DeleteAclsRequest(filters=[asked]), 3).filter_results[0].error_code


# Networks


@pytest.mark.parametrize(
    ("host", "words"),
    [
        ("10.0.0.0/33", "Value [33] not in range [0,32]"),
        ("256.0.0.0/8", "Value [256] not in range [0,255]"),
        ("1.2.3.256/33", "Value [256] not in range [0,255]"),
        *(
            (host, f"Could not parse [{host}]")
            for host in (
                *(
                    "10.0.0.0/-1",
                    "10.0.0.0/",
                    "/8",
                    "/",
                    "10.0.0.0/8/9",
                    "10.0.0/8",
                    "a/8",
                    "10.0.0.0/+8",
                    " 10.0.0.0/8",
                ),
                *("10.0.0.0/255.0.0.0", "10.0.0.0/٨", "10.0.0.0/00000000008"),
            )
        ),
        *(
            (host, f"Could not parse [{host}] - invalid prefix length")
            for host in ("2001:db8::/32/", "/::1", "::1/", "::1/9999999999", "10.0.0.0/8:")
        ),
        *(
            (host, f"Could not parse [{host}] - prefix length must be between 0 and 128")
            for host in ("2001:db8::1/129", "::1/-1", "1::2:/129")
        ),
        ("1::2:/64", "Could not parse [1::2:]"),
        (":/8", "Could not parse [:]"),
        ("[::1/64", "Could not parse [[::1]"),
        ("::1%/64", "Could not parse [::1%]"),
        ("1:2:3:4:5:6:7:8:9/64", "Could not parse [1:2:3:4:5:6:7:8:9]"),
        ("10.0.0.0:80/8", "Could not parse [10.0.0.0:80]"),
        ("::ffff:10.0.0.0/104", "Could not parse [::ffff:10.0.0.0] - not an IPv6 address"),
    ],
)
def test_what_is_no_network(wire: Wire, host: str, words: str) -> None:
    assert create(wire, entry(host)) == [("INVALID_REQUEST", f"Invalid CIDR notation '{host}': {words}")]


def test_an_entry_needs_a_host(wire: Wire) -> None:
    assert create(wire, entry(""), entry("", principal="x")) == [
        ("INVALID_REQUEST", "Host pattern cannot be null or empty"),
        (
            "INVALID_REQUEST",
            "Could not parse principal from `x` (no colon is present separating the principal type from the "
            "principal name)",
        ),
    ]


def test_networks_are_kept_as_they_were_written(wire: Wire) -> None:
    hosts = ["10.1.2.3/8", "010.0.0.0/08", "2001:DB8:0::/32", "[::1]/64", "fe80::1%1/64", "::1/+64", "::/0128", "a b"]
    name = f"kept-{uuid.uuid4().hex[:8]}"
    assert create(wire, *(entry(host, name=name) for host in hosts)) == [("NONE", "")] * len(hosts)

    def found(host: str | None) -> list[str]:
        asked = DescribeAclsRequest(
            resource_type_filter=TOPIC,
            resource_name_filter=name,
            pattern_type_filter=3,
            principal_filter=None,
            host_filter=host,
            operation=1,
            permission_type=1,
        )
        return sorted(acl.host for resource in wire.call(asked, 3).resources for acl in resource.acls)

    deadline = time.monotonic() + DEADLINE_S
    while found(None) != sorted(hosts):
        assert time.monotonic() < deadline, found(None)
        time.sleep(0.05)
    assert found("10.1.2.3/8") == ["10.1.2.3/8"]
    assert found("10.0.0.0/8") == found("10.1.2.3") == []


@pytest.mark.parametrize(
    ("host", "is_here"),
    [
        *((host, True) for host in ("127.0.0.0/8", "127.255.3.9/8", "127.0.0.1/32", "127.0.0.1/31", "0.0.0.0/0")),
        *((host, False) for host in ("127.0.0.2/32", "128.0.0.0/8", "::/0", "::1/128", "::7f00:1/128")),
    ],
)
def test_who_belongs_to_a_network(wire: Wire, host: str, is_here: bool) -> None:
    name = f"network-{uuid.uuid4().hex[:8]}"
    made = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    assert not wire.call(CreateTopicsRequest(topics=[made], timeout_ms=10_000), 7).topics[0].error_code

    def described() -> str:
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        return ErrorCode(wire.call(asked, 12).topics[0].error_code).name

    def awaited(code: str) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while (seen := described()) != code:
            assert time.monotonic() < deadline, seen
            time.sleep(0.05)

    awaited("NONE")
    # Somebody else's: from now on entries are needed.
    create(wire, entry("*", name=name, principal="User:other"))
    awaited("TOPIC_AUTHORIZATION_FAILED")
    assert (
        create(wire, entry(host, name=name), entry("*", name=f"{name}-end", principal="User:other"))
        == [("NONE", "")] * 2
    )
    if is_here:
        awaited("NONE")
    else:
        # What was created with it, and last, is in force.
        end = MetadataRequest(topics=[MetadataRequestTopic(name=f"{name}-end")], allow_auto_topic_creation=False)
        deadline = time.monotonic() + DEADLINE_S
        while ErrorCode(wire.call(end, 12).topics[0].error_code).name != "TOPIC_AUTHORIZATION_FAILED":
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert described() == "TOPIC_AUTHORIZATION_FAILED"


# Who may change configs


@pytest.fixture
def denied(wire: Wire) -> Iterator[None]:
    """ALTER_CONFIGS on the cluster is."""
    create(wire, entry("*", resource=CLUSTER, name="kafka-cluster", operation=AclOperation.ALL))
    deny = {"operation": AclOperation.ALTER_CONFIGS, "permission_type": DENY}
    create(wire, entry("*", resource=CLUSTER, name="kafka-cluster", **deny))
    asked = resource(BROKER_TYPE, "1", ("log.cleaner.threads", SET, "1"))
    deadline = time.monotonic() + DEADLINE_S
    while alter(wire, asked)[0][0] != "CLUSTER_AUTHORIZATION_FAILED":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    yield
    delete(wire, resource_type_filter=CLUSTER)
    while alter(wire, asked)[0][0] != "NONE":
        assert time.monotonic() < deadline + DEADLINE_S
        time.sleep(0.05)


def resource(kind: int, name: str, *configs: tuple[str, int, str | None]) -> AlterConfigsResource:
    changes = [
        AlterableConfig(name=name, config_operation=operation, value=value) for name, operation, value in configs
    ]
    return AlterConfigsResource(resource_type=kind, resource_name=name, configs=changes)


def alter(wire: Wire, *resources: AlterConfigsResource) -> list[tuple[str, str | None]]:
    request = IncrementalAlterConfigsRequest(resources=list(resources), validate_only=True)
    return [(ErrorCode(it.error_code).name, it.error_message) for it in wire.call(request, 1).responses]


@pytest.mark.usefixtures("denied")
def test_who_may_not_change_configs_of_brokers_learns_nothing_else(wire: Wire) -> None:
    refused = ("CLUSTER_AUTHORIZATION_FAILED", None)
    threads = ("log.cleaner.threads", SET, "x")
    for asked in (
        resource(BROKER_TYPE, "1", threads),
        resource(BROKER_TYPE, "1", ("log.cleaner.threads", 9, "1")),
        resource(BROKER_TYPE, "1", ("nonsense", SET, "1")),
        resource(BROKER_TYPE, "99", threads),
        resource(BROKER_TYPE, "x", threads),
        resource(BROKER_TYPE, ""),
        resource(LOGGER_TYPE, "1", ("nonsense", SET, "x")),
        resource(LOGGER_TYPE, "x"),
        resource(LOGGER_TYPE, ""),
    ):
        assert alter(wire, asked) == [refused], asked


@pytest.mark.usefixtures("denied")
def test_what_contradicts_itself_is_told_to_everybody(wire: Wire) -> None:
    threads = ("log.cleaner.threads", SET, "1")
    null = resource(BROKER_TYPE, "1", ("log.cleaner.threads", SET, None))
    assert alter(wire, null) == [("INVALID_REQUEST", "Null value not supported for : log.cleaner.threads")]
    twice = resource(BROKER_TYPE, "1", threads, threads)
    assert alter(wire, twice) == [("INVALID_REQUEST", "Error due to duplicate config keys")]
    repeated = alter(wire, resource(BROKER_TYPE, "1", threads), resource(BROKER_TYPE, "1"))
    assert repeated == [("INVALID_REQUEST", "Each resource must appear at most once.")] * 2


@pytest.mark.usefixtures("denied")
def test_each_resource_is_answered_in_its_place(wire: Wire) -> None:
    asked = [(TOPIC_TYPE, "absent"), (BROKER_TYPE, "1"), (77, "q"), (LOGGER_TYPE, "1")]
    assert alter(wire, *(resource(kind, name) for kind, name in asked)) == [
        ("UNKNOWN_TOPIC_OR_PARTITION", "The topic 'absent' does not exist."),
        ("CLUSTER_AUTHORIZATION_FAILED", None),
        ("INVALID_REQUEST", "Unknown resource type 77"),
        ("CLUSTER_AUTHORIZATION_FAILED", None),
    ]
    assert alter(wire, resource(METRICS_TYPE, "m")) == [
        ("CLUSTER_AUTHORIZATION_FAILED", "Cluster authorization failed.")
    ]


@pytest.mark.usefixtures("denied")
def test_the_older_way_to_change_configs(wire: Wire) -> None:
    def replace(kind: int, name: str, **configs: str) -> tuple[str, str | None]:
        changes = [ReplacedConfig(name=name, value=value) for name, value in configs.items()]
        asked = ReplacedResource(resource_type=kind, resource_name=name, configs=changes)
        (result,) = wire.call(AlterConfigsRequest(resources=[asked], validate_only=True), 2).responses
        return ErrorCode(result.error_code).name, result.error_message

    assert replace(BROKER_TYPE, "1", nonsense="x") == ("CLUSTER_AUTHORIZATION_FAILED", None)
    assert replace(BROKER_TYPE, "x") == ("CLUSTER_AUTHORIZATION_FAILED", None)
    assert replace(LOGGER_TYPE, "1", nonsense="x") == ("INVALID_REQUEST", "Unknown resource type 8")


# Offsets of transactions


def test_offsets_of_a_topic_that_must_not_be_read(wire: Wire) -> None:
    group = GroupWire(wire, f"wire-{uuid.uuid4().hex[:8]}")
    group.find()
    topic, transaction = new_topic(wire), Transaction(group)
    create(wire, entry("*", name=topic.name, operation=AclOperation.READ, permission_type=DENY))
    deadline = time.monotonic() + DEADLINE_S
    while (told := dict(transaction.commit([topic.topic_id, UNKNOWN_ID])))[topic.topic_id] == "NONE":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert told == {topic.topic_id: "TOPIC_AUTHORIZATION_FAILED", UNKNOWN_ID: "UNKNOWN_TOPIC_ID"}


# Limits, features, controllers


def test_a_static_member_that_comes_back_needs_no_place_in_a_full_group(wire: Wire) -> None:
    group = GroupWire(wire, f"wire-{uuid.uuid4().hex[:8]}")
    group.find()
    topic = new_topic(wire)
    assert group.start(topic, "a", instance_id="i").error_code == 0
    full = group.start(topic, "b")
    words = "The consumer group has reached its maximum capacity of 1 members."
    assert (ErrorCode(full.error_code).name, full.error_message) == ("GROUP_MAX_SIZE_REACHED", words)
    assert group.beat("a", -2, instance_id="i").error_code == 0
    assert group.start(topic, "c", instance_id="i").error_code == 0


def test_so_many_partitions_at_once(wire: Wire) -> None:
    names = [f"grown-{uuid.uuid4().hex[:8]}" for _ in range(2)]
    made = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    wire.call(CreateTopicsRequest(topics=made, timeout_ms=10_000), 7)

    def grow(*counts: int) -> set[tuple[str, str | None]]:
        asked = [
            CreatePartitionsTopic(name=name, count=count, assignments=None)
            for name, count in zip(names, counts, strict=False)
        ]
        request = CreatePartitionsRequest(topics=asked, timeout_ms=10_000, validate_only=True)
        return {(ErrorCode(it.error_code).name, it.error_message) for it in wire.call(request, 3).results}

    words = "Excessively large number of additional partitions per request."
    assert grow(10_002) == grow(5_001, 5_002) == {("POLICY_VIOLATION", words)}
    assert grow(10_001) == grow(5_001, 5_001) == {("NONE", None)}


def test_levels_of_features(wire: Wire) -> None:
    def refusal(feature: str, level: int, upgrade_type: int = 1) -> str | None:
        asked = FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=upgrade_type)
        request = UpdateFeaturesRequest(timeout_ms=10_000, feature_updates=[asked], validate_only=True)
        answer = wire.call(request, 1)
        if not answer.error_code:
            return None
        assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
        return str(answer.error_message).partition("had an error: ")[2]

    downgrade = (
        "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
        "downgrade."
    )
    invalid = "Invalid update version {} for feature {}. {}"
    only = "Local controller 1 only supports versions {}"
    version = "metadata.version"
    assert refusal(version, 33) is None
    assert refusal(version, 34) == invalid.format(34, version, only.format("7-33"))
    assert refusal(version, 6, 2) == invalid.format(6, version, only.format("7-33"))
    assert refusal(version, 32) == invalid.format(32, version, downgrade)
    assert refusal(version, 32, 2) == (
        "Unsupported metadata.version downgrade from 33 to 32. Refusing to perform the requested downgrade because it "
        "might delete metadata information."
    )
    assert refusal(version, 30, 3) == (
        "Unsupported metadata.version downgrade from 33 to 30. Unsafe metadata downgrade is not supported in this "
        "version."
    )
    assert refusal("share.version", 3) == invalid.format(3, "share.version", only.format("0-2"))
    assert refusal("share.version", 1) == invalid.format(1, "share.version", downgrade)
    assert [refusal("share.version", level, 2) for level in (0, 1)] == [None, None]
    assert refusal("share.version", 2) is None


def test_of_a_feature_that_is_named_twice_the_last_update_counts(wire: Wire) -> None:
    def asked(*levels: int) -> tuple[str, list[str]]:
        updates = [FeatureUpdateKey(feature="share.version", max_version_level=each, upgrade_type=1) for each in levels]
        answer = wire.call(UpdateFeaturesRequest(timeout_ms=10_000, feature_updates=updates, validate_only=True), 1)
        return ErrorCode(answer.error_code).name, [each.feature for each in answer.results]

    assert asked(3, 2) == asked(2, 2) == ("NONE", ["share.version"] * 2)
    assert asked(2, 3) == ("INVALID_UPDATE_VERSION", [])


def test_messages_of_what_went_well(wire: Wire) -> None:
    users = wire.call(DescribeUserScramCredentialsRequest(users=None), 0)
    unknown = wire.call(DescribeUserScramCredentialsRequest(users=[UserName(name="nobody")]), 0)
    asked = FeatureUpdateKey(feature="share.version", max_version_level=2, upgrade_type=1)
    features = wire.call(UpdateFeaturesRequest(feature_updates=[asked], timeout_ms=10_000, validate_only=True), 1)
    assert (users.error_message, unknown.error_message, features.error_message) == ("", "", None)
    assert [each.error_message for each in features.results] == [""]


def test_a_controller_is_unregistered(wire: Wire) -> None:
    def unregister(controller_id: int) -> tuple[str, str | None]:
        answer = wire.call(UnregisterControllerRequest(controller_id=controller_id), 0)
        return ErrorCode(answer.error_code).name, answer.error_message

    assert unregister(1) == ("INVALID_REQUEST", "Controller cannot unregister itself while it is active.")
    for unknown in (77, -1, 2**31 - 1):
        words = f"Controller ID {unknown} is not currently registered."
        assert unregister(unknown) == ("CONTROLLER_ID_NOT_REGISTERED", words)
