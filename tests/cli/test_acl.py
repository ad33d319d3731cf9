"""`ottla acl` and brokers of newer releases."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.cli import CommandError, acl
from ottla.client.acls import ANY
from ottla.kproto.messages.describe_acls import AclDescription, DescribeAclsResource, DescribeAclsResponse


class Broker:
    """Answers with one entry."""

    def __init__(self, operation: int) -> None:
        entry = AclDescription(principal="User:alice", host="*", operation=operation, permission_type=3)
        resource = DescribeAclsResource(resource_type=2, resource_name="t", pattern_type=3, acls=[entry])
        self._answer = DescribeAclsResponse(resources=[resource])

    def call(self, request: Any) -> DescribeAclsResponse:
        return self._answer


def test_an_entry_of_a_newer_release_is_named() -> None:
    client: Any = Broker(3)
    (entry,) = acl._described(client, None, None, None, ANY, None)
    assert acl._row(entry) == ("User:alice", "allow", "read", "topic:t", "*")
    client = Broker(99)
    with pytest.raises(CommandError, match="whose operation 99 this `ottla` does not know"):
        acl._described(client, None, None, None, ANY, None)
