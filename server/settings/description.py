"""What DescribeConfigs says of a resource: each setting with its value, where that comes from, and what else
could have given it (Kafka's ConfigHelper and DynamicBrokerConfig)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from ottla.server.config import (
    BROKER_SETTINGS,
    CLIENT_METRICS_SETTINGS,
    GROUP_SETTINGS,
    TOPIC_SETTINGS,
    BrokerConfig,
    setting_of_broker,
)
from ottla.server.settings.declaration import Setting
from ottla.server.settings.types import SettingType


class ConfigSource(IntEnum):
    """Where a value comes from; the numbers are those of DescribeConfigs."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


@dataclass(frozen=True, slots=True)
class Synonym:
    """A setting and layer that gives the value, or would if the ones before it were not set."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigDescription:
    """One setting of a resource. The value of a sensitive one is not told."""

    name: str
    value: str | None
    source: ConfigSource
    type: SettingType
    is_sensitive: bool
    is_read_only: bool
    synonyms: tuple[Synonym, ...]
    documentation: str


# Settings of one thing in several units: the first that is set counts.
_UNITS: Final = (
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
)
_SYNONYMS: Final[Mapping[str, tuple[str, ...]]] = {
    **{name: group for group in _UNITS for name in group},
    "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
}


def describe_topic(overrides: Mapping[str, str], broker: BrokerConfig) -> Iterator[ConfigDescription]:
    """Every setting of a topic that has these of its own."""
    view = broker.topic_config(overrides)
    return _describe_overriding(TOPIC_SETTINGS, view, overrides, broker, ConfigSource.TOPIC)


def describe_group(overrides: Mapping[str, str], broker: BrokerConfig) -> Iterator[ConfigDescription]:
    """Every setting of a group that has these of its own."""
    view = broker.group_config(overrides)
    return _describe_overriding(GROUP_SETTINGS, view, overrides, broker, ConfigSource.GROUP)


def describe_client_metrics(overrides: Mapping[str, str], broker: BrokerConfig) -> Iterator[ConfigDescription]:
    """Every setting of a subscription that has these of its own."""
    for name, setting in CLIENT_METRICS_SETTINGS.items():
        value = overrides.get(name, setting.to_text(setting.default))
        if name in overrides:
            source = ConfigSource.CLIENT_METRICS
            yield _description(name, setting, value, source, (Synonym(name, value, source),), is_read_only=False)
        else:
            yield _description(name, setting, value, ConfigSource.DEFAULT, (), is_read_only=False)


def describe_broker(broker: BrokerConfig) -> Iterator[ConfigDescription]:
    """Every setting of this broker, and those of its listeners that were given."""
    given = {name for layer in (broker.dynamic, broker.dynamic_default, broker.static) for name in layer}
    known = {name for name, setting in BROKER_SETTINGS.items() if not setting.internal}
    for name in sorted(given | known):
        setting = setting_of_broker(name)
        if setting is None:
            synonyms = tuple(_broker_synonyms(name, broker, is_sensitive=False))
            value = synonyms[0].value if synonyms else None
            yield ConfigDescription(
                name, value, ConfigSource.STATIC_BROKER, SettingType.STRING, False, True, synonyms, ""
            )
            continue
        synonyms = tuple(_broker_synonyms(name, broker, is_sensitive=setting.sensitive))
        if name in BROKER_SETTINGS:
            value = setting.to_text(getattr(broker, setting.attribute))
        else:
            value = synonyms[0].value if synonyms else None
        source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
        yield _description(name, setting, value, source, synonyms, is_read_only=not setting.dynamic)


def describe_broker_default(broker: BrokerConfig) -> Iterator[ConfigDescription]:
    """The settings that were given to all brokers while they ran."""
    for name, text in sorted(broker.dynamic_default.items()):
        setting = setting_of_broker(name)
        if setting is None:
            continue
        source = ConfigSource.DYNAMIC_DEFAULT_BROKER
        shown = None if setting.sensitive else text
        synonyms = (Synonym(name, shown, source),)
        yield _description(name, setting, text, source, synonyms, is_read_only=not setting.dynamic)


def _describe_overriding(
    settings: Mapping[str, Setting],
    view: object,
    overrides: Mapping[str, str],
    broker: BrokerConfig,
    own: ConfigSource,
) -> Iterator[ConfigDescription]:
    for name, setting in settings.items():
        value = setting.to_text(getattr(view, setting.attribute))
        synonyms: tuple[Synonym, ...] = ()
        if setting.broker_names:
            synonyms = tuple(_broker_synonyms(setting.broker_names[0][0], broker, is_sensitive=setting.sensitive))
        elif own is ConfigSource.GROUP:
            # Kafka gives a group's setting itself where the broker has none for it, and a topic's nothing.
            synonyms = (Synonym(name, setting.to_text(setting.default), ConfigSource.DEFAULT),)
        if name in overrides:
            synonyms = (Synonym(name, value, own), *synonyms)
        source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
        yield _description(name, setting, value, source, synonyms, is_read_only=False)


def _description(
    name: str,
    setting: Setting,
    value: str | None,
    source: ConfigSource,
    synonyms: tuple[Synonym, ...],
    *,
    is_read_only: bool,
) -> ConfigDescription:
    shown = None if setting.sensitive else value
    return ConfigDescription(name, shown, source, setting.type, setting.sensitive, is_read_only, synonyms, setting.doc)


def _broker_synonyms(name: str, broker: BrokerConfig, *, is_sensitive: bool) -> Iterator[Synonym]:
    names = _SYNONYMS.get(name, (name,))
    layers = (
        (broker.dynamic, ConfigSource.DYNAMIC_BROKER),
        (broker.dynamic_default, ConfigSource.DYNAMIC_DEFAULT_BROKER),
        (broker.static, ConfigSource.STATIC_BROKER),
    )
    found = [
        Synonym(synonym, None if is_sensitive else layer[synonym], source)
        for layer, source in layers
        for synonym in names
        if synonym in layer
    ]
    for synonym in names:
        setting = BROKER_SETTINGS.get(synonym)
        if setting is not None and setting.default is not None:
            found.append(Synonym(synonym, setting.to_text(setting.default), ConfigSource.DEFAULT))
    # What stands before the setting's own name is another unit's; Kafka leaves it out.
    begin = next((position for position, it in enumerate(found) if it.name == name), len(found))
    yield from found[begin:]
