"""Bad input against a whole node: Kafka's answer, bounded memory, one log line, and nobody else notices.

Each test ends with `assert_unharmed`: another client still gets its answers, and at the end the node's fixture finds
every fragment and every byte of the budget given back.
"""

import errno
import logging
import os
import random
import resource
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trio

from ottla.kproto import codec, headers
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.cluster.api_versions import ApiVersionsRequest
from ottla.kproto.messages.data.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.kproto.messages.data.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.kproto.messages.data.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.kproto.messages.topics.metadata import MetadataRequest
from ottla.kproto.records import (
    Compression,
    Record,
    assemble_batch,
    build_batch,
    compress,
    crc32c,
    iter_batches,
    iter_records,
    parse_batch_header,
)
from ottla.kproto.records.record import encode_record
from ottla.storage.disk import RealDisk
from ottla.storage.errors import DataDirLockedError, UnsupportedFormatError

Serve = Callable[..., Any]

CRC_AT = 17
MAGIC_AT = 16


@pytest.fixture(autouse=True)
def _log_level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


async def assert_unharmed(node: Any) -> None:
    other = await node.connect()
    response = await other.call(MetadataRequest(topics=[]), 12)
    assert len(response.brokers) == 1


def batch(*values: bytes, base_offset: int = 0) -> bytes:
    records = [Record(offset=i, timestamp_ms=1_700_000_000_000, key=None, value=v) for i, v in enumerate(values)]
    return build_batch(records, base_offset=base_offset)


def with_crc(data: bytearray) -> bytes:
    """Make the CRC right again after a change, so that only the change is wrong."""
    struct.pack_into(">I", data, CRC_AT, crc32c(data, CRC_AT + 4, len(data)))
    return bytes(data)


def produce(topic: str, records: bytes | None, *, partition: int = 0, acks: int = -1) -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=records)
    return ProduceRequest(acks=acks, timeout_ms=5000, topic_data=[TopicProduceData(name=topic, partition_data=[data])])


async def produce_code(client: Any, topic: str, records: bytes | None, *, partition: int = 0) -> ErrorCode:
    response = await client.call(produce(topic, records, partition=partition), 9)
    (answer,) = response.responses[0].partition_responses
    return ErrorCode(answer.error_code)


async def fetched_values(client: Any, topic: str) -> list[bytes | None]:
    asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic=topic, partitions=[asked])])
    response = await client.call(request, 11)
    (answer,) = response.responses[0].partitions
    assert answer.error_code == ErrorCode.NONE
    records = memoryview(answer.records)
    return [r.value for start, header in iter_batches(records) for r in iter_records(records, start, header)]


# Bytes that are no requests


@pytest.mark.parametrize(
    ("data", "words"),
    [
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(506), "TLS handshake", id="tls"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP request", id="http"),
        pytest.param(b"SSH-2.0-OpenSSH_9.6\r\n", "SSH client", id="ssh"),
        pytest.param(struct.pack(">i", -1), r"a frame of -1 bytes", id="negative length"),
        pytest.param(struct.pack(">i", -(1 << 31)), "a frame of -2147483648 bytes", id="most negative length"),
        pytest.param(struct.pack(">i", 104_857_601), "a frame of 104857601 bytes", id="one byte too long"),
        pytest.param(struct.pack(">i", 0), "header", id="empty frame"),
        pytest.param(struct.pack(">i", 3) + b"abc", "header", id="no header"),
        pytest.param(struct.pack(">ihhi", 8, 999, 0, 1), "API key 999", id="unknown key"),
        pytest.param(struct.pack(">ihhi", 8, -1, 0, 1), "API key -1", id="negative key"),
        pytest.param(struct.pack(">ihhi", 8, 3, 99, 1), "version 99", id="unknown version"),
        pytest.param(struct.pack(">ihhi", 8, 0, 2, 1), "version 2", id="removed version"),
        pytest.param(struct.pack(">ihhi", 8, 4, 0, 1), "API key 4", id="removed key"),
        pytest.param(struct.pack(">ihhih", 10, 3, 1, 1, 500), "header", id="client id beyond the frame"),
        pytest.param(struct.pack(">ihh", 90_000_000, 62, 0), "API key 62", id="huge frame of an unserved API"),
    ],
)
async def test_the_connection_is_closed_with_one_clear_line(
    serve_node: Serve, caplog: pytest.LogCaptureFixture, data: bytes, words: str
) -> None:
    async with serve_node() as node:
        client = await node.connect()
        await client.stream.send_all(data)
        assert await client.is_closed()
        (line,) = warnings(caplog)
        assert words in line
        assert "127.0.0.1" in line
        await assert_unharmed(node)
    assert "Traceback" not in caplog.text


