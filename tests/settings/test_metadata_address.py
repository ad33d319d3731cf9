"""Addresses of metadata stores."""

from __future__ import annotations

import pytest

from ottla.metastore.address import EtcdAddress, parse_metadata_address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("sqlite", None),
        ("memory", None),
        ("etcd://a:1", EtcdAddress(("http://a:1",), "/ottla")),
        ("etcd://a", EtcdAddress(("http://a:2379",), "/ottla")),
        (
            "etcd://a:1,b,[::1]:3,[::2]/x",
            EtcdAddress(("http://a:1", "http://b:2379", "http://[::1]:3", "http://[::2]:2379"), "/x"),
        ),
        ("etcds://a:1/one/two/", EtcdAddress(("https://a:1",), "/one/two")),
    ],
)
def test_what_is_an_address(text: str, address: EtcdAddress | None) -> None:
    assert parse_metadata_address(text) == address
    assert address is None or address.is_encrypted == text.startswith("etcds:")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "must be sqlite, memory, or etcd"),
        ("postgres://a", "must be sqlite, memory, or etcd"),
        ("etcd:a", "must be sqlite, memory, or etcd"),
        ("etcd://", "host:port"),
        ("etcd://a,,b", "host:port"),
        ("etcd://:1", "host:port"),
        ("etcd://::1", "IPv6 host in brackets"),
        ("etcd://a:0", "not a port"),
        ("etcd://a:99999", "not a port"),
        ("etcd://a:x", "not a port"),
        ("etcd://user:secret@a:1", "ottla.metadata.store.user"),
        ("etcd://a//x", "empty parts"),
        ("etcd://a/x?tls=1", "must not contain"),
    ],
)
def test_what_is_none(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_metadata_address(text)
