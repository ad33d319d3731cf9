"""Answers with ranges of files: the frame is whole, whatever becomes of the file and of the client meanwhile."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.messages.data.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.kproto.messages.data.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.kproto.records import Record, build_batch
from ottla.storage.disk import RealDisk
from ottla.storage.disk.disk import Handle
from ottla.storage.disk.page_cache import PageCache
from tests.servers import Client

pytestmark = pytest.mark.skipif(not PageCache().is_known, reason="the kernel does not tell what its page cache holds")

VERSION = 11
BATCHES = 8
VALUE_BYTES = 200_000


class SendingDisk(RealDisk):
    """Counts what is sent from files, and lets a test come in between two sends. The page cache has all of a file, or
    nothing.
    """

    def __init__(self) -> None:
        super().__init__()
        self.prepare_sending()
        self.sent_bytes = 0
        self.before_send: Callable[[], None] = lambda: None
        self.is_lost = False

    def send(self, handle: Handle, socket: int, position: int, length: int) -> int:
        self.before_send()
        sent = super().send(handle, socket, position, min(length, 70_000))
        self.sent_bytes += sent
        return sent

    def is_cached(self, handle: Handle, position: int, length: int) -> bool:
        return not self.is_lost


class Stage:
    def __init__(self, node: Any, disk: SendingDisk, topic_id: UUID, batches: list[bytes], data: Path) -> None:
        self.node = node
        self.disk = disk
        self.topic_id = topic_id
        self.batches = batches
        self.data = data

    async def ask(self, client: Client, offset: int = 0) -> None:
        partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        topics = [FetchTopic(topic="t", partitions=[partition])]
        await client.send(FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 22, topics=topics), VERSION)

    async def fetched(self, client: Client) -> bytes:
        _, response = await client.receive(ApiKey.FETCH, VERSION)
        (partition,) = response.responses[0].partitions
        assert partition.error_code == 0
        return bytes(partition.records)

    @property
    def files_in_use(self) -> int:
        in_use: int = self.node.broker.log_manager.context.fd_cache.in_use
        return in_use

    async def until_let_go(self) -> None:
        with trio.fail_after(10):
            while self.files_in_use:  # noqa: ASYNC110 - nobody tells
                await trio.sleep(0.005)


@pytest.fixture
async def stage(serve_node: Callable[..., Any], tmp_path: Path) -> AsyncIterator[Stage]:
    async with running(serve_node, tmp_path) as stage:
        yield stage
        for client in stage.node.clients:
            await trio.aclose_forcefully(client.stream)
        await stage.until_let_go()


@asynccontextmanager
async def running(serve_node: Callable[..., Any], tmp_path: Path) -> AsyncIterator[Stage]:
    disk = SendingDisk()
    async with serve_node({"ottla.tail.cache.bytes": "0"}, disk=disk) as node:
        topic_id = await node.create_topic("t")
        client = await node.connect()
        batches = []
        for number in range(BATCHES):
            batch = bytearray(build_batch([Record(timestamp_ms=1, key=None, value=os.urandom(VALUE_BYTES))]))
            data = [PartitionProduceData(index=0, records=bytes(batch))]
            request = ProduceRequest(
                acks=-1, timeout_ms=10_000, topic_data=[TopicProduceData(name="t", partition_data=data)]
            )
            response = await client.call(request, 7)
            assert response.responses[0].partition_responses[0].base_offset == number
            # As the broker writes it: its offset, and the leader's epoch.
            batch[:8], batch[12:16] = number.to_bytes(8, "big"), bytes(4)
            batches.append(bytes(batch))
        yield Stage(node, disk, topic_id, batches, data_file(tmp_path))


def data_file(folder: Path) -> Path:
    (path,) = [path for path in folder.rglob("*.data") if path.stat().st_size > VALUE_BYTES]
    return path


async def test_a_fetch_is_sent_from_the_file(stage: Stage) -> None:
    client = await stage.node.connect()
    await stage.ask(client)
    assert await stage.fetched(client) == b"".join(stage.batches[:5])
    assert stage.disk.sent_bytes == len(b"".join(stage.batches[:5]))


async def test_a_client_that_reads_slowly_gets_it_whole(stage: Stage) -> None:
    client = await stage.node.connect()
    for _ in range(8):
        await stage.ask(client)
    await wait_all_tasks_blocked(0.05)
    assert stage.files_in_use == 1
    for _ in range(8):
        assert await stage.fetched(client) == b"".join(stage.batches[:5])


async def test_a_client_that_leaves_lets_go_of_the_file(stage: Stage) -> None:
    client = await stage.node.connect()
    for _ in range(8):
        await stage.ask(client)
    await wait_all_tasks_blocked(0.05)
    assert stage.files_in_use == 1
    await trio.aclose_forcefully(client.stream)
    await stage.until_let_go()


async def test_a_topic_that_is_deleted_meanwhile_is_sent_whole(stage: Stage) -> None:
    client = await stage.node.connect()
    for _ in range(8):
        await stage.ask(client)
    await wait_all_tasks_blocked(0.05)
    assert stage.files_in_use == 1
    await stage.node.broker.controller.delete_topics([stage.topic_id])
    with trio.fail_after(10):
        while stage.data.exists():  # noqa: ASYNC110 - nobody tells
            await trio.sleep(0.005)
    assert await stage.fetched(client) == b"".join(stage.batches[:5])


async def test_what_the_page_cache_loses_on_the_way_is_read_by_a_thread(stage: Stage) -> None:
    client = await stage.node.connect()
    sends = 0

    def lose() -> None:
        nonlocal sends
        sends += 1
        stage.disk.is_lost = sends > 3

    stage.disk.before_send = lose
    await stage.ask(client)
    assert await stage.fetched(client) == b"".join(stage.batches[:5])
    assert sends == 4


async def test_a_file_that_becomes_shorter_ends_the_connection_and_no_frame(stage: Stage) -> None:
    client = await stage.node.connect()

    def cut() -> None:
        if stage.disk.sent_bytes > VALUE_BYTES:
            os.truncate(stage.data, VALUE_BYTES)

    stage.disk.before_send = cut
    await stage.ask(client)
    with pytest.raises(EOFError):
        await client.receive_frame()
    # A new connection is told what is wrong.
    stage.disk.before_send = lambda: None
    other = await stage.node.connect()
    await stage.ask(other, offset=3)
    _, response = await other.receive(ApiKey.FETCH, VERSION)
    assert response.responses[0].partitions[0].error_code != 0
