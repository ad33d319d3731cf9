"""Frames out of a stream: whole, contiguous, bounded, and without a leak."""

import random
import struct
from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.runtime.errors import CloseConnectionError
from ottla.runtime.request_budget import RequestBudget
from ottla.server.network.receiver import Frame, FrameReceiver, LoneFrame
from ottla.storage.memory.buffer_pool import BufferPool

MAX_FRAME_BYTES = 1 << 20


class ScriptedTransport:
    """Yields the given chunks one receive at a time, with a wait before each; then the end of the stream."""

    def __init__(self, chunks: Sequence[bytes]) -> None:
        self.chunks = [chunk for chunk in chunks if chunk]
        self.ready = False

    def receive_into(self, buffer: memoryview) -> int:
        assert buffer.nbytes, "a receive needs room"
        if not self.ready:
            raise BlockingIOError
        if not self.chunks:
            return 0
        chunk = self.chunks[0]
        count = min(buffer.nbytes, len(chunk))
        buffer[:count] = chunk[:count]
        if count == len(chunk):
            self.chunks.pop(0)
            self.ready = False
        else:
            self.chunks[0] = chunk[count:]
        return count

    async def wait_readable(self) -> None:
        await trio.lowlevel.checkpoint()
        self.ready = True


class Stage:
    def __init__(
        self,
        chunks: Sequence[bytes],
        *,
        check_api: Callable[[int, int], object] = lambda key, version: None,
        budget_bytes: int = 1 << 24,
    ) -> None:
        self.pool = BufferPool()
        self.budget = RequestBudget(budget_bytes)
        self.receiver = FrameReceiver(
            ScriptedTransport(chunks),  # type: ignore[arg-type]
            self.pool,
            self.budget,
            max_frame_bytes=MAX_FRAME_BYTES,
            check_api=check_api,
        )

    async def all(self) -> list[bytes]:
        bodies = []
        while (frame := await self.receiver.next()) is not None:
            bodies.append(bytes(frame.body))
            frame.release()
        return bodies

    async def all_at_once(self) -> list[bytes]:
        """All frames, received as a connection does that serves small requests without its task."""
        bodies: list[bytes] = []
        is_over = False
        while not is_over:
            await self.receiver._transport.wait_readable()
            frames: list[Frame | LoneFrame] = []
            while (frame := self.receiver.next_at_once()) is not None:
                frames.append(frame)
            if not self.receiver.is_quiet:
                last = await self.receiver.next()
                is_over = last is None
                frames += [] if last is None else [last]
            # Only now: what was received later has not changed what came before.
            bodies += [bytes(frame.body) for frame in frames]
            for frame in frames:
                frame.release()
        self.receiver.close()
        return bodies

    def assert_nothing_held(self) -> None:
        assert self.pool.counters.in_use == 0
        assert self.budget.used_bytes == 0


