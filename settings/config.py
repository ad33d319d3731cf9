"""Typed views of the settings: of the broker, of one topic, of one group.

An attribute has Kafka's name with underscores for dots: `config.num_partitions`. The settings themselves are
declared in the modules beside this one; files, environment and flags are read by `ottla.settings.sources`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final

from ottla.settings.declaration import InvalidSettingError, Setting, settings_of
from ottla.settings.declared.cluster import ClusterSettings
from ottla.settings.declared.dead_letters import DeadLetterSettings
from ottla.settings.declared.group import ClientMetricsSettings, GroupSettings
from ottla.settings.declared.groups import GroupCoordinatorSettings
from ottla.settings.declared.log import LogSettings
from ottla.settings.declared.mirror import MirrorSettings
from ottla.settings.declared.network import NetworkSettings
from ottla.settings.declared.operation import OperationSettings
from ottla.settings.declared.ottla import OttlaSettings
from ottla.settings.declared.remote_storage import RemoteStorageSettings
from ottla.settings.declared.replication import ReplicationSettings
from ottla.settings.declared.security import SecuritySettings
from ottla.settings.declared.topic import TopicSettings
from ottla.settings.declared.transactions import TransactionSettings
from ottla.settings.types import SettingType

__all__ = [
    "BROKER_SETTINGS",
    "CLIENT_METRICS_SETTINGS",
    "GROUP_SETTINGS",
    "TOPIC_SETTINGS",
    "BrokerConfig",
    "ConfigError",
    "GroupConfig",
    "InvalidSettingError",
    "TopicConfig",
]

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_LISTENER_PREFIX: Final = "listener.name."
_MAX_SHARED_CONFIGS: Final = 1024


class ConfigError(Exception):
    """The configuration is wrong and the broker does not start. The text is one sentence for the operator."""


class _BrokerSettings(
    NetworkSettings,
    ClusterSettings,
    LogSettings,
    ReplicationSettings,
    GroupCoordinatorSettings,
    DeadLetterSettings,
    TransactionSettings,
    SecuritySettings,
    OperationSettings,
    RemoteStorageSettings,
    OttlaSettings,
    MirrorSettings,
):
    """Every setting of a broker."""


#: The tables, by Kafka's names, sorted.
BROKER_SETTINGS: Final[Mapping[str, Setting]] = MappingProxyType(settings_of(_BrokerSettings))
TOPIC_SETTINGS: Final[Mapping[str, Setting]] = MappingProxyType(settings_of(TopicSettings))
GROUP_SETTINGS: Final[Mapping[str, Setting]] = MappingProxyType(settings_of(GroupSettings))
CLIENT_METRICS_SETTINGS: Final[Mapping[str, Setting]] = MappingProxyType(settings_of(ClientMetricsSettings))


class BrokerConfig(_BrokerSettings):
    """The broker's settings as they apply now.

    A value is looked up in the dynamic settings of this broker, in those of all brokers, in the static ones
    (file, environment, flags), and is else the default. The object stays the same for the broker's life and
    reads show dynamic changes at once: keep the object, not the values. All layers hold text that was
    checked when it entered (`ottla.settings.dynamic.usable`).
    """

    def __init__(
        self,
        static: Mapping[str, str] = _NOTHING,
        *,
        origins: Mapping[str, str] = _NOTHING,
        unknown_variables: Sequence[str] = (),
    ) -> None:
        self._layers: tuple[Mapping[str, str], ...] = (_NOTHING, _NOTHING, static)
        self._prefixes: tuple[str, ...] = ("",)
        self._topics: dict[frozenset[tuple[str, str]], TopicConfig] = {}
        #: For each static setting, where it came from, in the operator's words.
        self.origins = origins
        #: Variables of the environment that look like settings and are none, each with what was probably meant.
        self.unknown_variables = unknown_variables

    def resolve(self, setting: Setting) -> Any:
        for prefix in self._prefixes:
            for layer in self._layers:
                text = layer.get(prefix + setting.name)
                if text is not None:
                    return setting.parse(text)
        return setting.default

    @property
    def dynamic(self) -> Mapping[str, str]:
        """The dynamic settings of this broker."""
        return self._layers[0]

    @property
    def dynamic_default(self) -> Mapping[str, str]:
        """The dynamic settings of all brokers."""
        return self._layers[1]

    @property
    def static(self) -> Mapping[str, str]:
        """The settings from file, environment and flags."""
        return self._layers[2]

    def with_dynamic(self, broker: Mapping[str, str], default: Mapping[str, str]) -> BrokerConfig:
        """A configuration of its own with the same static settings and these dynamic ones."""
        other = BrokerConfig(self.static, origins=self.origins)
        other.set_dynamic(broker, default)
        return other

    def set_dynamic(self, broker: Mapping[str, str], default: Mapping[str, str]) -> None:
        """Replace both dynamic layers; every value is looked up again from here on."""
        kept = {
            "_prefixes": self._prefixes,
            "origins": self.origins,
            "unknown_variables": self.unknown_variables,
            "_topics": {},
        }
        layers = (broker, default, self.static)
        self.__dict__.clear()
        self.__dict__.update(kept, _layers=layers)

    def for_listener(self, listener: str, mechanism: str = "") -> BrokerConfig:
        """A view in which `listener.name.<listener>.<setting>` overrides `<setting>` (as ssl.* and sasl.*
        may be given), and with a SASL mechanism `listener.name.<listener>.<mechanism>.<setting>` overrides both; it
        does not follow later dynamic changes."""
        view = BrokerConfig(origins=self.origins)
        view._layers = self._layers
        prefix = f"{_LISTENER_PREFIX}{listener.lower()}."
        view._prefixes = (f"{prefix}{mechanism.lower()}.", prefix, "") if mechanism else (prefix, "")
        return view

    def listener_names(self) -> tuple[str, ...]:
        """The names of the listeners that the broker has."""
        return tuple(text.partition("://")[0].upper() for text in self.listeners)

    def topic_config(self, overrides: Mapping[str, str]) -> TopicConfig:
        """The view of a topic that has these settings of its own; topics with equal ones share it."""
        key = frozenset(overrides.items())
        config = self._topics.get(key)
        if config is None:
            if len(self._topics) >= _MAX_SHARED_CONFIGS:
                self._topics.clear()
            config = self._topics[key] = TopicConfig(overrides, self)
        return config

    def group_config(self, overrides: Mapping[str, str]) -> GroupConfig:
        """The view of a group that has these settings of its own."""
        return GroupConfig(overrides, self)

    def accepted_without_effect(self) -> list[str]:
        """The static settings that were given and that nothing in Ottla depends on, for one line at the start."""
        settings = ((name, setting_of_broker(name)) for name in self.static if name != "broker.id")
        return sorted(name for name, setting in settings if setting is None or not setting.in_use)


class _Overriding:
    """Settings of a resource that falls back to its broker's. A snapshot: make a new one after a change."""

    def __init__(self, overrides: Mapping[str, str], broker: BrokerConfig) -> None:
        self.overrides = overrides
        self.broker = broker

    def resolve(self, setting: Setting) -> Any:
        text = self.overrides.get(setting.name)
        if text is not None:
            # An earlier release may have stored what this one does not take: the default counts instead.
            with suppress(InvalidSettingError):
                return setting.parse(text)
        for name, factor in setting.broker_names:
            value = getattr(self.broker, BROKER_SETTINGS[name].attribute)
            if isinstance(value, tuple) and setting.type is not SettingType.LIST:
                return value[0]  # a group has one of those that the broker offers, by default the first
            if value is not None:
                return value if factor == 1 else value * factor
        return setting.default


class TopicConfig(_Overriding, TopicSettings):
    """One topic's settings: its own, else the broker's, else the default."""


class GroupConfig(_Overriding, GroupSettings):
    """One group's settings: its own, else the broker's, else the default."""


def setting_of_broker(name: str) -> Setting | None:
    """The setting of this name, which may carry a listener's prefix; None if there is none."""
    setting = BROKER_SETTINGS.get(name)
    if setting is None and name.startswith(_LISTENER_PREFIX):
        _, _, bare = name.removeprefix(_LISTENER_PREFIX).partition(".")
        # A mechanism may stand in between: listener.name.<listener>.<mechanism>.sasl.jaas.config.
        setting = BROKER_SETTINGS.get(bare) or BROKER_SETTINGS.get(bare.partition(".")[2])
    return setting
