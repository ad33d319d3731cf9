"""Which configs a resource may have, and what they are after a change. Pure functions; the messages are Kafka's."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from ottla.metadata.changes.tiered_topics import check_tiered
from ottla.metadata.errors import InvalidConfigError, InvalidRequestError, UnknownTopicError
from ottla.metadata.image import ConfigResource, MetadataImage, ResourceType
from ottla.metadata.topic_names import check_topic_name
from ottla.settings.client_match import parse_match
from ottla.settings.config import (
    BROKER_SETTINGS,
    CLIENT_METRICS_SETTINGS,
    GROUP_SETTINGS,
    TOPIC_SETTINGS,
    BrokerConfig,
    InvalidSettingError,
    setting_of_broker,
)
from ottla.settings.declaration import Setting
from ottla.settings.declared.groups import streams_assignor_names
from ottla.settings.dynamic import fixed, of_one_broker, refusal
from ottla.settings.mirrored import MIRROR_SETTING, Mirroring, mirrored
from ottla.settings.types import SettingType


class ConfigOperation(IntEnum):
    """An operation on one config; the numbers are those of IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """One operation on one config; only DELETE may come without a value."""

    name: str
    operation: ConfigOperation
    value: str | None = None


#: Of no other resource does Kafka's controller know which settings are lists (`KafkaConfigSchema`).
_WITH_LISTS: Final[Mapping[ResourceType, Mapping[str, Setting]]] = {
    ResourceType.TOPIC: TOPIC_SETTINGS,
    ResourceType.BROKER: BROKER_SETTINGS,
}


def change_configs(
    resource: ConfigResource, current: Mapping[str, str], changes: Sequence[ConfigChange]
) -> dict[str, str]:
    """The configs of a resource after the changes, not checked yet; raises MetadataError."""
    check_changes(changes)
    result = dict(current)
    for change in changes:
        if change.operation is ConfigOperation.DELETE or change.value is None:
            result.pop(change.name, None)
        elif change.operation is ConfigOperation.SET:
            result[change.name] = change.value
        else:
            result[change.name] = _edit_list(resource, result.get(change.name), change, change.value)
    return result


def check_changes(changes: Sequence[ConfigChange]) -> None:
    """Raise InvalidRequestError for changes that are wrong whatever they are made to."""
    names = [change.name for change in changes]
    if len(set(names)) != len(names):
        raise InvalidRequestError("Error due to duplicate config keys")
    absent = [it.name for it in changes if it.value is None and it.operation is not ConfigOperation.DELETE]
    if absent:
        raise InvalidRequestError(f"Null value not supported for : {', '.join(absent)}")


