"""The pages of share groups and streams groups."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ottla.server.share.in_flight import ACCEPT, REJECT, RELEASE
from tests.coordinator.group.streams import test_descriptions as descriptions
from tests.coordinator.group.streams import test_on_a_node as streams
from tests.server.share.conftest import ShareClient
from tests.server.share.test_dead_letter_nodes import QUEUE, letters, until
from tests.server.share.test_dead_letter_nodes import begin as begin_with_queue
from tests.server.share.test_share_groups import PATIENT, begin_early, produce

Browse = Callable[..., Any]


def cells(page: Any) -> list[str]:
    """The texts between the tags of the page."""
    return [text.strip() for text in re.split(r"<[^>]*>", page.html) if text.strip()]


def after(page: Any, first: str, count: int) -> list[str]:
    """The texts that follow one on the page."""
    found = cells(page)
    start = found.index(first) + 1
    return found[start : start + count]


async def test_a_share_group_shows_what_is_held_and_how_often_it_was_delivered(browse: Browse) -> None:
    async with browse(PATIENT) as browser:
        topic_id = await browser.node.create_topic("orders")
        await produce(browser.node, topic_id, b"a", b"b", b"c", b"d")
        await begin_early(browser.node, "shared")
        member = await ShareClient.join(browser.node, "shared", "m", "orders")
        assert await member.acquire(max_records=4) == [(0, 3, 1)]
        assert await member.acknowledge(0, 0, ACCEPT) == 0
        assert await member.acknowledge(1, 2, RELEASE) == 0
        listed = await browser.get("groups")
        assert "share" in cells(listed)
        page = await browser.get("group", id="shared")
        assert page.status == 200
        assert after(page, "Lag", 1) == ["3"]
        # From, end, lag; held, again, deliveries.
        row = after(page, "orders", 8)
        assert row == [
            "0",
            "1",
            "4",
            "3",
            "1",
            "2",
            "1",
            "Only the node that leads a partition knows what members hold: "
            "this page shows it for the partitions led by this node.",
        ]
        head, row = cells(page), after(page, "Assignment", 8)
        assert head[head.index("Assignment") - 2 :][:2] == ["Partitions", "Held"]
        assert row[row.index("m") :][3:5] == ["1", "1"]


async def test_a_share_group_shows_where_its_dead_letters_go(browse: Browse) -> None:
    async with browse(PATIENT) as browser:
        queue_id, member = await begin_with_queue(browser.node)
        page = await browser.get("group", id="g")
        assert after(page, "Dead letters", 2) == ["0", QUEUE]
        assert await member.acknowledge(0, 0, REJECT) == 0
        await letters(browser.node, queue_id, 1)
        counters = browser.node.broker.share.manager.dead_letters.counters
        await until(lambda: counters["g"].records == 1)
        assert after(await browser.get("group", id="g"), "Dead letters", 2) == ["1", QUEUE]


async def test_the_offsets_of_a_share_group_are_moved(browse: Browse) -> None:
    async with browse(PATIENT) as browser:
        topic_id = await browser.node.create_topic("orders")
        await produce(browser.node, topic_id, b"a", b"b", b"c", b"d")
        await begin_early(browser.node, "shared")
        member = await ShareClient.join(browser.node, "shared", "m", "orders")
        assert await member.acquire(max_records=4) == [(0, 3, 1)]
        assert await member.acknowledge(0, 3, ACCEPT) == 0
        path = "group/manage?id=shared"
        form = {"to": "offset", "offset": "1", "token": await browser.form_token(path)}
        refused = await browser.post(path, {"action": "move", **form})
        assert (refused.status_code, "has members" in refused.text) == (422, True)
        await member.beat(member_epoch=-1)
        shown = await browser.post(path, {"action": "look", **form})
        assert "Move 1 offset" in shown.text
        moved = await browser.post(path, {"action": "move", **form})
        assert moved.headers["location"] == "/console/group?id=shared"
        positions = await browser.node.broker.group_coordinator.share_groups.describe_offsets("shared", None)
        assert [each.start_offset for each in positions.values()] == [1]


async def test_a_share_group_without_partitions_says_so(browse: Browse) -> None:
    async with browse(PATIENT) as browser:
        await browser.node.create_topic("orders")
        member = await ShareClient.join(browser.node, "shared", "m", "orders")
        await member.beat(subscribed_topic_names=["orders"])
        member.epoch = -1
        await member.beat()
        page = await browser.get("group", id="shared")
        assert page.status == 200
        assert "Nobody is in the group now." in page.text


async def test_a_streams_group_shows_its_tasks_and_epochs(browse: Browse) -> None:
    async with browse(streams.SETTINGS) as browser:
        await browser.node.create_topic("in", 2)
        client = await streams.connected(browser.node)
        epoch = await streams.joined(client)
        page = await browser.get("group", id="g")
        assert page.status == 200
        assert after(page, "Epoch", 2) == [str(epoch), "topology epoch 0"]
        assert after(page, "Tasks", 3)[0] == "0"
        assert "g-changelog" in page.text
        assert after(page, "Assignment", 1) != []


async def test_a_streams_group_shows_how_its_topology_is_wired(browse: Browse) -> None:
    async with browse(streams.SETTINGS) as browser:
        await browser.node.create_topic("in", 2)
        client = await streams.connected(browser.node)
        await streams.joined(client)
        assert not (await descriptions.tell(client)).error_code
        page = await browser.get("group", id="g")
        assert page.status == 200
        assert after(page, "Subtopology 0", 1) == [
            "source in reads in\n  processor count with store\n    sink out writes where each record says"
        ]
        assert after(page, "Global store", 1)[0].startswith("source in reads in")
