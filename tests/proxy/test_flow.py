"""One connection between two ends in memory: the bytes may come and go in pieces of any size."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Any

import pytest
import trio
import trio.lowlevel
import trio.testing

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.frames import build_request_frame
from ottla.kproto.messages.cluster.api_versions import ApiVersionsRequest
from ottla.kproto.messages.data.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.kproto.messages.groups.heartbeat import HeartbeatRequest
from ottla.kproto.messages.topics.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from ottla.proxy.connection import Connection
from ottla.proxy.errors import StalledError
from ottla.proxy.exchange import MAX_IN_FLIGHT
from ottla.proxy.filters.chain import Named
from ottla.proxy.filters.filter import Call, Filter, request_hook
from ottla.proxy.memory import FrameBudget
from ottla.proxy.shared import Settings, Shared
from ottla.proxy.transport import Accepted
from tests.client.brokers import BrokerSide, Received, answer, beat, versions


class MemoryTransport:
    """One end: what `arrives` can be received in pieces of random size, what is sent is taken in such pieces."""

    def __init__(self, random: Random, *, takes: bool = True) -> None:
        self._random = random
        self._arrived: deque[bytes] = deque()
        self._changed = trio.Event()
        self.sent = bytearray()
        self.takes = takes
        self.closed = False

    def arrives(self, data: bytes) -> None:
        """Bytes from the peer; none is its end of the stream."""
        self._arrived.append(data)
        self._wake()

    def take_again(self) -> None:
        self.takes = True
        self._wake()

    def receive_into(self, buffer: memoryview) -> int:
        if not self._arrived:
            raise BlockingIOError
        data = self._arrived[0]
        if not data:
            return 0
        count = min(self._random.randint(1, 300_000), len(data), len(buffer))
        if self._random.random() < 0.3:
            count = min(count, 3)
        buffer[:count] = data[:count]
        self._arrived[0] = data[count:]
        if not self._arrived[0]:
            self._arrived.popleft()
        return count

    def send(self, views: Sequence[Any]) -> int:
        if not self.takes or self._random.random() < 0.1:
            raise BlockingIOError
        data = b"".join(views)
        count = self._random.randint(1, len(data))
        self.sent += data[:count]
        return count

    def expect(self, size_bytes: int) -> None:
        """Nothing is waited for that is not there."""

    async def wait_readable(self) -> None:
        await trio.lowlevel.checkpoint()
        while not self._arrived:
            await self._changed.wait()

    async def wait_writable(self) -> None:
        await trio.lowlevel.checkpoint()
        while not self.takes:
            await self._changed.wait()

    def local_host(self) -> str:
        return "local"

    def close(self) -> None:
        self.closed = True

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()


class Sees(Filter):
    """Wants produced records, and changes nothing."""

    @request_hook(ProduceRequest)
    async def see(self, request: ProduceRequest, call: Call) -> None:
        await trio.lowlevel.checkpoint()


class OneAddress:
    """Of all brokers."""

    def localize(self, node_id: int, host: str, port: int) -> tuple[str, int]:
        return "proxy", 5


class Ends:
    """A connection with both of its ends."""

    def __init__(self, seed: int, *, filters: Sequence[Named] = (), **settings: Any) -> None:
        random = Random(seed)
        self.shared = Shared(Settings([("u", 1)], ("", 0), **settings), filters)
        self.client, self.upstream = MemoryTransport(random), MemoryTransport(random)
        self.connection = Connection(
            Accepted(self.client),
            self.upstream,
            self.shared,
            OneAddress(),
            peer="p",
            listener="l",
        )
        self.side = BrokerSide()

    def requests(self) -> list[Received]:
        """What has come to upstream since the last time."""
        data, self.upstream.sent = bytes(self.upstream.sent), bytearray()
        return self.side.feed([data])


def produce(size_bytes: int, correlation_id: int, acks: int = 1) -> bytes:
    partition = PartitionProduceData(index=0, records=bytes(size_bytes))
    request = ProduceRequest(acks=acks, topic_data=[TopicProduceData(name="t", partition_data=[partition])])
    return build_request_frame(request, 12, correlation_id, "c" * 50)


def heartbeat(correlation_id: int) -> bytes:
    return build_request_frame(HeartbeatRequest(group_id="g", member_id="m"), 4, correlation_id, "c")


@pytest.mark.parametrize("seed", range(40))
async def test_streams_come_out_as_they_went_in_however_they_are_cut(seed: int) -> None:
    random = Random(seed)
    ends = Ends(seed)
    requests = [build_request_frame(ApiVersionsRequest(), 2, 0, "c")]
    for number in range(1, 30):
        is_small = random.random() < 0.5
        requests.append(heartbeat(number) if is_small else produce(random.choice([0, 900, 70_000, 600_000]), number))
        if random.random() < 0.2:
            requests.append(produce(random.randint(0, 5000), 1000 + number, acks=0))
        if random.random() < 0.3:
            requests.append(build_request_frame(MetadataRequest(topics=[]), 12, 2000 + number, "c"))
    named = MetadataResponse(brokers=[MetadataResponseBroker(node_id=1, host="far away", port=9)])
    local = MetadataResponse(brokers=[MetadataResponseBroker(node_id=1, host="proxy", port=5)])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ends.connection.serve)
        ends.client.arrives(b"".join(requests))
        await trio.testing.wait_all_tasks_blocked()
        assert bytes(ends.upstream.sent) == b"".join(requests)
        expected = b""
        given = b""
        for received in ends.requests():
            if received.key is ApiKey.API_VERSIONS:
                given += versions(received)
                expected += bytes(versions(received))
            elif received.key is ApiKey.METADATA:
                given += answer(received, named)
                expected += answer(received, local)
            elif received.key is ApiKey.HEARTBEAT:
                given += beat(received, received.header.correlation_id)
                expected += beat(received, received.header.correlation_id)
            elif received.request.acks:  # type: ignore[attr-defined]
                given += answer(received, ProduceResponse())
                expected += answer(received, ProduceResponse())
        ends.upstream.arrives(given)
        await trio.testing.wait_all_tasks_blocked()
        sasl = expected.find(b"\x00\x11\x00\x00\x00\x01")  # SaslHandshake is offered from version 1 on
        assert sasl > 0
        assert bytes(ends.client.sent) == expected[:sasl] + b"\x00\x11\x00\x01\x00\x01" + expected[sasl + 6 :]
        ends.client.arrives(b"")
    assert ends.upstream.closed
    assert ends.shared.chunks.lent == 0
    assert ends.shared.requests.used_bytes == ends.shared.responses.used_bytes == 0


async def test_so_many_requests_wait_for_answers_and_no_more() -> None:
    ends = Ends(1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ends.connection.serve)
        ends.client.arrives(b"".join(map(heartbeat, range(MAX_IN_FLIGHT + 10))))
        await trio.testing.wait_all_tasks_blocked()
        first = ends.requests()
        assert len(first) == MAX_IN_FLIGHT
        ends.upstream.arrives(b"".join(map(beat, first)))
        await trio.testing.wait_all_tasks_blocked()
        assert len(ends.requests()) == 10
        nursery.cancel_scope.cancel()


async def test_a_stop_lets_the_frame_under_way_come_to_its_end() -> None:
    ends = Ends(1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ends.connection.serve)
        frame = produce(100_000, 1)
        ends.client.arrives(frame[:50_000])
        await trio.testing.wait_all_tasks_blocked()
        ends.connection.stop()
        await trio.testing.wait_all_tasks_blocked()
        assert not ends.upstream.closed
        ends.client.arrives(frame[50_000:])
        await trio.testing.wait_all_tasks_blocked()
        (received,) = ends.requests()
        ends.upstream.arrives(answer(received, ProduceResponse()))
        with trio.fail_after(5):
            while not ends.upstream.closed:
                await trio.lowlevel.checkpoint()
    assert bytes(ends.client.sent) == answer(received, ProduceResponse())


async def test_a_stop_between_frames_takes_no_other_one_even_when_it_has_just_come() -> None:
    for comes_first in (True, False):
        ends = Ends(1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ends.connection.serve)
            await trio.testing.wait_all_tasks_blocked()
            if comes_first:
                ends.client.arrives(produce(100_000, 1))  # who waits for it is woken, and has not run yet
            ends.connection.stop()
        assert ends.upstream.closed
        assert not ends.upstream.sent
        assert ends.shared.chunks.lent == 0


async def test_a_cancellation_at_any_moment_gives_everything_back() -> None:
    for moment in range(60):
        ends = Ends(moment)
        ends.client.arrives(b"".join([heartbeat(1), produce(400_000, 2), heartbeat(3)]))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ends.connection.serve)
            for _ in range(moment):
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
        assert ends.upstream.closed
        assert ends.shared.chunks.lent == 0
        assert ends.shared.requests.used_bytes == ends.shared.responses.used_bytes == 0


async def test_an_answer_finds_room_while_requests_wait_for_theirs() -> None:
    """Upstream takes no request before its answer is taken: both waiting for one budget would be for ever."""
    ends = Ends(3, filters=[Named("sees", Sees())], memory_bytes=400_000)
    ends.upstream.takes = False
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ends.connection.serve)
        ends.client.arrives(build_request_frame(MetadataRequest(topics=[]), 12, 1, "c"))
        ends.upstream.take_again()
        await trio.testing.wait_all_tasks_blocked()
        (asked,) = ends.requests()
        ends.upstream.takes = False
        ends.client.arrives(produce(300_000, 2))
        await trio.testing.wait_all_tasks_blocked()
        assert ends.shared.requests.used_bytes > 0
        brokers = [MetadataResponseBroker(node_id=1, host="h", port=1, rack="r" * 30_000) for _ in range(12)]
        ends.upstream.arrives(answer(asked, MetadataResponse(brokers=brokers)))
        await trio.testing.wait_all_tasks_blocked()
        assert len(ends.client.sent) > 360_000
        nursery.cancel_scope.cancel()


async def test_the_budget_lets_frames_in_in_order_and_a_huge_one_alone() -> None:
    budget = FrameBudget(100)
    order: list[int] = []

    done = {size_bytes: trio.Event() for size_bytes in (60, 500, 10)}

    async def hold(size_bytes: int) -> None:
        async with budget.hold(size_bytes):
            order.append(size_bytes)
            await done[size_bytes].wait()

    async with trio.open_nursery() as nursery:
        for size_bytes in done:
            nursery.start_soon(hold, size_bytes)
            await trio.testing.wait_all_tasks_blocked()
        assert order == [60]
        done[60].set()
        await trio.testing.wait_all_tasks_blocked()
        assert order == [60, 500]
        done[500].set()
        await trio.testing.wait_all_tasks_blocked()
        assert order == [60, 500, 10]
        done[10].set()
    assert budget.used_bytes == 0


async def test_a_frame_of_which_nothing_moves_is_given_up_when_others_wait(
    autojump_clock: trio.testing.MockClock,
) -> None:
    budget = FrameBudget(100, patience_seconds=5)
    ended: dict[str, float] = {}

    async def hold(name: str, *, moves: bool) -> None:
        try:
            async with budget.hold(50) as held:
                for _ in range(100):
                    await trio.sleep(1)
                    if moves:
                        held.moved()
        except StalledError:
            ended[name] = trio.current_time()

    async with trio.open_nursery() as nursery:
        began = trio.current_time()
        nursery.start_soon(partial(hold, "stalled", moves=False))
        nursery.start_soon(partial(hold, "moving", moves=True))
        await trio.sleep(20)
        assert not ended  # nobody waits
        async with budget.hold(50):
            assert trio.current_time() - began == 25
        nursery.cancel_scope.cancel()
    assert list(ended) == ["stalled"]
    assert budget.used_bytes == 0
