"""Searches by header and by what JSON says, and downloads of what a search finds."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.console import export
from ottla.console.export import COLUMNS
from ottla.console.pages.export import MAX_EXPORTS, Exports
from ottla.kproto.records import Record
from tests.console.test_decoding import SCHEMA, VALUE
from tests.console.test_messages import offsets

Browse = Callable[..., Any]


def order(number: int, **members: Any) -> Record:
    return Record(0, 1_700_000_000_000 + number, b"%d" % number, json.dumps({"id": number, **members}).encode())


async def download(browser: Any, file: str, **query: Any) -> str:
    response = await browser.http.get("/console/topics/t/export", params={"file": file, **query})
    assert response.status_code == 200
    assert response.headers["content-disposition"] == f'attachment; filename="t.{file}"'
    return str(response.text)


async def lines(browser: Any, **query: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (await download(browser, "jsonl", **query)).splitlines()]


async def test_search_by_a_member_of_json(browse: Browse) -> None:
    async with browse() as browser:
        topic_id = await browser.node.create_topic("t")
        for number in range(60):
            await browser.produce(topic_id, 0, order(number, customer={"country": "CZ" if number % 20 else "SK"}))
        await browser.produce(topic_id, 0, Record(value=b"not JSON"), Record(value=b'{"cut": '), Record(value=None))
        page = await browser.get("topics/t/messages", json="$.customer.country = SK")
        assert offsets(page) == [(0, 40), (0, 20), (0, 0)]
        page = await browser.get("topics/t/messages", json="$.id >= 58", start="oldest", key="59")
        assert offsets(page) == [(0, 59)]
        page = await browser.get("topics/t/messages", json="$..id")
        assert "is not part of a path" in page.text
        assert offsets(page) == []
        (field,) = page.all("input", name="json")
        assert field["value"] == "$..id"


async def test_search_by_a_member_of_avro(browse: Browse, tmp_path: Path) -> None:
    (tmp_path / "7.avsc").write_text(json.dumps(SCHEMA))
    async with browse({"ottla.console.schema.dir": str(tmp_path)}) as browser:
        topic_id = await browser.node.create_topic("t")
        await browser.produce(topic_id, 0, Record(value=VALUE), Record(value=b"\x00\x00\x00\x00\x07broken"))
        assert offsets(await browser.get("topics/t/messages", json="$.lines[0].sku = a")) == [(0, 0)]
        assert offsets(await browser.get("topics/t/messages", json="$.lines[0].sku = b")) == []
        (line,) = await lines(browser, json="$.id = 42")
        assert line["decoded"]["state"] == "PAID"
        assert line["value"] == {"base64": "AAAAAAdUAgZoaSECAmEAAAAAAAD4PwACq80BCAJrBQAA"}


async def test_search_by_header(browse: Browse) -> None:
    async with browse() as browser:
        topic_id = await browser.node.create_topic("t")
        await browser.produce(topic_id, 0, Record(value=b"0"))
        await browser.produce(topic_id, 0, Record(value=b"1", headers=[("trace", b"abc-1"), ("other", None)]))
        await browser.produce(topic_id, 0, Record(value=b"2", headers=[("trace", b"xyz-2")]))
        assert offsets(await browser.get("topics/t/messages", header="trace")) == [(0, 2), (0, 1)]
        assert offsets(await browser.get("topics/t/messages", header="trace: abc")) == [(0, 1)]
        assert offsets(await browser.get("topics/t/messages", header="trace: 0x2d32")) == [(0, 2)]
        assert offsets(await browser.get("topics/t/messages", header="other")) == [(0, 1)]
        assert offsets(await browser.get("topics/t/messages", header="Trace")) == []


async def test_a_file_has_all_pages_of_a_search(browse: Browse) -> None:
    async with browse() as browser:
        topic_id = await browser.node.create_topic("t", partitions=40)
        for number in range(130):
            await browser.produce(topic_id, number % 40, order(number))
        found = await lines(browser, start="oldest", json="$.id < 120")
        assert sorted(json.loads(each["value"])["id"] for each in found) == list(range(120))
        assert all("export" not in each for each in found)
        newest = await lines(browser, partition=3)
        assert [each["offset"] for each in newest] == [3, 2, 1, 0]
        where = {"topic": "t", "partition": 3, "offset": 3, "timestamp": 1_700_000_000_123}
        assert newest[0] == {**where, "key": "123", "value": '{"id": 123}'}


async def test_a_file_begins_where_its_page_does(browse: Browse) -> None:
    async with browse() as browser:
        topic_id = await browser.node.create_topic("t")
        for number in range(70):
            await browser.produce(topic_id, 0, order(number))
        page = await browser.get("topics/t/messages", at="0-20", start="newest")
        (link,) = [link for link in page.links() if "file=jsonl" in link]
        response = await browser.http.get(link)
        assert [json.loads(line)["offset"] for line in response.text.splitlines()] == list(reversed(range(20)))


async def test_a_table_for_spreadsheets(browse: Browse) -> None:
    async with browse() as browser:
        topic_id = await browser.node.create_topic("t")
        await browser.produce(topic_id, 0, Record(0, 1_700_000_000_123, b'a "key"', b"one,\ntwo", [("h", b"\xff")]))
        await browser.produce(topic_id, 0, Record(0, -1, None, b"\xfe\xff"))
        rows = list(csv.reader((await download(browser, "csv", start="oldest")).splitlines(keepends=True)))
        assert rows == [
            list(COLUMNS),
            ["0", "0", "2023-11-14T22:13:20.123Z", 'a "key"', "one,\ntwo", '[["h", {"base64": "/w=="}]]', "record"],
            ["0", "1", "-1", "", "0xfeff", "[]", "record"],
        ]


@pytest.mark.parametrize("file", ["jsonl", "csv"])
async def test_a_file_that_ends_early_says_so(browse: Browse, monkeypatch: pytest.MonkeyPatch, file: str) -> None:
    async with browse() as browser:
        topic_id = await browser.node.create_topic("t")
        for number in range(130):
            await browser.produce(topic_id, 0, order(number))
        whole = (await download(browser, file)).splitlines()
        assert len(whole) == 130 + (file == "csv")
        monkeypatch.setattr(export, "MAX_MESSAGES", 60)
        cut = (await download(browser, file)).splitlines()
        assert cut[:-1] == whole[: 60 + (file == "csv")]
        assert "cut: 60 messages are the most" in cut[-1]
        monkeypatch.setattr(export, "MAX_MESSAGES", 130)
        assert (await download(browser, file)).splitlines() == whole
        monkeypatch.setattr(export, "MAX_BYTES", 100)
        assert "cut: 100 bytes" in (await download(browser, file)).splitlines()[-1]
        monkeypatch.undo()
        monkeypatch.setattr(export, "MAX_SECONDS", -1.0)
        assert "was not at its end after" in (await download(browser, file)).splitlines()[-1]


async def test_what_a_download_refuses(browse: Browse) -> None:
    async with browse() as browser:
        await browser.node.create_topic("t")
        assert (await browser.http.get("/console/topics/none/export")).status_code == 404
        wrong = await browser.http.get("/console/topics/t/export", params={"json": "$..a"})
        assert (wrong.status_code, "is not part of a path" in wrong.text) == (400, True)


async def test_few_downloads_at_once(browse: Browse) -> None:
    exports = Exports()

    async def lines_for_ever() -> Any:
        while True:
            yield b"line\n"

    streams = [exports._counted(lines_for_ever()) for _ in range(MAX_EXPORTS)]
    for stream in streams:
        assert await anext(stream) == b"line\n"
    assert exports.open == MAX_EXPORTS
    for stream in streams:
        await stream.aclose()
    assert exports.open == 0


async def test_topics_in_the_order_of_what_they_hold(browse: Browse) -> None:
    async with browse() as browser:
        for name, records in (("a", 3), ("b", 9), ("c", 1)):
            topic_id = await browser.node.create_topic(name, partitions=len(name) + records % 2)
            await browser.produce(topic_id, 0, *(Record(value=b"x" * 100) for _ in range(records)))

        async def names(**query: Any) -> list[str]:
            page = await browser.get("topics", **query)
            return [(found["href"] or "").rpartition("/")[2] for found in page.all("a", class_="name")]

        assert await names() == ["a", "b", "c"]
        assert await names(sort="records") == ["b", "a", "c"]
        assert await names(sort="size_bytes", asc="1") == ["c", "a", "b"]
        assert await names(sort="records", q="c") == ["c"]
        odd = await browser.http.get("/console/topics?sort=records&where=x&self=y&path=z&beyond=nan")
        assert odd.status_code == 200
        assert await names(sort="nonsense") == ["a", "b", "c"]
        page = await browser.get("topics", sort="records", internal="1")
        assert [found.get("aria-sort") for found in page.all("th")].count("descending") == 1
        assert "/console/topics?internal=1&sort=records&asc=1" in page.links()


async def test_partitions_in_the_order_of_their_records(browse: Browse) -> None:
    async with browse() as browser:
        topic_id = await browser.node.create_topic("t", partitions=103)
        for partition, records in ((100, 5), (7, 9), (50, 7)):
            await browser.produce(topic_id, partition, *(Record(value=b"x") for _ in range(records)))

        def numbers(page: Any) -> list[int]:
            links = [found["href"] or "" for found in page.all("a", class_="name")]
            return [int(link.rpartition("partition=")[2]) for link in links if "partition=" in link]

        first = await browser.get("topics/t", sort="records")
        assert numbers(first)[:4] == [7, 50, 100, 0]
        (following,) = first.all("a", rel="next")
        second = await browser.get((following["href"] or "").removeprefix("/console/"))
        assert sorted(numbers(first) + numbers(second)) == list(range(103))
        assert numbers(second) == [99, 101, 102]
        assert numbers(await browser.get("topics/t"))[:3] == [0, 1, 2]


async def test_the_overview_counts_what_the_lists_show(browse: Browse) -> None:
    async with browse() as browser:
        for name in ("a", "b"):
            await browser.node.create_topic(name)
        await browser.node.broker.controller.ensure_topic("__consumer_offsets")
        overview = "".join((await browser.get("")).text.split())
        assert "Topics2and1internal" in overview
        assert "".join((await browser.get("topics")).text.split()).count("Topics2") == 1
