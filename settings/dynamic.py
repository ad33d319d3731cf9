"""Rules for changes of a running broker's settings, beyond the checks of each setting by itself.

Kafka's counterparts are DynamicBrokerConfig, with the classes that it reconfigures, and what KafkaConfig requires of
all settings together. The reasons are Kafka's own words. A rule compares the settings after a change with those
before; at a start, when nothing changes, both are the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from ottla.settings.config import BROKER_SETTINGS, BrokerConfig, setting_of_broker
from ottla.settings.declaration import InvalidSettingError, Update

#: What a change of one listener may have, and a change of the settings without its prefix may not.
_OF_LISTENERS_ONLY: Final = frozenset(
    {
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)
_OF_A_LISTENER: Final = re.compile(r"listener\.name\.([^.]*)\.(.*)")
#: The settings of a listener that may be given for all brokers at once.
_OF_LISTENERS_OF_ALL: Final = frozenset({"max.connections", "max.connection.creation.rate", "num.network.threads"})
_MIB: Final = 1024 * 1024


class Unusable(NamedTuple):
    """A stored setting that does not take part, and why."""

    #: The broker's id, or "" for what was set for all brokers.
    broker: str
    name: str
    reason: str


class _Rule(NamedTuple):
    """The settings that must suit each other, and what says whether they do: None, or the reason why they do not.

    Where a stored value has to be left out so that the others can be used, the names are tried in their order.
    """

    names: tuple[str, ...]
    refusal: Callable[[BrokerConfig, BrokerConfig], str | None]


def fixed(names: Iterable[str]) -> str | None:
    """Why some of these settings cannot be changed while a broker runs; None if all can."""
    settings = {name: setting_of_broker(name) for name in names}
    read_only = [name for name, setting in settings.items() if setting is not None and not setting.dynamic]
    if read_only:
        return f"Cannot update these configs dynamically: [{', '.join(read_only)}]"
    bare = [name for name in settings if name in _OF_LISTENERS_ONLY]
    if bare:
        return (
            "These security configs can be dynamically updated only per-listener using the listener prefix: "
            f"[{', '.join(bare)}]"
        )
    return None


def of_one_broker(names: Iterable[str]) -> str | None:
    """Why some of these settings cannot be changed for all brokers at once; None if all can."""
    own = [name for name in names if _is_of_one_broker(name)]
    if own:
        return f"Cannot update these configs at default cluster level, broker id must be specified: [{', '.join(own)}]"
    return None


def _is_of_one_broker(name: str) -> bool:
    setting, of_listener = setting_of_broker(name), _OF_A_LISTENER.fullmatch(name)
    if setting is None or of_listener is None:
        return setting is not None and setting.update is Update.PER_BROKER
    return of_listener[2] not in _OF_LISTENERS_OF_ALL


def refusal(after: BrokerConfig, before: BrokerConfig) -> str | None:
    """Why a broker cannot go on with these settings after those; None if it can."""
    return next((reason for rule in _RULES if (reason := rule.refusal(after, before))), None)


def usable(
    static: BrokerConfig, node_id: int, own: Mapping[str, str], of_all: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str], list[Unusable]]:
    """The stored settings that a broker can use, its own and those for all brokers, and those that it leaves out.

    Stored values were checked by the broker that took them: by an earlier release, against another broker's file, or
    at the same time as a change that they do not suit.
    """
    left_out: list[Unusable] = []
    layers = {str(node_id): dict(own), "": dict(of_all)}
    for broker, layer in layers.items():
        for name, text in list(layer.items()):
            reason = _wrong_alone(name, text, of_all=not broker)
            if reason is not None:
                del layer[name]
                left_out.append(Unusable(broker, name, reason))
    config = static.with_dynamic(*layers.values())
    for rule in _RULES:
        while reason := rule.refusal(config, config):
            found = next(_stored(rule.names, layers), None)
            if found is None:
                break  # It is the broker's own file that does not suit, which is not for this one to judge.
            broker, name = found
            del layers[broker][name]
            left_out.append(Unusable(broker, name, reason))
            config = static.with_dynamic(*layers.values())
    return layers[str(node_id)], layers[""], left_out


def _wrong_alone(name: str, text: str, *, of_all: bool) -> str | None:
    setting = setting_of_broker(name)
    if setting is None:
        return "there is no such setting"
    wrong = fixed((name,)) or (of_one_broker((name,)) if of_all else None)
    if wrong is not None:
        return wrong
    try:
        setting.parse(text)
    except InvalidSettingError as error:
        return str(error)
    return None


def _stored(names: tuple[str, ...], layers: Mapping[str, Mapping[str, str]]) -> Iterator[tuple[str, str]]:
    """The layers in which these settings are stored, with a listener's prefix or without."""
    for name in names:
        for broker, layer in layers.items():
            for stored in layer:
                of_listener = _OF_A_LISTENER.fullmatch(stored)
                if stored == name or (of_listener is not None and of_listener[2] == name):
                    yield broker, stored