def framed(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


def cut(data: bytes, seed: int, max_chunk: int) -> list[bytes]:
    rng = random.Random(seed)
    chunks = []
    while data:
        size = rng.randint(1, max_chunk)
        chunks.append(data[:size])
        data = data[size:]
    return chunks


@settings(deadline=None, max_examples=150)
@given(
    sizes=st.lists(
        st.one_of(st.integers(4, 30), st.integers(490, 520), st.integers(4, 70_000)), min_size=1, max_size=12
    ),
    api_keys=st.sampled_from([(2, 2), (0, 0), (2, 0), (3, 2)]),
    seed=st.integers(0, 1 << 30),
    max_chunk=st.sampled_from([None, 20, 1_000, 40_000]),
)
def test_frames_that_come_by_themselves_arrive_whole_too(
    sizes: list[int], api_keys: tuple[int, int], seed: int, max_chunk: int | None
) -> None:
    bodies = [
        struct.pack(">hh", api_keys[number % 2], 7) + random.Random(seed + number).randbytes(size - 4)
        for number, size in enumerate(sizes)
    ]
    chunks = [framed(body) for body in bodies] if max_chunk is None else cut(framed(*bodies), seed, max_chunk)

    async def receive() -> None:
        stage = Stage(chunks)
        assert await stage.all_at_once() == bodies
        stage.assert_nothing_held()

    trio.run(receive)


async def test_a_small_request_by_itself_takes_no_memory_of_the_pool() -> None:
    body = struct.pack(">hh", 2, 7) + b"list offsets"
    stage = Stage([framed(body)])
    stage.receiver._transport.ready = True  # type: ignore[attr-defined]
    frame = stage.receiver.next_at_once()
    assert frame is not None
    assert frame.body == body
    assert stage.pool.counters.in_use == stage.budget.used_bytes == 0
    assert stage.receiver.is_settled()
    assert stage.receiver.next_at_once() is None
    assert stage.receiver.is_quiet


async def test_records_that_come_by_themselves_have_memory_of_their_own() -> None:
    bodies = [struct.pack(">hh", 0, 9) + b"records%d" % number for number in range(2)]
    stage = Stage([framed(body) for body in bodies])
    frames = []
    for _ in bodies:
        stage.receiver._transport.ready = True  # type: ignore[attr-defined]
        frame = stage.receiver.next_at_once()
        assert frame is not None
        assert frame.fragment is None  # nobody else will use it
        frames.append(frame)
    assert [frame.body for frame in frames] == bodies
    memoryview(frames[0].body)[:1] = b"!"  # as an offset is written into it
    for frame in frames:
        frame.release()
    assert frames[0].body == b"!" + bodies[0][1:]
    assert stage.pool.counters.in_use == stage.budget.used_bytes == 0


async def test_what_comes_by_itself_takes_no_memory_of_the_pool_after_a_task_has_received_either() -> None:
    bodies = [struct.pack(">hh", 0, 9) + bytes(16_000)] * 3
    stage = Stage([framed(body) for body in bodies])
    received = await stage.receiver.next()
    assert received is not None
    assert received.fragment is not None
    received.release()
    assert stage.receiver.is_settled()
    for _ in range(2):
        await stage.receiver._transport.wait_readable()
        frame = stage.receiver.next_at_once()
        assert frame is not None
        assert frame.fragment is None
        assert stage.pool.counters.in_use == 0
        frame.release()


async def test_what_comes_by_itself_and_is_not_small_counts_as_long_as_it_is_held() -> None:
    body = struct.pack(">hh", 0, 9) + bytes(16_000)
    stage = Stage([framed(body)])
    stage.receiver._transport.ready = True  # type: ignore[attr-defined]
    frame = stage.receiver.next_at_once()
    assert frame is not None
    assert frame.body == body
    assert stage.pool.counters.in_use == 0
    assert stage.budget.used_bytes == len(body)
    frame.release()
    assert stage.budget.used_bytes == 0


async def test_nothing_is_received_while_the_share_of_small_requests_is_spent() -> None:
    stage = Stage([framed(struct.pack(">hh", 2, 7))])
    stage.receiver._transport.ready = True  # type: ignore[attr-defined]
    spent = stage.budget.small.limit_bytes
    stage.budget.small.charge(spent)
    assert stage.receiver.next_at_once() is None
    assert not stage.receiver.is_quiet
    stage.budget.small.refund(spent)
    assert stage.receiver.next_at_once() is not None


@settings(deadline=None, max_examples=150)
@given(
    sizes=st.lists(
        st.one_of(st.integers(0, 600), st.integers(60_000, 70_000), st.integers(0, 300_000)), min_size=1, max_size=12
    ),
    seed=st.integers(0, 1 << 30),
    max_chunk=st.sampled_from([1_000, 40_000, 1 << 20]),
)
def test_every_frame_arrives_whole_however_the_stream_is_cut(sizes: list[int], seed: int, max_chunk: int) -> None:
    bodies = [random.Random(seed + i).randbytes(size) for i, size in enumerate(sizes)]

    async def receive() -> None:
        stage = Stage(cut(framed(*bodies), seed, max_chunk))
        assert await stage.all() == bodies
        stage.assert_nothing_held()

    trio.run(receive)


async def test_byte_by_byte() -> None:
    bodies = [b"", b"a", b"bc" * 300, b"d" * 700]
    stage = Stage([bytes([byte]) for byte in framed(*bodies)])
    assert await stage.all() == bodies
    stage.assert_nothing_held()


async def test_frames_that_arrive_together_share_a_fragment() -> None:
    stage = Stage([framed(b"one", b"two", b"three")])
    frames = [frame for _ in range(3) if (frame := await stage.receiver.next())]
    assert len({id(frame.fragment) for frame in frames}) == 1
    assert stage.pool.counters.in_use == 1
    for frame in frames:
        frame.release()
    assert await stage.receiver.next() is None
    stage.assert_nothing_held()


async def test_a_frame_outlives_the_receiver_while_it_is_held() -> None:
    stage = Stage([framed(b"x" * 100_000, b"after")])
    first = await stage.receiver.next()
    second = await stage.receiver.next()
    assert first is not None
    assert second is not None
    assert await stage.receiver.next() is None
    assert bytes(first.body) == b"x" * 100_000
    assert bytes(second.body) == b"after"
    first.release()
    second.release()
    stage.assert_nothing_held()


@pytest.mark.parametrize("size", [-1, -(1 << 31), MAX_FRAME_BYTES + 1, (1 << 31) - 1])
async def test_an_impossible_length_is_refused(size: int) -> None:
    stage = Stage([struct.pack(">i", size) + b"rest"])
    with pytest.raises(CloseConnectionError, match=r"socket\.request\.max\.bytes"):
        await stage.receiver.next()
    stage.receiver.close()
    stage.assert_nothing_held()


@pytest.mark.parametrize(
    ("first_bytes", "words"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00", "TLS"),
        (b"GET / HTTP/1.1\r\n", "HTTP"),
        (b"POST / HTTP/1.1\r\n", "HTTP"),
        (b"SSH-2.0-x", "SSH"),
    ],
)
async def test_the_refusal_names_what_the_peer_looks_like(first_bytes: bytes, words: str) -> None:
    stage = Stage([first_bytes])
    with pytest.raises(CloseConnectionError, match=words):
        await stage.receiver.next()
    stage.receiver.close()
    stage.assert_nothing_held()


async def test_a_claim_is_charged_by_what_arrived_of_it() -> None:
    stage = Stage([struct.pack(">i", MAX_FRAME_BYTES) + b"x" * 1_000])
    assert await stage.receiver.next() is None
    stage.assert_nothing_held()

    stage = Stage([struct.pack(">i", MAX_FRAME_BYTES) + b"x" * 1_000])
    charged = []
    receive = stage.receiver._transport.receive_into

    def watched(buffer: memoryview) -> int:
        charged.append(stage.budget.used_bytes)
        return receive(buffer)

    stage.receiver._transport.receive_into = watched  # type: ignore[method-assign]
    assert await stage.receiver.next() is None
    assert max(charged) <= 64 * 1024 + 1_000  # while it receives; what is not filled is given back before it waits


async def test_others_run_while_a_large_frame_comes_as_fast_as_it_is_received() -> None:
    """Its sender keeps the socket full, so that there is never anything to wait for."""
    size_bytes = 16 * MAX_FRAME_BYTES
    stage = Stage([framed(bytes(size_bytes))], budget_bytes=1 << 26)
    stage.receiver.limit_frames(size_bytes)
    received: list[int] = []

    async def watch() -> None:
        while True:
            received.append(stage.receiver.arrived_bytes)
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch)
        frame = await stage.receiver.next()
        nursery.cancel_scope.cancel()
    assert frame is not None
    frame.release()
    stage.receiver.close()
    stage.assert_nothing_held()
    arrived = [0, *filter(None, received), size_bytes]  # before and behind the frame nothing of one has come
    assert max(later - earlier for earlier, later in pairwise(arrived)) <= 2 * MAX_FRAME_BYTES


