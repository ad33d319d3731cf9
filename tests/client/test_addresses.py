"""Addresses as people write them."""

from __future__ import annotations

import pytest

from ottla.client.addresses import parse_address, parse_addresses
from ottla.client.errors import AddressError


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("host", ("host", 9092)),
        ("host:1", ("host", 1)),
        ("127.0.0.1:9093", ("127.0.0.1", 9093)),
        ("[::1]", ("::1", 9092)),
        ("[fe80::1%eth0]:5", ("fe80::1%eth0", 5)),
    ],
)
def test_reads_an_address(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text", ["", ":9092", "host:", "host:port", "host:0", "host:65536", "host:+1", "a:1;b:2", "a:b:c", "::1"]
)
def test_refuses_what_is_none(text: str) -> None:
    with pytest.raises(AddressError, match="is not an address: write host:port"):
        parse_address(text)


def test_the_port_may_be_required() -> None:
    assert parse_address("host:1", None) == ("host", 1)
    for text in ("host", "[::1]"):
        with pytest.raises(AddressError):
            parse_address(text, None)


def test_reads_several() -> None:
    assert parse_addresses("a:1, [::1]:2,b") == [("a", 1), ("::1", 2), ("b", 9092)]
    with pytest.raises(AddressError, match="there is no address"):
        parse_addresses(" , ")
