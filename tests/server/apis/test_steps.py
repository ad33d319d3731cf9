"""What is asked of the authorizer, or sorted, for a request that names thousands of things is done in steps."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from ottla.coordinator.errors import (
    GroupSubscribedToTopicError,
    OffsetMetadataTooLargeError,
    UnknownMemberIdError,
)
from ottla.coordinator.group.offset_and_metadata import TopicPartition
from ottla.coordinator.transaction.state import Partition, TransactionStatus
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.access.describe_acls import DescribeAclsRequest
from ottla.kproto.messages.access.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from ottla.kproto.messages.configs.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.kproto.messages.data.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from ottla.kproto.messages.groups.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.kproto.messages.groups.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.kproto.messages.groups.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.kproto.messages.groups.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.kproto.messages.topics.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from ottla.kproto.messages.transactions.describe_transactions import DescribeTransactionsRequest
from ottla.kproto.schema import Request
from ottla.metadata.acls import Acl, AclOperation, AclPattern, AclPermission, AclResource
from ottla.runtime.work import LIGHT_ELEMENTS, Work
from ottla.server.apis import authorization
from ottla.server.apis.access import describe_acls, describe_user_scram_credentials
from ottla.server.apis.configs import describe_configs
from ottla.server.apis.groups import offset_delete, offset_fetch, txn_offset_commit
from ottla.server.apis.pending import finish
from ottla.server.apis.table import declaration
from ottla.server.apis.topics import describe_topic_partitions
from ottla.server.apis.transactions import describe_transactions
from ottla.settings.config import BrokerConfig

COUNT = 1000


class CountedWork(Work):
    """Counts the pauses that others might be let in."""

    __slots__ = ("rests",)

    def __init__(self) -> None:
        super().__init__()
        self.rests = 0

    async def charge(self, elements: int = 1) -> None:
        self.rests += 1
        await super().charge(elements)


class NoTopics:
    """Denies all topics and lets everything else through, and notes how many times it was asked in one step."""

    def __init__(self, work: CountedWork) -> None:
        self._work = work
        self._asked_at = -1
        self._asked = 0
        self.most_asked = 0

    def allows(self, _operation: Any, resource: AclResource, name: str, *, is_asked: bool = True) -> bool:
        self._asked = self._asked + 1 if self._asked_at == self._work.rests else 1
        self._asked_at = self._work.rests
        self.most_asked = max(self.most_asked, self._asked)
        return resource is not AclResource.TOPIC or name.startswith("open")

    def allows_on_cluster(self, _operation: Any, *, is_asked: bool = True) -> bool:
        return False


class Asked:
    """The context of one request, as far as it matters here."""

    def __init__(self, request: Request, key: ApiKey, version: int, **broker: Any) -> None:
        self.request = request
        self.work = self.counted = CountedWork()
        self.access = NoTopics(self.work)
        self.header = SimpleNamespace(api_version=version)
        self.api = SimpleNamespace(
            key=key, rule=declaration(key).rule, handler=lambda *_: ConsumerGroupHeartbeatResponse()
        )
        self.broker = SimpleNamespace(**{"metadata": None, **broker})

    async def authorized(self) -> Any:
        context: Any = self
        return await finish(authorization.handle(context, context.access))


async def test_a_heartbeat_that_subscribes_to_many_topics() -> None:
    names = [f"open-{number}" for number in range(COUNT)]
    request = ConsumerGroupHeartbeatRequest(group_id="g", subscribed_topic_names=names)
    asked = Asked(request, ApiKey.CONSUMER_GROUP_HEARTBEAT, 1)
    assert (await asked.authorized()).error_code == ErrorCode.NONE
    assert asked.access.most_asked <= 2
    names.append("closed")
    assert (await asked.authorized()).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def test_many_partitions_of_a_topic_that_is_closed() -> None:
    partitions = [DeleteRecordsPartition(partition_index=number) for number in range(COUNT)]
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="closed", partitions=partitions)])
    asked = Asked(request, ApiKey.DELETE_RECORDS, 2)
    asked.api.handler = lambda *_: DeleteRecordsResponse()
    (topic,) = (await asked.authorized()).topics
    assert all(it.low_watermark == -1 and it.error_code for it in topic.partitions)
    assert asked.work.rests > COUNT


async def test_offsets_of_many_partitions() -> None:
    topics = [OffsetFetchRequestTopics(name="closed", partition_indexes=list(range(COUNT)))]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)])
    group_coordinator = SimpleNamespace(offsets=SimpleNamespace(fetch=lambda *_, **__: {}))
    replicas = SimpleNamespace(may_be_replaced=lambda: False)
    asked: Any = Asked(request, ApiKey.OFFSET_FETCH, 8, group_coordinator=group_coordinator, replica_manager=replicas)
    (group,) = (await offset_fetch.handle(request, asked)).groups
    assert {it.error_code for it in group.topics[0].partitions} == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert asked.access.most_asked <= 2


@pytest.mark.parametrize("count", [0, COUNT])
async def test_a_transaction_of_many_partitions(count: int) -> None:
    transaction = SimpleNamespace(
        partitions=frozenset(Partition("open", number) for number in range(count)),
        status=TransactionStatus.ONGOING,
        timeout_ms=1,
        start_ms=2,
        producer_id=3,
        producer_epoch=4,
    )
    request = DescribeTransactionsRequest(transactional_ids=["x"])
    coordinator = SimpleNamespace(describe=lambda _: transaction)
    asked: Any = Asked(request, ApiKey.DESCRIBE_TRANSACTIONS, 0, transaction_coordinator=coordinator)
    (state,) = (await describe_transactions.handle(request, asked)).transaction_states
    assert [list(topic.partitions) for topic in state.topics] == ([list(range(count))] if count else [])
    assert asked.access.most_asked <= 2


async def test_a_page_of_many_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    states = (SimpleNamespace(leader=1, leader_epoch=2, replicas=(1,), last_known_elr=()),) * COUNT
    topic = SimpleNamespace(name="t", topic_id=UUID(int=7), is_internal=False, partitions=states)
    image = SimpleNamespace(live_brokers=lambda: [SimpleNamespace(node_id=1)], topic=lambda _: topic)
    monkeypatch.setattr(describe_topic_partitions, "is_enabled", lambda _: True)
    monkeypatch.setattr(describe_topic_partitions, "shown", lambda *_, **__: ((1,), ()))
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")], response_partition_limit=COUNT)
    asked: Any = Asked(request, ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, metadata=image, config=BrokerConfig())
    asked.access = None
    answer: Any = await describe_topic_partitions.handle(request, asked)
    assert [it.partition_index for it in answer.topics[0].partitions] == list(range(COUNT))
    assert asked.work.rests > COUNT


async def test_configs_by_many_keys() -> None:
    class Key(str):
        """Counts how many others it is compared with."""

        __slots__ = ()
        compared = 0

        def __eq__(self, other: object) -> bool:
            Key.compared += 1
            return super().__eq__(other)

        __hash__ = str.__hash__

    keys = [Key(f"key-{number}") for number in range(COUNT)] + ["retention.ms"]
    resource = DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=keys)
    image = SimpleNamespace(resource_configs=lambda _: {}, topics={"t"})
    request = DescribeConfigsRequest(resources=[resource])
    asked: Any = Asked(request, ApiKey.DESCRIBE_CONFIGS, 4, metadata=image, config=BrokerConfig())
    (result,) = (await describe_configs.handle(request, asked)).results
    assert [it.name for it in result.configs] == ["retention.ms"]
    assert Key.compared < COUNT


class Name(str):
    """Notes how often names were compared or hashed in one step."""

    __slots__ = ()
    work = CountedWork()
    noted_at = -1
    noted = 0
    most = 0

    @classmethod
    def watch(cls, work: CountedWork) -> None:
        cls.work, cls.noted_at, cls.most = work, -1, 0

    @classmethod
    def note(cls) -> None:
        cls.noted = cls.noted + 1 if cls.noted_at == cls.work.rests else 1
        cls.noted_at = cls.work.rests
        cls.most = max(cls.most, cls.noted)

    def __eq__(self, other: object) -> bool:
        Name.note()
        return super().__eq__(other)

    def __lt__(self, other: str) -> bool:
        Name.note()
        return super().__lt__(other)

    def __hash__(self) -> int:
        Name.note()
        return super().__hash__()


SORTED_AT_ONCE = 10 * LIGHT_ELEMENTS
"""So often names are compared while a short run of them is sorted."""


async def test_many_acls() -> None:
    acls = [
        Acl(
            AclResource.TOPIC,
            Name(f"t{number}"),
            AclPattern.LITERAL,
            "User:u",
            "*",
            AclOperation.READ,
            AclPermission.ALLOW,
        )
        for number in range(5 * COUNT)
    ]
    request = DescribeAclsRequest(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    asked: Any = Asked(request, ApiKey.DESCRIBE_ACLS, 3, metadata=SimpleNamespace(acls=acls))
    Name.watch(asked.work)
    answer = await describe_acls.handle(request, asked)
    assert [it.resource_name for it in answer.resources] == sorted(f"t{number}" for number in range(5 * COUNT))
    assert Name.most < SORTED_AT_ONCE


async def test_the_credentials_of_many_users() -> None:
    credential = SimpleNamespace(iterations=4096)
    credentials = {(Name(f"u{number}"), 1): credential for number in range(5 * COUNT)}
    request = DescribeUserScramCredentialsRequest(users=None)
    image = SimpleNamespace(scram_credentials=credentials)
    asked: Any = Asked(request, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, metadata=image)
    Name.watch(asked.work)
    answer = await describe_user_scram_credentials.handle(request, asked)
    assert [it.user for it in answer.results] == sorted(f"u{number}" for number in range(5 * COUNT))
    assert Name.most < SORTED_AT_ONCE


async def test_offsets_of_many_partitions_that_are_deleted() -> None:
    name = Name("t")

    async def delete_offsets(_group_id: str, partitions: list[TopicPartition]) -> Any:
        return {partition: GroupSubscribedToTopicError("read") for partition in partitions}

    partitions = [OffsetDeleteRequestPartition(partition_index=number) for number in range(COUNT)]
    request = OffsetDeleteRequest(group_id="g", topics=[OffsetDeleteRequestTopic(name=name, partitions=partitions)])
    image = SimpleNamespace(partition=lambda _, index: index % 2 or None, topic=lambda _: SimpleNamespace())
    groups = SimpleNamespace(offsets=SimpleNamespace(delete=delete_offsets))
    asked: Any = Asked(request, ApiKey.OFFSET_DELETE, 0, metadata=image, group_coordinator=groups)
    Name.watch(asked.work)
    answer = await offset_delete.handle(request, asked)
    codes = [it.error_code for it in answer.topics[0].partitions]
    half = COUNT // 2
    assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * half + [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC] * half
    assert Name.most < COUNT


@pytest.mark.parametrize("is_refused", [False, True])
async def test_offsets_of_many_partitions_in_a_transaction(is_refused: bool) -> None:
    async def commit_offsets(_group_id: str, offsets: dict[TopicPartition, Any], **_: Any) -> Any:
        if is_refused:
            raise UnknownMemberIdError("gone")
        return dict.fromkeys(list(offsets)[:1], OffsetMetadataTooLargeError("long"))

    async def verify(*_: Any, **__: Any) -> Any:
        return {}

    partitions = [
        TxnOffsetCommitRequestPartition(partition_index=number, committed_offset=1) for number in range(COUNT)
    ]
    request = TxnOffsetCommitRequest(
        transactional_id="x",
        group_id="g",
        producer_id=1,
        producer_epoch=0,
        topics=[TxnOffsetCommitRequestTopic(name="t", partitions=partitions)],
    )
    topic = SimpleNamespace(name="t", topic_id=UUID(int=7), partitions=range(COUNT))
    offsets = SimpleNamespace(
        commit=commit_offsets, watch_transaction=lambda *_: nullcontext(SimpleNamespace(check=lambda: None))
    )
    groups = SimpleNamespace(partition_for=lambda _: 0, offsets=offsets)
    asked: Any = Asked(
        request,
        ApiKey.TXN_OFFSET_COMMIT,
        5,
        metadata=SimpleNamespace(topic=lambda _: topic),
        group_coordinator=groups,
        transaction_verifier=SimpleNamespace(verify=verify),
    )
    answer = await txn_offset_commit.handle(request, asked)
    codes = [it.error_code for it in answer.topics[0].partitions]
    others = ErrorCode.UNKNOWN_MEMBER_ID if is_refused else ErrorCode.NONE
    assert codes == [others if is_refused else ErrorCode.OFFSET_METADATA_TOO_LARGE, *[others] * (COUNT - 1)]
    assert not is_refused or asked.work.rests >= 3 * COUNT
