"""Which node of several a request of a wire scenario belongs to.

A scenario thinks of one broker. So all partitions of the topics that it creates lie on one node, its home, and most
requests go there. Coordinators are where they are: what concerns a group or a transactional id goes to the node that
FindCoordinator names, so that groups and transactions on one node have their data on another.
"""

from __future__ import annotations

import copy
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol
from uuid import UUID

from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.data.describe_producers import DescribeProducersRequest
from ottla.kproto.messages.data.fetch import FetchRequest
from ottla.kproto.messages.data.list_offsets import ListOffsetsRequest
from ottla.kproto.messages.groups.find_coordinator import FindCoordinatorRequest
from ottla.kproto.messages.share.delete_share_group_state import DeleteShareGroupStateRequest
from ottla.kproto.messages.share.initialize_share_group_state import InitializeShareGroupStateRequest
from ottla.kproto.messages.share.read_share_group_state import ReadShareGroupStateRequest
from ottla.kproto.messages.share.read_share_group_state_summary import ReadShareGroupStateSummaryRequest
from ottla.kproto.messages.share.share_acknowledge import ShareAcknowledgeRequest
from ottla.kproto.messages.share.share_fetch import ShareFetchRequest
from ottla.kproto.messages.share.write_share_group_state import WriteShareGroupStateRequest
from ottla.kproto.messages.topics.create_topics import CreatableReplicaAssignment, CreateTopicsRequest
from ottla.kproto.messages.topics.delete_topics import DeleteTopicsRequest
from ottla.kproto.messages.topics.metadata import MetadataRequest, MetadataRequestTopic
from ottla.kproto.messages.transactions.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.kproto.messages.transactions.add_partitions_to_txn import AddPartitionsToTxnRequest
from ottla.kproto.messages.transactions.describe_transactions import DescribeTransactionsRequest
from ottla.kproto.messages.transactions.end_txn import EndTxnRequest
from ottla.kproto.messages.transactions.init_producer_id import InitProducerIdRequest
from ottla.kproto.messages.transactions.write_txn_markers import WriteTxnMarkersRequest

Address = tuple[str, int]

_PATIENCE_S: Final = 120.0
GROUP: Final = 0
TRANSACTION: Final = 1
SHARE: Final = 2


class Connection(Protocol):
    def call(self, request: Any, version: int) -> Any: ...

    def close(self) -> None: ...


class Router:
    """Asks `home` for the way, over a connection of its own, when it is first needed."""

    def __init__(self, home: Address, connect: Callable[[Address], Connection]) -> None:
        self._home = home
        self._connect = connect
        self._guide: Connection | None = None
        self._coordinators: dict[tuple[int, str], Address] = {}

    def close(self) -> None:
        if self._guide is not None:
            self._guide.close()

    def placed(self, request: Any) -> Any:
        """The request, with what it creates placed on the home node."""
        if not isinstance(request, CreateTopicsRequest):
            return request
        request = copy.deepcopy(request)
        for topic in request.topics:
            if topic.num_partitions > 0 and not topic.assignments:
                topic.assignments = [
                    CreatableReplicaAssignment(partition_index=index, broker_ids=[self._home_id()])
                    for index in range(topic.num_partitions)
                ]
                topic.num_partitions = topic.replication_factor = -1
        return request

    def settle(self, request: Any, answer: Any, nodes: Sequence[Connection]) -> None:
        """Wait until all nodes know of the topics that were created or deleted: coordinators elsewhere have to."""
        if isinstance(request, CreateTopicsRequest) and not request.validate_only:
            names, awaited = [topic.name for topic in answer.topics if not topic.error_code], ErrorCode.NONE
        elif isinstance(request, DeleteTopicsRequest):
            names = [topic.name for topic in answer.responses if not topic.error_code]
            awaited = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            return
        asked = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=False
        )
        deadline = time.monotonic() + _PATIENCE_S
        for node in nodes if names else ():
            while any(topic.error_code != awaited for topic in node.call(asked, 12).topics):
                assert time.monotonic() < deadline
                time.sleep(0.01)

    def address_for(self, request: Any) -> Address:
        coordinated = coordinated_by(request)
        if coordinated is not None:
            return self._coordinator(*coordinated)
        internal = _internal_partition(request)
        return self._home if internal is None else self._leader(*internal)

    def _ask(self, request: Any, version: int) -> Any:
        if self._guide is None:
            self._guide = self._connect(self._home)
        return self._guide.call(request, version)

    def _home_id(self) -> int:
        brokers = self._ask(MetadataRequest(topics=[]), 12).brokers
        (home_id,) = (broker.node_id for broker in brokers if (broker.host, broker.port) == self._home)
        return int(home_id)

    def _leader(self, topic: str, partition: int) -> Address:
        answer = self._ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 12)
        leaders = {each.partition_index: each.leader_id for each in answer.topics[0].partitions}
        addresses = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        return addresses[leaders[partition]]

    def _coordinator(self, kind: int, key: str) -> Address:
        """Home as long as there is none: it says what any other would."""
        if (kind, key) not in self._coordinators:
            (found,) = self._ask(FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]), 6).coordinators
            if found.error_code:
                return self._home
            self._coordinators[kind, key] = (found.host, found.port)
        return self._coordinators[kind, key]


