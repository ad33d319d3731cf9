"""Regular expressions with a tenant's prefix: they match what they matched without."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.proxy.filters.prefixed_patterns import UnclearError, prefixed

re2: Any = pytest.importorskip("re2")

PREFIXES: Final = ("a.", "team_", "a+b")
NAMES: Final = ("", "a", "b", "ab", "aa", "ba", "-a", "a-b", "aab", "abb", "a.b", "a*", "orders", "payments")


def assert_same(pattern: str) -> bool:
    """Whether the expression has a form with a prefix; it then matches the same names."""
    try:
        changed = [prefixed(prefix, pattern) for prefix in PREFIXES]
    except UnclearError:
        return False
    for prefix, with_prefix in zip(PREFIXES, changed, strict=True):
        for name in NAMES:
            expected = bool(re2.fullmatch(pattern, name))
            assert bool(re2.fullmatch(with_prefix, prefix + name)) is expected, (pattern, with_prefix, name)
            assert not re2.fullmatch(with_prefix, "other." + name)
    return True


@pytest.mark.parametrize(
    "pattern",
    [
        "^orders$",
        "^(orders|payments)$",
        "^orders|^payments",
        "^orders$|^payments$",
        "^(?:orders|payments)$",
        "(^orders|payments$)",
        "(?i)^ORDERS$",
        "(?P<name>^a)b",
        "((^)a|^(b))b*",
        r"\Aorders\z",
        "^^a",
        "^*a",
        "(^a)?b",
        "a^b",
        "a*b^",
        "[^a]",
        "[]^a]+",
        r"\^a|a\$",
        r"\Qa.b",
        r"\Q^a\E|^b",
        r"\Qa*",
        r"\ba|\Bb",
        "^",
        "",
        "^$",
        "x{0}",
    ],
)
def test_anchors_mean_what_they_meant(pattern: str) -> None:
    assert assert_same(pattern)


@pytest.mark.parametrize("pattern", ["a*^b", "(a|)^b", "(^a)*", "(^a|b)+", "(?:^a){2}", r"a?\bb"])
def test_where_a_name_decides_whether_an_anchor_is_at_the_start(pattern: str) -> None:
    assert not assert_same(pattern)


PIECES: Final = st.sampled_from(
    ["a", "b", "-", ".", "^", "$", "|", "(", ")", "(?:", "*", "+", "?", "{0,2}", "{2}", r"\A", r"\z", r"\b", r"\B",
     r"\Q", r"\E", "[ab]", "[^a]", "(?i)", r"\."]
)  # fmt: skip


@given(st.lists(PIECES, max_size=9).map("".join))
def test_any_expression_matches_what_it_matched(pattern: str) -> None:
    options = re2.Options()
    options.log_errors = False
    try:
        re2.compile(pattern, options)
    except re2.error:
        return
    assert_same(pattern)
