"""The console in headless Chromium: pages lay out, scripts run, the policy blocks nothing. `make test-console`."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from ottla.coordinator.group.offset_and_metadata import OffsetToCommit, TopicPartition
from ottla.kproto.records import Record, build_batch
from ottla.replica.append import Records, TopicIdPartition
from tests.console.conftest import once_loaded
from tests.console.devtools import PHONE, Tab, browser

pytestmark = pytest.mark.chromium

SETTINGS = {"ottla.http.listen": "127.0.0.1:0", "ottla.console.enable": "true"}
LONG_NAME = "a-topic-with-a-rather-long-name-that-nobody-would-choose-" + "x" * 80
PAGES = (
    "", "topics", "topics/t", "topics/t/messages", "topics/t/messages/0/0", "topics/t/produce", "topics/t/manage",
    "topics/t/groups", "groups", "group?id=billing", "group/manage?id=billing", "transactions", "settings",
)  # fmt: skip

Serve = Callable[..., Any]


class Shown(NamedTuple):
    """A node with a topic, a group that is behind and a transaction, and a browser to look at them."""

    node: Any
    tab: Tab
    topic_id: UUID

    def url(self, path: str) -> str:
        return f"{self.node.http_url}/console/{path}"

    async def produce(self, *values: bytes, timestamp_ms: int = 1_700_000_000_123) -> None:
        batch = build_batch([Record(place, timestamp_ms, b"key", value) for place, value in enumerate(values)])
        where = TopicIdPartition(self.topic_id, 0)
        await self.node.broker.replica_manager.append(
            {where: Records(memoryview(bytearray(batch)))}, required_acks=1, timeout_ms=10_000
        )


@asynccontextmanager
async def showing(serve_node: Serve, folder: Path) -> AsyncIterator[Shown]:
    async with serve_node(SETTINGS, data_dir=folder / "data") as node, browser(folder / "profile") as tab:
        topic_id = await node.create_topic("t", partitions=3)
        await node.create_topic(LONG_NAME)
        it = Shown(node, tab, topic_id)
        await it.produce(json.dumps({"customer": "Jana", "items": list(range(20))}).encode(), b"second")
        for name in ("__consumer_offsets", "__transaction_state"):
            await node.broker.controller.ensure_topic(name)
        offsets = {TopicPartition("t", 0): OffsetToCommit(1, -1, "", topic_id=topic_id)}
        await once_loaded(node.broker.group_coordinator.offsets.commit, "billing", offsets)
        await once_loaded(node.broker.transaction_coordinator.init_producer_id, "a-producer", 60_000, None)
        yield it


async def test_pages_run_their_script_and_break_no_rule(serve_node: Serve, tmp_path: Path) -> None:
    async with showing(serve_node, tmp_path) as it:
        for path in PAGES:
            await it.tab.open(it.url(path))
            assert await it.tab.evaluate("document.documentElement.classList.contains('js')"), path
            assert await it.tab.evaluate("document.querySelector('h1') !== null"), path
        assert it.tab.log == []


async def test_a_phone_shows_all_without_scrolling_sideways(serve_node: Serve, tmp_path: Path) -> None:
    too_wide = """[...document.querySelectorAll('main *')]
        .filter(each => !each.closest('.layout, pre, .sr'))
        .filter(each => each.getBoundingClientRect().right > innerWidth + 1)
        .map(each => each.outerHTML.slice(0, 90))"""
    async with showing(serve_node, tmp_path) as it:
        for path in (*PAGES, f"topics/{LONG_NAME}"):
            await it.tab.open(it.url(path), size=PHONE)
            assert await it.tab.evaluate("innerWidth") == PHONE[0]
            assert await it.tab.evaluate(too_wide) == [], path
            assert await it.tab.evaluate("document.documentElement.scrollWidth") <= PHONE[0], path


async def test_a_long_value_is_folded_and_copied_whole(serve_node: Serve, tmp_path: Path) -> None:
    value = {"customer": "Jana", "items": list(range(60))}
    async with showing(serve_node, tmp_path) as it:
        await it.produce(json.dumps(value).encode())
        await it.tab.open(it.url("topics/t/messages/0/2"), size=PHONE)
        height = "document.getElementById('part-value').scrollHeight"
        folded = await it.tab.evaluate(height)
        assert json.loads(await it.tab.evaluate("document.getElementById('part-value').textContent")) == value
        await it.tab.evaluate("document.querySelector('#part-value details details summary').click()")
        assert await it.tab.evaluate(height) > 5 * folded


async def test_hostile_messages_run_nothing(serve_node: Serve, tmp_path: Path) -> None:
    attack = b"<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
    async with showing(serve_node, tmp_path) as it:
        await it.produce(attack)
        for path in ("topics/t/messages", "topics/t/messages/0/2"):
            await it.tab.open(it.url(path))
            assert await it.tab.evaluate("document.title") != "owned"
            assert "<script>document.title" in await it.tab.evaluate("document.querySelector('main').innerText")


async def test_a_page_refreshes_by_itself_when_it_is_told_to(serve_node: Serve, tmp_path: Path) -> None:
    records = "document.querySelector('td[data-label=Records]').innerText"
    async with showing(serve_node, tmp_path) as it:
        await it.tab.open(it.url("topics?q=t&sort=records"))
        assert await it.tab.evaluate(records) == "2"
        assert await it.tab.evaluate("document.querySelector('[data-refresher]').ariaPressed") == "false"
        await it.produce(b"third")
        await it.tab.evaluate("document.querySelector('[data-refresher]').click()")
        await it.tab.until(f"{records} === '3'")
        # Every five seconds from now on, and on the next page as well.
        await it.produce(b"fourth")
        await it.tab.until(f"{records} === '4'")
        await it.tab.open(it.url("topics/t"))
        assert await it.tab.evaluate("document.querySelector('[data-refresher]').ariaPressed") == "true"
        await it.tab.evaluate("document.querySelector('details').open = true")
        await it.produce(b"fifth")
        await it.tab.until(f"{records} === '5'")
        assert await it.tab.evaluate("document.querySelector('details').open")
        await it.tab.open(it.url("topics/t/messages"))
        assert await it.tab.evaluate("document.querySelector('[data-refresher]').offsetParent === null")
        assert it.tab.log == []


async def test_times_are_shown_as_in_the_browsers_time_zone(serve_node: Serve, tmp_path: Path) -> None:
    time = "document.querySelector('td.time time').innerText"
    async with showing(serve_node, tmp_path) as it:
        await it.tab.call("Emulation.setTimezoneOverride", timezoneId="Asia/Kolkata")
        await it.tab.open(it.url("topics/t/messages"))
        assert await it.tab.evaluate(time) == "2023-11-14 22:13:20.123"
        await it.tab.evaluate("document.querySelector('[data-times]').click()")
        assert await it.tab.evaluate(time) == "2023-11-15 03:43:20.123"
        assert await it.tab.evaluate("document.querySelector('th [data-zone]').innerText") in (
            "Asia/Kolkata",
            "Asia/Calcutta",
        )
        await it.tab.open(it.url("topics/t/messages?start=time"))
        assert await it.tab.evaluate(time) == "2023-11-15 03:43:20.123"
        # What is written into the form is of that zone, too.
        await it.tab.evaluate("document.querySelector('[data-time]').value = '2023-11-15 03:50'")
        await it.tab.evaluate("document.querySelector('.finder').requestSubmit()")
        await it.tab.until("location.search.includes('2023-11-14T22%3A20%3A00.000Z')")


async def test_messages_come_live(serve_node: Serve, tmp_path: Path) -> None:
    async with showing(serve_node, tmp_path) as it:
        await it.tab.open(it.url("topics/t/messages?live=1"))
        await it.produce(b"as it comes")
        await it.tab.until("document.querySelector('tr.fresh')?.innerText.includes('as it comes')")
        assert it.tab.log == []
