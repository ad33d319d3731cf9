"""`ottla acl` and brokers of newer releases."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ottla.cli import CommandError, main
from ottla.cli.access import acl
from ottla.client.admin.acls import ANY
from ottla.kproto.messages.access.describe_acls import AclDescription, DescribeAclsResource, DescribeAclsResponse
from ottla.settings.sources import STANDARD_AUTHORIZER
from ottla.testing import Broker as Ottla


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


def test_several_operations_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    settings = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
    with Ottla(config=settings) as broker:
        at = ["-b", broker.bootstrap]
        assert main(["acl", "add", "alice", "read, write,read", "topic:t", "topic:u", *at]) == 0
        assert main(["acl", "list", "--json", *at]) == 0
        listed = json.loads(capsys.readouterr().out)
        assert sorted((it["operation"], it["resource"]) for it in listed) == [
            (operation, resource) for operation in ("read", "write") for resource in ("topic:t", "topic:u")
        ]
        with pytest.raises(SystemExit, match="2"):
            main(["acl", "add", "alice", "read,wite", "topic:t", *at])
        assert "'wite' is not an operation" in capsys.readouterr().err
