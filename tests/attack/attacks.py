"""The attacks: what one client, or a hundred connections, send without any login."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from copy import copy
from typing import Any, Final
from uuid import UUID

from ottla.client.errors import ClientError
from ottla.kproto import codec, headers
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import EncodeError
from ottla.kproto.messages.configs.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from ottla.kproto.messages.configs.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.kproto.messages.data.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.kproto.messages.data.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.kproto.messages.data.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.kproto.messages.groups.describe_groups import DescribeGroupsRequest
from ottla.kproto.messages.groups.find_coordinator import FindCoordinatorRequest
from ottla.kproto.messages.topics.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.kproto.messages.topics.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.kproto.messages.topics.metadata import MetadataRequest
from ottla.kproto.messages.transactions.describe_transactions import DescribeTransactionsRequest
from ottla.kproto.records import Compression, Record, assemble_batch, build_batch, compress, parse_batch_header
from ottla.kproto.records.record import encode_record
from ottla.kproto.schema import Field, Request, Struct
from ottla.server.apis.table import served
from tests.server.apis.generated import TOPIC as KNOWN
from tests.server.apis.generated import plain_request

from .honest import TOPIC
from .stage import Attack, Target

MOST: Final = (1 << 31) - 1
CONNECTIONS: Final = 100

#: By name, in the order of the table.
ATTACKS: dict[str, Attack] = {}


def attack(name: str) -> Callable[[Attack], Attack]:
    def register(function: Attack) -> Attack:
        ATTACKS[name] = function
        return function

    return register


def framed(request: Request, version: int) -> bytes:
    body = headers.build_request_header(request.API_KEY, version, 1, "attacker") + codec.build(request, version)
    return struct.pack(">i", len(body)) + body


def send_alone(target: Target, data: bytes, *, answer_seconds: float = 60.0) -> bytes:
    """Send bytes on a connection of their own, and read the first answer, if there is one, to its end."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", target.port), answer_seconds) as connection:
        connection.sendall(data)
        size = connection.recv(4, socket.MSG_WAITALL)
        left = struct.unpack(">i", size)[0] if len(size) == 4 else 0
        head = b""
        while left > 0:
            part = connection.recv(min(left, 1 << 20))
            if not part:
                break
            head = head or part[:100]
            left -= len(part)
        return head
    return b""


@attack("nobody attacks")
def nothing(target: Target) -> None:
    time.sleep(3)


@attack("CreateTopics and CreatePartitions of 2^31-1 partitions")
def partitions(target: Target) -> None:
    for validate_only in (True, False):
        for count in (MOST, 5_000_000):
            topic = CreatableTopic(name="t", num_partitions=count, replication_factor=1)
            send_alone(target, framed(CreateTopicsRequest(topics=[topic], validate_only=validate_only), 7))
            more = CreatePartitionsTopic(name=TOPIC, count=count, assignments=None)
            asked = CreatePartitionsRequest(topics=[more], validate_only=validate_only, timeout_ms=60_000)
            send_alone(target, framed(asked, 3))
    many = [CreatableTopic(name=f"t{n}", num_partitions=-5, replication_factor=1) for n in range(50_000)]
    send_alone(target, framed(CreateTopicsRequest(topics=many), 7))


@attack("AlterConfigs of 16,000 resources, distinct and the same")
def alter_configs(target: Target) -> None:
    config = [AlterableConfig(name="retention.ms", value="1")]
    for distinct in (True, False):
        resources = [
            AlterConfigsResource(resource_type=2, resource_name=f"t{n if distinct else 0}", configs=config)
            for n in range(16_000)
        ]
        send_alone(target, framed(AlterConfigsRequest(resources=resources), 2))


@attack("three frames of 95 MB that never end")
def unfinished_frames(target: Target) -> None:
    _unfinished(target, 3, 95_000_000, 95_000_000 - 1, seconds=6)


@attack("100 frames of 100 MB that begin with 1 MB")
def half_open(target: Target) -> None:
    _unfinished(target, CONNECTIONS, 100_000_000, 1_000_000, seconds=6)


@attack("100 frames of 60 KB that lack one byte")
def small_unfinished(target: Target) -> None:
    _unfinished(target, CONNECTIONS, 60_000, 59_999, seconds=4)


def _unfinished(target: Target, count: int, size: int, sent: int, *, seconds: float) -> None:
    head = struct.pack(">ihhih", size, ApiKey.PRODUCE, 9, 1, -1)
    with ExitStack() as stack:
        connections = []
        for _ in range(count):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", target.port)))
            connection.setblocking(False)
            connections.append(connection)
        data = memoryview(head + bytes(sent - len(head) + 4))
        done = [0] * count
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for number, connection in enumerate(connections):
                with suppress(OSError):
                    done[number] += connection.send(data[done[number] : done[number] + (1 << 20)])
            time.sleep(0.001)