def check_mirroring(resource: ConfigResource, before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """A mirror begins when its topic is created, and ends in two steps. Raises InvalidConfigError for other changes."""
    if resource.type is not ResourceType.TOPIC:
        return
    old, new = mirrored(before), mirrored(after)
    ends = old.source_id == new.source_id and (old.mirroring, new.mirroring) == (Mirroring.FOLLOWING, Mirroring.ENDING)
    if new != old and not ends and (old.mirroring, new.mirroring) != (Mirroring.ENDING, Mirroring.NO):
        raise InvalidConfigError(f"{MIRROR_SETTING} is changed by `ottla mirror` alone.")


def check_configs(
    resource: ConfigResource, configs: Mapping[str, str], image: MetadataImage, broker: BrokerConfig
) -> None:
    """Raise MetadataError unless the resource exists and may have exactly these configs; a broker has been looked at.

    Of a broker's only those count that change: what is stored and cannot be used stands in nobody's way.
    """
    if resource.type is ResourceType.TOPIC:
        if not resource.name:
            raise InvalidRequestError("Default topic resources are not allowed.")
        check_topic_name(resource.name)
        check_topic_configs(configs, broker)
        if resource.name not in image.topics:
            raise UnknownTopicError(f"The topic '{resource.name}' does not exist.")
    elif resource.type is ResourceType.BROKER:
        current = image.resource_configs(resource)
        _check_broker_configs(resource, configs, current)
        reason = refusal(config_after(resource, configs, current, broker), broker)
        if reason is not None:
            raise InvalidRequestError(reason)
    elif resource.type is ResourceType.GROUP:
        _check_group_configs(resource.name, configs, broker)
        _check_dead_letter_topic(configs)
    elif resource.type is ResourceType.CLIENT_METRICS:
        _check_client_metrics_configs(resource.name, configs)
    else:
        raise InvalidRequestError(f"Unknown resource type {int(resource.type)}")


def check_broker_name(name: str, node_id: int) -> None:
    """A broker answers for itself and, under the name '', for all brokers."""
    if not name:
        return
    if not re.fullmatch(r"-?[0-9]+", name):
        raise InvalidRequestError(f"Node id must be an integer, but it is: {name}")
    if int(name) != node_id:
        raise InvalidRequestError(f"Unexpected broker id, expected {node_id}, but received {name}")


def check_topic_configs(configs: Mapping[str, str], broker: BrokerConfig) -> None:
    """Raise InvalidConfigError unless a topic may have these configs."""
    for name, text in configs.items():
        _parse(TOPIC_SETTINGS.get(name), name, text, "topic")
    topic = broker.topic_config(configs)
    if topic.min_compaction_lag_ms > topic.max_compaction_lag_ms:
        raise InvalidConfigError(
            f"conflict topic config setting min.compaction.lag.ms ({topic.min_compaction_lag_ms}) > "
            f"max.compaction.lag.ms ({topic.max_compaction_lag_ms})"
        )
    if topic.remote_storage_enable:
        check_tiered(topic)


def config_after(
    resource: ConfigResource, configs: Mapping[str, str], current: Mapping[str, str], broker: BrokerConfig
) -> BrokerConfig:
    """The settings of this broker once it, or all brokers, have these configs instead of the current ones.

    What is stored and cannot be used is not among them, as long as it does not change.
    """
    used = broker.dynamic if resource.name else broker.dynamic_default
    layer = {name: text for name, text in configs.items() if text != current.get(name) or text == used.get(name)}
    return (
        broker.with_dynamic(layer, broker.dynamic_default)
        if resource.name
        else broker.with_dynamic(broker.dynamic, layer)
    )


def _check_broker_configs(resource: ConfigResource, configs: Mapping[str, str], current: Mapping[str, str]) -> None:
    """Kafka refuses wrong broker configs as an invalid request (KAFKA-13609)."""
    changed = [name for name, text in configs.items() if current.get(name) != text]
    reason = fixed(changed)
    if reason is not None:
        raise InvalidRequestError(reason)
    for name in changed:
        try:
            _parse(setting_of_broker(name), name, configs[name], "broker")
        except InvalidConfigError as error:
            raise InvalidRequestError(str(error)) from None
    reason = None if resource.name else of_one_broker(changed)
    if reason is not None:
        raise InvalidRequestError(reason)


def _check_group_configs(group: str, configs: Mapping[str, str], broker: BrokerConfig) -> None:
    if not group:
        raise InvalidRequestError("Default group resources are not allowed.")
    for name in configs:
        if name not in GROUP_SETTINGS:
            raise InvalidConfigError(f"Unknown group config name: {name}")
    tags = GROUP_SETTINGS["streams.rack.aware.assignment.tags"]
    said = [tag.strip() for tag in configs.get(tags.name, "").split(",")]
    if len(set(said)) != len(said):
        raise InvalidConfigError(f"{tags.name} must not contain duplicate tag keys.")
    for name, text in configs.items():
        _check_bounds(name, _parse(GROUP_SETTINGS[name], name, text, "group"), broker)
    _check_streams_assignor(configs.get("streams.assignor.name"), broker)
    view = broker.group_config(configs)
    for kind in ("consumer", "share", "streams"):
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        if session not in configs and heartbeat not in configs:
            continue
        if getattr(view, GROUP_SETTINGS[session].attribute) <= getattr(view, GROUP_SETTINGS[heartbeat].attribute):
            raise InvalidConfigError(f"{session} must be greater than {heartbeat}")


def _check_bounds(name: str, value: Any, broker: BrokerConfig) -> None:
    """Raise InvalidConfigError unless a group's setting lies within those that the broker has for it."""
    least, most = (
        None if bound is None else getattr(broker, bound.attribute)
        for bound in (BROKER_SETTINGS.get(_bound(name, end)) for end in ("min", "max"))
    )
    if least is not None and most is not None:
        if not least <= value <= most:
            raise InvalidConfigError(f"{name} must be in the range {least} to {most} inclusive.")
    elif least is not None and value < least:
        raise InvalidConfigError(f"{name} must be greater than or equal to {least}")
    elif most is not None and value > most:
        raise InvalidConfigError(f"{name} must be less than or equal to {most}")


def _check_streams_assignor(name: str | None, broker: BrokerConfig) -> None:
    offered = streams_assignor_names(broker.group_streams_assignors)
    if name is not None and name not in offered:
        raise InvalidConfigError(
            f"streams.assignor.name '{name}' is not a registered task assignor. Registered assignors are: "
            f"[{', '.join(offered)}]."
        )


def _bound(name: str, bound: str) -> str:
    kind, _, rest = name.partition(".")
    return f"group.{kind}.{bound}.{rest.removeprefix('num.')}"


def _check_dead_letter_topic(configs: Mapping[str, str]) -> None:
    """Whether it has the prefix, and may be a queue, is only looked at when a letter is written, as in Kafka."""
    name = "errors.deadletterqueue.topic.name"
    if configs.get(name, "").startswith("__"):
        raise InvalidConfigError(f"{name}: DLQ topic name must not start with '__'")


def _check_client_metrics_configs(name: str, configs: Mapping[str, str]) -> None:
    if not name:
        raise InvalidRequestError("Subscription name can't be empty")
    for key, text in configs.items():
        setting = CLIENT_METRICS_SETTINGS.get(key)
        if setting is None:
            raise InvalidRequestError(f"Unknown client metrics configuration: {key}")
        try:
            value = setting.parse(text)
        except InvalidSettingError as error:
            raise InvalidRequestError(str(error)) from None
        if key == "match":
            try:
                parse_match(value)
            except ValueError as error:
                raise InvalidConfigError(f"Illegal client matching pattern: {error}") from None


def _parse(setting: Setting | None, name: str, text: str, kind: str) -> Any:
    if setting is None:
        raise InvalidConfigError(f"Unknown {kind} config name: {name}")
    try:
        return setting.parse(text)
    except InvalidSettingError as error:
        raise InvalidConfigError(str(error)) from None


def _edit_list(resource: ConfigResource, current: str | None, change: ConfigChange, value: str) -> str:
    setting = _WITH_LISTS.get(resource.type, {}).get(change.name)
    if setting is None or setting.type is not SettingType.LIST:
        raise InvalidConfigError(f"Can't {change.operation.name} to key {change.name} because its type is not LIST.")
    if current is None:
        current = setting.to_text(setting.default) or ""
    parts = [part for part in current.split(",") if part]
    for part in value.split(","):
        if change.operation is ConfigOperation.SUBTRACT:
            parts = [kept for kept in parts if kept != part]
        elif part not in parts:
            parts.append(part)
    return ",".join(parts)
