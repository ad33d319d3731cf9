"""Describing and altering configs of every kind of resource."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.configs import alter_configs, incremental_alter_configs
from ottla.kproto.messages.configs.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.kproto.messages.configs.list_config_resources import ListConfigResourcesRequest
from ottla.metadata.changes.topic_changes import NewTopic
from ottla.settings.config import BROKER_SETTINGS, GROUP_SETTINGS, TOPIC_SETTINGS
from ottla.settings.declaration import Setting

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


async def describe(call: Any, type_: int, name: str, version: int = 4, keys: list[str] | None = None) -> Any:
    resource = DescribeConfigsResource(resource_type=type_, resource_name=name, configuration_keys=keys)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=version >= 3)
    (result,) = (await call(request, version)).results
    return result


async def entries(call: Any, type_: int, name: str, version: int = 4) -> dict[str, Any]:
    result = await describe(call, type_, name, version)
    assert result.error_code == ErrorCode.NONE, result.error_message
    return {entry.name: entry for entry in result.configs}


async def change(call: Any, type_: int, name: str, *changes: tuple[str, int, str | None], **options: Any) -> Any:
    configs = [
        incremental_alter_configs.AlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in changes
    ]
    resource = incremental_alter_configs.AlterConfigsResource(resource_type=type_, resource_name=name, configs=configs)
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource], **options)
    (result,) = (await call(request, 1)).responses
    return result


def synonyms(entry: Any) -> list[tuple[str, str | None, int]]:
    return [(it.name, it.value, it.source) for it in entry.synonyms]


def kafkas(settings: Mapping[str, Setting]) -> set[str]:
    """Those that are told to clients which name none, as long as nobody has set them."""
    return {name for name, setting in settings.items() if not setting.internal and not name.startswith("ottla.")}


class TestDescribe:
    @pytest.mark.parametrize("version", range(1, 5))
    async def test_a_topic_has_every_setting(self, call: Any, broker: Any, version: int) -> None:
        await broker.controller.create_topic(NewTopic("t", 1, 1, configs={"retention.ms": "7"}))
        found = await entries(call, TOPIC, "t", version)
        assert set(found) == kafkas(TOPIC_SETTINGS)
        own, default = found["retention.ms"], found["segment.bytes"]
        assert (own.value, own.config_source, own.read_only, own.is_sensitive) == ("7", 1, False, False)
        assert synonyms(own) == [("retention.ms", "7", 1)]
        assert (default.value, default.config_source) == ("1073741824", 5)
        assert synonyms(default) == [("log.segment.bytes", "1073741824", 5)]
        if version >= 3:
            assert (own.config_type, default.config_type) == (5, 3)
            assert own.documentation

    @pytest.mark.parametrize("version", range(1, 5))
    async def test_a_broker_has_every_setting(self, call: Any, version: int) -> None:
        found = await entries(call, BROKER, "1", version)
        assert set(found) == kafkas(BROKER_SETTINGS)
        assert found["num.partitions"].read_only
        assert not found["log.retention.ms"].read_only
        assert found["log.retention.hours"].read_only
        assert found["log.retention.ms"].value is None
        assert found["log.retention.hours"].value == "168"

    async def test_the_keys_asked_for_and_no_others(self, call: Any, broker: Any) -> None:
        await broker.controller.create_topic(NewTopic("t", 1, 1))
        result = await describe(call, TOPIC, "t", keys=["retention.ms", "no.such.key"])
        assert [it.name for it in result.configs] == ["retention.ms"]

    async def test_ottlas_own_settings_are_told_to_who_names_them_and_once_they_are_set(
        self, call: Any, broker: Any
    ) -> None:
        await broker.controller.create_topic(NewTopic("t", 1, 1))
        (own,) = (await describe(call, TOPIC, "t", keys=["ottla.records.validate"])).configs
        assert (own.value, own.config_source) == ("header", 5)
        assert len((await describe(call, BROKER, "1", keys=["ottla.run.bytes", "num.partitions"])).configs) == 2
        await change(call, TOPIC, "t", ("ottla.records.validate", SET, "all"))
        assert set(await entries(call, TOPIC, "t")) == {*kafkas(TOPIC_SETTINGS), "ottla.records.validate"}

    async def test_a_group_has_every_setting(self, call: Any) -> None:
        found = await entries(call, GROUP, "g")
        assert set(found) == {name for name, setting in GROUP_SETTINGS.items() if not setting.internal}
        assert found["consumer.session.timeout.ms"].value == "45000"

    async def test_client_metrics(self, call: Any) -> None:
        await change(call, CLIENT_METRICS, "m", ("interval.ms", SET, "1000"))
        found = await entries(call, CLIENT_METRICS, "m")
        assert (found["interval.ms"].value, found["interval.ms"].config_source) == ("1000", 7)
        assert (found["metrics"].value, found["metrics"].config_source) == ("", 5)

    @pytest.mark.parametrize(
        ("type_", "name", "code"),
        [
            (TOPIC, "absent", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (TOPIC, "bad name", ErrorCode.INVALID_TOPIC_EXCEPTION),
            (BROKER, "2", ErrorCode.INVALID_REQUEST),
            (BROKER, "one", ErrorCode.INVALID_REQUEST),
            (LOGGER, "", ErrorCode.INVALID_REQUEST),
            (GROUP, "", ErrorCode.INVALID_REQUEST),
            (CLIENT_METRICS, "", ErrorCode.INVALID_REQUEST),
            (99, "x", ErrorCode.INVALID_REQUEST),
        ],
    )
    async def test_what_is_not_there(self, call: Any, type_: int, name: str, code: ErrorCode) -> None:
        result = await describe(call, type_, name)
        assert (result.error_code, result.configs) == (code, [])
        assert bool(result.error_message) == (name != "absent")


class TestStaticSettings:
    @pytest.fixture
    def static(self) -> dict[str, str]:
        return {
            "log.retention.hours": "2",
            "ssl.keystore.password": "secret",
            "listener.name.internal.ssl.key.password": "hidden",
            "num.partitions": "3",
        }

    async def test_sources_and_synonyms_of_the_broker(self, call: Any) -> None:
        found = await entries(call, BROKER, "1")
        assert (found["num.partitions"].value, found["num.partitions"].config_source) == ("3", 4)
        assert synonyms(found["num.partitions"]) == [("num.partitions", "3", 4), ("num.partitions", "1", 5)]

    async def test_passwords_are_not_told(self, call: Any) -> None:
        found = await entries(call, BROKER, "1")
        for name in ("ssl.keystore.password", "listener.name.internal.ssl.key.password"):
            assert (found[name].value, found[name].is_sensitive) == (None, True)
            assert all(value is None for _, value, _ in synonyms(found[name]))

    async def test_a_setting_in_another_unit_reaches_the_topic(self, call: Any, broker: Any) -> None:
        await broker.controller.create_topic(NewTopic("t", 1, 1))
        found = await entries(call, TOPIC, "t")
        assert found["retention.ms"].value == "7200000"

    async def test_layers_in_their_order(self, call: Any, broker: Any) -> None:
        await broker.controller.create_topic(NewTopic("t", 1, 1))
        await change(call, BROKER, "", ("log.segment.bytes", SET, "2000000"))
        await change(call, BROKER, "1", ("log.segment.bytes", SET, "3000000"))
        topic = (await entries(call, TOPIC, "t"))["segment.bytes"]
        assert (topic.value, topic.config_source) == ("3000000", 2)
        assert synonyms(topic) == [
            ("log.segment.bytes", "3000000", 2),
            ("log.segment.bytes", "2000000", 3),
            ("log.segment.bytes", "1073741824", 5),
        ]
        default = await entries(call, BROKER, "")
        assert {name: it.value for name, it in default.items()} == {"log.segment.bytes": "2000000"}
        await change(call, TOPIC, "t", ("segment.bytes", SET, "4000000"))
        assert (await entries(call, TOPIC, "t"))["segment.bytes"].value == "4000000"


class TestAlter:
    @pytest.mark.parametrize("version", range(3))
    async def test_alter_configs_replaces_everything(self, call: Any, broker: Any, version: int) -> None:
        await broker.controller.create_topic(NewTopic("t", 1, 1, configs={"retention.ms": "7"}))
        configs = [alter_configs.AlterableConfig(name="segment.ms", value="9")]
        resource = alter_configs.AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=configs)
        for validate_only in (True, False):
            request = alter_configs.AlterConfigsRequest(resources=[resource], validate_only=validate_only)
            (result,) = (await call(request, version)).responses
            assert (result.error_code, result.resource_name) == (ErrorCode.NONE, "t")
            expected = {"retention.ms": "7"} if validate_only else {"segment.ms": "9"}
            assert broker.metadata.topic("t").configs == expected

    @pytest.mark.parametrize("version", range(2))
    async def test_each_resource_is_answered_for_itself(self, call: Any, broker: Any, version: int) -> None:
        await broker.controller.create_topics([NewTopic("t", 1, 1), NewTopic("u", 1, 1)])

        def resource(name: str, key: str, operation: int, value: str | None) -> Any:
            config = incremental_alter_configs.AlterableConfig(name=key, config_operation=operation, value=value)
            return incremental_alter_configs.AlterConfigsResource(
                resource_type=TOPIC, resource_name=name, configs=[config]
            )

        request = incremental_alter_configs.IncrementalAlterConfigsRequest(
            resources=[
                resource("t", "cleanup.policy", APPEND, "compact"),
                resource("u", "retention.ms", SET, "never"),
                resource("absent", "retention.ms", SET, "1"),
                resource("v", "retention.ms", 9, "1"),
                resource("w", "retention.ms", SET, "1"),
                resource("w", "retention.ms", SET, "1"),
            ]
        )
        results = (await call(request, version)).responses
        assert [(it.resource_name, ErrorCode(it.error_code)) for it in results] == [
            ("t", ErrorCode.NONE),
            ("u", ErrorCode.INVALID_CONFIG),
            ("absent", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("v", ErrorCode.INVALID_REQUEST),
            ("w", ErrorCode.INVALID_REQUEST),
            ("w", ErrorCode.INVALID_REQUEST),
        ]
        assert broker.metadata.topic("t").configs == {"cleanup.policy": "delete,compact"}

    async def test_a_resource_changes_entirely_or_not_at_all(self, call: Any, broker: Any) -> None:
        await broker.controller.create_topic(NewTopic("t", 1, 1))
        result = await change(call, TOPIC, "t", ("retention.ms", SET, "5"), ("segment.ms", SET, "x"))
        assert result.error_code == ErrorCode.INVALID_CONFIG
        assert broker.metadata.topic("t").configs == {}

    async def test_a_read_only_broker_setting_is_refused(self, call: Any) -> None:
        result = await change(call, BROKER, "1", ("num.partitions", SET, "2"))
        assert result.error_code == ErrorCode.INVALID_REQUEST
        assert result.error_message == "Cannot update these configs dynamically: [num.partitions]"

    async def test_what_was_set_is_deleted_again(self, call: Any, broker: Any) -> None:
        await change(call, BROKER, "", ("message.max.bytes", SET, "2000"))
        assert broker.config.message_max_bytes == 2000
        await change(call, BROKER, "", ("message.max.bytes", DELETE, None))
        assert broker.config.message_max_bytes == 1_048_588
        assert await entries(call, BROKER, "") == {}


class TestLoggers:
    @pytest.fixture
    def logger(self) -> Iterator[logging.Logger]:
        logger = logging.getLogger("ottla.test_logger")
        yield logger
        logger.setLevel(logging.NOTSET)

    async def test_levels_are_shown_and_set(self, call: Any, logger: logging.Logger) -> None:
        assert "ottla.test_logger" in await entries(call, LOGGER, "1")
        result = await change(call, LOGGER, "1", ("ottla.test_logger", SET, "ERROR"))
        assert result.error_code == ErrorCode.NONE
        entry = (await entries(call, LOGGER, "1"))["ottla.test_logger"]
        assert (entry.value, entry.config_source, logger.level) == ("ERROR", 6, logging.ERROR)
        await change(call, LOGGER, "1", ("ottla.test_logger", DELETE, None))
        assert logger.level == logging.NOTSET

    async def test_validate_only_sets_nothing(self, call: Any, logger: logging.Logger) -> None:
        await change(call, LOGGER, "1", ("ottla.test_logger", SET, "ERROR"), validate_only=True)
        assert logger.level == logging.NOTSET

    @pytest.mark.parametrize(
        ("name", "operation", "level", "code"),
        [
            ("ottla.test_logger", SET, "LOUD", ErrorCode.INVALID_CONFIG),
            ("no.such.logger", SET, "INFO", ErrorCode.INVALID_CONFIG),
            ("ottla.test_logger", APPEND, "INFO", ErrorCode.INVALID_REQUEST),
        ],
    )
    async def test_wrong_levels_and_loggers(
        self, call: Any, logger: logging.Logger, name: str, operation: int, level: str, code: ErrorCode
    ) -> None:
        assert (await change(call, LOGGER, "1", (name, operation, level))).error_code == code
        assert logger.level == logging.NOTSET


class TestListConfigResources:
    async def test_version_0_lists_client_metrics_only(self, call: Any, broker: Any) -> None:
        await broker.controller.create_topic(NewTopic("t", 1, 1))
        await change(call, CLIENT_METRICS, "m", ("interval.ms", SET, "1000"))
        response = await call(ListConfigResourcesRequest(), 0)
        assert [it.resource_name for it in response.config_resources] == ["m"]

    async def test_version_1_lists_the_types_asked_for(self, call: Any, broker: Any) -> None:
        await broker.controller.create_topic(NewTopic("t", 1, 1))
        await change(call, GROUP, "g", ("consumer.session.timeout.ms", SET, "50000"))

        async def listed(*types: int) -> list[tuple[int, str]]:
            response = await call(ListConfigResourcesRequest(resource_types=list(types)), 1)
            return [(it.resource_type, it.resource_name) for it in response.config_resources]

        assert await listed() == [(TOPIC, "t"), (BROKER, "1"), (LOGGER, "1"), (GROUP, "g")]
        assert await listed(GROUP) == [(GROUP, "g")]
        response = await call(ListConfigResourcesRequest(resource_types=[77]), 1)
        assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
