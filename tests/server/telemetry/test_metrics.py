"""A node's metrics: what is counted, under which names, and how many lines at most."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families

from ottla.kproto.messages.data.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.kproto.messages.data.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.kproto.messages.groups.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.kproto.messages.topics.metadata import MetadataRequest, MetadataRequestTopic
from ottla.kproto.records import Record, build_batch
from ottla.metrics.exposition import render
from ottla.replica.tiered.remote_log import CopyLag, RemoteCounters
from ottla.runtime.watchdog import LoopWatchdog
from ottla.server.mirror.progress import MirrorProgress
from ottla.server.telemetry import catalog

Serve = Callable[..., Any]
Labels = dict[str, str]


class Scrape:
    """The samples of one scrape."""

    def __init__(self, text: str) -> None:
        self.families = {family.name: family for family in text_string_to_metric_families(text)}
        self._samples = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in self.families.values()
            for sample in family.samples
        }

    def value(self, name: str, **labels: str) -> float:
        return self._samples[name, frozenset(labels.items())]

    def has(self, name: str, **labels: str) -> bool:
        return (name, frozenset(labels.items())) in self._samples


async def scrape(node: Any) -> Scrape:
    return Scrape(b"".join([piece async for piece in render(catalog.collect(node.broker))]).decode())


def produce(topic: str, partition: int, count: int) -> ProduceRequest:
    records = [Record(offset=n, timestamp_ms=1_700_000_000_000, key=None, value=b"v" * 100) for n in range(count)]
    data = PartitionProduceData(index=partition, records=build_batch(records, base_offset=0))
    return ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[TopicProduceData(name=topic, partition_data=[data])])


def fetch(topic: str, offset: int, max_wait_ms: int = 0) -> FetchRequest:
    asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1 << 20, topics=[FetchTopic(topic=topic, partitions=[asked])]
    )


@pytest.fixture
def loaded(serve_node: Serve) -> Callable[..., Any]:
    """A node with ten records in topic t, partition 0 of 2, of which a group has committed four."""

    @asynccontextmanager
    async def serve(settings: dict[str, str] | None = None) -> AsyncIterator[tuple[Any, Any]]:
        async with serve_node({"offsets.topic.num.partitions": "1", **(settings or {})}) as node:
            await node.create_topic("t", 2)
            client = await node.connect()
            await client.call(produce("t", 0, 10), 9)
            await node.broker.controller.ensure_topic("__consumer_offsets")
            partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=4)
            commit = OffsetCommitRequest(
                group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])]
            )
            with trio.fail_after(30):
                while (await client.call(commit, 8)).topics[0].partitions[0].error_code:
                    await trio.lowlevel.checkpoint()
            yield node, client

    return serve


async def test_partitions_are_shown_as_by_kafka_exporter(loaded: Serve) -> None:
    async with loaded() as (node, _):
        found = await scrape(node)
    of_first: Labels = {"topic": "t", "partition": "0"}
    expected = {
        "kafka_topic_partition_current_offset": 10,
        "kafka_topic_partition_oldest_offset": 0,
        "kafka_topic_partition_leader": 1,
        "kafka_topic_partition_replicas": 1,
        "kafka_topic_partition_in_sync_replica": 1,
        "kafka_topic_partition_leader_is_preferred": 1,
        "kafka_topic_partition_under_replicated_partition": 0,
    }
    assert {name: found.value(name, **of_first) for name in expected} == expected
    assert found.value("kafka_brokers") == 1
    assert found.value("kafka_broker_info", id="1", address=f"127.0.0.1:{node.port}") == 1
    assert found.value("kafka_topic_partitions", topic="t") == 2


async def test_the_lag_of_groups_is_shown_as_by_kafka_exporter(loaded: Serve) -> None:
    async with loaded() as (node, _):
        found = await scrape(node)
    of_topic = {"consumergroup": "g", "topic": "t"}
    assert found.value("kafka_consumergroup_members", consumergroup="g") == 0
    assert found.value("kafka_consumergroup_current_offset", **of_topic, partition="0") == 4
    assert found.value("kafka_consumergroup_lag", **of_topic, partition="0") == 6
    # The group reads the topic and has no commit of its second partition.
    assert found.value("kafka_consumergroup_current_offset", **of_topic, partition="1") == -1
    assert found.value("kafka_consumergroup_lag", **of_topic, partition="1") == -1
    assert found.value("kafka_consumergroup_current_offset_sum", **of_topic) == 4
    assert found.value("kafka_consumergroup_lag_sum", **of_topic) == 6
    assert found.value("ottla_groups", state="Empty") == 1


async def test_traffic_is_counted_by_topic(loaded: Serve) -> None:
    async with loaded() as (node, client):
        batch_bytes = len(produce("t", 0, 10).topic_data[0].partition_data[0].records or b"")
        response = await client.call(fetch("t", 0), 11)
        assert len(response.responses[0].partitions[0].records) == batch_bytes
        found = await scrape(node)
    assert found.value("ottla_topic_bytes_in_total", topic="t") == batch_bytes
    assert found.value("ottla_topic_messages_in_total", topic="t") == 10
    assert found.value("ottla_topic_bytes_out_total", topic="t") == batch_bytes
    assert (found.value("ottla_reads_total", source="memory"), found.value("ottla_reads_total", source="file")) == (
        1,
        0,
    )
    assert found.value("ottla_topic_size_bytes", topic="t") == batch_bytes
    assert found.value("ottla_topic_failed_appends_total", topic="t") == 0


async def test_requests_are_counted_with_bytes_errors_and_phases(loaded: Serve) -> None:
    async with loaded() as (node, client):
        asked = [MetadataRequestTopic(name="absent")]
        await client.call(MetadataRequest(topics=asked, allow_auto_topic_creation=False), 9)
        await client.call(produce("absent", 0, 1), 9)
        # Two reads that wait for records which do not come.
        for _ in range(2):
            await client.call(fetch("t", 10, max_wait_ms=60), 11)
        found = await scrape(node)
    assert found.value("ottla_requests_total", api="produce") == 2
    assert found.value("ottla_request_errors_total", api="produce", error="unknown_topic_or_partition") == 1
    assert found.value("ottla_request_errors_total", api="metadata", error="unknown_topic_or_partition") == 1
    assert found.value("ottla_request_bytes_total", api="produce") > 1000
    assert found.value("ottla_response_bytes_total", api="fetch") > 0

    def seconds(api: str, phase: str) -> float:
        return found.value("ottla_request_duration_seconds_sum", api=api, phase=phase)

    assert 0.12 <= seconds("fetch", "remote") <= seconds("fetch", "total")
    assert seconds("produce", "remote") > 0
    assert seconds("produce", "local") > 0
    for phase in ("queue", "local", "remote", "send", "total"):
        assert found.value("ottla_request_duration_seconds_count", api="fetch", phase=phase) == 2


async def test_what_a_commit_waits_for_its_log_is_remote(loaded: Serve) -> None:
    async with loaded() as (node, _):
        found = await scrape(node)
    assert found.value("ottla_request_duration_seconds_sum", api="offset_commit", phase="remote") > 0


async def test_connections_and_purgatories_are_counted(loaded: Serve) -> None:
    async with loaded() as (node, client):
        await client.send(fetch("t", 10, max_wait_ms=60_000), 11)
        with trio.fail_after(30):
            while not (found := await scrape(node)).value("ottla_purgatory_operations", purgatory="fetch"):
                await trio.lowlevel.checkpoint()
        assert found.value("ottla_connections", listener="PLAINTEXT") == 1
        assert found.value("ottla_connections_accepted_total", listener="PLAINTEXT") == 1
        assert found.value("ottla_purgatory_ended_total", purgatory="append", how="completed") >= 1


async def test_storage_memory_and_the_process_are_shown(loaded: Serve) -> None:
    async with loaded() as (node, _):
        found = await scrape(node)
    assert found.value("ottla_ready") == 1
    assert found.value("ottla_stores") == 2
    assert found.value("ottla_stores_offline") == 0
    assert found.value("ottla_block_write_seconds_count") >= 1
    assert found.value("ottla_data_bytes") >= found.value("ottla_written_bytes_total") > 1000
    assert found.value("ottla_memory_budget_limit_bytes", budget="requests") == 268_435_456
    assert found.value("process_resident_memory_bytes") > 10_000_000
    assert found.value("process_open_fds") > 3
    assert found.value("process_start_time_seconds") > 1_600_000_000


async def test_a_failed_store_is_shown(serve_node: Serve) -> None:
    async with serve_node(keeps_memory=True) as node:
        await node.create_topic("t", 2)
        for store in node.broker.log_manager.stores():
            store.fail(OSError(5, "Input/output error"))
        found = await scrape(node)
    assert found.value("ottla_ready") == 0
    assert found.value("ottla_stores_offline") == 1
    assert found.value("ottla_offline_partitions") == 2


async def test_what_is_listed_one_by_one_is_bounded(loaded: Serve) -> None:
    async with loaded({"ottla.metrics.max.partitions": "3"}) as (node, _):
        await node.create_topic("large", 10)
        await node.create_topic("u", 1)
        found = await scrape(node)
    # In order of name: __consumer_offsets has one partition, large would not fit, t has two, and u would be the fourth.
    assert found.value("ottla_metrics_omitted_partitions") == 11
    assert found.has("kafka_topic_partition_leader", topic="t", partition="1")
    assert not found.has("kafka_topic_partition_leader", topic="u", partition="0")
    assert not found.has("ottla_topic_bytes_in_total", topic="u")
    assert found.value("ottla_partitions") == 14


async def test_a_tiered_topic_has_its_own_figures(loaded: Serve, tmp_path: Path) -> None:
    async with loaded({"ottla.remote.url": f"file://{tmp_path}"}) as (node, _):
        await node.create_topic("tiered", 2, remote_storage_enable="true")
        found = await scrape(node)
        remotes = [partition.remote for partition in node.broker.replica_manager.partitions()]
        (remote, _) = [each for each in remotes if each is not None]
        remote.copy_lag = CopyLag(2, 5000)
        behind = await scrape(node)
    for name, figure in {
        "copy_lag_bytes": 5000,
        "copy_lag_segments": 2,
        "log_size_bytes": 0,
        "log_segments": 0,
    }.items():
        assert found.value(f"ottla_remote_{name}", topic="tiered") == 0
        assert behind.value(f"ottla_remote_{name}", topic="tiered") == figure
        assert not found.has(f"ottla_remote_{name}", topic="t")


async def test_every_declared_metric_is_collected_and_no_other(loaded: Serve) -> None:
    async with loaded() as (node, _):
        node.broker.watchdog = LoopWatchdog()
        node.broker.mirror.progress = MirrorProgress()
        node.broker.remote_storage = SimpleNamespace(counters=RemoteCounters(), failing={})
        assert not list(node.broker.share.manager)  # Made when it is asked for.
        node.broker.client_metrics.ask(uuid4(), {"client_id": "c"})
        found = await scrape(node)
    declared = {metric.name: metric for _, section in catalog.SECTIONS for metric in section.METRICS}
    kinds = {name: metric.kind for name, metric in declared.items()}
    collected = {f"{f.name}_total" if f.type == "counter" else f.name: f.type for f in found.families.values()}
    assert collected == kinds
    for name, metric in declared.items():
        assert name.endswith("_total") == (metric.kind == "counter")
        assert metric.help.endswith(".")
