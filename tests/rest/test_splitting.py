"""A stream of JSON, cut into its records wherever its parts end."""

from __future__ import annotations

import pytest

from ottla.rest.splitting import ObjectSplitter

RECORDS = [
    b"{}",
    b'{"a": "}{"}',
    rb'{"a": "\"}\\"}',
    b'{"a": [{"b": []}, {}]}',
    '{"ž": "ř"}'.encode(),
]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_parts_may_end_anywhere(size: int) -> None:
    stream = b" \r\n" + b"\n ".join(RECORDS) + b"".join(RECORDS) + b"\n"
    splitter, found = ObjectSplitter(), []
    for start in range(0, len(stream), size):
        found += splitter.feed(stream[start : start + size])
        found += splitter.feed(b"")
    assert found == RECORDS * 2
    splitter.finish()
    assert splitter.failure is None
    assert splitter.held_bytes == 0


def test_what_came_before_a_fault_is_given() -> None:
    splitter = ObjectSplitter()
    assert splitter.feed(b'{"a": 1} 7 {"b": 2}') == [b'{"a": 1}']
    assert splitter.failure is not None
    assert splitter.failure.code == 400
    assert splitter.feed(b'{"c": 3}') == []


def test_depth_is_bounded() -> None:
    splitter = ObjectSplitter()
    assert splitter.feed(b'{"a":' + b"[" * 99 + b"]" * 99 + b"}") != []
    splitter.feed(b'{"a":' + b"[" * 100)
    assert splitter.failure is not None


def test_a_record_is_bounded_and_records_together_are_not() -> None:
    splitter = ObjectSplitter(max_text_bytes=20)
    for _ in range(10):
        assert splitter.feed(b'{"a": 1}' * 10) == [b'{"a": 1}'] * 10
    assert splitter.feed(b'{"a": "' + b"x" * 20) == []
    assert splitter.failure is not None
    assert splitter.failure.status == 413


def test_more_records_than_are_taken_at_once_come_with_the_next_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.rest.splitting.MAX_RECORDS", 2)
    splitter = ObjectSplitter(max_text_bytes=8)
    assert splitter.feed(b"{}{}{}{}{}") == [b"{}", b"{}"]
    assert splitter.feed(b"") == [b"{}", b"{}"]
    assert splitter.feed(b"") == [b"{}"]
    assert splitter.feed(b"") == []
    assert splitter.failure is None
