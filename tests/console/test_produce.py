"""A message written by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.console.forms import MAX_FORM_BYTES
from ottla.console.pages.produce import MAX_LINES
from ottla.kproto.partitioner import partition_for_key

Browse = Callable[..., Any]


async def test_it_is_written_where_the_key_belongs_and_shown(browse: Browse) -> None:
    async with browse() as browser:
        await browser.node.create_topic("orders", partitions=8)
        token = await browser.form_token("topics/orders/produce")
        answer = await browser.post(
            "topics/orders/produce",
            {"token": token, "key": "číslo 7", "value": '{"a": 1}', "encoding": "json", "headers": "one: 1\ntwo:\n"},
        )
        partition = partition_for_key("číslo 7".encode(), 8)
        assert answer.headers["location"] == f"/console/topics/orders/messages/{partition}/0?sent=1"
        page = await browser.get(answer.headers["location"].removeprefix("/console/"))
        assert "Written and acknowledged" in page.text
        assert '"a": 1' in page.text
        assert "číslo 7" in page.text
        assert "Headers 2" in " ".join(page.text.split())


async def test_each_line_may_be_a_message(browse: Browse) -> None:
    async with browse() as browser:
        topic_id = await browser.node.create_topic("t")
        token = await browser.form_token("topics/t/produce")
        fields = {"token": token, "key": "k", "encoding": "json", "by_line": "1"}
        lines = '{"n": 1}\r\n\r\n{"n": 2}\r\n{"n": 3}\r\n'
        answer = await browser.post("topics/t/produce", {**fields, "value": lines})
        assert answer.headers["location"] == "/console/topics/t/messages/0/0?sent=3"
        page = await browser.get("topics/t/messages/0/0?sent=3")
        assert "3 messages were written and acknowledged" in page.text
        values = [(await browser.http.get(f"/console/topics/t/messages/0/{n}/value")).content for n in range(3)]
        assert values == [b'{"n": 1}', b'{"n": 2}', b'{"n": 3}']
        # All or none: a line that is wrong is named, and what was written stays in the form.
        answer = await browser.post("topics/t/produce", {**fields, "value": "1\n{\n"})
        assert answer.status_code == 422
        assert "Line 2 is not JSON" in answer.text
        assert 'name="by_line" value="1" checked' in answer.text
        for text, count in (("\n\n", "0"), ("1\n" * (MAX_LINES + 1), "1,001")):
            answer = await browser.post("topics/t/produce", {**fields, "value": text})
            assert f"these are {count}" in answer.text
        assert browser.node.broker.replica_manager.get_partition(topic_id, 0).log.log_end_offset == 3


async def test_bytes_and_tombstones(browse: Browse) -> None:
    async with browse() as browser:
        await browser.node.create_topic("t", cleanup_policy="compact")
        token = await browser.form_token("topics/t/produce")
        fields = {"token": token, "key": "0x0001ff", "partition": "0"}
        await browser.post("topics/t/produce", {**fields, "value": "00 FF", "encoding": "hex"})
        await browser.post("topics/t/produce", {**fields, "null_value": "1", "value": "ignored"})
        assert (await browser.http.get("/console/topics/t/messages/0/0/value")).content == b"\x00\xff"
        assert (await browser.http.get("/console/topics/t/messages/0/0/key")).content == b"\x00\x01\xff"
        assert (await browser.http.get("/console/topics/t/messages/0/1/value")).status_code == 404


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"partition": "9"}, "partitions 0 to 1"),
        ({"partition": "-1"}, "partitions 0 to 1"),
        ({"value": "{", "encoding": "json"}, "not JSON"),
        ({"value": "xyz", "encoding": "hex"}, "hexadecimal"),
        ({"headers": "no colon"}, "has no colon"),
        ({"value": "x" * 2000}, "refused"),
    ],
)
async def test_what_cannot_be_sent_comes_back_with_a_reason(browse: Browse, fields: dict[str, str], why: str) -> None:
    async with browse() as browser:
        topic_id = await browser.node.create_topic("t", partitions=2, max_message_bytes="1000")
        token = await browser.form_token("topics/t/produce")
        answer = await browser.post("topics/t/produce", {"token": token, "key": "kept", **fields})
        assert answer.status_code == 422
        assert why in answer.text
        assert 'value="kept"' in answer.text
        manager = browser.node.broker.replica_manager
        assert sum(manager.get_partition(topic_id, index).log.log_end_offset for index in range(2)) == 0


async def test_a_form_beyond_the_limit_is_refused(browse: Browse) -> None:
    async with browse() as browser:
        await browser.node.create_topic("t")
        token = await browser.form_token("topics/t/produce")
        answer = await browser.post("topics/t/produce", {"token": token, "value": "x" * MAX_FORM_BYTES})
        assert answer.status_code == 413


async def test_nobody_writes_to_internal_topics(browse: Browse) -> None:
    async with browse() as browser:
        await browser.node.broker.controller.ensure_topic("__consumer_offsets")
        token = await browser.form_token()
        answer = await browser.post("topics/__consumer_offsets/produce", {"token": token, "value": "x"})
        assert answer.status_code == 422
        assert "belongs to the broker" in answer.text


async def test_what_a_topic_validates_is_validated_here_too(browse: Browse) -> None:
    async with browse() as browser:
        topic_id = await browser.node.create_topic("t", **{"ottla.value.schema.validation": "id"})
        token = await browser.form_token("topics/t/produce")
        answer = await browser.post("topics/t/produce", {"token": token, "value": "plain"})
        assert answer.status_code == 422
        assert "the value does not begin with the id of a schema" in answer.text
        assert browser.node.broker.replica_manager.get_partition(topic_id, 0).log.log_end_offset == 0