async def test_a_large_frame_of_an_unknown_api_is_refused_before_its_body() -> None:
    def refuse(key: int, version: int) -> None:
        raise CloseConnectionError(f"key {key} version {version}")

    stage = Stage([struct.pack(">ihh", MAX_FRAME_BYTES, 999, 7)], check_api=refuse)
    with pytest.raises(CloseConnectionError, match="key 999 version 7"):
        await stage.receiver.next()
    stage.receiver.close()
    stage.assert_nothing_held()


async def test_no_new_frame_is_begun_while_the_budget_is_spent(autojump_clock: trio.testing.MockClock) -> None:
    stage = Stage([framed(b"first" * 30), framed(b"second")], budget_bytes=100)
    first = await stage.receiver.next()
    assert first is not None
    second: Frame | None = None

    async def receive() -> None:
        nonlocal second
        second = await stage.receiver.next()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(receive)
        await trio.sleep(10)
        assert second is None
        first.release()
    assert second is not None
    second.release()
    stage.receiver.close()
    stage.assert_nothing_held()


async def test_an_idle_receiver_holds_no_buffer(autojump_clock: trio.testing.MockClock) -> None:
    stage = Stage([framed(b"one")])
    frame = await stage.receiver.next()
    assert frame is not None
    frame.release()

    async def never() -> None:
        await trio.sleep_forever()

    with trio.move_on_after(1):
        stage.receiver._transport.ready = False  # type: ignore[attr-defined]
        stage.receiver._transport.wait_readable = never  # type: ignore[method-assign]
        await stage.receiver.next()
    assert stage.receiver._fragment is None
    stage.assert_nothing_held()


async def test_what_would_come_back_empty_is_not_tried() -> None:
    """A receive that left room has emptied the socket: the next frame is waited for first."""
    stage = Stage([framed(b"a" * 20), framed(b"b" * 20)])
    tries: list[bool] = []
    transport = stage.receiver._transport
    receive = transport.receive_into

    def counted(buffer: memoryview) -> int:
        tries.append(transport.ready)  # type: ignore[attr-defined]
        return receive(buffer)

    transport.receive_into = counted  # type: ignore[method-assign]
    assert await stage.all() == [b"a" * 20, b"b" * 20]
    assert tries == [True, True, True]


async def test_others_run_between_the_frames_of_a_burst() -> None:
    stage = Stage([framed(*[b"x" * 20] * 20)])
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count_turns)
        assert len(await stage.all()) == 20
        assert turns >= 20 // 5
        nursery.cancel_scope.cancel()
