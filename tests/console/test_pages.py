"""Every page of the console, over HTTP and through an HTML parser."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.coordinator.errors import CoordinatorError
from ottla.coordinator.group.offset_and_metadata import OffsetToCommit, TopicPartition
from ottla.coordinator.transaction.state import Partition, TransactionStatus
from ottla.kproto.records import Record
from tests.console.conftest import once_loaded

Browse = Callable[..., Any]

PAGES = ("", "topics", "groups", "transactions", "access", "settings", "topics/orders", "topics/orders/messages")


async def test_every_page_is_whole_and_names_its_place(browse: Browse) -> None:
    async with browse() as browser:
        await browser.node.create_topic("orders", partitions=3)
        for path in PAGES:
            page = await browser.get(path)
            assert page.status == 200, path
            assert len([link for link in page.all("a") if "aria-current" in link and "data-go" in link]) == 1, path
            assert page.all("main", id="content"), path
            assert page.all("a", class_="skip"), path
            assert not [each for tag, each in page.elements if "style" in each or tag == "style"], path
            assert not [each for each in page.all("script") if not each.get("src")], path


async def test_every_field_has_a_label(browse: Browse) -> None:
    async with browse() as browser:
        await browser.node.create_topic("orders")
        for path in (*PAGES, "topics/orders/produce"):
            page = await browser.get(path)
            for field in page.all("input"):
                if field.get("type") != "hidden" and "aria-label" not in field:
                    name = field["name"]
                    before = page.html.split(f'name="{name}"')[0]
                    assert before.rfind("<label") > before.rfind("</label>"), (path, name)


async def test_the_overview_says_what_the_node_is(browse: Browse) -> None:
    async with browse() as browser:
        page = await browser.get("")
        assert browser.node.broker.metadata.cluster_id in page.text
        assert f"127.0.0.1:{browser.node.port}" in page.text
        assert "controller" in page.text


async def test_topics_are_found_and_paged(browse: Browse) -> None:
    async with browse() as browser:
        for number in range(103):
            await browser.node.create_topic(f"topic-{number:03}")
        first = await browser.get("topics")
        assert first.rows() == 100
        assert "topic-099" in first.text
        assert "topic-100" not in first.text
        (following,) = first.all("a", rel="next")
        second = await browser.get((following["href"] or "").removeprefix("/console/"))
        assert second.rows() == 3
        assert "topic-102" in second.text
        assert (await browser.get("topics", q="C-05")).rows() == 10
        assert "name has “nothing” in it" in (await browser.get("topics", q="nothing")).text


async def test_internal_topics_are_shown_when_asked_for(browse: Browse) -> None:
    async with browse() as browser:
        await browser.node.broker.controller.ensure_topic("__consumer_offsets")
        assert "__consumer_offsets" not in (await browser.get("topics")).text
        assert "__consumer_offsets" in (await browser.get("topics", internal="1")).text


async def test_a_topic_shows_its_partitions_settings_and_bytes(browse: Browse) -> None:
    async with browse() as browser:
        topic_id = await browser.node.create_topic("orders", partitions=2, retention_ms="1234567")
        await browser.produce(topic_id, 1, Record(value=b"a"), Record(value=b"b"))
        page = await browser.get("topics/orders")
        assert "1234567" in page.text
        assert "retention.ms" in page.text
        (picture,) = [each for each in page.all("svg") if "Bytes of" in (each.get("aria-label") or "")]
        assert picture["aria-label"] == "Bytes of 2 partitions in 1 segment"
        assert [each for each in page.all("rect") if (each.get("class") or "").startswith("s")]


async def test_a_tiered_topic_shows_both_tiers(browse: Browse, tmp_path: Path) -> None:
    async with browse({"ottla.remote.url": f"file://{tmp_path}"}) as browser:
        topic_id = await browser.node.create_topic("orders", remote_storage_enable="true")
        await browser.produce(topic_id, 0, Record(value=b"a"))
        partition = browser.node.broker.replica_manager.get_partition(topic_id, 0)
        await partition.remote.look(partition.leader_epoch)
        page = await browser.get("topics/orders")
        labels = [each.get("aria-label") or "" for each in page.all("svg")]
        assert "Offsets of 1 partition in the object store and on the disk" in labels
        assert "0 B in the object store" in page.text


async def test_a_message_is_shown_whole_and_downloaded(browse: Browse) -> None:
    async with browse() as browser:
        topic_id = await browser.node.create_topic("orders")
        value = json.dumps({"město": "Plzeň", "items": list(range(50))}).encode()
        await browser.produce(
            topic_id, 0, Record(0, 1_700_000_000_123, b"key", value, [("trace", b"abc"), ("n", None)])
        )
        page = await browser.get("topics/orders/messages/0/0")
        assert '"město": "Plzeň"' in page.text
        assert "2023-11-14 22:13:20.123" in page.text
        assert "trace" in page.text
        download = await browser.http.get("/console/topics/orders/messages/0/0/value")
        assert download.content == value
        assert download.headers["content-disposition"] == 'attachment; filename="orders-0-0.value"'
        assert download.headers["content-type"] == "application/octet-stream"
        assert (await browser.get("topics/orders/messages/0/1")).status == 404
        assert (await browser.get("topics/orders/messages/7/0")).status == 404
        assert (await browser.get("topics/orders/messages/0/0/attributes")).status == 404


async def test_what_is_not_there_is_not_found(browse: Browse) -> None:
    async with browse() as browser:
        for path in ("topics/none", "topics/none/messages", "topics/none/produce", "nothing/at/all"):
            page = await browser.get(path)
            assert page.status == 404, path
            assert "Not found" in page.text


async def test_a_group_shows_its_lag_by_partition(browse: Browse) -> None:
    async with browse() as browser:
        topic_id = await browser.node.create_topic("orders", partitions=2)
        await browser.node.broker.controller.ensure_topic("__consumer_offsets")
        await browser.produce(topic_id, 1, *(Record(value=b"x") for _ in range(7)))
        coordinator = browser.node.broker.group_coordinator
        await coordinator.offsets.commit(
            "billing & <co>", {TopicPartition("orders", 1): OffsetToCommit(2, -1, "", topic_id=topic_id)}
        )
        listed = await browser.get("groups", q="BILL")
        assert listed.rows() == 1
        assert "billing & <co>" in listed.text
        page = await browser.get("group", id="billing & <co>")
        assert page.status == 200
        assert "Lag5" in "".join(page.text.split())
        assert (await browser.get("group", id="nobody")).status == 404


async def test_a_topic_shows_its_groups(browse: Browse) -> None:
    async with browse() as browser:
        topic_id = await browser.node.create_topic("orders", partitions=3)
        other_id = await browser.node.create_topic("other")
        await browser.node.broker.controller.ensure_topic("__consumer_offsets")
        for partition in range(3):
            await browser.produce(topic_id, partition, *(Record(value=b"x") for _ in range(10)))
        coordinator = browser.node.broker.group_coordinator
        for group, topic, offsets in (
            ("fast", "orders", (9, 9)),
            ("slow", "orders", (2, 3, 4)),
            ("else", "other", (0,)),
        ):
            commits = {
                TopicPartition(topic, index): OffsetToCommit(
                    offset, -1, "", topic_id={"orders": topic_id}.get(topic, other_id)
                )
                for index, offset in enumerate(offsets)
            }
            await once_loaded(coordinator.offsets.commit, group, commits)
        page = await browser.get("topics/orders/groups")
        assert page.rows() == 2
        words = " ".join(page.text.split())
        assert "fast Empty classic 2 2 slow Empty classic 3 21" in words
        page = await browser.get("topics/orders/groups", sort="lag")
        assert page.text.index("slow") < page.text.index("fast")
        assert "No group has committed" in (await browser.get("topics/__consumer_offsets/groups")).text
        assert (await browser.get("topics/none/groups")).status == 404


async def test_transactions_under_way_come_first(browse: Browse) -> None:
    async with browse() as browser:
        await browser.node.create_topic("orders")
        await browser.node.broker.controller.ensure_topic("__transaction_state")
        coordinator = browser.node.broker.transaction_coordinator
        for name in ("idle-a", "idle-b", "working <b>"):
            producer = await once_loaded(coordinator.init_producer_id, name, 60_000, None)
        await coordinator.add_partitions("working <b>", producer, [Partition("orders", 0)], 1)
        page = await browser.get("transactions")
        assert page.rows() == 3
        assert page.text.index("working <b>") < page.text.index("idle-a") < page.text.index("idle-b")
        assert "Ongoing" in page.text
        assert (await browser.get("transactions", q="IDLE")).rows() == 2


async def test_a_transaction_is_aborted(browse: Browse) -> None:
    async with browse() as browser:
        await browser.node.create_topic("orders")
        await browser.node.broker.controller.ensure_topic("__transaction_state")
        coordinator = browser.node.broker.transaction_coordinator
        producer = await once_loaded(coordinator.init_producer_id, "a b", 60_000, None)
        assert "Abort…" not in (await browser.get("transactions")).text
        await coordinator.add_partitions("a b", producer, [Partition("orders", 0)], 1)
        assert "transaction/abort?id=a" in (await browser.get("transactions")).html
        assert "is aborted, and its producer is fenced" in (await browser.get("transaction/abort", id="a b")).text
        assert coordinator.describe("a b").status is TransactionStatus.ONGOING
        token = await browser.form_token("transaction/abort?id=a+b")
        answer = await browser.post("transaction/abort?id=a+b", {"token": "wrong"})
        assert (answer.status_code, coordinator.describe("a b").status) == (403, TransactionStatus.ONGOING)
        answer = await browser.post("transaction/abort?id=a+b", {"token": token})
        assert answer.headers["location"].startswith("/console/transactions?q=a")
        assert coordinator.describe("a b").status in (TransactionStatus.COMPLETE_ABORT, TransactionStatus.EMPTY)
        with pytest.raises(CoordinatorError):
            await coordinator.add_partitions("a b", producer, [Partition("orders", 0)], 1)
        # An id that nobody has is not made by asking.
        assert (await browser.get("transaction/abort", id="none")).status == 404
        assert (await browser.post("transaction/abort?id=none", {"token": token})).status_code == 404
        with pytest.raises(CoordinatorError):
            coordinator.describe("none")


async def test_settings_show_what_was_changed_first(browse: Browse) -> None:
    async with browse({"num.partitions": "7", "ssl.key.password": "hunter2"}) as browser:
        page = await browser.get("settings", q="num.partitions")
        changed, _, unchanged = page.text.partition("With their defaults")
        assert "num.partitions" in changed
        assert "offsets.topic.num.partitions" in unchanged
        assert "offsets.topic.num.partitions" not in changed
        everything = await browser.get("settings")
        assert everything.rows() > 150
        assert "hunter2" not in everything.html


async def test_every_page_leads_to_other_clusters(browse: Browse) -> None:
    settings = {"ottla.console.clusters": "staging = https://staging.example:8443/,test=http://127.0.0.1:8081"}
    async with browse(settings=settings) as browser:
        assert "https://staging.example:8443/console" in (await browser.get("")).links()
        assert "http://127.0.0.1:8081/console/topics" in (await browser.get("topics")).links()


async def test_the_theme_is_remembered_by_the_browser(browse: Browse) -> None:
    async with browse() as browser:
        token = await browser.form_token()
        answer = await browser.post("theme", {"token": token, "theme": "dark", "back": "/console/topics?q=a"})
        assert (answer.status_code, answer.headers["location"]) == (303, "/console/topics?q=a")
        (html,) = (await browser.get("")).all("html")
        assert html["data-theme"] == "dark"


async def test_the_root_leads_to_the_console(browse: Browse) -> None:
    async with browse() as browser:
        assert (await browser.http.get("/")).headers["location"] == "/console/"
        for name, kind in (
            ("console.css", "text/css"),
            ("console.js", "text/javascript"),
            ("favicon.svg", "image/svg"),
        ):
            found = await browser.http.get(f"/console/static/{name}")
            assert found.status_code == 200
            assert found.headers["content-type"].startswith(kind)


def test_nothing_of_it_is_imported_unless_it_is_asked_for() -> None:
    program = "import sys, ottla.server.main; print([name for name in sys.modules if name in ('jinja2', 'starlette')])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"
