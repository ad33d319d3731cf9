"""What is served out of the cache, and what is not any more, against an upstream that the test plays."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import trio

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.frames import build_request_frame
from ottla.kproto.messages.access.sasl_authenticate import SaslAuthenticateRequest
from ottla.kproto.messages.access.sasl_handshake import SaslHandshakeRequest
from ottla.kproto.messages.cluster.api_versions import ApiVersionsRequest
from ottla.kproto.messages.topics.metadata import MetadataRequest
from ottla.kproto.records import iter_batches, whole_batches_size_bytes
from ottla.proxy.cache import seen, topics
from ottla.proxy.shared import CacheSettings
from tests.proxy.cache.leader import Leader, Reader
from tests.proxy.upstreams import RunningProxy, until
from tests.servers import Client

Serve = Callable[..., Any]

BOTH_LEVELS = pytest.mark.parametrize("level", [0, 1])


class Cached:
    """A leader, and a proxy with a cache before it."""

    def __init__(self, leader: Leader, running: RunningProxy) -> None:
        self.leader, self.running = leader, running

    async def client(self) -> Client:
        brokers = (await self.running.call(MetadataRequest(topics=[]), 12)).brokers
        client = await self.running.connect(brokers[0].port)
        await client.call(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3)
        return client

    async def reader(self, version: int = 16) -> Reader:
        return Reader(await self.client(), self.leader, version)

    @property
    def counters(self) -> Any:
        cache = self.running.proxy.metrics.cache
        assert cache is not None
        return cache.counters

    def later(self) -> None:
        """What upstream has said so far of rights and of the log does not count any more."""
        cache = self.running.proxy.metrics.cache
        assert cache is not None
        cache.readers._let.clear()
        for partition in cache._partitions.values():
            partition.seen.clear()


@pytest.fixture
def serve_cached(serve_proxy: Serve, tmp_path: Path) -> Serve:
    @asynccontextmanager
    async def serve(**settings: Any) -> AsyncIterator[Cached]:
        leader = Leader()
        chosen = CacheSettings(64 << 20, str(tmp_path))
        async with serve_proxy(leader, cache=chosen, **settings) as running:
            yield Cached(leader, running)
        assert os.listdir(tmp_path) == []

    return serve


@pytest.fixture(autouse=True)
def _answers_count_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless a test says otherwise, a slow machine changes nothing."""
    monkeypatch.setattr(seen, "COUNTS_SECONDS", 60.0)
    monkeypatch.setattr(topics, "COUNTS_SECONDS", 60.0)


async def read_all(reader: Reader, *, level: int = 0, max_bytes: int = 5000, offset: int = 0) -> bytes:
    """All whole batches up to the end."""
    found = b""
    while True:
        data = await reader.fetch(offset, level=level, max_bytes=max_bytes)
        assert data.error_code == ErrorCode.NONE
        records = bytes(data.records or b"")
        records = records[: whole_batches_size_bytes(records)]
        if not records:
            return found
        found += records
        for _, header in iter_batches(records):
            offset = header.next_offset


@BOTH_LEVELS
@pytest.mark.parametrize("version", [4, 12, 13, 18])
async def test_a_hundred_readers_cost_upstream_one(serve_cached: Serve, version: int, level: int) -> None:
    async with serve_cached() as cached:
        for _ in range(50):
            cached.leader.log.append(size_bytes=400)
        expected = b"".join(batch for _, batch in cached.leader.log.batches)
        assert await read_all(await cached.reader(version), level=level) == expected
        once = cached.leader.fetched_bytes
        for _ in range(5):
            assert await read_all(await cached.reader(version), level=level, max_bytes=20_000) == expected
        assert cached.leader.fetched_bytes == once
        assert cached.counters.served_bytes == 5 * len(expected)


async def test_readers_from_any_offset_get_the_batch_that_has_it(serve_cached: Serve) -> None:
    async with serve_cached() as cached:
        log = cached.leader.log
        for number in range(60):
            log.append(1 + number % 4, size_bytes=30 + 97 * (number % 5))
        await read_all(await cached.reader())
        reader = await cached.reader()
        for offset in range(0, log.end, 3):
            for max_bytes in (1, 700, 9000):
                records = bytes((await reader.fetch(offset, max_bytes=max_bytes)).records or b"")
                expected, _ = log.records(offset, 1 << 20, log.end)
                headers = [header for _, header in iter_batches(records)]
                assert headers[0].base_offset <= offset < headers[0].next_offset
                assert expected.startswith(records)
                assert len(records) <= max_bytes or len(headers) == 1


async def test_aborted_transactions_are_those_of_what_is_served(serve_cached: Serve) -> None:
    async with serve_cached() as cached:
        log = cached.leader.log
        for number in range(40):
            log.append(2, size_bytes=300, producer_id=number % 3)
            log.append(1, size_bytes=2000)
            log.end_transaction(number % 3, is_commit=number % 4 != 0)
        await read_all(await cached.reader(), level=1, max_bytes=30_000)
        reader, once = await cached.reader(), cached.leader.fetched_bytes
        for offset in range(0, log.end, 2):
            data = await reader.fetch(offset, level=1, max_bytes=6000)
            *_, last = (header for _, header in iter_batches(bytes(data.records or b"")))
            expected = [it[:2] for it in log.aborted if it[2] >= offset and it[1] < last.next_offset]
            assert [(it.producer_id, it.first_offset) for it in data.aborted_transactions or []] == expected
        assert cached.leader.fetched_bytes == once


