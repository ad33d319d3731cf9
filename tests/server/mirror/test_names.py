"""Which names are meant."""

from __future__ import annotations

from ottla.server.mirror.names import NamePattern


def test_patterns_let_in_and_take_out() -> None:
    names = NamePattern(["orders*", "pay?", "!orders-test*"])
    assert names.matches("orders")
    assert names.matches("orders-eu")
    assert names.matches("pay1")
    assert not names.matches("pay")
    assert not names.matches("orders-test-1")
    assert not names.matches("Orders")


def test_without_anything_let_in_everything_is() -> None:
    assert NamePattern([]).matches("x")
    assert NamePattern(["!y"]).matches("x")
    assert not NamePattern(["!y"]).matches("y")
