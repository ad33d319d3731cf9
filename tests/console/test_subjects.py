"""The pages of schemas: subjects, versions side by side, who uses one, and drafts."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from ottla.console.subjects import MAX_COMPARED_LINES, Line, registry_of, side_by_side
from ottla.metadata.acls import AclOperation, AclResource
from ottla.registry.registry import Registry
from ottla.registry.requests import schema_request
from tests.console.test_login import allow

Browse = Callable[..., Any]


def record(*fields: str, name: str = "Order") -> str:
    return json.dumps(
        {"type": "record", "name": name, "fields": [{"name": it, "type": "long", "default": 0} for it in fields]}
    )


@asynccontextmanager
async def with_registry(browse: Browse, **settings: str) -> AsyncIterator[tuple[Any, Registry]]:
    async with browse(settings={"ottla.registry.listeners": "127.0.0.1:0", **settings}) as browser:
        with trio.fail_after(60):
            while (registry := registry_of(browser.node.broker)) is None:  # noqa: ASYNC110 - a thread mounts it
                await trio.sleep(0.01)
        yield browser, registry


async def register(registry: Registry, subject: str, text: str, **more: Any) -> None:
    await registry.register(subject, schema_request({"schema": text, **more}), normalize=False)


async def test_subjects_and_their_versions_side_by_side(browse: Browse) -> None:
    async with with_registry(browse) as (browser, registry):
        assert "No schema is registered yet" in (await browser.get("schemas")).text
        await browser.node.create_topic("orders", **{"ottla.value.schema.validation": "id"})
        await register(registry, "orders-value", record("id"))
        await register(registry, "orders-value", record("id", "price"))
        outer = {"type": "record", "name": "Outer", "fields": [{"name": "o", "type": "Order"}]}
        references = [{"name": "Order", "subject": "orders-value", "version": 1}]
        await register(registry, "a/b & c", json.dumps(outer), references=references)
        listed = await browser.get("schemas")
        assert listed.rows() == 2
        assert "/console/schema?name=a%2Fb+%26+c" in listed.links()
        assert (await browser.get("schemas", q="ORDERS")).rows() == 1
        page = await browser.get("schema", name="orders-value")
        assert "Version 1" in page.text
        assert page.html.count('class="more"') + page.html.count('class="changed"') > 0
        assert '"name": "price"' in page.text
        assert "The values of orders, which the broker validates (id)" in " ".join(page.text.split())
        assert "a/b & c, version 1, refers to it" in " ".join(page.text.split())
        first = await browser.get("schema", name="orders-value", version=1, against=2)
        assert first.html.count('class="less"') + first.html.count('class="changed"') > 0
        alone = await browser.get("schema", name="a/b & c")
        assert "Refers to orders-value 1 as Order." in " ".join(alone.text.split())
        for name in ("nothing", "", "x" * 5_000):
            assert (await browser.get("schema", name=name)).status == 404


async def test_a_draft_is_checked_and_not_registered(browse: Browse) -> None:
    async with with_registry(browse) as (browser, registry):
        await register(registry, "s", record("id"))
        token = await browser.form_token("schema?name=s")

        async def check(schema: str, kind: str = "AVRO", **more: str) -> Any:
            return await browser.post("schema?name=s", {"token": token, "schema": schema, "kind": kind, **more})

        assert "It could be registered." in (await check(record("id", "price"))).text
        refused = (await check(record("id", name="Other"))).text
        assert "It could not be registered (BACKWARD)" in refused
        assert "NAME_MISMATCH" in refused
        assert "<script>" not in (await check('"<script>"')).text
        for schema in ("", "{", "[" * 100_000):
            answer = await check(schema)
            assert answer.status_code == 200
            assert "It could be registered." not in answer.text
        assert (await browser.post("schema?name=s", {"schema": '"int"', "kind": "AVRO"})).status_code == 403
        assert len(registry.state.versions("s")) == 1


async def test_only_who_may_read_a_subject_sees_it(browse: Browse) -> None:
    rules = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    async with with_registry(browse, **rules) as (browser, registry):
        await register(registry, "open", record("id"))
        await register(registry, "closed", record("id"))
        closed = allow("alice", AclOperation.READ, AclResource.TOPIC, "subject:closed")
        await browser.node.broker.controller.create_acls([closed])
        listed = await browser.get("schemas")
        assert (listed.rows(), "closed" in listed.text) == (1, False)
        assert (await browser.get("schema", name="open")).status == 200
        assert (await browser.get("schema", name="closed")).status == 404


async def test_a_broker_without_a_registry(browse: Browse) -> None:
    async with browse() as browser:
        assert "serves no schema registry" in (await browser.get("schemas")).text
        assert (await browser.get("schema", name="s")).status == 404


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        ("a\nb", "a\nb", [Line("a", "a", "same"), Line("b", "b", "same")]),
        ("a\nb", "a\nc", [Line("a", "a", "same"), Line("b", "c", "changed")]),
        ("a", "a\nb", [Line("a", "a", "same"), Line(None, "b", "more")]),
        ("a\nb", "b", [Line("a", None, "less"), Line("b", "b", "same")]),
        ("", "", []),
    ],
)
def test_two_texts_side_by_side(old: str, new: str, lines: list[Line]) -> None:
    assert side_by_side(old, new) == lines


def test_long_texts_are_not_compared_line_by_line() -> None:
    long = "\n".join(map(str, range(MAX_COMPARED_LINES + 1)))
    assert {line.change for line in side_by_side(long, long)} == {"same"}
    assert {line.change for line in side_by_side(long, long.replace("5", "x"))} == {"changed"}