async def test_who_has_read_uncommitted_keeps_nothing_of_transactions_for_others(serve_cached: Serve) -> None:
    async with serve_cached() as cached:
        log = cached.leader.log
        log.append(producer_id=7)
        reader = await cached.reader()
        open_end = await reader.fetch(0)
        assert len(bytes(open_end.records or b"")) > 0
        assert bytes((await reader.fetch(0, level=1)).records or b"") == b""
        log.end_transaction(7, is_commit=False)
        data = await reader.fetch(0, level=1)
        assert [(it.producer_id, it.first_offset) for it in data.aborted_transactions or []] == [(7, 0)]
        again = await reader.fetch(0, level=1)
        assert again.aborted_transactions == data.aborted_transactions
        assert cached.counters.hits == 1
        assert (await reader.fetch(0)).aborted_transactions is None


async def test_what_a_deposed_leader_had_is_never_served(serve_cached: Serve) -> None:
    async with serve_cached() as cached:
        log = cached.leader.log
        for _ in range(4):
            log.append(mark="lost ")
        await read_all(await cached.reader())
        log.truncate(3)
        log.leader_epoch = 4
        for _ in range(6):
            log.append(mark="new ")
        expected = b"".join(batch for _, batch in log.batches)
        for _ in range(2):
            assert await read_all(await cached.reader()) == expected
        old = await cached.reader()
        old.leader_epoch = 3
        assert (await old.fetch(3)).error_code == ErrorCode.FENCED_LEADER_EPOCH


async def test_what_is_lost_in_one_epoch_is_not_served(serve_cached: Serve) -> None:
    async with serve_cached() as cached:
        log = cached.leader.log
        for _ in range(4):
            log.append(mark="lost ")
        reader = await cached.reader()
        await read_all(reader)
        log.truncate(6)
        log.append(mark="new ")
        cached.later()
        first = await reader.fetch(6)
        assert first.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER or b"new" in bytes(first.records or b"")
        assert await read_all(reader) == b"".join(batch for _, batch in log.batches)


async def test_a_topic_made_anew_is_not_the_one_before(serve_cached: Serve) -> None:
    async with serve_cached() as cached:
        cached.leader.log.append(mark="old ")
        by_id, by_name = await cached.reader(), await cached.reader(12)
        by_name.leader_epoch = -1
        await read_all(by_id)
        await read_all(by_name)
        cached.leader.topic_id = uuid4()
        cached.leader.log.truncate(0)
        cached.leader.log.append(mark="new ")
        cached.later()
        assert (await by_id.fetch(0)).error_code == ErrorCode.UNKNOWN_TOPIC_ID
        assert (await by_name.fetch(0)).error_code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert await read_all(by_name) == cached.leader.log.batches[0][1]


