"""Entries of access control lists as people write them."""

from __future__ import annotations

import pytest

from ottla.client.admin.acls import AclTextError, parse_entry


@pytest.mark.parametrize(
    ("text", "resource", "name", "pattern", "operation"),
    [
        ("bob read topic:logs-*", 2, "logs-", 4, 3),
        ("bob create-tokens user:alice", 7, "User:alice", 3, 13),
        ("bob describe-tokens user:*", 7, "*", 3, 14),
        ("bob describe-tokens user:User:a*", 7, "User:a", 4, 14),
        ("bob describe delegation-token:id", 6, "id", 3, 8),
        ("bob alter cluster", 4, "kafka-cluster", 3, 7),
    ],
)
def test_entries(text: str, resource: int, name: str, pattern: int, operation: int) -> None:
    (entry,) = parse_entry(text)
    assert entry.principal == "User:bob"
    assert (entry.resource_type, entry.resource_name, entry.resource_pattern_type) == (resource, name, pattern)
    assert entry.operation == operation


@pytest.mark.parametrize(
    "text", ["bob read", "bob eat topic:t", "bob read topic", "bob read cluster:x", "bob read user:"]
)
def test_what_is_no_entry(text: str) -> None:
    with pytest.raises(AclTextError):
        parse_entry(text)