@attack("4 million empty names: DescribeGroups, DescribeTransactions, FindCoordinator")
def empty_names(target: Target) -> None:
    names = [""] * 4_000_000
    send_alone(target, framed(DescribeGroupsRequest(groups=names), 5))
    send_alone(target, framed(DescribeTransactionsRequest(transactional_ids=names), 0))
    send_alone(target, framed(FindCoordinatorRequest(coordinator_keys=names), 4))


@attack("the same with 240,000 names, which is within the limit")
def many_names(target: Target) -> None:
    names = [""] * 240_000
    send_alone(target, framed(DescribeGroupsRequest(groups=names), 5))
    send_alone(target, framed(DescribeTransactionsRequest(transactional_ids=names), 0))
    send_alone(target, framed(FindCoordinatorRequest(coordinator_keys=names), 4))


@attack("Metadata v1 of 98 MB, ListOffsets of 24 MB")
def large_metadata(target: Target) -> None:
    head = headers.build_request_header(ApiKey.METADATA, 1, 1, "attacker")
    count = 98_000_000 // 9
    names = b"".join(struct.pack(">h7s", 7, b"%07d" % n) for n in range(count))
    body = head + struct.pack(">i", count) + names
    send_alone(target, struct.pack(">i", len(body)) + body)
    del names, body
    partitions = [ListOffsetsPartition(partition_index=n, timestamp=-1) for n in range(1_000_000)]
    send_alone(target, framed(ListOffsetsRequest(topics=[ListOffsetsTopic(name=TOPIC, partitions=partitions)]), 7))


@attack("ListOffsets and Fetch of 50,000 partitions, on 10 connections each")
def many_partitions(target: Target) -> None:
    partitions = [ListOffsetsPartition(partition_index=n, timestamp=-1) for n in range(50_000)]
    offsets = framed(ListOffsetsRequest(topics=[ListOffsetsTopic(name=TOPIC, partitions=partitions)]), 7)
    fetched = [FetchPartition(partition=n, partition_max_bytes=1 << 20) for n in range(50_000)]
    fetch = framed(FetchRequest(max_wait_ms=500, min_bytes=1, topics=[FetchTopic(topic=TOPIC, partitions=fetched)]), 12)
    for data in (offsets, fetch):
        _together(target, [data] * 10)


@attack("DescribeConfigs of the broker, 100,000 times")
def describe_configs(target: Target) -> None:
    resources = [DescribeConfigsResource(resource_type=4, resource_name="", configuration_keys=None)] * 50_000
    resources += [DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None)] * 50_000
    send_alone(target, framed(DescribeConfigsRequest(resources=resources, include_synonyms=True), 4))


def _together(target: Target, frames: list[bytes], seconds: float = 60.0) -> None:
    """Send each on a connection of its own, then read all answers."""
    with ExitStack() as stack:
        connections = []
        for data in frames:
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", target.port), seconds))
            connection.sendall(data)
            connections.append(connection)
        for connection in connections:
            with suppress(OSError):
                (left,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
                while left > 0 and (part := connection.recv(min(left, 1 << 20))):
                    left -= len(part)


def long_requests(key: ApiKey, topic_id: UUID, count: int) -> Iterator[tuple[int, str, Request]]:
    """Requests of an API's lowest and highest version: two for each list, with so many elements, distinct or not."""
    for version in dict.fromkeys(key.valid_versions):
        for number, (_, name) in enumerate(_lists(plain_request(key, version, topic_id), version)):
            for is_varied in (True, False):
                request = plain_request(key, version, topic_id)
                owner, field = _lists(request, version)[number]
                element = getattr(owner, field.name)[0]
                kind = getattr(field.element, "name", "")
                elements = [_varied(element, kind, n) for n in range(count)] if is_varied else [element] * count
                setattr(owner, field.name, elements)
                yield version, name.name, request


def _lists(struct: Struct, version: int) -> list[tuple[Struct, Field]]:
    """Every list in a structure each of whose lists has one element, the outer ones first."""
    found: list[tuple[Struct, Field]] = []
    for field in struct.FIELDS:
        if field.versions.includes(version):
            value = getattr(struct, field.name)
            if field.kind == "array":
                found.append((struct, field))
                value = value[0]
            if isinstance(value, Struct):
                found += _lists(value, version)
    return found


def _varied(element: Any, kind: str, number: int) -> Any:
    """The element with another name, number or id; what it lists stays the same."""
    if isinstance(element, Struct):
        varied = copy(element)
        for field in element.FIELDS:
            if field.kind in ("string", "uuid", "int32", "int64"):
                setattr(varied, field.name, _varied(getattr(element, field.name), field.kind, number))
                break
        return varied
    if isinstance(element, str):
        return f"{element}{number}"
    if isinstance(element, UUID):
        return UUID(int=element.int + number)
    return number % 128 if kind == "int8" else number


def _fifty_thousand(key: ApiKey) -> Attack:
    def send(target: Target) -> None:
        topic = CreatableTopic(name=KNOWN, num_partitions=4, replication_factor=1)
        created = target.connect().call(CreateTopicsRequest(topics=[topic], timeout_ms=5_000))
        for version, _, request in long_requests(key, created.topics[0].topic_id, 50_000):
            with suppress(EncodeError):  # what the version does not know
                send_alone(target, framed(request, version), answer_seconds=10)

    return send


#: 50,000 of whatever an API's request lists.
EVERY_API: Final = {f"{key.name}: 50,000 elements": _fifty_thousand(key) for key in served()}


@attack("100 connections ask for 60 MB twenty times and never read")
def never_read(target: Target) -> None:
    _fill(target, 60)
    fetched = [FetchPartition(partition=n, partition_max_bytes=60_000_000) for n in range(4)]
    topics = [FetchTopic(topic=TOPIC, partitions=fetched)]
    fetch = framed(FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=60_000_000, topics=topics), 12)
    _ask_and_never_read(target, fetch * 20)