# The rules ----------------------------------------------------------------------------------------------------------


def _reconfigured(reason: str) -> str:
    """As Kafka words what one of its classes refuses."""
    wrapped = f"org.apache.kafka.common.config.ConfigException: {reason}"
    return f"Invalid value {wrapped} for configuration Invalid dynamic configuration"


def _value(config: BrokerConfig, name: str) -> Any:
    return getattr(config, BROKER_SETTINGS[name].attribute)


def _not_zero(name: str) -> _Rule:
    def reason(after: BrokerConfig, _: BrokerConfig) -> str | None:
        views = (after, *map(after.for_listener, after.listener_names()))
        return _reconfigured(f"Invalid {name} 0") if any(_value(view, name) == 0 for view in views) else None

    return _Rule((name,), reason)


def _least(name: str, least: int) -> _Rule:
    def reason(after: BrokerConfig, _: BrokerConfig) -> str | None:
        value = _value(after, name)
        if value is None or value >= least:
            return None
        return f"requirement failed: {name} must be greater than or equal to {least}"

    return _Rule((name,), reason)


def _ordered(least: str, name: str, most: str) -> _Rule:
    def reason(after: BrokerConfig, _: BrokerConfig) -> str | None:
        value = _value(after, name)
        if value < _value(after, least):
            return f"{name} must be greater than or equal to {least}"
        return f"{name} must be less than or equal to {most}" if value > _value(after, most) else None

    return _Rule((name,), reason)


def _threads(name: str) -> _Rule:
    """A pool is at most doubled or halved at a time (DynamicThreadPool); here nothing but the number depends on it."""

    def reason(after: BrokerConfig, before: BrokerConfig) -> str | None:
        now, then = _value(after, name), _value(before, name)
        told = f"Dynamic thread count update validation failed for {name}={now}, value should "
        if now < then // 2:
            return _reconfigured(f"{told}be at least half the current value {then}")
        return _reconfigured(f"{told}not be greater than double the current value {then}") if now > then * 2 else None

    return _Rule((name,), reason)


def _cleaner_threads(after: BrokerConfig, before: BrokerConfig) -> str | None:
    now, then = (_value(config, "log.cleaner.threads") for config in (after, before))
    if now < 1:
        return _reconfigured("Log cleaner threads should be at least 1")
    if after.log_cleaner_dedupe_buffer_size // now <= _MIB:
        return "requirement failed: log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread."
    if now < then // 2:
        return _reconfigured(f"Log cleaner threads cannot be reduced to less than half the current value {then}")
    if now > then * 2:
        return _reconfigured(f"Log cleaner threads cannot be increased to more than double the current value {then}")
    return None


def _address_connections(after: BrokerConfig, _: BrokerConfig) -> str | None:
    """Stricter than Kafka, which asks for overrides and not for one that lets anybody in."""
    entries = after.max_connections_per_ip_overrides.split(",")
    if after.max_connections_per_ip == 0 and not any(int(entry.rpartition(":")[2] or 0) for entry in entries):
        return (
            "requirement failed: max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides "
            "property is set."
        )
    return None


def _retention(after: BrokerConfig, _: BrokerConfig) -> str | None:
    if after.log_retention_ms == 0:
        return "requirement failed: log.retention.ms must be unlimited (-1) or, greater than or equal to 1"
    return None


