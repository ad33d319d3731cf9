"""A partition as the pages read it: one that this node leads, or one that another node leads and is asked for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol
from uuid import UUID

from ottla.client.aborted_transactions import AbortedTransactions
from ottla.client.offsets import EARLIEST, EARLIEST_LOCAL, LATEST, TopicPartition, list_offsets_request
from ottla.console.nodes import NodeError, ask, ask_each
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.data.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from ottla.kproto.messages.data.fetch import FetchPartition as AskedPartition
from ottla.kproto.messages.data.fetch import FetchRequest, FetchTopic
from ottla.kproto.records import parse_batch_header
from ottla.replica.errors import ReplicaError
from ottla.replica.fetch import FetchParams, FetchPartition
from ottla.replica.offset_lookup import find_offset
from ottla.replica.partition import Isolation
from ottla.runtime.stages import finish
from ottla.storage.errors import StorageError

if TYPE_CHECKING:
    from ottla.kproto.records import BatchHeader
    from ottla.metadata.image import TopicImage
    from ottla.replica.partition import Partition
    from ottla.server.broker import Broker

_FETCH_BYTES: Final = 65_536
_MAX_BATCH_BYTES: Final = 16 * 1_048_576
_CONSUMER: Final = -1
_NO_SESSION: Final = -1
_READ_COMMITTED: Final = 1
MAX_ASKED: Final = 5_000
"""So many partitions of other nodes are looked up for one page."""


class Fetched(NamedTuple):
    """Whole batches, or the header of one that is too large to be shown.

    `is_aborted` is asked of each batch in the order of offsets, whether its transaction was aborted.
    """

    data: bytes
    too_large: BatchHeader | None
    is_aborted: Callable[[BatchHeader], bool]


class Readable(Protocol):
    """A partition as the pages read it. Offsets from another node are as old as its last answer."""

    @property
    def topic_id(self) -> UUID: ...
    @property
    def index(self) -> int: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def last_stable_offset(self) -> int: ...
    @property
    def size_bytes(self) -> int:
        """On its leader's disk."""

    @property
    def typical_bytes(self) -> float:
        """What a record takes, by those on its leader's disk."""

    async def fetch(self, offset: int) -> Fetched:
        """Whole batches from the one with `offset` on. Raises ReplicaError, StorageError or NodeError."""

    async def offset_at(self, timestamp_ms: int) -> int | None:
        """The first visible record at or after a time; None if there is none. Raises as `fetch` does."""


class LocalPartition:
    """A partition that this node leads."""

    def __init__(self, broker: Broker, partition: Partition) -> None:
        self._broker = broker
        self.partition = partition

    @property
    def topic_id(self) -> UUID:
        return self.partition.topic_id

    @property
    def index(self) -> int:
        return self.partition.index

    @property
    def log_start_offset(self) -> int:
        return self.partition.log_start_offset

    @property
    def high_watermark(self) -> int:
        return self.partition.log.high_watermark

    @property
    def last_stable_offset(self) -> int:
        return self.partition.log.last_stable_offset

    @property
    def size_bytes(self) -> int:
        return self.partition.log.size_bytes

    @property
    def typical_bytes(self) -> float:
        log = self.partition.log
        return log.size_bytes / max(1, log.high_watermark - log.log_start_offset)

    async def fetch(self, offset: int) -> Fetched:
        # As below: only read_committed is told which transactions were aborted, wherever their records are.
        isolation = Isolation.TXN_COMMITTED if offset < self.last_stable_offset else Isolation.HIGH_WATERMARK
        params = FetchParams(max_bytes=_FETCH_BYTES, isolation=isolation)
        where = FetchPartition(self.topic_id, self.index, offset, max_bytes=_FETCH_BYTES)
        (result,) = await self._broker.replica_manager.fetch(params, [where])
        try:
            if result.error is not None:
                raise result.error
            hides = AbortedTransactions(result.aborted_transactions or ()).hides
            if result.records is None:
                return Fetched(b"", None, hides)
            if result.records.size_bytes <= _MAX_BATCH_BYTES:
                return Fetched(b"".join(result.records), None, hides)
            return Fetched(b"", parse_batch_header(next(iter(result.records))), hides)
        finally:
            result.release()

    async def offset_at(self, timestamp_ms: int) -> int | None:
        found = await finish(find_offset(self.partition, timestamp_ms, isolation=Isolation.HIGH_WATERMARK))
        return found.offset if found.offset >= 0 else None


