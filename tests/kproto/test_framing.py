"""Frames come out whole and in order, however the stream is cut; hostile lengths stop it at once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.kproto.errors import FrameError
from ottla.kproto.framing import PREFIX_SIZE, FrameParser, frame_prefix, frame_size


@given(st.lists(st.binary(max_size=50), max_size=6), st.lists(st.integers(1, 40), min_size=1))
def test_frames_survive_any_cutting(frames: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(frame_prefix(len(frame)) + frame for frame in frames)
    parser = FrameParser(max_size_bytes=50)
    received = []
    pos = turn = 0
    while pos < len(stream):
        size = cuts[turn % len(cuts)]
        received += parser.feed(memoryview(stream)[pos : pos + size])
        pos, turn = pos + size, turn + 1
    assert received == frames


def test_many_frames_in_one_piece() -> None:
    stream = b"".join(frame_prefix(1) + bytes([value % 256]) for value in range(10_000))
    parser = FrameParser(max_size_bytes=10)
    frames = parser.feed(stream + b"\x00\x00")
    assert len(frames) == 10_000
    assert parser.feed(b"\x00\x01a") == [b"a"]


@pytest.mark.parametrize("size", [-1, -(2**31), 101, 2**31 - 1])
def test_hostile_length_is_refused_as_soon_as_it_is_there(size: int) -> None:
    parser = FrameParser(max_size_bytes=100)
    prefix = size.to_bytes(PREFIX_SIZE, "big", signed=True)
    assert parser.feed(prefix[:3]) == []
    with pytest.raises(FrameError):
        parser.feed(prefix[3:])


def test_largest_frame_is_allowed() -> None:
    assert FrameParser(max_size_bytes=100).feed(frame_prefix(100) + bytes(100)) == [bytes(100)]
    assert frame_size(frame_prefix(100), 100) == 100


@given(st.lists(st.binary(max_size=300_000), max_size=4), st.integers(1, 200_000))
@settings(max_examples=30)
def test_large_frames_are_received_in_place(frames: list[bytes], cut: int) -> None:
    stream = memoryview(b"".join(frame_prefix(len(frame)) + frame for frame in frames))
    parser = FrameParser(max_size_bytes=300_000)
    received = []
    while stream:
        with parser.buffer() as room:
            count = min(len(room), len(stream), cut)
            room[:count] = stream[:count]
        received += parser.received(count)
        stream = stream[count:]
    assert received == frames


def test_memory_is_reserved_as_a_frame_comes() -> None:
    parser = FrameParser(max_size_bytes=2**31 - 1)
    parser.feed(frame_prefix(100_000_000))
    held = 0
    frames: list[Any] = []
    while not frames:
        with parser.buffer() as room:
            count = min(len(room), 1_000_000)
            assert held + len(room) <= max(16 * 2**20, 4 * held)
        frames = parser.received(count)
        held += count
    assert [len(frame) for frame in frames] == [100_000_000]


def test_prefix_of_an_impossible_frame() -> None:
    with pytest.raises(FrameError):
        frame_prefix(2**31)
