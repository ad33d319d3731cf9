"""The setting or quota that was probably meant when a broker has refused one that it does not know."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ottla.kproto.errors import ErrorCode

_REFUSALS = (ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST)


def did_you_mean(kind: str, names: Iterable[str], error_code: int) -> str:
    """' Did you mean …?' for the first of these names that is not a setting or quota of this kind; else nothing."""
    if error_code not in _REFUSALS:
        return ""
    from ottla.server.metadata.quota_changes import QUOTA_NAMES
    from ottla.server.settings.config import BROKER_SETTINGS, GROUP_SETTINGS, TOPIC_SETTINGS
    from ottla.server.settings.sources import did_you_mean as nearest

    known: Collection[str] | None = {
        "topic": TOPIC_SETTINGS,
        "group": GROUP_SETTINGS,
        "broker": BROKER_SETTINGS,
        "quota": QUOTA_NAMES,
    }.get(kind)
    unknown = next((name for name in names if known is not None and name not in known), None)
    return nearest(unknown, known) if known is not None and unknown is not None else ""
