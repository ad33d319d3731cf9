"""Sources of a broker's static settings: a TOML file, a server.properties, the environment, flags.

The later of these overrides the earlier. Whatever is unknown or wrong is a `ConfigError` that says where it
stands and which name was probably meant, and the broker does not start. Unknown variables of the environment are
reported instead: images and shells have some of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from ottla.settings.config import BROKER_SETTINGS, BrokerConfig, ConfigError, setting_of_broker
from ottla.settings.dynamic import refusal
from ottla.settings.types import SettingType
from ottla.settings.units import without_unit

STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"

_ENVIRONMENT_PREFIX: Final = "OTTLA_"
#: Environment variables of the project's own tests and of client commands, which are not settings.
_ENVIRONMENT_IGNORED: Final = ("OTTLA_TEST_", "OTTLA_BOOTSTRAP", "OTTLA_COMMAND_CONFIG", "OTTLA_MCP_TOKEN")
#: What Kubernetes gives every container of a namespace that has services whose names begin with "ottla".
_SERVICE_LINK: Final = re.compile(
    r"OTTLA(_\w+)?_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
_SERVICE_URL: Final = re.compile(r"(tcp|udp|sctp)://")
_NUMBERS: Final = (SettingType.SHORT, SettingType.INT, SettingType.LONG, SettingType.DOUBLE)
_OTTLA_PREFIX: Final = "ottla."

#: Settings that Kafka 4 dropped and that older files still have: taken, reported and without effect.
OBSOLETE: Final = frozenset(
    {
        "broker.id.generation.enable",
        "control.plane.listener.name",
        "inter.broker.protocol.version",
        "log.message.downconversion.enable",
        "log.message.format.version",
        "log.message.timestamp.difference.max.ms",
        "password.encoder.secret",
        "reserved.broker.max.id",
    }
)
_OBSOLETE_PREFIX: Final = "zookeeper."


class Given(NamedTuple):
    """One setting as somebody gave it, and where."""

    name: str
    text: str
    origin: str


def load(
    *,
    toml: Path | None = None,
    properties: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, str] | None = None,
) -> BrokerConfig:
    """Read all sources into a checked configuration; raises ConfigError."""
    layers: list[Iterable[Given]] = []
    unknown: list[str] = []
    if toml is not None:
        layers.append(_from_toml(toml))
    if properties is not None:
        layers.append(_from_properties(properties))
    layers.append(_from_environment(environment or {}, unknown))
    layers.append(Given(name, text, f"the flag for {name}") for name, text in (flags or {}).items())
    static: dict[str, str] = {}
    origins: dict[str, str] = {}
    for layer in layers:
        for written in layer:
            given = _check(written)
            static[given.name] = given.text
            origins[given.name] = given.origin
    for name, other in (("node.id", "broker.id"), ("broker.id", "node.id")):
        if other in static and name not in static:  # two names of one thing, as in Kafka
            static[name], origins[name] = static[other], origins[other]
    config = BrokerConfig(static, origins=origins, unknown_variables=unknown)
    check_consistency(config)
    return config


def check_consistency(config: BrokerConfig) -> None:
    """Check what no setting can tell by itself; raises ConfigError."""
    for kind in ("group", "group.consumer", "group.share", "group.streams"):
        _check_order(config, f"{kind}.min.session.timeout.ms", f"{kind}.max.session.timeout.ms")
    if config.authorizer_class_name not in ("", STANDARD_AUTHORIZER):
        raise ConfigError(
            f"authorizer.class.name is {config.authorizer_class_name}, which Ottla does not know, and without an "
            f"authorizer everybody could do everything: it knows {STANDARD_AUTHORIZER}."
        )
    for name in filter(None, map(str.strip, config.super_users.split(";"))):
        if ":" not in name:
            raise ConfigError(f"super.users has {name!r}, which is not a principal: write User:{name}.")
    for name in ("log.retention.ms", "log.retention.minutes", "log.retention.hours"):
        value = getattr(config, BROKER_SETTINGS[name].attribute)
        if value is not None and (value == 0 or value < -1):
            raise ConfigError(f"{name} must be -1 (forever) or at least 1, and is {value}.")
    reason = refusal(config, config)
    if reason is not None:
        raise ConfigError(f"{reason.rstrip('.')}.")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """' Did you mean …?' with the nearest known name, or nothing if none is near."""
    from difflib import get_close_matches

    nearest = get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f" Did you mean {nearest[0]}?" if nearest else ""


def _check(given: Given) -> Given:
    """The settings that were given, their units converted to those of the setting; raises ConfigError."""
    setting = setting_of_broker(given.name)
    if setting is None:
        if given.name in OBSOLETE or given.name.startswith(_OBSOLETE_PREFIX):
            return given
        hint = did_you_mean(given.name, BROKER_SETTINGS)
        raise ConfigError(f"Unknown setting {given.name} in {given.origin}.{hint}")
    try:
        if setting.type in _NUMBERS:
            given = given._replace(text=without_unit(setting.name, given.text))
        setting.parse(given.text)
    except ValueError as error:
        raise ConfigError(f"{error} (in {given.origin}).") from None
    return given


def _check_order(config: BrokerConfig, least: str, most: str) -> None:
    low = getattr(config, BROKER_SETTINGS[least].attribute)
    high = getattr(config, BROKER_SETTINGS[most].attribute)
    if low > high:
        raise ConfigError(f"{least} ({low}) must not be greater than {most} ({high}).")


def _from_environment(environment: Mapping[str, str], unknown: list[str]) -> Iterator[Given]:
    """Settings in the environment. Variables that are no settings may be for other programs: they go to `unknown`."""
    names = {name.replace(".", "_").upper(): name for name in BROKER_SETTINGS}
    for variable, text in environment.items():
        if not variable.startswith(_ENVIRONMENT_PREFIX) or variable.startswith(_ENVIRONMENT_IGNORED):
            continue
        # OTTLA_NUM_PARTITIONS is num.partitions, and OTTLA_TAIL_CACHE_BYTES is ottla.tail.cache.bytes.
        name = names.get(variable.removeprefix(_ENVIRONMENT_PREFIX)) or names.get(variable)
        if name is None and _is_service_link(variable, text):
            continue
        if name is None:
            known = (_ENVIRONMENT_PREFIX + key.removeprefix(_ENVIRONMENT_PREFIX) for key in names)
            hint = did_you_mean(variable, known)
            unknown.append(f"{variable}.{hint}")
            continue
        yield Given(name, text, f"the environment variable {variable}")


def _is_service_link(variable: str, text: str) -> bool:
    """Whether Kubernetes (or Docker's links, which it follows) set this variable to say where a service is."""
    if variable.endswith("_PORT") and _SERVICE_URL.match(text):
        return True
    return _SERVICE_LINK.fullmatch(variable) is not None


def _from_toml(path: Path) -> Iterator[Given]:
    import tomllib

    try:
        document = tomllib.loads(_read(path))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}.") from None
    for name, text in _flatten(path, "", document):
        bare = _OTTLA_PREFIX + name
        yield Given(bare if name not in BROKER_SETTINGS and bare in BROKER_SETTINGS else name, text, str(path))


def _flatten(path: Path, prefix: str, table: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in table.items():
        name = prefix + key
        if isinstance(value, dict):
            yield from _flatten(path, name + ".", value)
        elif isinstance(value, bool):
            yield name, "true" if value else "false"
        elif isinstance(value, list) and all(isinstance(item, str | int) for item in value):
            yield name, ",".join(map(str, value))
        elif isinstance(value, str | int | float):
            yield name, str(value)
        else:
            raise ConfigError(f"{name} in {path} must be a text, a number, true or false, or a list of these.")


def _from_properties(path: Path) -> Iterator[Given]:
    from ottla.client.properties import parse_properties

    for name, text, line in parse_properties(_read(path)):
        yield Given(name, text, f"{path} line {line}")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"The configuration file {path} cannot be read: {reason}.") from None
