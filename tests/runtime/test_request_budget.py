"""What frames may hold: small ones always get in, large ones never wait for each other for ever, slow ones are cut."""

from __future__ import annotations

import struct

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from ottla.kproto.api_keys import ApiKey
from ottla.runtime.errors import CloseConnectionError
from ottla.runtime.request_budget import RequestBudget
from ottla.server.network.receiver import Frame, FrameReceiver
from ottla.storage.memory.buffer_pool import BufferPool

MIB = 1024 * 1024
LIMIT_BYTES = 8 * MIB  # of which 2 are for small frames and 4 for large ones
HEAD = struct.pack(">hh", ApiKey.PRODUCE, 9)


class Peer:
    """A transport that a test feeds."""

    def __init__(self) -> None:
        self.arrived = bytearray()
        self.is_cut = False
        self._changed = trio.Event()

    def send(self, data: bytes) -> None:
        self.arrived += data
        self._wake()

    def receive_into(self, buffer: memoryview) -> int:
        assert buffer.nbytes, "a receive needs room"
        if self.is_cut:
            return 0
        if not self.arrived:
            raise BlockingIOError
        count = min(len(buffer), len(self.arrived))
        buffer[:count] = self.arrived[:count]
        del self.arrived[:count]
        return count

    async def wait_readable(self) -> None:
        await trio.lowlevel.checkpoint()
        while not self.arrived and not self.is_cut:
            await self._changed.wait()

    def shut_down(self, how: int) -> None:
        self.is_cut = True
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()


class Stage:
    """Connections that share a budget. Each one's frames, or why it ended, are collected."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.pool = BufferPool()
        self.budget = RequestBudget(LIMIT_BYTES)
        self.frames: list[tuple[Peer, Frame]] = []
        self.ended: dict[Peer, str] = {}
        self._nursery = nursery

    async def connect(self) -> Peer:
        peer = Peer()
        receiver = FrameReceiver(
            peer,  # type: ignore[arg-type]
            self.pool,
            self.budget,
            max_frame_bytes=100 * MIB,
            check_api=lambda key, version: None,
        )
        self._nursery.start_soon(self._receive, peer, receiver)
        return peer

    async def begin_large(self, size_bytes: int, sent_bytes: int) -> Peer:
        """A connection with a part of a large frame."""
        peer = await self.connect()
        peer.send(struct.pack(">i", size_bytes) + HEAD + bytes(sent_bytes - len(HEAD)))
        await wait_all_tasks_blocked()
        return peer

    def whole(self, peer: Peer) -> list[int]:
        """The sizes of the frames that have come from a peer."""
        return [frame.body.nbytes for sender, frame in self.frames if sender is peer]

    def release_all(self) -> None:
        frames, self.frames = self.frames, []
        for _, frame in frames:
            frame.release()

    async def _receive(self, peer: Peer, receiver: FrameReceiver) -> None:
        try:
            while (frame := await receiver.next()) is not None:
                self.frames.append((peer, frame))
        except CloseConnectionError as error:
            self.ended[peer] = str(error)
        finally:
            receiver.close()


@pytest.fixture
async def stage(nursery: trio.Nursery) -> Stage:
    return Stage(nursery)


async def assert_nothing_held(stage: Stage) -> None:
    stage.release_all()
    await wait_all_tasks_blocked()
    assert stage.budget.used_bytes == 0
    assert not stage.budget.unfinished
    assert stage.pool.counters.in_use == 0


async def test_small_frames_get_in_beside_large_ones_that_never_end(stage: Stage) -> None:
    unfinished = [await stage.begin_large(3 * MIB, 3 * MIB - 1) for _ in range(3)]
    assert not stage.budget.large.has_room
    small = await stage.connect()
    small.send(struct.pack(">i", 2_000) + HEAD + bytes(2_000 - len(HEAD)))
    await wait_all_tasks_blocked()
    assert stage.whole(small) == [2_000]
    for peer in (*unfinished, small):
        peer.shut_down(0)
    await wait_all_tasks_blocked()
    await assert_nothing_held(stage)


async def test_of_large_frames_that_hold_everything_the_first_goes_on_and_the_next_after_it(stage: Stage) -> None:
    peers = [await stage.begin_large(5 * MIB, 2 * MIB) for _ in range(4)]
    for peer in reversed(peers):
        peer.send(bytes(3 * MIB))
    await wait_all_tasks_blocked()
    assert [stage.whole(peer) for peer in peers] == [[5 * MIB], [], [], []]
    # What is answered makes room; until then the next waits.
    came = [peers[0]]
    while len(came) < 4:
        stage.release_all()
        await wait_all_tasks_blocked()
        assert stage.frames
        assert stage.budget.large.used_bytes <= 4 * MIB + 5 * MIB + 64 * 1024
        came += [peer for peer, _ in stage.frames]
    assert came[1] is peers[1]
    assert set(came) == set(peers)
    for peer in peers:
        peer.shut_down(0)
    await assert_nothing_held(stage)


async def test_a_frame_that_does_not_come_is_given_up(stage: Stage, mock_clock: MockClock) -> None:
    peers = [await stage.begin_large(5 * MIB, MIB), await stage.connect()]
    peers[1].send(struct.pack(">i", 2_000) + HEAD)
    await wait_all_tasks_blocked()
    for second in range(1, 35):
        mock_clock.jump(1)
        peers[1].send(b"x")
        stage.budget.cut_slow(trio.current_time())
        await wait_all_tasks_blocked()
        if second < 30:
            assert not stage.ended
    assert "of a request came in 3" in stage.ended[peers[1]]
    assert peers[0] not in stage.ended  # a MiB in 34 s is fast enough for now
    mock_clock.jump(64)
    stage.budget.cut_slow(trio.current_time())
    await wait_all_tasks_blocked()
    assert stage.ended.keys() == set(peers)
    await assert_nothing_held(stage)


async def test_it_is_given_up_soon_where_others_wait_for_its_memory(stage: Stage, mock_clock: MockClock) -> None:
    slow = await stage.begin_large(5 * MIB, 4 * MIB)
    waiting = await stage.begin_large(3 * MIB, 3 * MIB)
    assert stage.whole(waiting) == []
    mock_clock.jump(4.5)
    stage.budget.cut_slow(trio.current_time())
    assert not slow.is_cut  # 4 MiB in 3.5 s beyond the grace
    mock_clock.jump(1)
    stage.budget.cut_slow(trio.current_time())
    await wait_all_tasks_blocked()
    assert "others wait for its memory" in stage.ended[slow]
    assert stage.whole(waiting) == [3 * MIB]
    assert waiting not in stage.ended
    waiting.shut_down(0)
    await assert_nothing_held(stage)


async def test_what_is_waited_for_by_the_broker_is_not_held_against_the_peer(
    stage: Stage, mock_clock: MockClock
) -> None:
    first = await stage.begin_large(4 * MIB, 4 * MIB)
    second = await stage.begin_large(3 * MIB, MIB)
    mock_clock.jump(1_000)
    stage.budget.cut_slow(trio.current_time())
    assert stage.whole(first) == [4 * MIB]
    assert not second.is_cut
    stage.release_all()
    second.send(bytes(2 * MIB))
    await wait_all_tasks_blocked()
    assert stage.whole(second) == [3 * MIB]
    for peer in (first, second):
        peer.shut_down(0)
    await assert_nothing_held(stage)
