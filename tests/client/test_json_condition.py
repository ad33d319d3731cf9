"""Conditions on JSON: what they find, what they refuse, and that nothing that a person writes breaks them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.json_condition import MAX_STEPS, ConditionError, parse_condition

ORDER = {
    "id": 42,
    "paid": True,
    "note": "by hand",
    "customer": {"country": "CZ", "full name": "J. N.", "phone": None},
    "items": [{"sku": "a-1", "price": 2.5}, {"sku": "b-2", "price": 10}],
}


@pytest.mark.parametrize(
    "text",
    [
        "$",
        "$.id",
        "id",
        ".customer.country",
        '$.customer.country == "CZ"',
        "customer.country=CZ",
        "$.customer['full name'] = 'J. N.'",
        '$["customer"]["full name"] ~ "N."',
        "$.customer.phone == null",
        "$.customer.country != SK",
        "$.items[0].sku == a-1",
        "$.items[-1].price >= 10",
        "$.items[*].price < 3",
        "$.*.country = CZ",
        "$.paid = true",
        "$.id < 42.5",
        "$.note > by",
    ],
)
def test_what_holds(text: str) -> None:
    assert parse_condition(text).holds(ORDER)


@pytest.mark.parametrize(
    "text",
    [
        "$.nothing",
        "$.nothing != 1",
        "$.paid = 1",
        "$.id = true",
        '$.id = "42"',
        "$.id > text",
        "$.id ~ 4",
        "$.items[2]",
        "$.items.sku",
        "$.customer[0]",
        "$.items[*].price > 10",
        "$.paid > 0",
    ],
)
def test_what_does_not_hold(text: str) -> None:
    assert not parse_condition(text).holds(ORDER)


@pytest.mark.parametrize(
    "text", ["a b", "$..a", "$.a[", "$.a[?(@.b)]", "$.a ==", "= 1", "$x", "$" + ".a" * (MAX_STEPS + 1)]
)
def test_what_is_refused(text: str) -> None:
    with pytest.raises(ConditionError):
        parse_condition(text)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=3),
    max_leaves=8,
)


@given(st.text(st.sampled_from("$.[]*'\"ab10-=!<>~ "), max_size=12), VALUES)
def test_nothing_that_is_written_breaks_it(text: str, value: Any) -> None:
    try:
        condition = parse_condition(text)
    except ConditionError:
        return
    condition.holds(value)
