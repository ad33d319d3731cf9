"""Topics and groups that are made, changed and deleted in the console."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.coordinator.group.offset_and_metadata import OffsetToCommit, TopicPartition
from ottla.kproto.records import Record
from tests.console.conftest import once_loaded

Browse = Callable[..., Any]


async def send(browser: Any, path: str, **fields: str) -> Any:
    token = await browser.form_token(path)
    return await browser.post(path, {"token": token, **fields})


def state(browser: Any, name: str) -> Any:
    return browser.node.broker.metadata.topic(name)


async def test_a_topic_is_made(browse: Browse) -> None:
    async with browse() as browser:
        answer = await send(
            browser, "new-topic", name="orders", partitions="3", settings="retention.ms=7d\n\nsegment.bytes = 100MiB"
        )
        assert answer.headers["location"] == "/console/topics/orders"
        topic = state(browser, "orders")
        assert len(topic.partitions) == 3
        assert topic.configs == {"retention.ms": str(7 * 86_400_000), "segment.bytes": str(100 << 20)}


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"name": "a/b"}, "ASCII alphanumerics"),
        ({"name": "t", "partitions": "none"}, "not a number of partitions"),
        ({"name": "t", "replication": "2"}, "broker(s) are registered"),
        ({"name": "t", "settings": "retention.ms"}, "has no ="),
        ({"name": "t", "settings": "retention.ms=7 parsecs"}, "is a time"),
        ({"name": "t", "settings": "no.such=1"}, "no.such"),
        ({"name": "taken"}, "already exists"),
    ],
)
async def test_what_cannot_be_made_comes_back_with_a_reason(browse: Browse, fields: dict[str, str], why: str) -> None:
    async with browse() as browser:
        await browser.node.create_topic("taken")
        answer = await send(browser, "new-topic", **fields)
        assert answer.status_code == 422
        assert why in answer.text
        assert f'value="{fields["name"]}"' in answer.text
        assert state(browser, "t") is None


async def test_partitions_are_added_and_never_taken_away(browse: Browse) -> None:
    async with browse() as browser:
        await browser.node.create_topic("t", partitions=2)
        answer = await send(browser, "topics/t/manage", action="partitions", count="5")
        assert "has 5 partitions now" in answer.text
        assert len(state(browser, "t").partitions) == 5
        answer = await send(browser, "topics/t/manage", action="partitions", count="4")
        assert answer.status_code == 422
        assert len(state(browser, "t").partitions) == 5


async def test_settings_are_those_that_were_written(browse: Browse) -> None:
    async with browse() as browser:
        await browser.node.create_topic("t", retention_ms="1000", cleanup_policy="compact")
        page = await browser.get("topics/t/manage")
        assert "cleanup.policy=compact\nretention.ms=1000" in page.html
        answer = await send(browser, "topics/t/manage", action="settings", settings="retention.ms=1h")
        assert "settings are changed" in answer.text
        assert state(browser, "t").configs == {"retention.ms": "3600000"}
        answer = await send(browser, "topics/t/manage", action="settings", settings="cleanup.policy=shred")
        assert answer.status_code == 422
        assert "cleanup.policy=shred" in answer.text
        assert state(browser, "t").configs == {"retention.ms": "3600000"}


async def test_old_records_are_deleted(browse: Browse) -> None:
    async with browse() as browser:
        topic_id = await browser.node.create_topic("t")
        now_ms = browser.node.broker.clock.time_ms()
        for age_ms in (7_200_000, 3_600_000, 0):
            await browser.produce(topic_id, 0, Record(0, now_ms - age_ms, None, b"x"))
        log = browser.node.broker.replica_manager.get_partition(topic_id, 0).log
        answer = await send(browser, "topics/t/manage", action="records", before="-90m")
        assert "records are deleted" in answer.text
        assert log.log_start_offset == 1
        answer = await send(browser, "topics/t/manage", action="records", before="yesterday")
        assert "is not a time" in answer.text
        assert log.log_start_offset == 1
        await send(browser, "topics/t/manage", action="records", before="now")
        assert log.log_start_offset == 3


async def test_a_topic_is_deleted_by_its_name_alone(browse: Browse) -> None:
    async with browse() as browser:
        await browser.node.create_topic("t")
        answer = await send(browser, "topics/t/manage", action="delete", name="T")
        assert answer.status_code == 422
        assert state(browser, "t") is not None
        answer = await send(browser, "topics/t/manage", action="delete", name="t")
        assert answer.headers["location"] == "/console/topics"
        assert state(browser, "t") is None


async def test_nothing_is_changed_without_a_token(browse: Browse) -> None:
    async with browse() as browser:
        await browser.node.create_topic("t")
        await commit(browser, "t", 0)
        for path in ("topics/t/manage", "group/manage?id=readers", "new-topic"):
            answer = await browser.post(path, {"action": "delete", "name": "t"})
            assert answer.status_code == 403, path
        assert state(browser, "t") is not None


async def commit(browser: Any, topic: str, *offsets: int) -> None:
    coordinator = browser.node.broker.group_coordinator
    await browser.node.broker.controller.ensure_topic("__consumer_offsets")
    written = {
        TopicPartition(topic, number): OffsetToCommit(offset, -1, "", topic_id=state(browser, topic).topic_id)
        for number, offset in enumerate(offsets)
    }
    assert not await once_loaded(coordinator.offsets.commit, "readers", written)


def committed(browser: Any) -> dict[TopicPartition, int]:
    found = browser.node.broker.group_coordinator.offsets.fetch("readers", None, require_stable=False)
    return {where: offset.offset for where, offset in found.items()}


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ({"to": "start"}, [0, 0]),
        ({"to": "end"}, [3, 1]),
        ({"to": "offset", "offset": "2"}, [2, 1]),
        ({"to": "time", "time": "-90m"}, [1, 1]),
    ],
)
async def test_offsets_are_shown_before_they_are_moved(
    browse: Browse, form: dict[str, str], expected: list[int]
) -> None:
    async with browse() as browser:
        topic_id = await browser.node.create_topic("t", partitions=2)
        now_ms = browser.node.broker.clock.time_ms()
        for partition, age_ms in ((0, 7_200_000), (0, 3_600_000), (0, 0), (1, 7_200_000)):
            await browser.produce(topic_id, partition, Record(0, now_ms - age_ms, None, b"x"))
        await commit(browser, "t", 2, 1)
        path = "group/manage?id=readers"
        answer = await send(browser, path, action="look", **form)
        assert "Move 2 offsets" in answer.text
        assert list(committed(browser).values()) == [2, 1]
        answer = await send(browser, path, action="move", **form)
        assert answer.headers["location"] == "/console/group?id=readers"
        assert [committed(browser)[TopicPartition("t", number)] for number in range(2)] == expected


@pytest.mark.parametrize(
    ("form", "why"),
    [
        ({"topic": "gone"}, "no topic gone"),
        ({"to": "offset", "offset": "-1"}, "is not an offset"),
        ({"to": "time"}, "is not a time"),
    ],
)
async def test_what_cannot_be_moved_comes_back_with_a_reason(browse: Browse, form: dict[str, str], why: str) -> None:
    async with browse() as browser:
        await browser.node.create_topic("t")
        await commit(browser, "t", 0)
        answer = await send(browser, "group/manage?id=readers", action="move", **form)
        assert answer.status_code == 422
        assert why in answer.text
        assert list(committed(browser).values()) == [0]


async def test_a_group_is_deleted_by_its_name_alone(browse: Browse) -> None:
    async with browse() as browser:
        await browser.node.create_topic("t")
        await commit(browser, "t", 0)
        answer = await send(browser, "group/manage?id=readers", action="delete", name="reader")
        assert answer.status_code == 422
        answer = await send(browser, "group/manage?id=readers", action="delete", name="readers")
        assert answer.headers["location"] == "/console/groups"
        assert (await browser.get("group", id="readers")).status == 404
