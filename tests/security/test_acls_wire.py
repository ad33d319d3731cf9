"""A broker with an authorizer: entries by requests, what they change at once, and who notices."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.access.create_acls import AclCreation, CreateAclsRequest
from ottla.kproto.messages.access.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.kproto.messages.access.describe_acls import DescribeAclsRequest
from ottla.kproto.messages.access.sasl_authenticate import SaslAuthenticateRequest
from ottla.kproto.messages.access.sasl_handshake import SaslHandshakeRequest
from ottla.kproto.messages.data.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.kproto.messages.data.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.kproto.messages.groups.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.kproto.messages.groups.find_coordinator import FindCoordinatorRequest
from ottla.kproto.messages.topics.metadata import MetadataRequest, MetadataRequestTopic
from ottla.kproto.records import Record, build_batch
from ottla.metadata.acls import AclOperation, AclResource
from ottla.server.apis.table import served
from ottla.settings.config import ConfigError
from ottla.settings.sources import STANDARD_AUTHORIZER, load
from tests.server.apis.generated import TOPIC, requests
from tests.servers import Client, RunningNode

SETTINGS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        'PlainLoginModule required user_admin="admin-p" user_bob="bob-p";'
    ),
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:admin",
}
READ, WRITE = AclOperation.READ, AclOperation.WRITE


@pytest.fixture
def serve_acls(serve_node: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    @asynccontextmanager
    async def serve(**settings: str) -> AsyncIterator[RunningNode]:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        async with serve_node(SETTINGS | named) as node:
            await node.create_topic("t")
            yield node

    return serve


async def connect(node: RunningNode, user: str) -> Client:
    client = await node.connect()
    await client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    message = f"\0{user}\0{user}-p".encode()
    assert (await client.call(SaslAuthenticateRequest(auth_bytes=message), 2)).error_code == 0
    return client


async def allow(
    node: RunningNode,
    operation: AclOperation,
    name: str = "t",
    *,
    permission: int = 3,
    resource: AclResource = AclResource.TOPIC,
) -> None:
    creation = AclCreation(
        resource_type=resource,
        resource_name=name,
        resource_pattern_type=3,
        principal="User:bob",
        host="*",
        operation=operation,
        permission_type=permission,
    )
    (result,) = (await (await connect(node, "admin")).call(CreateAclsRequest(creations=[creation]), 3)).results
    assert result.error_code == 0, result.error_message


async def produce(client: Client, *, acks: int = 1, names: tuple[str, ...] = ("t",)) -> list[ErrorCode]:
    batch = build_batch([Record(value=b"v", timestamp_ms=1)])
    data = [
        TopicProduceData(name=name, partition_data=[PartitionProduceData(index=0, records=batch)]) for name in names
    ]
    answer = await client.call(ProduceRequest(acks=acks, timeout_ms=5000, topic_data=data), 9)
    return [ErrorCode(topic.partition_responses[0].error_code) for topic in answer.responses]


async def test_entries_count_at_once_on_connections_that_are_open(serve_acls: Callable[..., Any]) -> None:
    async with serve_acls() as node:
        bob = await connect(node, "bob")
        assert await produce(bob) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        await allow(node, WRITE)
        assert await produce(bob) == [ErrorCode.NONE]
        await allow(node, WRITE, permission=2)
        assert await produce(bob) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]


async def test_what_is_refused_keeps_nothing_else_out(serve_acls: Callable[..., Any]) -> None:
    async with serve_acls() as node:
        await node.create_topic("other")
        await allow(node, WRITE)
        bob = await connect(node, "bob")
        codes = await produce(bob, names=("other", "t", "absent"))
        assert sorted(codes) == [
            ErrorCode.NONE,
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ]


async def test_without_acknowledgement_a_refusal_closes(serve_acls: Callable[..., Any]) -> None:
    async with serve_acls() as node:
        await node.create_topic("other")
        await allow(node, WRITE)
        for names in (("other",), ("t", "other")):
            bob = await connect(node, "bob")
            with pytest.raises((EOFError, trio.BrokenResourceError)):
                await produce(bob, acks=0, names=names)


async def test_a_fetch_session_follows_the_entries(serve_acls: Callable[..., Any]) -> None:
    """A partition that was refused stays in the session, and one that was allowed is looked at again."""
    async with serve_acls() as node:
        await produce(await connect(node, "admin"))
        bob = await connect(node, "bob")
        asked = [FetchTopic(topic="t", partitions=[FetchPartition(partition=0, partition_max_bytes=1000)])]

        async def fetch(session_id: int, epoch: int, topics: list[FetchTopic]) -> Any:
            request = FetchRequest(
                max_wait_ms=0, session_id=session_id, session_epoch=epoch, topics=topics, replica_id=-1
            )
            return await bob.call(request, 12)

        first = await fetch(0, 0, asked)
        (topic,) = first.responses
        assert topic.partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        await allow(node, READ)
        (topic,) = (await fetch(first.session_id, 1, [])).responses
        assert topic.partitions[0].error_code == ErrorCode.NONE
        assert topic.partitions[0].records
        await allow(node, READ, permission=2)
        (topic,) = (await fetch(first.session_id, 2, [])).responses
        assert topic.partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def test_a_regular_expression_tells_nothing_of_topics_that_may_not_be_described(
    serve_acls: Callable[..., Any],
) -> None:
    async with serve_acls() as node:
        await node.create_topic("other")
        await allow(node, READ, "g", resource=AclResource.GROUP)
        await allow(node, READ)
        bob = await connect(node, "bob")
        described = await bob.call(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 12)
        join = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="m",
            member_epoch=0,
            rebalance_timeout_ms=60_000,
            subscribed_topic_regex=".*",
            topic_partitions=[],
        )
        await bob.call(FindCoordinatorRequest(coordinator_keys=["g"]), 4)  # which makes the topic of the offsets
        answer = await bob.call(join, 1)
        assert answer.error_code == 0, answer.error_message
        assert [it.topic_id for it in answer.assignment.topic_partitions] == [described.topics[0].topic_id]


async def test_metadata_hides_what_may_not_be_described(serve_acls: Callable[..., Any]) -> None:
    async with serve_acls() as node:
        topic_id = await node.create_topic("secret")
        await allow(node, READ)
        bob = await connect(node, "bob")
        answer = await bob.call(MetadataRequest(topics=None), 12)
        assert [topic.name for topic in answer.topics] == ["t"]
        by_id = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=topic_id)])
        (topic,) = (await bob.call(by_id, 12)).topics
        assert (topic.error_code, topic.name) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)


async def test_entries_are_described_and_deleted(serve_acls: Callable[..., Any]) -> None:
    everything: dict[str, Any] = {"principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1}
    async with serve_acls() as node:
        await allow(node, READ)
        await allow(node, READ)  # the same is one
        await allow(node, WRITE, "u")
        admin = await connect(node, "admin")
        described = DescribeAclsRequest(
            resource_type_filter=1, resource_name_filter=None, pattern_type_filter=1, **everything
        )
        found = (await admin.call(described, 3)).resources
        assert [(it.resource_name, [acl.operation for acl in it.acls]) for it in found] == [("t", [3]), ("u", [4])]
        named = DeleteAclsFilter(resource_type_filter=2, resource_name_filter="t", pattern_type_filter=2, **everything)
        wrong = DeleteAclsFilter(resource_type_filter=0, resource_name_filter="t", pattern_type_filter=2, **everything)
        results = (await admin.call(DeleteAclsRequest(filters=[wrong, named]), 3)).filter_results
        assert results[0].error_code == ErrorCode.INVALID_REQUEST
        assert [acl.resource_name for acl in results[1].matching_acls] == ["t"]
        assert [it.resource_name for it in (await admin.call(described, 3)).resources] == ["u"]


async def test_entries_outlive_the_process(serve_acls: Callable[..., Any], serve_node: Callable[..., Any]) -> None:
    async with serve_acls() as node:
        await allow(node, WRITE)
    async with serve_node(SETTINGS) as node:
        assert await produce(await connect(node, "bob")) == [ErrorCode.NONE]


async def test_the_audit_log_says_who_what_and_why(
    serve_acls: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "ottla.audit")
    async with serve_acls() as node:
        await allow(node, READ)
        bob = await connect(node, "bob")
        await produce(bob)
        await bob.call(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 9)
    denied = [it for it in caplog.records if it.name == "ottla.audit" and it.levelno == logging.INFO]
    assert [it.getMessage() for it in denied] == [
        "User:bob is denied WRITE on TOPIC t from 127.0.0.1 by PRODUCE: "
        "there are entries for the resource, and none of them allows it"
    ]
    allowed = [it.getMessage() for it in caplog.records if it.name == "ottla.audit" and it.levelno == logging.DEBUG]
    assert (
        "User:bob is allowed DESCRIBE on TOPIC t from 127.0.0.1 by METADATA: ALLOW User:bob READ on TOPIC t" in allowed
    )


async def test_nobody_writes_lines_of_his_own_into_the_audit_log(
    serve_acls: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ottla.audit")
    async with serve_acls() as node:
        bob = await connect(node, "bob")
        for name in ("t\nUser:admin is allowed", "x" * 30_000):
            await bob.call(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 9)
    lines = [it.getMessage() for it in caplog.records if it.name == "ottla.audit"]
    assert len(lines) == 2
    assert all(line.isprintable() and len(line) < 400 for line in lines)


async def test_everybody_where_no_entry_is_needed(serve_acls: Callable[..., Any]) -> None:
    async with serve_acls(allow_everyone_if_no_acl_found="true") as node:
        bob = await connect(node, "bob")
        assert await produce(bob) == [ErrorCode.NONE]
        await allow(node, READ)
        assert await produce(bob) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]


async def test_refusing_is_never_what_fails(serve_acls: Callable[..., Any], caplog: pytest.LogCaptureFixture) -> None:
    """Every generated request of each API in its newest version, by somebody who may do nothing."""
    waits: list[str] = []
    async with serve_acls() as node:
        topic_id = await node.create_topic(TOPIC)
        bob = await connect(node, "bob")
        for key in served():
            version = key.valid_versions.highest
            for request in requests(key, version, topic_id):
                if getattr(request, "acks", 1) == 0:
                    continue  # has no answer
                with trio.move_on_after(10) as scope:
                    try:
                        await bob.call(request, version)
                        continue
                    except EOFError:
                        pass
                if scope.cancelled_caught:
                    waits.append(str(request)[:200])
                bob = await connect(node, "bob")
    faults = {record.getMessage() for record in caplog.records if record.exc_info is not None}
    assert (faults, waits) == (set(), [])


class TestSettings:
    def test_another_authorizer_is_not_known(self) -> None:
        with pytest.raises(ConfigError, match="it knows org"):
            load(flags={"authorizer.class.name": "com.example.Mine"})

    def test_super_users_are_principals(self) -> None:
        with pytest.raises(ConfigError, match="write User:root"):
            load(flags={"super.users": "User:admin;root"})