class RemotePartition:
    """A partition that another node leads."""

    def __init__(self, broker: Broker, leader: int, topic: TopicImage, index: int) -> None:
        self._broker = broker
        self.leader = leader
        self.name = TopicPartition(topic.name, index)
        self.topic_id = topic.topic_id
        self.index = index
        self.is_tiered = topic.configs.get("remote.storage.enable") == "true"
        self.log_start_offset = self.high_watermark = self.last_stable_offset = 0
        self.local_start_offset = 0
        self.size_bytes = 0

    @property
    def typical_bytes(self) -> float:
        return self.size_bytes / max(1, self.high_watermark - max(self.local_start_offset, self.log_start_offset))

    async def fetch(self, offset: int) -> Fetched:
        # Only read_committed is told which transactions were aborted, and it sees nothing beyond those that are open.
        isolation = _READ_COMMITTED if offset < self.last_stable_offset else 0
        partition = AskedPartition(
            partition=self.index, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES, log_start_offset=-1
        )
        request = FetchRequest(
            replica_id=_CONSUMER,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=_FETCH_BYTES,
            isolation_level=isolation,
            session_epoch=_NO_SESSION,
            topics=[FetchTopic(topic=self.name.topic, topic_id=self.topic_id, partitions=[partition])],
        )
        answer = await ask(self._broker, self.leader, request)
        if answer.error_code:
            raise refusal(self.leader, self.name, answer.error_code)
        (found,) = (each for topic in answer.responses for each in topic.partitions)
        if found.error_code:
            raise refusal(self.leader, self.name, found.error_code)
        aborted = [(each.producer_id, each.first_offset) for each in found.aborted_transactions or ()]
        hides = AbortedTransactions(aborted).hides
        data = bytes(found.records or b"")
        if len(data) <= _MAX_BATCH_BYTES:
            return Fetched(data, None, hides)
        return Fetched(b"", parse_batch_header(memoryview(data)), hides)

    async def offset_at(self, timestamp_ms: int) -> int | None:
        answer = await ask(self._broker, self.leader, list_offsets_request({self.name: timestamp_ms}))
        (found,) = (each for topic in answer.topics for each in topic.partitions)
        if found.error_code:
            raise refusal(self.leader, self.name, found.error_code)
        return found.offset if found.offset >= 0 else None


def refusal(node_id: int, where: TopicPartition, code: int) -> NodeError:
    """The error of a page for an error code of another node."""
    return NodeError(f"Node {node_id} refuses {where}: {ErrorCode.name_of(code)}.")


class Found(NamedTuple):
    """Partitions in order, where those behind them begin (None: nowhere), and what is wrong with nodes that were
    asked for their own."""

    partitions: list[Readable]
    following: int | None
    problems: list[str]


async def find_readable(broker: Broker, topic: TopicImage, indexes: Iterable[int], limit: int) -> Found:
    """Partitions of a topic, at most `limit`: those that this node leads, and those of nodes that answer."""
    found: list[Readable] = []
    following = None
    for index in indexes:
        if len(found) == limit:
            following = index
            break
        partition = led_here(broker, topic, index)
        if partition is not None:
            found.append(LocalPartition(broker, partition))
        elif (leader := led_elsewhere(broker, topic, index)) is not None:
            found.append(RemotePartition(broker, leader, topic, index))
    known, problems = await refresh(broker, [each for each in found if isinstance(each, RemotePartition)])
    readable: list[Readable] = [each for each in found if isinstance(each, LocalPartition) or each in known]
    return Found(readable, following, problems)


