"""What is listed where there is too much to list."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.server.telemetry.first_by_name import FirstByName


@given(st.lists(st.text(max_size=3), unique=True), st.integers(0, 20))
def test_it_is_the_beginning_of_all_in_order(names: list[str], limit: int) -> None:
    first: FirstByName[int] = FirstByName(limit)
    for number, name in enumerate(names):
        first.add(name, number)
    assert first.items() == sorted((name, number) for number, name in enumerate(names))[:limit]


def test_what_is_left_out_is_not_kept() -> None:
    first: FirstByName[None] = FirstByName(10)
    for number in range(100_000, 0, -1):
        first.add(f"{number:06}", None)
        assert len(first._first) <= 10
        assert len(first._added) < 256
    assert [name for name, _ in first.items()] == [f"{number:06}" for number in range(1, 11)]
