"""Changed settings reach the logs that they concern while the node runs, and no others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.metadata.changes.config_changes import ConfigChange, ConfigOperation
from ottla.metadata.image import ConfigResource, ResourceType
from ottla.storage.config import LogConfig
from ottla.storage.log.partition_log import PartitionLog

Serve = Callable[..., Any]

BROKERS = ConfigResource(ResourceType.BROKER, "")


@pytest.fixture
def reconfigured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The topics whose logs were given settings, one entry a log."""
    found: list[str] = []
    set_config = PartitionLog.set_config

    def spy(log: PartitionLog, config: LogConfig) -> None:
        found.append(log.topic)
        set_config(log, config)

    monkeypatch.setattr(PartitionLog, "set_config", spy)
    return found


async def alter(node: Any, resource: ConfigResource, name: str, value: str) -> None:
    change = ConfigChange(name, ConfigOperation.SET, value)
    assert await node.broker.controller.alter_configs({resource: [change]}) == {resource: None}


def config_of(node: Any, topic: str) -> LogConfig:
    topic_id = node.broker.metadata.topic(topic).topic_id
    config: LogConfig = node.broker.replica_manager.get_partition(topic_id, 0).log.config
    return config


async def test_a_brokers_setting_reaches_the_topics_that_follow_it(serve_node: Serve, reconfigured: list[str]) -> None:
    async with serve_node() as node:
        await node.create_topic("follows", 2)
        await node.create_topic("has_its_own", 2, retention_ms="1000")
        reconfigured.clear()
        await alter(node, BROKERS, "log.retention.ms", "2000")
        assert reconfigured == ["follows", "follows"]
        assert config_of(node, "follows").retention_ms == 2000
        assert config_of(node, "has_its_own").retention_ms == 1000


@pytest.mark.parametrize(
    ("resource", "name", "value"),
    [
        (ConfigResource(ResourceType.GROUP, "g"), "consumer.session.timeout.ms", "50000"),
        (BROKERS, "max.connections", "1000"),
    ],
)
async def test_what_concerns_no_log_reaches_none(
    serve_node: Serve, reconfigured: list[str], resource: ConfigResource, name: str, value: str
) -> None:
    async with serve_node() as node:
        await node.create_topic("t", 2)
        reconfigured.clear()
        await alter(node, resource, name, value)
        assert reconfigured == []


async def test_topics_with_equal_settings_share_them(serve_node: Serve) -> None:
    async with serve_node() as node:
        for name in ("a", "b"):
            await node.create_topic(name, 1, retention_ms="1000")
        assert config_of(node, "a") is config_of(node, "b")


async def test_the_cleaner_follows_its_settings(serve_node: Serve) -> None:
    async with serve_node({"ottla.tail.cache.bytes": "1000000"}) as node:
        await alter(node, BROKERS, "log.cleaner.backoff.ms", "1234")
        config = node.broker.log_manager.context.config
        assert (config.cleaner_backoff_ms, config.tail_cache_bytes) == (1234, 1_000_000)
