"""JSON that a reader can fold."""

from __future__ import annotations

import json
from typing import Any

import trio
from hypothesis import given
from hypothesis import strategies as st

from ottla.console.messages.folding import MAX_DEPTH, folded

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(["{", "]", "\u2028{\u2028"]),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=4), inner, max_size=5),
    max_leaves=60,
)


def laid_out(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


@given(JSON, st.integers(0, 400))
def test_the_pieces_are_the_text_and_each_part_that_opens_closes(value: Any, length: int) -> None:
    text = laid_out(value)[:length]
    pieces = trio.run(folded, text)
    assert "".join(piece.text for piece in pieces) == text
    depth = 0
    for piece in pieces:
        depth += {"open": 1, "close": -1, "lines": 0}[piece.kind]
        assert 0 <= depth <= MAX_DEPTH
    assert depth == 0


async def test_a_short_value_is_shown_whole() -> None:
    pieces = await folded(laid_out({"a": [1, 2, {"b": 3}]}))
    assert all(piece.is_open for piece in pieces)
    assert [piece.line_count for piece in pieces if piece.kind == "open"] == [7, 5, 1]


async def test_long_parts_of_a_long_value_are_folded() -> None:
    pieces = await folded(laid_out({"short": [1, 2], "long": list(range(100))}))
    opened = [(piece.line_count, piece.is_open) for piece in pieces if piece.kind == "open"]
    assert opened == [(106, True), (2, True), (100, False)]


async def test_what_lies_deeper_is_lines() -> None:
    value: Any = 1
    for _ in range(MAX_DEPTH + 5):
        value = [value]
    pieces = await folded(laid_out(value))
    assert sum(piece.kind == "open" for piece in pieces) == MAX_DEPTH
    assert "".join(piece.text for piece in pieces) == laid_out(value)