async def test_random_bytes(serve_node: Serve, caplog: pytest.LogCaptureFixture) -> None:
    rng = random.Random(7)
    async with serve_node() as node:
        for _ in range(200):
            client = await node.connect()
            with suppress(trio.BrokenResourceError):  # the server may close before everything was sent
                await client.stream.send_all(rng.randbytes(rng.randint(1, 2000)))
                await client.stream.send_eof()
            assert await client.is_closed()
        await assert_unharmed(node)
    assert "Traceback" not in caplog.text


async def test_random_bodies_behind_every_served_api(serve_node: Serve, caplog: pytest.LogCaptureFixture) -> None:
    """Right headers, garbage behind them: an answer or a closed connection, never a fault of ours."""
    rng = random.Random(11)
    async with serve_node({"auto.create.topics.enable": "false"}) as node:
        for api in node.broker.apis:
            for version in {api.min_version, api.max_version}:
                for _ in range(8):
                    header = headers.build_request_header(api.key, version, 1, "fuzz")
                    client = await node.connect()
                    await client.send_frame(header + rng.randbytes(rng.randint(0, 120)))
                    await client.stream.send_eof()
                    with trio.fail_after(20):
                        while await client.stream.receive_some(65536):
                            pass
        await assert_unharmed(node)
    assert "Traceback" not in caplog.text


async def test_truncated_bodies(serve_node: Serve, caplog: pytest.LogCaptureFixture) -> None:
    async with serve_node() as node:
        await node.create_topic("t")
        request = produce("t", batch(b"a", b"b"))
        body = headers.build_request_header(ApiKey.PRODUCE, 9, 1, "x") + codec.build(request, 9)
        for length in range(8, len(body), 5):
            client = await node.connect()
            await client.send_frame(body[:length])
            assert await client.is_closed()
        await assert_unharmed(node)
        client = await node.connect()
        assert await fetched_values(client, "t") == []
    assert "Traceback" not in caplog.text


@pytest.mark.linux
async def test_a_frame_that_is_never_filled_costs_what_it_sent(serve_node: Serve) -> None:
    async with serve_node() as node:
        before_kib = resident_kib()
        header = struct.pack(">ihhih", 100_000_000, ApiKey.PRODUCE, 7, 1, -1)
        for _ in range(20):
            client = await node.connect()
            await client.stream.send_all(header + bytes(10_000))
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert node.broker.budget.used_bytes <= 20 * (10_000 + len(header))
        assert resident_kib() - before_kib < 50_000  # 2 GB were claimed
        await assert_unharmed(node)


async def test_an_unknown_api_versions_version_is_answered_in_version_0(serve_node: Serve) -> None:
    async with serve_node() as node:
        client = await node.connect()
        body = struct.pack(">hhih", ApiKey.API_VERSIONS, 99, 41, -1) + b"\x00\x05weird\x02x"
        await client.send_frame(body)
        frame = await client.receive_frame()
        (correlation_id,) = struct.unpack_from(">i", frame)
        assert correlation_id == 41
        response = codec.parse_response(ApiKey.API_VERSIONS, 0, frame, 4)
        assert response.error_code == ErrorCode.UNSUPPORTED_VERSION  # type: ignore[attr-defined]
        ranges = [(k.api_key, k.min_version, k.max_version) for k in response.api_keys]  # type: ignore[attr-defined]
        assert ranges == [(18, 0, 5)]
        assert (await client.call(ApiVersionsRequest(), 2)).error_code == ErrorCode.NONE


