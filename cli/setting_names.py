"""Names of brokers' settings and quotas, where a broker does not list them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from ottla.kproto.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.settings.declaration import Setting

_REFUSALS = (ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST)


def own_settings(kind: str) -> list[str]:
    """The settings of this kind that Kafka does not have: a broker tells them only to who names them."""
    from ottla.settings.config import BROKER_SETTINGS, TOPIC_SETTINGS
    from ottla.settings.description import OTTLAS_OWN

    known: Mapping[str, Setting] = {"topic": TOPIC_SETTINGS, "broker": BROKER_SETTINGS}.get(kind, {})
    return [name for name, setting in known.items() if name.startswith(OTTLAS_OWN) and not setting.internal]


def did_you_mean(kind: str, names: Iterable[str], error_code: int) -> str:
    """' Did you mean …?' for the first of these names that is not a setting or quota of this kind; else nothing."""
    if error_code not in _REFUSALS:
        return ""
    from ottla.metadata.changes.quota_changes import QUOTA_NAMES
    from ottla.settings.config import BROKER_SETTINGS, GROUP_SETTINGS, TOPIC_SETTINGS
    from ottla.settings.sources import did_you_mean as nearest

    known: Collection[str] | None = {
        "topic": TOPIC_SETTINGS,
        "group": GROUP_SETTINGS,
        "broker": BROKER_SETTINGS,
        "quota": QUOTA_NAMES,
    }.get(kind)
    unknown = next((name for name in names if known is not None and name not in known), None)
    return nearest(unknown, known) if known is not None and unknown is not None else ""