_OF_TRANSACTIONS: Final = (
    InitProducerIdRequest,
    AddPartitionsToTxnRequest,
    AddOffsetsToTxnRequest,
    EndTxnRequest,
    DescribeTransactionsRequest,
)
_OF_PARTITIONS: Final = (ShareFetchRequest, ShareAcknowledgeRequest)
_OF_SHARE_STATE: Final = (
    InitializeShareGroupStateRequest,
    ReadShareGroupStateRequest,
    ReadShareGroupStateSummaryRequest,
    WriteShareGroupStateRequest,
    DeleteShareGroupStateRequest,
)
_KEYS_OF_TRANSACTIONS: Final = ("transactional_id", "v3_and_below_transactional_id", "transactional_ids")
_KEYS_OF_GROUPS: Final = ("groups", "group_ids", "groups_names", "group_id")


def share_key(group: str, topic_id: UUID, partition: int) -> str:
    """By which the coordinator of a share partition is found."""
    return f"{group}:{urlsafe_b64encode(topic_id.bytes).rstrip(b'=').decode()}:{partition}"


def _internal_partition(request: Any) -> tuple[str, int] | None:
    """The first partition that a request names, if it is one of Kafka's own topics: no scenario creates those."""
    if isinstance(request, FetchRequest) and request.topics:
        fetched = request.topics[0]
        name, partition = fetched.topic, fetched.partitions[0].partition
    elif isinstance(request, ListOffsetsRequest):
        name, partition = request.topics[0].name, request.topics[0].partitions[0].partition_index
    elif isinstance(request, DescribeProducersRequest):
        name, partition = request.topics[0].name, request.topics[0].partition_indexes[0]
    elif isinstance(request, WriteTxnMarkersRequest):
        marked = request.markers[0].topics[0]
        name, partition = marked.name, marked.partition_indexes[0]
    else:
        return None
    return (name, partition) if name.startswith("__") else None


def coordinated_by(request: Any) -> tuple[int, str] | None:
    """The kind and the key of the coordinator that a request is for. Of several keys the first counts."""
    if isinstance(request, _OF_PARTITIONS):
        return None
    if isinstance(request, _OF_SHARE_STATE) and request.topics:
        topic = request.topics[0]
        return SHARE, share_key(request.group_id, topic.topic_id, topic.partitions[0].partition)
    kind, fields = (
        (TRANSACTION, _KEYS_OF_TRANSACTIONS) if isinstance(request, _OF_TRANSACTIONS) else (GROUP, _KEYS_OF_GROUPS)
    )
    for field in fields:
        value = getattr(request, field, None)
        if isinstance(value, list) and value:
            value = getattr(value[0], "group_id", value[0])
        # No transactional id is none, but the empty group id has a coordinator as any other.
        if isinstance(value, str) and (value or kind == GROUP):
            return kind, value
    return None