# Requests for what does not exist


async def test_unknown_topics_and_partitions(serve_node: Serve) -> None:
    async with serve_node({"auto.create.topics.enable": "false"}) as node:
        await node.create_topic("t")
        client = await node.connect()
        assert await produce_code(client, "none", batch(b"a")) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for partition in (1, -1, (1 << 31) - 1):
            code = await produce_code(client, "t", batch(b"a"), partition=partition)
            assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

        asked = [FetchPartition(partition=p, fetch_offset=0, partition_max_bytes=1000) for p in (1, -1)]
        topics = [FetchTopic(topic="t", partitions=asked), FetchTopic(topic="none", partitions=asked)]
        response = await client.call(FetchRequest(max_wait_ms=10_000, min_bytes=1, topics=topics), 11)
        codes = {p.error_code for topic in response.responses for p in topic.partitions}
        assert codes == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}

        unknown = [ListOffsetsTopic(name="none", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])]
        response = await client.call(ListOffsetsRequest(replica_id=-1, topics=unknown), 5)
        assert response.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# Record batches that are not right


def damaged_batches() -> Iterator[Any]:
    """Batches and what Kafka answers them; one that is cut short is to Kafka as if there were none."""
    good = bytearray(batch(b"one", b"two", b"three"))

    def changed(position: int, value: bytes) -> bytearray:
        data = bytearray(good)
        data[position : position + len(value)] = value
        return data

    yield pytest.param(bytes(changed(len(good) - 2, b"\xff")), ErrorCode.CORRUPT_MESSAGE, id="crc")
    yield pytest.param(bytes(changed(CRC_AT, b"\0\0\0\0")), ErrorCode.CORRUPT_MESSAGE, id="crc field")
    yield pytest.param(bytes(changed(MAGIC_AT, b"\x01")), ErrorCode.INVALID_RECORD, id="magic 1")
    yield pytest.param(bytes(changed(MAGIC_AT, b"\x07")), ErrorCode.CORRUPT_MESSAGE, id="magic 7")
    yield pytest.param(with_crc(changed(57, struct.pack(">i", 2))), ErrorCode.INVALID_RECORD, id="count too small")
    yield pytest.param(with_crc(changed(57, struct.pack(">i", 9))), ErrorCode.INVALID_RECORD, id="count too large")
    yield pytest.param(with_crc(changed(57, struct.pack(">i", -1))), ErrorCode.INVALID_RECORD, id="count negative")
    yield pytest.param(
        with_crc(changed(23, struct.pack(">i", 0))), ErrorCode.INVALID_RECORD, id="last offset delta too small"
    )
    yield pytest.param(bytes(changed(8, struct.pack(">i", 1 << 30))), ErrorCode.INVALID_RECORD, id="length too large")
    yield pytest.param(bytes(changed(8, struct.pack(">i", 3))), ErrorCode.CORRUPT_MESSAGE, id="length too small")
    yield pytest.param(bytes(good[:30]), ErrorCode.INVALID_RECORD, id="truncated header")
    yield pytest.param(bytes(good[:-1]), ErrorCode.INVALID_RECORD, id="truncated body")
    yield pytest.param(
        with_crc(bytearray(good[:61]) + bytearray(b"\xff" * 12)), ErrorCode.INVALID_RECORD, id="overlong varint"
    )
    yield pytest.param(b"", ErrorCode.INVALID_RECORD, id="empty")