async def test_what_upstream_has_deleted_is_out_of_range(serve_cached: Serve) -> None:
    async with serve_cached() as cached:
        for _ in range(3):
            cached.leader.log.append()
        reader = await cached.reader()
        await read_all(reader)
        cached.leader.log.delete_before(4)
        cached.later()
        assert (await reader.fetch(0)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (await reader.fetch(0)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (await reader.fetch(4)).error_code == ErrorCode.NONE
        assert (await reader.fetch(0)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
async def test_a_compacted_topic_is_not_kept(
    serve_cached: Serve, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    async with serve_cached() as cached:
        cached.leader.log.append()
        reader = await cached.reader()
        await read_all(reader)
        await read_all(reader)
        assert cached.counters.hits == 1
        cached.leader.policy = policy
        monkeypatch.setattr(topics, "COUNTS_SECONDS", -1.0)
        await read_all(reader)
        await read_all(reader)
        assert cached.counters.hits == 1


async def test_a_topic_of_which_nobody_may_ask_is_not_kept_unless_somebody_has_vouched(
    serve_cached: Serve,
) -> None:
    async with serve_cached() as cached:
        cached.leader.hides_configs = True
        cached.leader.log.append()
        for _ in range(2):
            await read_all(await cached.reader())
        assert cached.counters.kept_bytes == 0


async def let_in(client: Client, user: str, client_id: str) -> None:
    """Authenticate with upstream, which tells users by their client ids."""
    await client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    await client.call(SaslAuthenticateRequest(auth_bytes=f"\0{user}\0secret".encode()), 2)
    client.send = send_as(client, client_id)  # type: ignore[method-assign, assignment]


def send_as(client: Client, client_id: str) -> Callable[[Any, int], Any]:
    async def send(request: Any, version: int) -> int:
        client._correlation_id += 1
        await client.stream.send_all(build_request_frame(request, version, client._correlation_id, client_id))
        return client._correlation_id

    return send


async def test_who_may_not_read_upstream_is_served_nothing(serve_cached: Serve) -> None:  # fmt: skip
    async with serve_cached() as cached:
        cached.leader.log.append()
        cached.leader.not_let = {"mallory"}
        alice, mallory = await cached.client(), await cached.client()
        await let_in(alice, "alice", "alice")
        await let_in(mallory, "mallory", "mallory")
        readers = {"alice": Reader(alice, cached.leader), "mallory": Reader(mallory, cached.leader)}
        assert await read_all(readers["alice"])
        for _ in range(2):
            refused = await readers["mallory"].fetch(0)
            assert refused.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            assert not refused.records
        assert await read_all(readers["alice"])
        cached.leader.not_let = {"mallory", "alice"}
        cached.later()
        assert (await readers["alice"].fetch(0)).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def test_many_who_want_the_same_cost_upstream_one_request(serve_cached: Serve) -> None:
    async with serve_cached() as cached:
        reader = await cached.reader()
        await reader.fetch(0)  # the topic is known
        cached.leader.log.append(size_bytes=1000)
        cached.leader.gate = trio.Event()
        found: list[bytes] = []

        async def read(one: Reader) -> None:
            found.append(bytes((await one.fetch(0, max_wait_ms=30_000)).records or b""))

        readers = [await cached.reader() for _ in range(10)]
        async with trio.open_nursery() as nursery:
            for one in readers:
                nursery.start_soon(read, one)
            await until(lambda: cached.counters.joined == 9)
            cached.leader.gate.set()
        assert found == [cached.leader.log.batches[0][1]] * 10
        assert cached.leader.fetched_bytes == len(found[0])


async def test_who_waits_for_another_ones_records_waits_no_longer_than_he_has_said(serve_cached: Serve) -> None:
    async with serve_cached() as cached:
        first, second = await cached.reader(), await cached.reader()
        await first.fetch(0)
        cached.leader.gate = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: first.fetch(0, max_wait_ms=60_000))
            await until(lambda: len([it for it in cached.leader.requests if it.key is ApiKey.FETCH]) == 2)
            data = await second.fetch(0, max_wait_ms=50)
            assert (data.error_code, data.high_watermark, bytes(data.records or b"")) == (ErrorCode.NONE, 0, b"")
            cached.leader.gate.set()


async def test_a_check_asks_for_no_records(serve_cached: Serve) -> None:
    async with serve_cached() as cached:
        for _ in range(20):
            cached.leader.log.append(size_bytes=500)
        await read_all(await cached.reader())
        once = cached.leader.fetched_bytes
        cached.later()
        data = await (await cached.reader()).fetch(0)
        assert cached.leader.fetches[-1].fetch_offset == cached.leader.log.end
        assert cached.leader.fetched_bytes == once
        assert bytes(data.records or b"") == b"".join(batch for _, batch in cached.leader.log.batches)


async def test_there_are_no_sessions(serve_cached: Serve) -> None:
    async with serve_cached() as cached:
        cached.leader.log.append()
        reader = await cached.reader()
        begun = await reader.fetch_all(0, session_id=0, session_epoch=0)
        assert (begun.error_code, begun.session_id) == (ErrorCode.NONE, 0)
        unknown = await reader.fetch_all(0, session_id=12, session_epoch=5)
        assert unknown.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert all(it.request.session_epoch == -1 for it in cached.leader.requests if it.key is ApiKey.FETCH)


async def test_a_follower_is_forwarded(serve_cached: Serve) -> None:
    async with serve_cached() as cached:
        cached.leader.log.append()
        reader = await cached.reader(14)
        for _ in range(2):
            await reader.fetch_all(0, replica_id=2)
        assert cached.counters.kept_bytes == 0


async def test_damaged_records_are_passed_on_and_not_kept(serve_cached: Serve) -> None:
    async with serve_cached() as cached:
        cached.leader.log.append()
        base, batch = cached.leader.log.batches[0]
        damaged = batch[:-1] + bytes([batch[-1] ^ 1])
        cached.leader.log.batches[0] = base, damaged
        reader = await cached.reader()
        for _ in range(2):
            assert bytes((await reader.fetch(0)).records or b"") == damaged
        await until(lambda: cached.counters.unkept == 2)
        cached.leader.log.batches[0] = base, batch
        assert bytes((await reader.fetch(0)).records or b"") == batch


async def test_a_disk_that_fails_switches_it_off_and_nobody_notices(
    serve_cached: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    async with serve_cached() as cached:
        cached.leader.log.append()
        reader = await cached.reader()
        await read_all(reader)
        cache = cached.running.proxy.metrics.cache
        assert cache is not None

        def fail(*arguments: Any, **options: Any) -> int:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(cache._segments, "write", fail)
        cached.leader.log.append()
        expected = b"".join(batch for _, batch in cached.leader.log.batches)
        for _ in range(3):
            assert await read_all(reader) == expected
        assert not cache.is_on
        assert cache.used_bytes == 0
        families = {it.metric.name: list(it.samples) async for it in cached.running.proxy.metrics.families(1)}
        assert families["ottla_proxy_cache_on"] == [((), 0)]
