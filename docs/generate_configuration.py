"""Writes docs/configuration.md from the declared table of settings: `python docs/generate_configuration.py`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from ottla.settings.config import CLIENT_METRICS_SETTINGS, GROUP_SETTINGS, TOPIC_SETTINGS
from ottla.settings.declaration import Setting, settings_of
from ottla.settings.declared.cluster import ClusterSettings
from ottla.settings.declared.dead_letters import DeadLetterSettings
from ottla.settings.declared.groups import GroupCoordinatorSettings
from ottla.settings.declared.log import LogSettings
from ottla.settings.declared.mirror import MirrorSettings
from ottla.settings.declared.network import NetworkSettings
from ottla.settings.declared.operation import OperationSettings
from ottla.settings.declared.ottla import OttlaSettings
from ottla.settings.declared.remote_storage import RemoteStorageSettings
from ottla.settings.declared.replication import ReplicationSettings
from ottla.settings.declared.security import SecuritySettings
from ottla.settings.declared.transactions import TransactionSettings
from ottla.settings.types import INT32_MAX, INT64_MAX

PAGE = Path(__file__).with_name("configuration.md")

_SECTIONS = (
    ("Ottla's own", OttlaSettings),
    ("Network", NetworkSettings),
    ("Cluster", ClusterSettings),
    ("Logs", LogSettings),
    ("Replication", ReplicationSettings),
    ("Groups", GroupCoordinatorSettings),
    ("Dead letters of share groups", DeadLetterSettings),
    ("Transactions", TransactionSettings),
    ("Security", SecuritySettings),
    ("Operation", OperationSettings),
    ("Mirror", MirrorSettings),
    ("Tiered storage", RemoteStorageSettings),
)

_INTRODUCTION = """\
# Configuration

This page is generated from the table of settings in `settings/` by `docs/generate_configuration.py`.

Settings have the names of Kafka 4.4; Ottla's own begin with `ottla.`. A broker reads them from these places; each
overrides the ones before it:

1. the defaults below
2. a TOML file: `ottla serve --config ottla.toml`; dotted names are tables, so `[log.retention]` with `hours = 24` is
   `log.retention.hours`, and the `ottla.` in front may be left out
3. or one of Kafka's `server.properties` files: `ottla serve --config server.properties`
4. the environment: `OTTLA_` followed by the name in capitals with underscores, such as `OTTLA_NUM_PARTITIONS=3`
5. flags: `ottla serve --set num.partitions=3`

If a name does not exist or a value is out of range, the broker does not start; it says in one sentence where the
mistake is and which name you probably meant. Variables of the environment with an unknown name are only warned of:
images and shells have some of their own, such as `OTTLA_HOME`. While the broker runs, settings can be changed with
`ottla config` or IncrementalAlterConfigs (`kafka-configs.sh --alter`): `cluster-wide` ones for all brokers or for
one, `per-broker` ones for one, and the others not at all. What is set for one broker overrides what is set for all,
and both override the places above. Settings of a listener can be given as `listener.name.<name>.<setting>`.

Settings of Kafka that have no effect in Ottla are accepted, shown, and reported once at the start; they are listed
at the end of each section.
"""


_FALLBACK = "\nA {} that does not set one of these uses its broker's setting, which is named in brackets.\n\n"


def page() -> str:
    """The whole page."""
    parts = [_INTRODUCTION, "\n## Broker settings\n"]
    for title, owner in _SECTIONS:
        parts += ["\n", f"### {title}\n", "\n"]
        parts += _broker_table(settings_of(owner).values())
    parts += [
        "\n## Topic settings\n",
        _FALLBACK.format("topic"),
    ]
    parts += _resource_table(TOPIC_SETTINGS.values())
    parts += [
        "\n## Group settings\n",
        _FALLBACK.format("group"),
    ]
    parts += _resource_table(GROUP_SETTINGS.values())
    parts += ["\n## Client metrics settings\n", "\n"]
    parts += _resource_table(CLIENT_METRICS_SETTINGS.values())
    return "".join(parts)


def _broker_table(settings: Iterable[Setting]) -> Iterator[str]:
    shown = [setting for setting in settings if not setting.internal]
    in_use = [setting for setting in shown if setting.in_use]
    if in_use:
        yield "| setting | type | default | range | change | |\n|---|---|---|---|---|---|\n"
    for setting in in_use:
        yield (
            f"| `{setting.name}` | {setting.type.name.lower()} | {_default(setting)} | {_range(setting)} "
            f"| {setting.update.value} | {_cell(setting.doc)} |\n"
        )
    accepted = [f"`{setting.name}`" for setting in shown if not setting.in_use]
    if accepted:
        yield f"\nAccepted without effect: {', '.join(accepted)}.\n"


def _resource_table(settings: Iterable[Setting]) -> Iterator[str]:
    yield "| setting | type | default | range | |\n|---|---|---|---|---|\n"
    for setting in settings:
        if setting.internal:
            continue
        broker = ", ".join(f"`{name}`" for name, _ in setting.broker_names)
        doc = _cell(setting.doc) + (f" ({broker})" if broker else "") + ("" if setting.in_use else " Without effect.")
        yield (
            f"| `{setting.name}` | {setting.type.name.lower()} | {_default(setting)} | {_range(setting)} | {doc} |\n"
        )


def _default(setting: Setting) -> str:
    if setting.default is None:
        return "unset"
    if setting.default in (INT32_MAX, INT64_MAX) or setting.default == float("1.7976931348623157e308"):
        return "no limit"
    text = setting.to_text(setting.default)
    return f"`{text}`" if text else "empty"


def _range(setting: Setting) -> str:
    return "" if setting.check is None else _cell(setting.check.text)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