@pytest.mark.parametrize(("records", "code"), list(damaged_batches()))
async def test_a_damaged_batch_is_refused_and_nothing_is_stored(
    serve_node: Serve, caplog: pytest.LogCaptureFixture, records: bytes, code: ErrorCode
) -> None:
    async with serve_node() as node:
        await node.create_topic("t")
        client = await node.connect()
        assert await produce_code(client, "t", records) == code
        assert await produce_code(client, "t", batch(b"good")) == ErrorCode.NONE
        assert await fetched_values(client, "t") == [b"good"]
    assert "Traceback" not in caplog.text


def bomb(count: int, *, far: bool = False) -> bytes:
    """Two million records in 1.4 KB, if need be, all of them with the same offset."""
    payload = encode_record(0, 0, b"", b"", ()) * count
    like = parse_batch_header(build_batch([Record(timestamp_ms=now_ms() + (86_400_000 if far else 0))]))
    header = like._replace(attributes=Compression.ZSTD, record_count=count, last_offset_delta=count - 1)
    return assemble_batch(header, compress(Compression.ZSTD, payload))


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.mark.parametrize(
    "configs",
    [
        pytest.param({}, id="header"),
        pytest.param({"ottla_records_validate": "all"}, id="validate"),
        pytest.param({"cleanup_policy": "compact"}, id="compact"),
        pytest.param({"compression_type": "lz4"}, id="codec"),
        pytest.param({"message_timestamp_before_max_ms": "1000000"}, id="timestamps"),
    ],
)
@pytest.mark.linux
async def test_a_bomb_of_records_is_refused_and_takes_little_memory(
    serve_node: Serve, caplog: pytest.LogCaptureFixture, configs: dict[str, str]
) -> None:
    async with serve_node() as node:
        await node.create_topic("t", **configs)
        client = await node.connect()
        await produce_code(client, "t", bomb(10))  # what comes first loads the codec
        before = resident_kib()
        data = bomb(1_000_000, far=True)
        assert len(data) < 2_000
        assert await produce_code(client, "t", data) == ErrorCode.INVALID_RECORD
        assert resident_kib() - before < 65_536
        assert await produce_code(client, "t", bomb(2_000_000, far=True)) == ErrorCode.MESSAGE_TOO_LARGE
    assert "Traceback" not in caplog.text


async def test_damage_that_was_taken_unread_is_told_to_who_searches_by_time(
    serve_node: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    like = parse_batch_header(build_batch([Record(timestamp_ms=now_ms())]))
    damaged = assemble_batch(like, b"\xa5" * 40)
    async with serve_node() as node:
        await node.create_topic("t")
        await node.create_topic("validated", ottla_records_validate="all")
        client = await node.connect()
        assert await produce_code(client, "validated", damaged) == ErrorCode.INVALID_RECORD
        assert await produce_code(client, "t", damaged) == ErrorCode.NONE
        asked = [ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=1)])]
        answer = (await client.call(ListOffsetsRequest(replica_id=-1, topics=asked), 5)).topics[0].partitions[0]
        assert (answer.error_code, answer.offset) == (ErrorCode.CORRUPT_MESSAGE, -1)
    assert "Traceback" not in caplog.text
    (line,) = [line for line in warnings(caplog) if "searched by time" in line]
    assert line.startswith("t-0 ")


async def test_a_batch_beyond_max_message_bytes_is_too_large(serve_node: Serve) -> None:
    async with serve_node() as node:
        await node.create_topic("t", max_message_bytes="1000")
        client = await node.connect()
        assert await produce_code(client, "t", batch(b"x" * 2000)) == ErrorCode.MESSAGE_TOO_LARGE
        assert await produce_code(client, "t", batch(b"x" * 500)) == ErrorCode.NONE