def led_here(broker: Broker, topic: TopicImage, index: int) -> Partition | None:
    """The partition if this node leads it."""
    try:
        partition = broker.replica_manager.get_partition(topic.topic_id, index)
    except (ReplicaError, StorageError):
        return None
    return partition if partition.is_leader else None


def led_elsewhere(broker: Broker, topic: TopicImage, index: int) -> int | None:
    """The other node that leads a partition; None if this one or nobody does."""
    leader = topic.partitions[index].leader
    return leader if leader >= 0 and leader != broker.node_id else None


async def refresh(broker: Broker, partitions: Sequence[RemotePartition]) -> tuple[set[RemotePartition], list[str]]:
    """Ask again where partitions begin and end; those that are known now, and a sentence for each node that failed."""
    by_leader: dict[int, dict[TopicPartition, RemotePartition]] = defaultdict(dict)
    for partition in partitions[:MAX_ASKED]:
        by_leader[partition.leader][partition.name] = partition
    if not by_leader:
        return set(), []
    problems: set[str] = set()
    known = set(partitions[:MAX_ASKED])
    fields = (("log_start_offset", EARLIEST, False), ("high_watermark", LATEST, False))
    for field, timestamp, read_committed in (*fields, ("last_stable_offset", LATEST, True)):
        requests = {
            leader: list_offsets_request(dict.fromkeys(asked, timestamp), read_committed=read_committed)
            for leader, asked in by_leader.items()
        }
        answers = await ask_each(broker, requests)
        problems.update(answers.problems)
        told: set[RemotePartition] = set()
        for leader, answer in answers.by_node.items():
            for topic in answer.topics:
                for each in topic.partitions:
                    if not each.error_code:
                        partition = by_leader[leader][TopicPartition(topic.name, each.partition_index)]
                        setattr(partition, field, each.offset)
                        told.add(partition)
        known &= told
        by_leader = {leader: asked for leader, asked in by_leader.items() if leader in answers.by_node}
    await _ask_sizes(broker, by_leader)
    await _ask_local_starts(broker, by_leader)
    return known, sorted(problems)


async def _ask_sizes(broker: Broker, by_leader: dict[int, dict[TopicPartition, RemotePartition]]) -> None:
    requests = {}
    for leader, asked in by_leader.items():
        topics: dict[str, list[int]] = defaultdict(list)
        for where in asked:
            topics[where.topic].append(where.partition)
        requests[leader] = DescribeLogDirsRequest(
            topics=[DescribableLogDirTopic(topic=name, partitions=indexes) for name, indexes in topics.items()]
        )
    for leader, answer in (await ask_each(broker, requests)).by_node.items():
        for result in answer.results:
            for topic in result.topics:
                for each in topic.partitions:
                    partition = by_leader[leader].get(TopicPartition(topic.name, each.partition_index))
                    if partition is not None and not each.is_future_key:
                        partition.size_bytes = each.partition_size


async def _ask_local_starts(broker: Broker, by_leader: dict[int, dict[TopicPartition, RemotePartition]]) -> None:
    """Where the part of tiered partitions begins that the sizes are of."""
    requests = {}
    for leader, asked in by_leader.items():
        tiered = [where for where, partition in asked.items() if partition.is_tiered]
        if tiered:
            requests[leader] = list_offsets_request(dict.fromkeys(tiered, EARLIEST_LOCAL))
    for leader, answer in (await ask_each(broker, requests)).by_node.items():
        for topic in answer.topics:
            for each in topic.partitions:
                partition = by_leader[leader].get(TopicPartition(topic.name, each.partition_index))
                if partition is not None and not each.error_code:
                    partition.local_start_offset = each.offset
