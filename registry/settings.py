"""Compatibility levels and modes: of a subject, of its context, and of everything."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from ottla.registry.compatibility.levels import DEFAULT_LEVEL, checked_level
from ottla.registry.errors import invalid_mode, not_permitted, unprocessable
from ottla.registry.names import SubjectName, context_of
from ottla.registry.store import records
from ottla.registry.store.producer import Written
from ottla.registry.store.records import Key
from ottla.registry.store.state import State

READWRITE: Final = "READWRITE"
IMPORT: Final = "IMPORT"
_READ_ONLY: Final = frozenset({"READONLY", "READONLY_OVERRIDE"})
_MODES: Final = (READWRITE, "READONLY", "READONLY_OVERRIDE", IMPORT, "FORWARD")
_MAX_SETTING_BYTES: Final = 100_000

_TEXTS: Final = ("alias", "compatibilityGroup")
_FLAGS: Final = ("normalize", "validateFields", "validateNames", "validateRules")
_OBJECTS: Final = (
    "defaultMetadata",
    "overrideMetadata",
    "defaultRuleSet",
    "overrideRuleSet",
)
#: In the order in which Confluent writes them.
_CONFIG_FIELDS: Final = (
    "alias",
    "normalize",
    "validateFields",
    "validateNames",
    "validateRules",
    "compatibilityLevel",
    "compatibilityGroup",
    "defaultMetadata",
    "overrideMetadata",
    "defaultRuleSet",
    "overrideRuleSet",
)


def config_of(state: State, subject: str | None) -> dict[str, Any] | None:
    """The settings of exactly this subject, as clients see them; None if it has none."""
    value = state.setting(records.CONFIG, subject)
    if value is None:
        return {"compatibilityLevel": DEFAULT_LEVEL} if subject is None else None
    return {name: value[name] for name in _CONFIG_FIELDS if value.get(name) is not None}


def config_in_scope(state: State, subject: str | None) -> dict[str, Any]:
    """The settings in force for a subject: its own before those of its context before those of everything."""
    merged: dict[str, Any] = {"compatibilityLevel": DEFAULT_LEVEL}
    for scope in reversed(_scopes(subject)):
        merged |= config_of(state, scope) or {}
    return merged


def level(state: State, subject: str) -> str:
    """The compatibility level in force for a subject."""
    return str(config_in_scope(state, subject)["compatibilityLevel"])


def alias_of(state: State, subject: str) -> str:
    """The subject that another one stands for: itself, unless its settings say otherwise."""
    value = state.setting(records.CONFIG, subject)
    alias = value.get("alias") if value is not None else None
    return alias if isinstance(alias, str) and alias else subject


def mode_of(state: State, subject: str | None) -> str | None:
    """The mode that is set for exactly this subject; that of everything is READWRITE unless it is set."""
    value = state.setting(records.MODE, subject)
    if value is not None and value.get("mode") in _MODES:
        return str(value["mode"])
    return READWRITE if subject is None else None


def mode_in_scope(state: State, subject: str | None) -> str:
    """The mode that counts for a subject. READONLY_OVERRIDE for everything counts before its own."""
    if mode_of(state, None) == "READONLY_OVERRIDE":
        return "READONLY_OVERRIDE"
    return next(mode for scope in _scopes(subject) if (mode := mode_of(state, scope)) is not None)


def check_writable(state: State, subject: str) -> None:
    """RegistryError 42205 if nothing of a subject may be changed."""
    if mode_in_scope(state, subject) in _READ_ONLY:
        raise not_permitted(f"Subject {subject} is in read-only mode")


def _scopes(subject: str | None) -> tuple[str | None, ...]:
    if subject is None:
        return (None,)
    context = SubjectName(context_of(subject), "").qualified
    return (subject, context, None) if context and context != subject else (subject, None)


def changed_config(state: State, subject: str | None, request: Mapping[str, Any]) -> list[Written]:
    """The record that puts a client's request into effect. Raises RegistryError 42203."""
    given: dict[str, Any] = {}
    if request.get("compatibility") is not None:
        given["compatibilityLevel"] = checked_level(request["compatibility"])
    for names, wanted in ((_TEXTS, str), (_FLAGS, bool), (_OBJECTS, dict)):
        for name in names:
            sent = request.get(name)
            if sent is not None and not isinstance(sent, wanted):
                raise unprocessable(f"{name} is no {'text' if wanted is str else wanted.__name__}")
            if sent is not None:
                given[name] = sent
    if not given:
        checked_level(request.get("compatibility"))
    if len(json.dumps(given)) > _MAX_SETTING_BYTES:
        raise unprocessable(f"Settings may have {_MAX_SETTING_BYTES} bytes")
    check_writable(state, subject or "")
    merged = dict(state.setting(records.CONFIG, subject) or {}) | given
    value: dict[str, Any] = {"subject": subject} if subject is not None else {}
    value |= {name: merged[name] for name in _CONFIG_FIELDS if merged.get(name) is not None}
    return [(Key(records.CONFIG, subject).encode(), records.dumped(value))]


def changed_mode(state: State, subject: str | None, mode: object, *, is_forced: bool) -> list[Written]:
    """The record that sets a mode. Raises RegistryError 42204 or 42205."""
    wanted = mode.upper() if isinstance(mode, str) else ""
    if wanted not in _MODES:
        raise invalid_mode()
    if wanted == IMPORT and not is_forced and mode_in_scope(state, subject) != IMPORT and _has_schemas(state, subject):
        raise not_permitted("Cannot import since found existing subjects")
    value: dict[str, Any] = {"subject": subject} if subject is not None else {}
    return [(Key(records.MODE, subject).encode(), records.dumped(value | {"mode": wanted}))]


def removed(state: State, keytype: str, subject: str | None) -> list[Written]:
    """The record that removes a setting, if it is there."""
    return [] if state.setting(keytype, subject) is None else [(Key(keytype, subject).encode(), None)]


def _has_schemas(state: State, subject: str | None) -> bool:
    def is_meant(name: str) -> bool:
        return subject is None or name == subject or (subject.startswith(":.") and name.startswith(subject))

    return any(is_meant(name) for name in state.subject_names())