def _local(name: str, whole: str) -> _Rule:
    """Local retention beside tiered storage is at most the whole retention (DynamicRemoteLogConfig)."""

    def of(config: BrokerConfig) -> tuple[int, int]:
        topic = config.topic_config({})
        return _value(config, name), topic.retention_ms if name.endswith("ms") else topic.retention_bytes

    def reason(after: BrokerConfig, before: BrokerConfig) -> str | None:
        local, kept = of(after)
        if local == -2 or kept < 0 or (local, kept) == of(before):
            return None
        told = f"Invalid value {local} for configuration {name}: Value must not be "
        if local == -1:
            return _reconfigured(f"{told}-1 as {whole} value is set as {kept}.")
        return _reconfigured(f"{told}more than {whole} property value: {kept}") if local > kept else None

    return _Rule((name, whole), reason)


def _copy_lag(name: str, local: str) -> _Rule:
    """The lag of copies to remote storage is at most the local retention (DynamicRemoteLogConfig of 4.4)."""

    def of(config: BrokerConfig) -> tuple[int, int]:
        topic = config.topic_config({})
        kept = _value(config, local)
        if kept == -2:
            kept = topic.retention_ms if name.endswith("ms") else topic.retention_bytes
        return _value(config, name), kept

    def reason(after: BrokerConfig, before: BrokerConfig) -> str | None:
        lag, kept = of(after)
        if kept < 0 or lag <= kept or (lag, kept) == of(before):
            return None
        return _reconfigured(
            f"Invalid value {lag} for configuration {name}: Value must not exceed {local} (effective value: {kept})"
        )

    return _Rule((name, local), reason)


def _cordoned(after: BrokerConfig, _: BrokerConfig) -> str | None:
    folders = after.log_dirs or after.log_dir
    missing = [folder for folder in _value(after, "cordoned.log.dirs") if folder not in folders]
    if not missing:
        return None
    return (
        "requirement failed: All entries in cordoned.log.dirs must be present in log.dirs or log.dir. Missing "
        f"entries : {', '.join(dict.fromkeys(missing))}"
    )


def _classes(name: str) -> _Rule:
    """No class can be loaded here: one that is named in a file has no effect, and a change is refused."""

    def named(config: BrokerConfig) -> Collection[str | None]:
        value = _value(config, name)
        return value if isinstance(value, tuple) else (value,)

    def reason(after: BrokerConfig, before: BrokerConfig) -> str | None:
        for view, was in ((after.for_listener(it), before.for_listener(it)) for it in after.listener_names()):
            known = {*named(was), *named(_DEFAULTS)}
            unknown = next((each for each in named(view) if each not in known), None)
            if unknown is not None:
                return f"Invalid value {unknown} for configuration {name}: Class {unknown} could not be found."
        return None

    return _Rule((name,), reason)


_DEFAULTS: Final = BrokerConfig()

_RULES: Final = (
    _Rule(("max.connections.per.ip",), _address_connections),
    _not_zero("max.connections"),
    _not_zero("max.connection.creation.rate"),
    _Rule(("log.retention.ms",), _retention),
    _least("log.roll.ms", 1),
    _least("log.roll.jitter.ms", 0),
    _Rule(("log.cleaner.threads", "log.cleaner.dedupe.buffer.size"), _cleaner_threads),
    _local("log.local.retention.ms", "log.retention.ms"),
    _local("log.local.retention.bytes", "log.retention.bytes"),
    _copy_lag("log.remote.copy.lag.ms", "log.local.retention.ms"),
    _copy_lag("log.remote.copy.lag.bytes", "log.local.retention.bytes"),
    _Rule(("cordoned.log.dirs",), _cordoned),
    *(
        _ordered(*(f"group.{kind}.{bound}assignment.interval.ms" for bound in ("min.", "", "max.")))
        for kind in ("consumer", "share", "streams")
    ),
    *map(
        _threads,
        (
            "background.threads",
            "num.io.threads",
            "num.network.threads",
            "num.recovery.threads.per.data.dir",
            "num.replica.fetchers",
            "remote.log.manager.copier.thread.pool.size",
            "remote.log.manager.expiration.thread.pool.size",
            "remote.log.manager.follower.thread.pool.size",
            "remote.log.reader.threads",
        ),
    ),
    *map(_classes, ("metric.reporters", "principal.builder.class", "ssl.engine.factory.class")),
)
