"""`cluster.sqlite` is gone, the topics' records are there: no start takes that for a new cluster, and it comes back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from ottla.cli import main
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.configs.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.kproto.messages.data.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.kproto.messages.topics.metadata import MetadataRequest, MetadataRequestTopic
from ottla.kproto.messages.transactions.init_producer_id import InitProducerIdRequest
from ottla.kproto.records import Record, build_batch
from ottla.metadata.image import MetadataImage
from ottla.metastore.memory import MemoryMetadataStore
from ottla.runtime.errors import StartupError
from ottla.server.wiring.start_checks import compare_with_folders

Serve = Callable[..., Any]


def produce(topic: str, partition: int, value: bytes) -> ProduceRequest:
    batch = build_batch([Record(offset=0, timestamp_ms=1_700_000_000_000, key=b"k", value=value)], base_offset=0)
    data = PartitionProduceData(index=partition, records=batch)
    return ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[TopicProduceData(name=topic, partition_data=[data])])


async def append(client: Any, topic: str, partition: int) -> int:
    (answer,) = (await client.call(produce(topic, partition, b"x"), 9)).responses[0].partition_responses
    assert answer.error_code == ErrorCode.NONE
    return int(answer.base_offset)


async def fill(serve_node: Serve) -> tuple[Path, Any]:
    """Five partitions with records in two of them, and a producer id that was given away."""
    async with serve_node() as node:
        topic_id = await node.create_topic("t", 5, **{"retention.ms": "12345678"})
        client = await node.connect()
        for partition in (0, 2):
            assert await append(client, "t", partition) == 0
        response = await client.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4)
        assert response.error_code == ErrorCode.NONE
        return Path(node.broker.log_manager.node_dir.path).parent, topic_id


def lose_metadata(data_dir: Path) -> None:
    for path in data_dir.glob("cluster.sqlite*"):
        path.unlink()


async def restore(data_dir: Path, *more: str) -> int:
    words = ["restore", "--metadata-from-data", "--data-dir", str(data_dir), *more]
    return await trio.to_thread.run_sync(main, words)


async def test_nothing_starts_without_it(serve_node: Serve) -> None:
    data_dir, _ = await fill(serve_node)
    lose_metadata(data_dir)
    with pytest.raises(BaseExceptionGroup) as raised:
        async with serve_node():
            pass
    error: BaseException = raised.value
    while isinstance(error, BaseExceptionGroup):
        (error,) = error.exceptions
    assert isinstance(error, StartupError)
    assert "cluster.sqlite is missing" in str(error)
    assert "--metadata-from-data" in str(error)
    assert not (data_dir / "cluster.sqlite").exists()


async def test_it_is_made_anew_from_the_data(serve_node: Serve, capsys: Any) -> None:
    data_dir, topic_id = await fill(serve_node)
    lose_metadata(data_dir)
    assert await restore(data_dir, "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said == {"topics": ["t"], "guessed": [], "kept_logs": [], "older_topics": []}
    async with serve_node() as node:
        client = await node.connect()
        (topic,) = (await client.call(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 12)).topics
        assert (topic.topic_id, len(topic.partitions)) == (topic_id, 5)
        assert node.broker.metadata.topic("t").configs == {"retention.ms": "12345678"}
        # A leader begins in an epoch, and a producer with an id, that no record has.
        assert all(partition.leader_epoch > 0 for partition in topic.partitions)
        assert await append(client, "t", 0) == 1
        response = await client.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4)
        assert response.producer_id >= 1_000_000
    # What is there is not made anew.
    assert await restore(data_dir) == 1
    assert "exists: move it away" in capsys.readouterr().err


async def test_settings_that_change_are_kept_beside_the_records(serve_node: Serve) -> None:
    data_dir, _ = await fill(serve_node)
    async with serve_node() as node:
        config = AlterableConfig(name="retention.ms", config_operation=0, value="7654321")
        resource = AlterConfigsResource(resource_type=2, resource_name="t", configs=[config])
        client = await node.connect()
        response = await client.call(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
        assert response.responses[0].error_code == ErrorCode.NONE
        await node.broker.log_manager.maintenance.wait_idle()
        (path,) = data_dir.glob("node-*/t.*/0/topic.json")
        described = json.loads(await trio.Path(path).read_bytes())
    assert described["configs"] == {"retention.ms": "7654321"}
    assert described["name"] == "t"
    assert len(described["replicas"]) == 5


async def test_without_a_description_it_is_guessed(serve_node: Serve, capsys: Any) -> None:
    data_dir, topic_id = await fill(serve_node)
    for path in data_dir.glob("node-*/t.*/*/topic.json"):
        path.unlink()
    lose_metadata(data_dir)
    assert await restore(data_dir) == 0
    assert "guessed: t, with 3 partitions" in capsys.readouterr().out
    async with serve_node() as node:
        topic = node.broker.metadata.topic("t")
        assert (topic.topic_id, len(topic.partitions)) == (topic_id, 3)
        assert await append(await node.connect(), "t", 2) == 1


@pytest.mark.parametrize("is_made", [True, False])
async def test_a_topic_that_was_made_while_the_folders_were_listed_is_not_unknown(
    serve_node: Serve, caplog: pytest.LogCaptureFixture, is_made: bool
) -> None:
    """Its folder is there before the image shows it."""
    async with serve_node() as node:
        await node.create_topic("t")
        assert await append(await node.connect(), "t", 0) == 0
        before = SimpleNamespace(metadata=MetadataImage(), log_manager=node.broker.log_manager)
        store = node.broker.controller._store if is_made else MemoryMetadataStore()
        await compare_with_folders(before, store)  # type: ignore[arg-type]
    assert ("are not in the cluster's metadata" in caplog.text) is not is_made
