"""Finding messages: order, pages, searches, transactions, and what a page may cost."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import trio

from ottla.console.console import Console
from ottla.console.guard import FormTokens
from ottla.console.history import History
from ottla.console.messages import paging, readable, reading
from ottla.console.messages.decoding import Format
from ottla.console.messages.schemas import Schemas
from ottla.console.messages.search import Search, Start, read_positions
from ottla.console.pages.live import LiveTails
from ottla.console.rendering import Renderer
from ottla.console.visitors import Visitors
from ottla.kproto.records import Compression, EndTxnMarker, Record, build_end_txn_marker
from ottla.replica.append import Records, TopicIdPartition
from ottla.server.schemas.source import Codecs
from ottla.storage.log.append_types import AppendOrigin

Browse = Callable[..., Any]


def offsets(page: Any) -> list[tuple[int, int]]:
    """The (partition, offset) of each row, in order."""
    return [
        (int(p), int(o)) for p, o in re.findall(r'data-row href="/console/topics/[^/]+/messages/(\d+)/(\d+)', page.html)
    ]


async def following(browser: Any, page: Any) -> Any:
    (link,) = page.all("a", rel="next")
    return await browser.get((link["href"] or "").removeprefix("/console/"))


async def test_the_newest_come_first_and_pages_miss_and_repeat_nothing(browse: Browse) -> None:
    async with browse() as browser:
        topic_id = await browser.node.create_topic("t", partitions=3)
        for number in range(130):
            await browser.produce(topic_id, number % 3, Record(timestamp_ms=1000 + number, value=b"%d" % number))
        page = await browser.get("topics/t/messages")
        seen = offsets(page)
        assert len(seen) == paging.MESSAGES_A_PAGE
        # Others come meanwhile; they belong before the first page.
        await browser.produce(topic_id, 0, Record(timestamp_ms=5000, value=b"late"))
        while page.all("a", rel="next"):
            page = await following(browser, page)
            seen += offsets(page)
        assert seen == [(number % 3, number // 3) for number in reversed(range(130))]


async def test_the_oldest_first_and_from_an_offset(browse: Browse) -> None:
    async with browse() as browser:
        topic_id = await browser.node.create_topic("t", partitions=2)
        for number in range(70):
            await browser.produce(topic_id, number % 2, Record(timestamp_ms=1000 + number, value=b"x"))
        page = await browser.get("topics/t/messages", start="oldest")
        both = offsets(page) + offsets(await following(browser, page))
        assert both == [(number % 2, number // 2) for number in range(70)]
        page = await browser.get("topics/t/messages", start="offset", offset=30, partition=1)
        assert offsets(page) == [(1, offset) for offset in range(30, 35)]
        assert not page.all("a", rel="next")


async def test_from_a_time(browse: Browse) -> None:
    async with browse() as browser:
        topic_id = await browser.node.create_topic("t")
        for hour in range(5):
            await browser.produce(topic_id, 0, Record(timestamp_ms=1_700_000_000_000 + hour * 3_600_000, value=b"x"))
        page = await browser.get("topics/t/messages", start="time", time="2023-11-15 00:30")
        assert offsets(page) == [(0, 3), (0, 4)]
        assert offsets(await browser.get("topics/t/messages", start="time", time="2040-01-01")) == []
        assert len(offsets(await browser.get("topics/t/messages", start="time", time="-100000h"))) == 5
        wrong = await browser.get("topics/t/messages", start="time", time="nonsense")
        assert "nonsense is not a time" in wrong.text


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1700000000000", 1_700_000_000_000),
        ("2023-11-14T22:13:20", 1_700_000_000_000),
        ("2023-11-14 23:13:20+01:00", 1_700_000_000_000),
        ("1969-01-01", 0),
        ("-1h", 1_700_000_000_000),
        ("", None),
    ],
)
def test_times_that_people_write(text: str, milliseconds: int | None) -> None:
    search = Search(Start.TIME, None, 0, text, "", "", "", "", Format.AUTO, {})
    assert search.begins_at_ms(1_700_003_600_000) == milliseconds
    assert search._replace(start=Start.OLDEST).begins_at_ms(0) is None


async def test_search_by_key_and_by_text(browse: Browse) -> None:
    async with browse() as browser:
        topic_id = await browser.node.create_topic("t")
        for number in range(300):
            await browser.produce(topic_id, 0, Record(key=b"k%d" % (number % 100), value=b"value %d" % number))
        assert offsets(await browser.get("topics/t/messages", key="k7")) == [(0, 207), (0, 107), (0, 7)]
        assert offsets(await browser.get("topics/t/messages", key="0x6b37", start="oldest")) == [
            (0, 7),
            (0, 107),
            (0, 207),
        ]
        assert offsets(await browser.get("topics/t/messages", contains="value 299")) == [(0, 299)]
        nothing = await browser.get("topics/t/messages", key="k7", contains="nowhere")
        assert offsets(nothing) == []
        assert "No message matches" in nothing.text


async def test_a_search_stops_at_its_budget_and_goes_on_from_there(
    browse: Browse, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Small(reading.Budget):
        def __init__(self, **given: Any) -> None:
            super().__init__(**{**given, "records": min(given.get("records", 100), 100)})

    monkeypatch.setattr(paging, "Budget", Small)
    async with browse() as browser:
        topic_id = await browser.node.create_topic("t")
        for _ in range(40):
            await browser.produce(topic_id, 0, *(Record(value=b"hay") for _ in range(10)))
        await browser.produce(topic_id, 0, Record(value=b"needle"))
        page = await browser.get("topics/t/messages", contains="needle", start="oldest")
        pages = 1
        while not offsets(page):
            assert "There are more" in page.text
            page = await following(browser, page)
            pages += 1
        assert offsets(page) == [(0, 400)]
        assert pages > 2


async def test_transactions_are_told_apart(browse: Browse) -> None:
    async with browse() as browser:
        topic_id = await browser.node.create_topic("t")
        log = browser.node.broker.replica_manager.get_partition(topic_id, 0).log

        async def transactional(sequence: int) -> None:
            await browser.produce(
                topic_id,
                0,
                Record(value=b"in a transaction"),
                producer_id=9,
                producer_epoch=0,
                base_sequence=sequence,
                is_transactional=True,
            )

        async def end(*, is_commit: bool) -> None:
            marker = build_end_txn_marker(EndTxnMarker(9, 0, 0, is_commit), timestamp_ms=1)
            await browser.node.broker.replica_manager.append(
                {TopicIdPartition(topic_id, 0): Records(memoryview(bytearray(marker)))},
                required_acks=1,
                timeout_ms=10_000,
                origin=AppendOrigin.COORDINATOR,
            )

        await transactional(0)
        await end(is_commit=True)
        await transactional(1)
        await end(is_commit=False)
        await transactional(2)
        page = await browser.get("topics/t/messages", start="oldest")
        kinds = re.findall(r'<tr class="kind-(\w+)"', page.html)
        assert kinds == ["record", "commit", "aborted", "abort", "open"]
        assert log.last_stable_offset == 4
        assert "open transaction" in (await browser.get("topics/t")).text
        assert (await browser.get("transactions")).rows() == 1


@pytest.mark.parametrize("codec", list(Compression))
async def test_compressed_batches_are_read(browse: Browse, codec: Compression) -> None:
    async with browse() as browser:
        topic_id = await browser.node.create_topic("t")
        values = [b"%d " % number * 400 for number in range(60)]
        await browser.produce(topic_id, 0, *(Record(value=value) for value in values), compression=codec)
        assert len(offsets(await browser.get("topics/t/messages"))) == 50


async def test_a_batch_that_is_too_large_is_named_and_stepped_over(
    browse: Browse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readable, "_MAX_BATCH_BYTES", 10_000)
    async with browse() as browser:
        topic_id = await browser.node.create_topic("t")
        await browser.produce(topic_id, 0, Record(value=b"x" * 20_000))
        await browser.produce(topic_id, 0, Record(value=b"after"))
        page = await browser.get("topics/t/messages", start="oldest")
        assert "unreadable" in page.text
        assert offsets(page) == [(0, 0), (0, 1)]


async def test_rows_come_as_they_are_written(browse: Browse) -> None:
    async with browse() as browser:
        topic_id = await browser.node.create_topic("t")
        await browser.produce(topic_id, 0, Record(value=b"before"))
        page = await browser.get("topics/t/messages", live="1")
        (table,) = [each for each in page.all("tbody") if "data-live" in each]
        await browser.produce(topic_id, 0, Record(value=b"<b>now</b>"))
        broker = browser.node.broker
        own = Console(
            broker=broker,
            renderer=Renderer(FormTokens(), version="", node_id=1),
            history=History(broker),
            schemas=Schemas(broker.config, Codecs()),
            visitors=Visitors(broker, None, trio.current_time),
        )
        tails, topic = LiveTails(), broker.metadata.topic("t")
        partitions = (await paging.readable_partitions(broker, topic, None)).partitions
        positions = read_positions((table["data-live"] or "").partition("at=")[2])
        events = tails._events(own, topic, partitions, positions, Format.AUTO)
        assert (await anext(events)).startswith(":")
        assert tails.open == 1
        event = await anext(events)
        assert event.startswith("id: 0-2\n")
        assert "&lt;b&gt;now" in event
        assert "before" not in event
        await events.aclose()
        assert tails.open == 0


async def test_a_search_looks_into_every_partition(browse: Browse) -> None:
    async with browse() as browser:
        topic_id = await browser.node.create_topic("t", partitions=200)
        await browser.produce(topic_id, 150, Record(0, 1, b"needle", b"found"))
        page = await browser.get("topics/t/messages", key="needle")
        assert "found" in page.text
        assert "Partitions 128 to 159 of 200" in page.text
        page = await browser.get("topics/t/messages", key="thread")
        assert "No message matches" in page.text


async def test_pages_go_on_with_the_next_partitions(browse: Browse) -> None:
    async with browse() as browser:
        topic_id = await browser.node.create_topic("t", partitions=40)
        for partition in (3, 35):
            await browser.produce(topic_id, partition, Record(0, 1, None, b"in %d" % partition))
        page = await browser.get("topics/t/messages")
        assert "in 3" in page.text
        assert "in 35" not in page.text
        (following,) = [link for link in page.links() if "first=32" in link]
        page = await browser.get(following.removeprefix("/console/"))
        assert "in 35" in page.text
        assert "Partitions 32 to 39 of 40" in page.text


async def test_the_live_view_follows_every_partition(browse: Browse) -> None:
    async with browse() as browser:
        topic_id = await browser.node.create_topic("t", partitions=200)
        page = await browser.get("topics/t/messages", live="1")
        (table,) = [each for each in page.all("tbody") if "data-live" in each]
        positions = read_positions((table["data-live"] or "").partition("at=")[2])
        assert set(positions) == set(range(200))
        await browser.produce(topic_id, 199, Record(value=b"in the last one"))
        broker = browser.node.broker
        partitions = (await paging.readable_partitions(broker, broker.metadata.topic("t"), None, 0, 256)).partitions
        own = Console(
            broker=broker,
            renderer=Renderer(FormTokens(), version="", node_id=1),
            history=History(broker),
            schemas=Schemas(broker.config, Codecs()),
            visitors=Visitors(broker, None, trio.current_time),
        )
        events = LiveTails()._events(own, broker.metadata.topic("t"), partitions, positions, Format.AUTO)
        assert (await anext(events)).startswith(":")
        assert "in the last one" in await anext(events)
        await events.aclose()
