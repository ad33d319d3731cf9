"""A page out of many names, against sorting them all; and numbers as people read them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.console import formatting
from ottla.console.selection import select


@settings(max_examples=60)
@given(st.sets(st.text("abc-", max_size=6)), st.none() | st.text("abc-", max_size=6), st.integers(1, 8))
async def test_pages_are_those_of_the_sorted_list(names: set[str], after: str | None, limit: int) -> None:
    def matches(name: str) -> bool:
        return "a" in name

    page = await select(names, matches=matches, after=after, limit=limit)
    matching = sorted(filter(matches, names))
    following = [name for name in matching if after is None or name > after]
    assert page.names == following[:limit]
    assert page.next_after == (page.names[-1] if len(following) > limit else None)
    assert page.total == len(matching)


@settings(max_examples=60)
@given(st.dictionaries(st.text("abc", max_size=3), st.integers(-3, 3)), st.booleans(), st.integers(1, 5))
async def test_pages_in_the_order_of_a_column_hold_each_name_once(
    values: dict[str, int], descending: bool, limit: int
) -> None:
    seen: list[str] = []
    after, beyond = None, 0.0
    while True:
        page = await select(
            values,
            matches=lambda _: True,
            after=after,
            limit=limit,
            value=values.__getitem__,
            descending=descending,
            beyond=beyond,
        )
        seen += page.names
        assert page.total == len(values)
        if page.next_after is None:
            break
        after, beyond = page.next_after, page.next_beyond
    assert seen == sorted(values, key=lambda name: (-values[name] if descending else values[name], name))


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (1536, "1.54 kB"), (999_700, "1 MB"), (2**40, "1.1 TB")],
)
def test_sizes(size_bytes: int, text: str) -> None:
    assert formatting.size(size_bytes) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (61, "1 min 1 s"), (3_600, "1 h 0 min"), (100_000, "1 d 3 h")]
)
def test_spans_of_time(seconds: float, text: str) -> None:
    assert formatting.duration(seconds) == text


@pytest.mark.parametrize(
    ("timestamp_ms", "text"),
    [
        (-1, formatting.NOTHING),
        (0, "1970-01-01 00:00:00.000"),
        (2**62, str(2**62)),
        (1_700_000_000_123, "2023-11-14 22:13:20.123"),
    ],
)
def test_moments(timestamp_ms: int, text: str) -> None:
    assert formatting.moment(timestamp_ms) == text


@pytest.mark.parametrize(
    ("number", "text"), [(None, formatting.NOTHING), (0, "0"), (2.345, "2.3"), (1234567.8, "1\u202f234\u202f568")]
)
def test_rates(number: float | None, text: str) -> None:
    assert formatting.rate(number) == text
