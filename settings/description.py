"""The configs of a resource in DescribeConfigs: each setting with its value, its source and its synonyms (Kafka's
ConfigHelper and DynamicBrokerConfig)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import Final

from ottla.settings.config import (
    BROKER_SETTINGS,
    CLIENT_METRICS_SETTINGS,
    GROUP_SETTINGS,
    TOPIC_SETTINGS,
    BrokerConfig,
    setting_of_broker,
)
from ottla.settings.declaration import Setting
from ottla.settings.types import SettingType

OTTLAS_OWN: Final = "ottla."
"""The prefix of settings that Kafka does not have."""


class ConfigSource(IntEnum):
    """The source of a value; the numbers are those of DescribeConfigs."""

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

    @property
    def is_listed(self) -> bool:
        """Whether it is told to clients that do not name it. Ottla's own settings are not, until they are set: Kafka
        does so with its internal ones, and programs compare the names with those that they know.
        """
        return self.source is not ConfigSource.DEFAULT or not self.name.startswith(OTTLAS_OWN)


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


_SHOWN: Final = frozenset(name for name, setting in BROKER_SETTINGS.items() if not setting.internal)

#: A broker that was given nothing.
_DEFAULTS: Final = BrokerConfig()


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
    given = _given(broker)
    for name in sorted(given | _SHOWN):
        if given.isdisjoint(_SYNONYMS.get(name, (name,))):
            yield _broker_setting_by_default(name)
            continue
        setting = setting_of_broker(name)
        if setting is None:
            # What is not known may be a secret, as zookeeper.ssl.keystore.password is (KafkaConfig.maybeSensitive).
            synonyms = tuple(_broker_synonyms(name, broker, is_sensitive=True))
            yield ConfigDescription(
                name, None, ConfigSource.STATIC_BROKER, SettingType.STRING, True, True, synonyms, ""
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
    given = _given(broker)
    for name, setting in settings.items():
        if name not in overrides and given.isdisjoint(broker_name for broker_name, _ in setting.broker_names):
            if not setting.internal:
                yield _overriding_setting_by_default(setting, own)
            continue
        value = setting.to_text(getattr(view, setting.attribute))
        synonyms = _synonyms_of_overriding(setting, own, broker)
        if name in overrides:
            synonyms = (Synonym(name, value, own), *synonyms)
        source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
        yield _description(name, setting, value, source, synonyms, is_read_only=False)


def _given(broker: BrokerConfig) -> set[str]:
    """The settings of the broker that were set, statically or dynamically."""
    return {*broker.dynamic, *broker.dynamic_default, *broker.static}


# What nobody has set is the same for every topic and all the time, and most settings are such.
@cache
def _broker_setting_by_default(name: str) -> ConfigDescription:
    setting = BROKER_SETTINGS[name]
    synonyms = tuple(_broker_synonyms(name, _DEFAULTS, is_sensitive=setting.sensitive))
    value = setting.to_text(setting.default)
    return _description(name, setting, value, ConfigSource.DEFAULT, synonyms, is_read_only=not setting.dynamic)


@cache
def _overriding_setting_by_default(setting: Setting, own: ConfigSource) -> ConfigDescription:
    views = {ConfigSource.TOPIC: _DEFAULTS.topic_config, ConfigSource.GROUP: _DEFAULTS.group_config}
    value = setting.to_text(getattr(views[own]({}), setting.attribute))
    synonyms = _synonyms_of_overriding(setting, own, _DEFAULTS)
    return _description(setting.name, setting, value, ConfigSource.DEFAULT, synonyms, is_read_only=False)


def _synonyms_of_overriding(setting: Setting, own: ConfigSource, broker: BrokerConfig) -> tuple[Synonym, ...]:
    if setting.broker_names:
        return tuple(_broker_synonyms(setting.broker_names[0][0], broker, is_sensitive=setting.sensitive))
    if own is ConfigSource.GROUP:
        # Kafka gives a group's setting itself where the broker has none for it, and a topic's nothing.
        return (Synonym(setting.name, setting.to_text(setting.default), ConfigSource.DEFAULT),)
    return ()


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
