"""Users, access control lists and quotas in the console."""

from __future__ import annotations

import html
from collections.abc import Callable
from typing import Any

import pytest

from ottla.metadata.acls import AclOperation
from ottla.settings.sources import STANDARD_AUTHORIZER

Browse = Callable[..., Any]
AUTHORIZES = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}


async def send(browser: Any, **fields: str) -> Any:
    token = await browser.form_token("access")
    return await browser.post("access", {"token": token, **fields})


async def test_users_get_passwords_and_are_deleted(browse: Browse) -> None:
    async with browse() as browser:
        assert (await send(browser, action="add-user", name="alice", password="wonder")).status_code == 303
        page = await browser.get("access")
        assert "alice" in page.text
        assert "SCRAM-SHA-512" in page.text
        assert "wonder" not in page.html
        assert len(browser.node.broker.metadata.scram_credentials) == 1
        assert (await send(browser, action="delete-user", name="alice")).status_code == 303
        assert not browser.node.broker.metadata.scram_credentials
        for fields, why in (
            ({"name": "alice"}, "no user alice"),
            ({"action": "add-user", "name": "bob"}, "a password"),
        ):
            answer = await send(browser, **{"action": "delete-user", **fields})
            assert answer.status_code == 422
            assert why in answer.text


async def test_entries_are_added_and_deleted(browse: Browse) -> None:
    async with browse(AUTHORIZES) as browser:
        entry = "alice read,write topic:orders-* --host 10.0.0.1"
        assert (await send(browser, action="add-acl", entry=entry)).status_code == 303
        acls = browser.node.broker.metadata.acls
        assert {(acl.principal, acl.operation, acl.name, acl.host) for acl in acls} == {
            ("User:alice", operation, "orders-", "10.0.0.1") for operation in (AclOperation.READ, AclOperation.WRITE)
        }
        page = await browser.get("access")
        assert "topic:orders-*" in page.text
        keys = page.html.split('name="key" value="')[1:]
        key = html.unescape(keys[0].partition('"')[0])
        assert (await send(browser, action="delete-acl", key=key)).status_code == 303
        assert len(browser.node.broker.metadata.acls) == 1
        answer = await send(browser, action="delete-acl", key=key)
        assert (answer.status_code, "no such entry any more" in answer.text) == (422, True)
        answer = await send(browser, action="add-acl", entry="alice rad topic:t")
        assert (answer.status_code, "is not an operation" in answer.text) == (422, True)
        assert 'value="alice rad topic:t"' in answer.text


async def test_without_an_authorizer_entries_are_refused(browse: Browse) -> None:
    async with browse() as browser:
        assert "everybody may do everything" in (await browser.get("access")).text
        answer = await send(browser, action="add-acl", entry="alice read topic:t")
        assert (answer.status_code, "no authorizer" in answer.text) == (422, True)


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({"user": "alice", "value": "1MiB"}, "user alice"),
        ({"user": "*", "client": "loader", "value": "1048576"}, "client-id loader, user *"),
    ],
)
async def test_quotas_are_set_and_removed(browse: Browse, fields: dict[str, str], shown: str) -> None:
    async with browse() as browser:
        quota = {"action": "quota", "quota": "producer_byte_rate"}
        assert (await send(browser, **quota, **fields)).status_code == 303
        text = (await browser.get("access")).text
        assert shown in text
        assert "1048576 (1MiB)" in text
        assert (await send(browser, **quota, **{**fields, "value": ""})).status_code == 303
        assert not any(browser.node.broker.metadata.quotas.values())
        for wrong, why in (({"value": "much"}, "is not a number"), ({"user": "", "client": ""}, "whose quota")):
            answer = await send(browser, **quota, **{**fields, **wrong})
            assert (answer.status_code, why in answer.text) == (422, True)


async def test_a_form_that_says_nothing(browse: Browse) -> None:
    async with browse() as browser:
        assert (await send(browser, action="none")).status_code == 422
        assert (await browser.post("access", {"token": "wrong", "action": "delete-user"})).status_code == 403
