"""The console of one node shows what all nodes of the cluster have, and changes it there."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest
import trio

from ottla.client.errors import UnreachableError
from ottla.console.console import Console
from ottla.console.guard import FormTokens
from ottla.console.history import History
from ottla.console.messages.decoding import Format
from ottla.console.messages.paging import readable_partitions
from ottla.console.messages.schemas import Schemas
from ottla.console.pages.live import LiveTails
from ottla.console.rendering import Renderer
from ottla.console.visitors import Visitors
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.data.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.kproto.messages.groups.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.kproto.records import Record, build_batch
from ottla.metadata.changes.config_changes import ConfigChange, ConfigOperation
from ottla.metadata.changes.topic_changes import USE_DEFAULT, NewTopic
from ottla.metadata.image import ConfigResource, MetadataImage, ResourceType
from ottla.server.schemas.source import Codecs
from tests.clusters import Cluster, RunCluster
from tests.console.conftest import Browser, browsing
from tests.console.test_messages import offsets
from tests.server.cluster.producers import GROUP, TRANSACTION, Router, TransactionalProducer, key_at

PARTITIONS = 3
"""One for each node."""


class World:
    """Three nodes with a topic, and the console of the first node."""

    def __init__(self, cluster: Cluster, browser: Browser, topic_id: UUID) -> None:
        self.cluster = cluster
        self.browser = browser
        self.topic_id = topic_id
        self.router = Router(cluster)

    def leader(self, partition: int) -> int:
        return self.router.leader("t", partition)

    @property
    def elsewhere(self) -> list[int]:
        """The partitions that the node with the console does not lead."""
        return [index for index in range(PARTITIONS) if self.leader(index) != 1]

    async def produce(self, partition: int, *values: bytes, timestamp_ms: int = 1_700_000_000_000) -> None:
        batch = build_batch([Record(value=value, timestamp_ms=timestamp_ms) for value in values])
        data = PartitionProduceData(index=partition, records=memoryview(bytearray(batch)))
        topic = TopicProduceData(topic_id=self.topic_id, partition_data=[data])
        request = ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[topic])
        answer = await self.router.call(self.leader(partition), request, 13)
        assert answer.responses[0].partition_responses[0].error_code == 0

    async def commit(self, group: str, node_id: int, **topics: dict[int, int]) -> None:
        request = OffsetCommitRequest(
            group_id=group,
            topics=[
                OffsetCommitRequestTopic(
                    name=name,
                    partitions=[
                        OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
                        for index, offset in each.items()
                    ],
                )
                for name, each in topics.items()
            ],
        )
        with trio.fail_after(20):
            while True:
                answer = await self.router.call(node_id, request, 9)
                if not any(each.error_code for topic in answer.topics for each in topic.partitions):
                    return
                await trio.sleep(0.02)

    async def send(self, path: str, **fields: str) -> Any:
        token = await self.browser.form_token(path)
        return await self.browser.post(
            path.partition("?")[0] + ("?" + path.partition("?")[2]), {"token": token, **fields}
        )


@asynccontextmanager
async def world(run_cluster: RunCluster) -> AsyncIterator[World]:
    # Nothing here is about sessions that end: a busy machine must not end any.
    async with run_cluster(3, {"broker.session.timeout.ms": "60000"}) as cluster:
        topic_id = await cluster[1].create_topic("t", PARTITIONS)
        await cluster.until(lambda image: "t" in image.topics)
        async with browsing(cluster[1]) as browser:
            found = World(cluster, browser, topic_id)
            assert len(found.elsewhere) == 2
            yield found


def cells(page: Any, column: str) -> list[str]:
    """What the cells of a column of labelled cells say."""
    return [
        re.sub(r"<[^>]*>", "", each).strip() for each in re.findall(rf'data-label="{column}">(.*?)</td>', page.html)
    ]


async def test_topics_are_shown_with_the_partitions_of_all_nodes(run_cluster: RunCluster) -> None:
    async with world(run_cluster) as it:
        for index in range(PARTITIONS):
            await it.produce(index, *[b"x" * 1000] * (index + 1))
        page = await it.browser.get("topics")
        assert cells(page, "Records") == ["6"]
        assert cells(page, "Size")[0].startswith("6.")
        page = await it.browser.get("topics/t")
        assert "not known" not in page.text
        for index in range(PARTITIONS):
            assert re.search(
                rf">{index}</a></td>\s*<td [^>]*First offset\">0</td>\s*<td [^>]*End\">{index + 1}</td>", page.html
            )


async def test_brokers_are_shown_with_what_they_lead(run_cluster: RunCluster) -> None:
    async with world(run_cluster) as it:
        page = await it.browser.get("")
        assert len(re.findall(r'<span class="dim">of [0-9.]+ ', page.html)) == 3
        assert page.rows() == 3
        assert "does not answer" not in page.text


def out_of_sync(node_id: int) -> Callable[[MetadataImage], bool]:
    """A node that is gone is in no in-sync set any more, but for those of which nobody lives."""
    return lambda image: all(it.leader < 0 or node_id not in it.isr for it in image.topics["t"].partitions)


async def test_who_may_lead_and_who_is_throttled_is_shown(run_cluster: RunCluster) -> None:
    settings = {"replica.lag.time.max.ms": "1000", "leader.replication.throttled.rate": "1048576"}
    configs = {
        "min.insync.replicas": "2",
        "leader.replication.throttled.replicas": "0:1,0:2,2:3",
        "follower.replication.throttled.replicas": "0:2",
    }
    async with run_cluster(3, settings) as cluster:
        await cluster.until_connected()
        assignments = {0: (1, 2), 1: (2, 3), 2: (1, 3)}
        await cluster[1].broker.controller.create_topic(NewTopic("t", USE_DEFAULT, USE_DEFAULT, assignments, configs))
        node_3 = ConfigResource(ResourceType.BROKER, "3")
        rate = ConfigChange("follower.replication.throttled.rate", ConfigOperation.SET, "2097152")
        assert await cluster[3].broker.controller.alter_configs({node_3: [rate]}) == {node_3: None}
        await cluster.until(lambda image: bool(image.resource_configs(node_3)) and "t" in image.topics)
        for gone in (3, 2):
            await cluster.kill(gone)
            await cluster.until(out_of_sync(gone))
        async with browsing(cluster[1]) as browser:
            page = await browser.get("topics/t")
    said = [re.sub(r"(<[^>]*>|\s)+", " ", row).strip() for row in re.findall(r"<tr>.*?</tr>", page.html, re.DOTALL)]
    assert said[1:4] == [
        "0 0 0 0 0 B 1 0 1 of 1, 2 eligible 2 throttled: sent by 1, 2; fetched by 2",
        "1 not known: it has no leader none 1 2 of 2, 3 eligible 3 led last by 2",
        "2 0 0 0 0 B 1 0 1 of 1, 3 eligible 3 throttled: sent by 3",
    ]
    assert said[5:8] == [
        "1 1.05 MB/s no limit",
        "2 its own setting its own setting",
        "3 its own setting 2.1 MB/s",
    ]


async def test_messages_of_all_nodes_are_one_list(run_cluster: RunCluster) -> None:
    async with world(run_cluster) as it:
        for index in range(PARTITIONS):
            await it.produce(index, b"in %d" % index, b"needle" if index == it.elsewhere[0] else b"hay")
        page = await it.browser.get("topics/t/messages")
        assert sorted(offsets(page)) == [(index, offset) for index in range(PARTITIONS) for offset in range(2)]
        (found,) = offsets(await it.browser.get("topics/t/messages", contains="needle", start="oldest"))
        assert found == (it.elsewhere[0], 1)
        one = await it.browser.get(f"topics/t/messages/{it.elsewhere[0]}/1")
        assert "needle" in one.text
        assert (await it.browser.get(f"topics/t/messages/{it.elsewhere[0]}/2")).status == 404


async def test_messages_of_other_nodes_are_found_by_time_and_offset(run_cluster: RunCluster) -> None:
    async with world(run_cluster) as it:
        index = it.elsewhere[0]
        for number in range(3):
            await it.produce(index, b"v", timestamp_ms=1_000_000 * (number + 1))

        async def found(**query: Any) -> list[int]:
            page = await it.browser.get("topics/t/messages", partition=index, **query)
            return [offset for _, offset in offsets(page)]

        assert await found(start="time", time="2000000") == [1, 2]
        assert await found(start="time", time="9000000") == []
        assert await found(start="offset", offset=2) == [2]


@pytest.mark.parametrize("is_v2", [False, True])
async def test_transactions_of_other_nodes_are_told_apart(run_cluster: RunCluster, is_v2: bool) -> None:
    async with world(run_cluster) as it:
        index = it.elsewhere[0]
        transactional_id = await key_at(it.router, it.leader(index), TRANSACTION)
        producer = TransactionalProducer(it.router, transactional_id, is_v2=is_v2)
        await producer.init()
        for commit in (False, True):
            await producer.send("t", index, b"v")
            await producer.end(commit=commit)
        await producer.send("t", index, b"v")
        assert "open transaction" in (await it.browser.get("topics/t")).text
        page = await it.browser.get("topics/t/messages", start="oldest", partition=index)
        assert _kinds(page) == ["aborted", "abort", "record", "commit", "open"]
        page = await it.browser.get("transactions")
        assert transactional_id in page.text
        assert "Ongoing" in page.text
        await producer.end(commit=True)


async def test_a_transaction_of_another_node_is_aborted(run_cluster: RunCluster) -> None:
    async with world(run_cluster) as it:
        index = it.elsewhere[0]
        transactional_id = await key_at(it.router, it.leader(index), TRANSACTION)
        producer = TransactionalProducer(it.router, transactional_id, is_v2=True)
        await producer.init()
        await producer.send("t", index, b"v")
        answer = await it.send(f"transaction/abort?id={transactional_id}")
        assert answer.status_code == 303
        page = await it.browser.get("topics/t/messages", start="oldest", partition=index)
        assert _kinds(page) == ["aborted", "abort"]
        assert await producer.send("t", index, b"late") is not ErrorCode.NONE


def _kinds(page: Any) -> list[str]:
    """What each row is, in order."""
    return re.findall(r'<tr class="kind-(\w+)"', page.html)


async def test_a_message_is_written_to_another_node(run_cluster: RunCluster) -> None:
    async with world(run_cluster) as it:
        for index in it.elsewhere:
            answer = await it.send("topics/t/produce", partition=str(index), value="by hand")
            assert answer.headers["location"] == f"/console/topics/t/messages/{index}/0?sent=1"
            assert "by hand" in (await it.browser.get(f"topics/t/messages/{index}/0")).text


async def test_records_of_other_nodes_are_deleted(run_cluster: RunCluster) -> None:
    async with world(run_cluster) as it:
        for index in range(PARTITIONS):
            await it.produce(index, b"v", b"v")
        answer = await it.send("topics/t/manage", action="records", before="now")
        assert "The records are deleted." in answer.text
        assert cells(await it.browser.get("topics"), "Records") == ["0"]


@pytest.mark.parametrize("coordinator", [1, 2])
async def test_groups_of_all_nodes(run_cluster: RunCluster, coordinator: int) -> None:
    async with world(run_cluster) as it:
        for index in range(PARTITIONS):
            await it.produce(index, b"v", b"v", b"v")
        group = await key_at(it.router, coordinator, GROUP)
        await it.commit(group, coordinator, t=dict.fromkeys(range(PARTITIONS), 1))
        page = await it.browser.get("groups")
        assert group in page.text
        assert cells(page, "State") == ["Empty"]
        page = await it.browser.get("group", id=group)
        assert page.status == 200
        assert '<span class="label">Lag</span><strong>6</strong>' in page.html
        assert "offset" not in (await it.browser.get("groups", q="nobody")).text

        where = f"group/manage?id={group}"
        shown = await it.send(where, to="end")
        assert shown.status_code == 200
        moved = await it.send(where, to="end", action="move")
        assert moved.status_code == 303
        page = await it.browser.get("group", id=group)
        assert '<span class="label">Lag</span><strong>0</strong>' in page.html
        refused = await it.send(where, action="delete", name="another")
        assert refused.status_code == 422
        assert (await it.send(where, action="delete", name=group)).status_code == 303
        assert (await it.browser.get("group", id=group)).status == 404


async def test_a_node_that_does_not_answer_is_named(run_cluster: RunCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(run_cluster) as it:
        for index in range(PARTITIONS):
            await it.produce(index, b"v")
        call = it.cluster[1].broker.peers.call

        async def refuse(node_id: int, *arguments: Any, **options: Any) -> Any:
            if node_id == 3:
                raise UnreachableError("127.0.0.1:1", "Connection refused")
            return await call(node_id, *arguments, **options)

        monkeypatch.setattr(it.cluster[1].broker.peers, "call", refuse)
        for path in ("", "topics", "topics/t", "topics/t/messages", "groups", "transactions"):
            page = await it.browser.get(path)
            assert page.status == 200
            assert "Node 3 does not answer" in page.text, path
        assert {partition for partition, _ in offsets(await it.browser.get("topics/t/messages"))} == {
            index for index in range(PARTITIONS) if it.leader(index) != 3
        }
        assert cells(await it.browser.get("topics"), "Records")[0].startswith("2")
        (unreachable,) = (index for index in range(PARTITIONS) if it.leader(index) == 3)
        answer = await it.send("topics/t/produce", partition=str(unreachable), value="x")
        assert answer.status_code == 422
        answer = await it.send("topics/t/manage", action="records", before="now")
        assert "Not deleted everywhere" in answer.text


async def test_messages_of_other_nodes_come_live(run_cluster: RunCluster) -> None:
    async with world(run_cluster) as it:
        index = it.elsewhere[0]
        broker = it.cluster[1].broker
        own = Console(
            broker=broker,
            renderer=Renderer(FormTokens(), version="", node_id=1),
            history=History(broker),
            schemas=Schemas(broker.config, Codecs()),
            visitors=Visitors(broker, None, trio.current_time),
        )
        topic = broker.metadata.topics["t"]
        partitions = (await readable_partitions(broker, topic, None)).partitions
        events = LiveTails()._events(own, topic, partitions, {}, Format.AUTO)
        assert (await anext(events)).startswith(":")
        await it.produce(index, b"from afar")
        with trio.fail_after(20):
            while "from afar" not in (event := await anext(events)):
                assert event.startswith(":")
        await events.aclose()


async def test_a_topic_shows_the_groups_of_all_nodes(run_cluster: RunCluster) -> None:
    async with world(run_cluster) as it:
        groups = {await key_at(it.router, node_id, GROUP) for node_id in (1, 2, 3)}
        for index in range(PARTITIONS):
            await it.produce(index, b"v", b"v")
        for node_id in (1, 2, 3):
            await it.commit(await key_at(it.router, node_id, GROUP), node_id, t=dict.fromkeys(range(PARTITIONS), 1))
        page = await it.browser.get("topics/t/groups")
        assert {group for group in groups if group in page.text} == groups
        assert " ".join(page.text.split()).count(f"classic {PARTITIONS} {PARTITIONS}") == 3


async def test_the_lag_of_a_group_counts_the_partitions_of_all_nodes(run_cluster: RunCluster) -> None:
    async with world(run_cluster) as it:
        for index in range(PARTITIONS):
            await it.produce(index, b"v", b"v")
        group = await key_at(it.router, 1, GROUP)
        await it.commit(group, 1, t=dict.fromkeys(range(PARTITIONS), 0))
        history = History(it.cluster[1].broker)
        await history.sample()
        assert history.lags[group].last == 6