async def test_a_bad_produce_without_acks_closes_the_connection(
    serve_node: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve_node() as node:
        await node.create_topic("t")
        client = await node.connect()
        await client.send(produce("t", batch(b"a")[:-1], acks=0), 7)
        assert await client.is_closed()
        await assert_unharmed(node)
    assert any("acks=0" in line for line in warnings(caplog))


# Clients that are no good


@pytest.mark.linux
async def test_ten_thousand_idle_connections_hold_no_buffers_and_little_memory(serve_node: Serve) -> None:
    """As many as the limit on open files lets both ends of them be in this one process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    count = min(10_000, (hard - 300) // 2)
    sockets = []
    try:
        async with serve_node({"socket.listen.backlog.size": "2000"}) as node:
            await assert_unharmed(node)
            in_use = node.broker.pool.counters.in_use
            before_kib = resident_kib()
            for number in range(count):
                sockets.append(socket.create_connection(("127.0.0.1", node.port)))
                if number % 500 == 499:
                    await trio.testing.wait_all_tasks_blocked()
            await trio.testing.wait_all_tasks_blocked(0.05)
            per_connection_bytes = (resident_kib() - before_kib) * 1024 / count
            assert node.broker.pool.counters.in_use == in_use
            # Measured: about 6 KiB of this is the server's; the rest are the client sockets of this same process.
            assert per_connection_bytes < 20_000
            await assert_unharmed(node)
            for client in sockets:
                client.close()
    finally:
        for client in sockets:
            client.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.linux
async def test_a_client_that_never_reads_its_responses(serve_node: Serve) -> None:
    async with serve_node() as node:
        await node.create_topic("t")
        writer = await node.connect()
        for _ in range(20):
            assert await produce_code(writer, "t", batch(b"x" * 500_000)) == ErrorCode.NONE
        asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=50 << 20)
        fetch = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic="t", partitions=[asked])])
        before_kib = resident_kib()
        for _ in range(10):
            deaf = await node.connect()
            deaf.stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            for _ in range(50):  # 500 MB if they were all answered
                await deaf.send(fetch, 11)
        await trio.testing.wait_all_tasks_blocked(0.1)
        assert resident_kib() - before_kib < 200_000
        assert await produce_code(writer, "t", batch(b"still served")) == ErrorCode.NONE
        await assert_unharmed(node)


# Folders and disks


async def test_a_second_broker_on_the_same_folder_is_refused(serve_node: Serve, tmp_path: Path) -> None:
    async with serve_node() as node:
        expected = pytest.RaisesExc(DataDirLockedError, match=str(tmp_path))
        with pytest.RaisesGroup(expected, allow_unwrapped=True, flatten_subgroups=True):
            async with serve_node():
                pass
        await assert_unharmed(node)


async def test_a_folder_of_an_unknown_format_version_is_refused(serve_node: Serve, tmp_path: Path) -> None:
    async with serve_node():
        pass
    node_file = tmp_path / "node-1" / "node.json"
    node_file.write_text(node_file.read_text().replace('"format_version": 1', '"format_version": 999'))
    expected = pytest.RaisesExc(UnsupportedFormatError, match="999")
    with pytest.RaisesGroup(expected, allow_unwrapped=True, flatten_subgroups=True):
        async with serve_node():
            pass


class FillingDisk(RealDisk):
    """A real disk on which nothing more can be written once it is `full`."""

    def __init__(self) -> None:
        super().__init__()
        self.full = False

    def pwritev(self, handle: int, buffers: Any, position: int) -> int:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().pwritev(handle, buffers, position)


async def test_a_full_disk_stops_acknowledging_and_loses_nothing(
    serve_node: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FillingDisk()
    async with serve_node(disk=disk, keeps_memory=True) as node:
        await node.create_topic("t")
        client = await node.connect()
        assert await produce_code(client, "t", batch(b"kept")) == ErrorCode.NONE
        disk.full = True
        for _ in range(3):
            assert await produce_code(client, "t", batch(b"refused")) == ErrorCode.KAFKA_STORAGE_ERROR
        await assert_unharmed(node)
    assert any("No space left on device" in line for line in warnings(caplog))

    async with serve_node() as node:
        client = await node.connect()
        assert await fetched_values(client, "t") == [b"kept"]
        assert await produce_code(client, "t", batch(b"again")) == ErrorCode.NONE


def resident_kib() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise AssertionError("no VmRSS in /proc")
