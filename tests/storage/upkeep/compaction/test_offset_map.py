"""The offset map against a dictionary, within its memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.storage.upkeep.compaction.offset_map import ENTRY_BYTES, OffsetMap

keys = st.binary(max_size=3)


@given(st.lists(keys, max_size=200), st.integers(3 * ENTRY_BYTES, 80 * ENTRY_BYTES), st.binary(max_size=16))
def test_it_answers_like_a_dictionary_until_it_is_full(inserted: list[bytes], memory_bytes: int, salt: bytes) -> None:
    offset_map = OffsetMap(memory_bytes, salt=salt)
    model: dict[bytes, int] = {}
    for offset, key in enumerate(inserted):
        has_room = key in model or len(model) < offset_map.capacity
        assert offset_map.put(key, offset) == has_room
        if has_room:
            model[key] = offset
            assert offset_map.latest_offset == offset
    assert len(offset_map) == len(model)
    for number in range(300):
        key = number.to_bytes(2, "big")[number < 256 :]
        assert offset_map.get(key) == model.get(key, -1)
    for key, offset in model.items():
        assert offset_map.get(key) == offset


@pytest.mark.parametrize("memory_bytes", [0, 24, 50])
def test_too_little_memory_is_refused(memory_bytes: int) -> None:
    with pytest.raises(ValueError, match="holds no keys"):
        OffsetMap(memory_bytes)


def test_it_fills_to_its_load_factor_and_takes_known_keys_when_full() -> None:
    offset_map = OffsetMap(1009 * ENTRY_BYTES, load_factor=0.9)
    assert offset_map.capacity == int(1009 * 0.9)
    taken = sum(offset_map.put(b"%d" % number, number) for number in range(2_000))
    assert taken == offset_map.capacity
    assert offset_map.put(b"0", 5_000)
    assert offset_map.get(b"0") == 5_000
    assert not offset_map.put(b"new", 5_001)
    assert offset_map.latest_offset == 5_000


def test_clear_forgets_everything() -> None:
    offset_map = OffsetMap(10_000)
    offset_map.put(b"k", 7)
    offset_map.clear()
    assert (len(offset_map), offset_map.get(b"k"), offset_map.latest_offset) == (0, -1, -1)


def test_the_salt_moves_keys_but_changes_no_answer() -> None:
    maps = [OffsetMap(3_000), OffsetMap(3_000), OffsetMap(3_000, salt=b"fixed")]
    for offset_map in maps:
        for number in range(50):
            offset_map.put(b"%d" % number, number)
    for number in range(60):
        assert {offset_map.get(b"%d" % number) for offset_map in maps} == {number if number < 50 else -1}
