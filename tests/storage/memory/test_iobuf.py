"""Fragments and chains: reference counts, and equality with plain bytes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.storage.memory.iobuf import IOV_MAX, Fragment, IOBuf


def fragment_of(content: bytes) -> Fragment:
    return Fragment(memoryview(bytearray(content)))


def chain_of(pieces: list[bytes]) -> tuple[IOBuf, list[Fragment]]:
    """A chain that holds the only reference to each of its fragments (kept in the list for inspection)."""
    chain = IOBuf()
    fragments = []
    for piece in pieces:
        fragment = fragment_of(piece)
        chain.append(fragment.memory, fragment)
        fragment.release()
        fragments.append(fragment)
    return chain, fragments


pieces_of_bytes = st.lists(st.binary(min_size=1, max_size=20), max_size=12)


class TestFragment:
    def test_gives_its_memory_back_at_zero_references_and_once(self) -> None:
        returned: list[memoryview] = []
        memory = memoryview(bytearray(8))
        fragment = Fragment(memory, returned.append)
        assert fragment.retain() is fragment
        fragment.release()
        assert returned == []
        assert fragment.references == 1
        fragment.release()
        assert returned == [memory]
        assert fragment.capacity_bytes == 0

    def test_release_below_zero_is_an_assertion(self) -> None:
        fragment = fragment_of(bytes(8))
        fragment.release()
        with pytest.raises(AssertionError):
            fragment.release()

    def test_retain_after_the_last_release_is_an_assertion(self) -> None:
        fragment = fragment_of(bytes(8))
        fragment.release()
        with pytest.raises(AssertionError):
            fragment.retain()

    def test_late_use_of_the_memory_fails(self) -> None:
        fragment = fragment_of(bytes(8))
        fragment.release()
        with pytest.raises(IndexError):
            fragment.memory[0] = 1


class TestIOBuf:
    def test_append_retains_and_release_releases_each_reference(self) -> None:
        fragment = fragment_of(b"abcdef")
        chain = IOBuf()
        chain.append(fragment.memory[:3], fragment)
        chain.append(fragment.memory[3:], fragment)
        assert fragment.references == 3
        chain.release()
        chain.release()
        assert fragment.references == 1
        assert chain.size_bytes == 0

    def test_empty_views_are_not_kept(self) -> None:
        fragment = fragment_of(b"abc")
        chain = IOBuf()
        chain.append(fragment.memory[:0], fragment)
        assert list(chain) == []
        assert fragment.references == 1

    def test_context_manager_releases_on_error(self) -> None:
        chain, (fragment,) = chain_of([b"abc"])
        with pytest.raises(KeyError), chain:
            raise KeyError
        assert fragment.references == 0

    def test_more_views_than_one_system_call_takes_come_in_groups(self, tmp_path: Path) -> None:
        count = 2 * IOV_MAX + 5
        chain, _ = chain_of([bytes([i % 251]) for i in range(count)])
        groups = list(chain.groups())
        assert [len(group) for group in groups] == [IOV_MAX, IOV_MAX, 5]
        with open(tmp_path / "file", "wb") as file:
            position = 0
            for group in groups:
                position += os.pwritev(file.fileno(), group, position)
        assert (tmp_path / "file").read_bytes() == bytes(i % 251 for i in range(count))

    @given(pieces_of_bytes, pieces_of_bytes)
    def test_extend_equals_concatenation(self, left: list[bytes], right: list[bytes]) -> None:
        chain, _ = chain_of(left)
        other, fragments = chain_of(right)
        chain.extend(other)
        other.release()
        assert chain.to_bytes() == b"".join(left + right)
        chain.release()
        assert all(fragment.references == 0 for fragment in fragments)
