"""Tenants: every name of every message is known, and nobody sees another's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.internal_records.consumer_protocol import (
    AssignedTopicPartition,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
    build_consumer_protocol,
)
from ottla.kproto.messages import request_class, response_class
from ottla.kproto.messages.configs.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from ottla.kproto.messages.configs.incremental_alter_configs import AlterConfigsResource, IncrementalAlterConfigsRequest
from ottla.kproto.messages.groups.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.kproto.messages.groups.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from ottla.kproto.messages.groups.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ottla.kproto.messages.groups.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from ottla.kproto.messages.groups.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from ottla.kproto.messages.groups.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from ottla.kproto.messages.topics.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.kproto.messages.topics.elect_leaders import ElectLeadersRequest
from ottla.kproto.messages.topics.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from ottla.kproto.messages.transactions.list_transactions import ListTransactionsRequest
from ottla.kproto.schema import StructType
from ottla.proxy.filters.group_protocol import subscription
from ottla.proxy.filters.tenants import OFFERED, Tenants, plan
from ottla.testing import run_filter

TENANTS = Tenants(prefix="a.")

# Texts that name no topic, group or transaction.
OTHERS = {
    "assignor_name",
    "batch_index_error_message",
    "client_host",
    "client_id",
    "cluster_id",
    "committed_metadata",
    "documentation",
    "group_instance_id",
    "group_state",
    "group_type",
    "host",
    "instance_id",
    "leader",
    "log_dir",
    "mechanism",
    "member_id",
    "metadata",
    "protocol_data",
    "protocol_name",
    "protocol_type",
    "rack",
    "rack_id",
    "reason",
    "server_assignor",
    "transaction_state",
    "value",
}
OTHER_LISTS = {"configuration_keys", "state_filters", "states_filter", "types_filter", "unknown_state_filters"}
OTHER_NAMES = {
    "AlterableConfig", "CreatableTopicConfig", "CreatableTopicConfigs", "DescribeConfigsResourceResult",
    "DescribeConfigsSynonym", "JoinGroupRequestProtocol",
}  # fmt: skip


def subscribed(topic: str, *, owned: str | None = None) -> bytes:
    partitions = [] if owned is None else [TopicPartition(topic=owned, partitions=[1])]
    message = ConsumerProtocolSubscription(topics=[topic], user_data=b"mine", owned_partitions=partitions)
    return build_consumer_protocol(message, 1)


def assigned(topic: str) -> bytes:
    partitions = [AssignedTopicPartition(topic=topic, partitions=[0, 1])]
    return build_consumer_protocol(ConsumerProtocolAssignment(assigned_partitions=partitions), 1)


def texts(cls: Any) -> Iterator[tuple[Any, str, bool]]:
    """The texts and lists of texts of a message, with the structs that they are in."""
    for field in cls.FIELDS:
        if isinstance(field.element, StructType):
            yield from texts(field.element)
        elif field.kind == "string" or (field.kind == "array" and field.element.name == "string"):
            yield cls, field.name, field.kind == "array"


@pytest.mark.parametrize("key", sorted(OFFERED))
def test_every_text_is_a_name_or_known_to_be_none(key: ApiKey) -> None:
    for message in (request_class(key), response_class(key)):
        for cls, name, is_list in texts(message):
            is_name = name in dict(plan(cls))
            is_other = name in (OTHER_LISTS if is_list else OTHERS) or (name == "name" and cls.__name__ in OTHER_NAMES)
            assert is_name != is_other, (cls.__name__, name)


def call(request: Any, response: Any = None, **options: Any) -> tuple[Any, Any]:
    """What upstream is asked, and what the client is answered."""
    asked: list[Any] = []

    def upstream(request: Any) -> Any:
        asked.append(request)
        return response_class(request.API_KEY)() if response is None else response

    answer = run_filter(TENANTS, request, upstream, **options)
    return (asked[0] if asked else None), answer


def test_a_topic_is_another_upstream_and_its_own_for_its_client() -> None:
    created = CreatableTopicResult(name="a.orders", error_code=36, error_message="Topic 'a.orders' already exists.")
    asked, answer = call(
        CreateTopicsRequest(topics=[CreatableTopic(name="orders")]), CreateTopicsResponse(topics=[created])
    )
    assert asked.topics[0].name == "a.orders"
    assert answer.topics[0].name == "orders"
    assert answer.topics[0].error_message == "Topic 'orders' already exists."


def test_lists_leave_out_what_belongs_to_others() -> None:
    topics = [MetadataResponseTopic(name=name) for name in ("a.x", "b.x", "__consumer_offsets", "x", "a.y")]
    asked, answer = call(MetadataRequest(topics=None), MetadataResponse(topics=topics))
    assert asked.topics is None
    assert [topic.name for topic in answer.topics] == ["x", "y"]
    groups = [ListedGroup(group_id=name) for name in ("a.g", "b.g", "g")]
    _, answer = call(ListGroupsRequest(), ListGroupsResponse(groups=groups))
    assert [group.group_id for group in answer.groups] == ["g"]


def test_a_topic_of_another_cannot_be_asked_for_by_its_id() -> None:
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=None)])
    _, answer = call(asked, MetadataResponse(topics=[MetadataResponseTopic(name="b.secret")]))
    assert answer.topics == []


@pytest.mark.parametrize("version", range(7))
def test_coordinators_are_those_of_the_longer_names(version: int) -> None:
    if version < 4:
        asked, answer = call(FindCoordinatorRequest(key="g"), FindCoordinatorResponse(host="h"), version=version)
        assert asked.key == "a.g"
        assert answer.host == "h"
    else:
        response = FindCoordinatorResponse(coordinators=[Coordinator(key="a.g"), Coordinator(key="a.h")])
        asked, answer = call(FindCoordinatorRequest(coordinator_keys=["g", "h"]), response, version=version)
        assert asked.coordinator_keys == ["a.g", "a.h"]
        assert [it.key for it in answer.coordinators] == ["g", "h"]


def test_an_empty_name_stays_empty_so_that_upstream_refuses_it() -> None:
    asked, answer = call(
        DescribeGroupsRequest(groups=["", "g"]),
        DescribeGroupsResponse(groups=[DescribedGroup(group_id=""), DescribedGroup(group_id="a.g")]),
    )
    assert asked.groups == ["", "a.g"]
    assert [group.group_id for group in answer.groups] == ["", "g"]


def test_configs_are_those_of_topics_and_groups() -> None:
    asked, answer = call(
        DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(resource_type=2, resource_name="t"),
                DescribeConfigsResource(resource_type=4, resource_name="1"),
            ]
        ),
        DescribeConfigsResponse(results=[DescribeConfigsResult(resource_type=2, resource_name="a.t")]),
    )
    assert [it.resource_name for it in asked.resources] == ["a.t", "1"]
    assert answer.results[0].resource_name == "t"
    resources = [AlterConfigsResource(resource_type=4, resource_name="1")]
    asked, answer = call(IncrementalAlterConfigsRequest(resources=resources))
    assert asked is None
    assert answer.responses[0].error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_patterns_match_within_the_tenants_names() -> None:
    request = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="m", subscribed_topic_names=["t"], subscribed_topic_regex="x|y.*"
    )
    asked, _ = call(request)
    assert (asked.group_id, asked.subscribed_topic_names) == ("a.g", ["a.t"])
    assert asked.subscribed_topic_regex == r"a\.(?:x|y.*)"
    asked, _ = call(ListTransactionsRequest(transactional_id_pattern="p.*"))
    assert asked.transactional_id_pattern == r"a\.(?:p.*)"
    for given, passed_on in (("^x.*$", "x.*$"), (r"x\$", r"x\$"), ("^x|y$", "x|y$"), (r"\Qx", r"\Qx\E")):
        request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", subscribed_topic_regex=given)
        asked, _ = call(request)
        assert asked.subscribed_topic_regex == rf"a\.(?:{passed_on})"


def test_a_pattern_does_not_reach_beyond_the_tenants_names() -> None:
    for pattern in ("x)|(.*", "a(", "\\", "["):
        request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", subscribed_topic_regex=pattern)
        asked, answer = call(request)
        assert asked is None
        assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
        assert answer.error_message.startswith(f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: ")
        asked, answer = call(ListTransactionsRequest(transactional_id_pattern=pattern))
        assert asked is None
        assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    asked, answer = call(ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", subscribed_topic_regex="x*^y"))
    assert asked is None
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    asked, answer = call(ListTransactionsRequest(transactional_id_pattern="x" * 5000))
    assert asked is None
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_subscriptions_and_assignments_of_consumers_have_the_longer_names() -> None:
    mine = subscribed("t", owned="t")
    asked, answer = call(
        JoinGroupRequest(protocol_type="consumer", protocols=[JoinGroupRequestProtocol(name="range", metadata=mine)]),
        JoinGroupResponse(
            protocol_name="range", members=[JoinGroupResponseMember(metadata=subscribed("a.u", owned="a.v"))]
        ),
    )
    assert asked.protocols[0].metadata == subscribed("a.t", owned="a.t")
    assert answer.members[0].metadata == subscribed("u", owned="v")
    for version in (3, 5):
        kind = "consumer" if version >= 5 else None
        given = [SyncGroupRequestAssignment(assignment=assigned("t") + b"later fields")]
        asked, answer = call(
            SyncGroupRequest(protocol_type=kind, protocol_name="range" if kind else None, assignments=given),
            SyncGroupResponse(assignment=assigned("a.t")),
            version=version,
        )
        assert asked.assignments[0].assignment == assigned("a.t") + b"later fields"
        assert answer.assignment == assigned("t")
    member = DescribedGroupMember(member_metadata=subscribed("a.t"), member_assignment=assigned("a.t"))
    group = DescribedGroup(group_id="a.g", protocol_type="consumer", members=[member])
    _, answer = call(DescribeGroupsRequest(groups=["g"]), DescribeGroupsResponse(groups=[group]))
    assert answer.groups[0].members[0].member_metadata == subscribed("t")
    assert answer.groups[0].members[0].member_assignment == assigned("t")


@pytest.mark.parametrize("data", [b"", b"\0", b"\xff\xff", b"\0\0\0\0", b"\0\1\0\0\0\5abc", subscribed("t")])
def test_bytes_of_other_protocols_are_left_alone(data: bytes) -> None:
    asked, answer = call(
        JoinGroupRequest(protocol_type="connect", protocols=[JoinGroupRequestProtocol(name="x", metadata=data)]),
        JoinGroupResponse(protocol_name="x", members=[JoinGroupResponseMember(metadata=data)]),
    )
    assert (asked.protocols[0].metadata, answer.members[0].metadata) == (data, data)
    if data != subscribed("t"):
        assert subscription(data, str.upper) == data


def test_what_concerns_all_is_refused() -> None:
    asked, answer = call(ElectLeadersRequest(topic_partitions=None))
    assert asked is None
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    with pytest.raises(ValueError, match="not offered CREATE_ACLS"):
        run_filter(TENANTS, request_class(ApiKey.CREATE_ACLS)())


def test_a_group_of_the_consumer_protocol_needs_a_name() -> None:
    for name in ("", " "):
        asked, answer = call(ConsumerGroupHeartbeatRequest(group_id=name))
        assert asked is None
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        assert answer.error_message == "GroupId can't be empty."


def test_tenants_may_be_told_by_their_addresses() -> None:
    both = Tenants(by_address={"10.1.0.0/16": "a.", "fd00::/8": "b."})
    asked: list[Any] = []

    def upstream(request: Any) -> MetadataResponse:
        asked.append(request.topics[0].name)
        return MetadataResponse()

    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    run_filter(both, request, upstream, peer="10.1.2.3:5")
    run_filter(both, request, upstream, peer="fd00::7:5")
    assert asked == ["a.t", "b.t"]
    answer: Any = run_filter(both, MetadataRequest(topics=None), upstream, peer="10.2.0.1:5")
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert answer.topics == []
    assert len(asked) == 2


def test_tenants_may_be_told_by_who_has_logged_in() -> None:
    both = Tenants(by_principal={"User:alice": "a.", "User:bob": "b."})
    request = DescribeGroupsRequest(groups=["g"])
    asked: list[Any] = []

    def upstream(request: Any) -> DescribeGroupsResponse:
        asked.append(request.groups)
        return DescribeGroupsResponse()

    for principal in ("User:alice", "User:bob", "User:ANONYMOUS", ""):
        run_filter(both, request, upstream, principal=principal)
    assert asked == [["a.g"], ["b.g"]]
