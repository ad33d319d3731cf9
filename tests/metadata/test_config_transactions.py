"""Configs, quotas and features through the controller, as Kafka's controller answers."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.metadata.changes.config_changes import ConfigChange, ConfigOperation
from ottla.metadata.changes.feature_changes import FeatureUpdate, UpgradeType
from ottla.metadata.changes.topic_changes import NewTopic
from ottla.metadata.controller import Controller
from ottla.metadata.errors import (
    InvalidConfigError,
    InvalidRequestError,
    InvalidTopicError,
    InvalidUpdateVersionError,
    UnknownTopicError,
)
from ottla.metadata.image import ConfigResource, ResourceType
from ottla.metastore.errors import MetadataError
from ottla.settings.config import BrokerConfig

SET, DELETE = ConfigOperation.SET, ConfigOperation.DELETE
APPEND, SUBTRACT = ConfigOperation.APPEND, ConfigOperation.SUBTRACT


def topic_resource(name: str) -> ConfigResource:
    return ConfigResource(ResourceType.TOPIC, name)


class TestConfigs:
    async def test_set_and_delete(self, controller: Controller, recorder: Any) -> None:
        await controller.create_topic(NewTopic("t", 1, 1))
        resource = topic_resource("t")
        assert await controller.alter_configs({resource: [ConfigChange("retention.ms", SET, "9")]}) == {resource: None}
        assert controller.image.topics["t"].configs == {"retention.ms": "9"}
        assert [topic.name for topic in recorder.deltas[-1].reconfigured_topics] == ["t"]
        await controller.alter_configs({resource: [ConfigChange("retention.ms", DELETE)]})
        assert controller.image.topics["t"].configs == {}

    async def test_append_and_subtract_edit_a_list_beginning_with_its_default(self, controller: Controller) -> None:
        await controller.create_topic(NewTopic("t", 1, 1))
        resource = topic_resource("t")
        await controller.alter_configs({resource: [ConfigChange("cleanup.policy", APPEND, "compact")]})
        assert controller.image.topics["t"].configs == {"cleanup.policy": "delete,compact"}
        await controller.alter_configs({resource: [ConfigChange("cleanup.policy", APPEND, "compact")]})
        await controller.alter_configs({resource: [ConfigChange("cleanup.policy", SUBTRACT, "delete")]})
        assert controller.image.topics["t"].configs == {"cleanup.policy": "compact"}

    async def test_replace_drops_what_is_not_named(self, controller: Controller) -> None:
        await controller.create_topic(NewTopic("t", 1, 1, configs={"retention.ms": "5", "segment.ms": "6"}))
        change = ConfigChange("segment.ms", SET, "7")
        await controller.alter_configs({topic_resource("t"): [change]}, replace=True)
        assert controller.image.topics["t"].configs == {"segment.ms": "7"}

    async def test_validate_only_changes_nothing(self, controller: Controller) -> None:
        await controller.create_topic(NewTopic("t", 1, 1))
        asked = {topic_resource("t"): [ConfigChange("retention.ms", SET, "9")]}
        assert await controller.alter_configs(asked, validate_only=True) == {topic_resource("t"): None}
        assert controller.image.topics["t"].configs == {}

    @pytest.mark.parametrize(
        ("resource", "changes", "error", "words"),
        [
            (topic_resource("absent"), [], UnknownTopicError, "does not exist"),
            (topic_resource("t"), [("retention.ms", SET, "x")], InvalidConfigError, "Not a number of type LONG"),
            (topic_resource("t"), [("retention.m", SET, "1")], InvalidConfigError, "Unknown topic config name"),
            (
                topic_resource("t"),
                [("internal.segment.bytes", SET, "x")],
                InvalidConfigError,
                "Not a number of type INT",
            ),
            (topic_resource("t"), [("retention.ms", APPEND, "1")], InvalidConfigError, "its type is not LIST"),
            (topic_resource("t"), [("retention.ms", SET, None)], InvalidRequestError, "Null value not supported"),
            (
                topic_resource("t"),
                [("retention.ms", SET, "1"), ("retention.ms", DELETE, None)],
                InvalidRequestError,
                "duplicate config keys",
            ),
            (
                topic_resource("t"),
                [("min.compaction.lag.ms", SET, "9"), ("max.compaction.lag.ms", SET, "8")],
                InvalidConfigError,
                "conflict topic config",
            ),
            (ConfigResource(ResourceType.BROKER, "2"), [], InvalidRequestError, "Unexpected broker id, expected 1"),
            (ConfigResource(ResourceType.BROKER, "x"), [], InvalidRequestError, "must be an integer"),
            (
                ConfigResource(ResourceType.BROKER, "2"),
                [("num.partitions", APPEND, "1")],
                InvalidRequestError,
                "Unexpected broker id, expected 1",
            ),
            (
                ConfigResource(ResourceType.CLIENT_METRICS, "m"),
                [("metrics", APPEND, "org.apache.")],
                InvalidConfigError,
                "Can't APPEND to key metrics because its type is not LIST",
            ),
            (
                ConfigResource(ResourceType.GROUP, "g"),
                [("streams.rack.aware.assignment.tags", SUBTRACT, "zone")],
                InvalidConfigError,
                "Can't SUBTRACT to key streams.rack.aware.assignment.tags because its type is not LIST",
            ),
            (
                ConfigResource(ResourceType.BROKER, "1"),
                [("num.partitions", SET, "3")],
                InvalidRequestError,
                "Cannot update these configs dynamically: \\[num.partitions\\]",
            ),
            (
                ConfigResource(ResourceType.BROKER, ""),
                [("ssl.client.auth", SET, "none")],
                InvalidRequestError,
                "broker id must be specified: \\[ssl.client.auth\\]",
            ),
            (
                ConfigResource(ResourceType.BROKER, "1"),
                [("listeners", SET, "nonsense")],
                InvalidRequestError,
                "Cannot update these configs dynamically: \\[listeners\\]",
            ),
            (
                ConfigResource(ResourceType.BROKER, "1"),
                [("ssl.keystore.location", SET, "/certificate.pem")],
                InvalidRequestError,
                "only per-listener using the listener prefix: \\[ssl.keystore.location\\]",
            ),
            (topic_resource("bad name"), [("retention.ms", SET, "1")], InvalidTopicError, "Topic name is invalid"),
            (
                ConfigResource(ResourceType.GROUP, "g"),
                [("consumer.session.timeout.ms", SET, "1")],
                InvalidConfigError,
                "consumer.session.timeout.ms must be in the range 45000 to 60000 inclusive",
            ),
            (ConfigResource(ResourceType.GROUP, ""), [], InvalidRequestError, "Default group resources"),
            (
                ConfigResource(ResourceType.CLIENT_METRICS, "m"),
                [("match", SET, "colour=red")],
                InvalidConfigError,
                "Illegal client matching pattern",
            ),
        ],
    )
    async def test_what_cannot_be_set_says_why(
        self,
        controller: Controller,
        resource: ConfigResource,
        changes: list[tuple[str, ConfigOperation, str | None]],
        error: type[MetadataError],
        words: str,
    ) -> None:
        await controller.create_topic(NewTopic("t", 1, 1))
        result = (await controller.alter_configs({resource: [ConfigChange(*change) for change in changes]}))[resource]
        with pytest.raises(error, match=words):
            raise result or AssertionError("it was accepted")

    async def test_a_dynamic_broker_default_shows_through_to_topics_and_this_broker_goes_first(
        self, controller: Controller, config: BrokerConfig
    ) -> None:
        retention = "log.retention.ms"
        every, own = ConfigResource(ResourceType.BROKER, ""), ConfigResource(ResourceType.BROKER, "1")
        assert config.topic_config({}).retention_ms == 604_800_000
        await controller.alter_configs({every: [ConfigChange(retention, SET, "1000")]})
        assert config.topic_config({}).retention_ms == 1000
        await controller.alter_configs({own: [ConfigChange(retention, SET, "2000")]})
        assert config.topic_config({}).retention_ms == 2000
        assert config.topic_config({"retention.ms": "3000"}).retention_ms == 3000
        await controller.alter_configs({own: [ConfigChange(retention, DELETE)]})
        assert config.topic_config({}).retention_ms == 1000


async def test_quotas_are_set_changed_and_removed(controller: Controller) -> None:
    entity = (("client-id", "c"), ("user", None))
    await controller.alter_client_quotas({entity: {"producer_byte_rate": 100.0, "request_percentage": 5.5}})
    await controller.alter_client_quotas({entity: {"producer_byte_rate": None}})
    assert controller.image.quotas == {entity: {"request_percentage": 5.5}}
    await controller.alter_client_quotas({entity: {"request_percentage": None}})
    assert controller.image.quotas == {}


async def test_a_quota_that_there_is_not_may_be_removed(controller: Controller) -> None:
    entity = (("user", "x"),)
    changes = {"producer_byte_rate": 1.0, "nonsense": None, "": None, "connection_creation_rate": None}
    assert await controller.alter_client_quotas({entity: changes}) == {entity: None}
    assert controller.image.quotas == {entity: {"producer_byte_rate": 1.0}}


@pytest.mark.parametrize(
    ("entity", "key", "value"),
    [
        ((), "producer_byte_rate", 1.0),
        ((("tribe", "x"),), "producer_byte_rate", 1.0),
        ((("user", "x"),), "connection_creation_rate", 1.0),
        ((("user", "x"),), "producer_byte_rate", 0.0),
        ((("user", "x"),), "producer_byte_rate", 1.5),
        ((("user", "x"),), "producer_byte_rate", float("nan")),
        ((("user", "x"),), "producer_byte_rate", 1e300),
        ((("user", "x"),), "request_percentage", float("inf")),
        ((("ip", "1.2.3.4"),), "connection_creation_rate", 2.0**31),
        ((("ip", "not an address"),), "connection_creation_rate", 1.0),
        ((("ip", "1.2.3.4"), ("user", "x")), "connection_creation_rate", 1.0),
    ],
)
async def test_wrong_quotas_are_refused(
    controller: Controller, entity: tuple[tuple[str, str | None], ...], key: str, value: float
) -> None:
    results = await controller.alter_client_quotas({entity: {key: value}})
    assert isinstance(results[entity], InvalidRequestError)
    assert controller.image.quotas == {}


async def test_features_go_up_freely_and_down_only_when_told(controller: Controller) -> None:
    down = FeatureUpdate("transaction.version", 1)
    with pytest.raises(InvalidUpdateVersionError, match="downgrade"):
        await controller.update_features([down])
    await controller.update_features([FeatureUpdate("transaction.version", 1, UpgradeType.SAFE_DOWNGRADE)])
    assert controller.image.features["transaction.version"] == 1
    await controller.update_features([FeatureUpdate("transaction.version", 2)])
    assert controller.image.features["transaction.version"] == 2


@pytest.mark.parametrize(("name", "level"), [("no.such.feature", 1), ("group.version", 2), ("group.version", 99)])
async def test_unknown_features_and_levels_are_refused(controller: Controller, name: str, level: int) -> None:
    with pytest.raises(InvalidUpdateVersionError):
        await controller.update_features([FeatureUpdate(name, level)])