@attack("100 connections ask for a Metadata of 3,000 topics and never read")
def never_read_metadata(target: Target) -> None:
    connection = target.connect()
    for first in range(0, 3_000, 500):
        topics = [
            CreatableTopic(name=f"{n}-{'x' * 200}", num_partitions=1, replication_factor=1)
            for n in range(first, first + 500)
        ]
        connection.call(CreateTopicsRequest(topics=topics, timeout_ms=60_000))
    _ask_and_never_read(target, framed(MetadataRequest(topics=None), 12) * 20)


def _ask_and_never_read(target: Target, data: bytes) -> None:
    with ExitStack() as stack:
        for _ in range(CONNECTIONS):
            connection = stack.enter_context(socket.socket())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(("127.0.0.1", target.port))
            connection.sendall(data)
        time.sleep(8)


@attack("100 fetches wait for 50 MB")
def waiting_fetches(target: Target) -> None:
    with ExitStack() as stack:
        for n in range(CONNECTIONS):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", target.port)))
            asked = [FetchPartition(partition=n % 4, partition_max_bytes=50_000_000)]
            topics = [FetchTopic(topic=TOPIC, partitions=asked)]
            request = FetchRequest(max_wait_ms=600_000, min_bytes=50_000_000, max_bytes=50_000_000, topics=topics)
            connection.sendall(framed(request, 12))
        _fill(target, 40)
        time.sleep(1)


def _fill(target: Target, mib: int) -> None:
    """Write so much into the honest client's topic."""
    connection = target.connect()
    batch = build_batch([Record(timestamp_ms=int(time.time() * 1000), value=bytes(1_000_000))])
    for n in range(mib):
        data = TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=n % 4, records=batch)])
        with suppress(ClientError):
            connection.call(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data]), at_most=12)
    connection.close()


#: What makes the broker look at every record, or compress them anew, or store them as they are.
_TOPICS: Final = {
    "plain": {},
    "validated": {"ottla.records.validate": "all"},
    "compact": {"cleanup.policy": "compact"},
    "recompressed": {"compression.type": "lz4"},
    "timed": {"message.timestamp.before.max.ms": "1000000"},
}


@attack("record bombs: 2 million records in 1.4 KB, on five kinds of topics, 20 connections")
def record_bombs(target: Target) -> None:
    topics = [
        CreatableTopic(
            name=name,
            num_partitions=1,
            replication_factor=1,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )
        for name, configs in _TOPICS.items()
    ]
    target.connect().call(CreateTopicsRequest(topics=topics, timeout_ms=60_000))
    frames = []
    for count in (500_000, 2_000_000):
        records = _bomb(count)
        for name in _TOPICS:
            data = TopicProduceData(name=name, partition_data=[PartitionProduceData(index=0, records=records)])
            frames.append(framed(ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[data]), 9))
    _together(target, frames * 2)


def _bomb(count: int) -> bytes:
    """So many empty records with far timestamps, all of the same offset."""
    payload = encode_record(0, 0, b"", b"", ()) * count
    far_ms = time.time_ns() // 1_000_000 + 86_400_000
    like = parse_batch_header(build_batch([Record(timestamp_ms=far_ms)]))
    header = like._replace(attributes=Compression.ZSTD, record_count=count, last_offset_delta=count - 1)
    return assemble_batch(header, compress(Compression.ZSTD, payload))


@attack("1,000 connections that come and go")
def connections(target: Target) -> None:
    for _ in range(10):
        with ExitStack() as stack:
            for _ in range(CONNECTIONS):
                stack.enter_context(socket.create_connection(("127.0.0.1", target.port)))
