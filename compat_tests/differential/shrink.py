"""The shortest history that still shows a difference: steps are dropped, then fields of requests."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Final

from compat_tests.differential.history import History, Step

Shows = Callable[[History], bool]
#: Without them what is done becomes a matter of time, or is done to all histories.
_KEPT: Final = ("acks", "timeout_ms", "max_wait_ms", "validate_only", "broker_id")


def shrunk(history: History, shows: Shows, most_tries: int = 120) -> History:
    """`shows` plays a history and says whether the difference is still there; it is asked so many times at most."""
    tries = 0

    def still(candidate: History) -> bool:
        nonlocal tries
        tries += 1
        return tries <= most_tries and shows(candidate)

    history = _without_steps(history, still)
    history = _without_names(history, still)
    return _with_less_fields(history, still)


def _without_steps(history: History, shows: Shows) -> History:
    """Halves, quarters and so on are taken out, from the end on: what comes last is needed least.

    Waits for the end of a transaction stay: without them it ends at any step.
    """
    size = max(len(history.steps) // 2, 1)
    while True:
        position = len(history.steps)
        while position > 0:
            start = max(position - size, 0)
            kept = tuple(step for step in history.steps[start:position] if step.until_ended)
            candidate = history.with_steps(history.steps[:start] + kept + history.steps[position:])
            if len(candidate.steps) < len(history.steps) and shows(candidate):
                history = candidate
            position = start
        if size == 1:
            return history
        size = max(size // 2, 1)


def _without_names(history: History, shows: Shows) -> History:
    for names in ("topics", "groups", "transactional_ids"):
        if getattr(history, names):
            nothing: dict[str, Any] = {names: ()}
            candidate = dataclasses.replace(history, **nothing)
            if shows(candidate):
                history = candidate
    return history


def _with_less_fields(history: History, shows: Shows) -> History:
    for index, step in enumerate(history.steps):
        for plain in (dataclasses.replace(step, client_id="wire"), dataclasses.replace(step, extra_hex="")):
            history = _if_it_shows(history, index, plain, shows)
        position = 0
        while position < len(paths := _paths(history.steps[index].fields)):
            now = history.steps[index]
            smaller = dataclasses.replace(now, fields=_removed(now.fields, paths[position]))
            history = _if_it_shows(history, index, smaller, shows)
            # What was behind what is gone now stands in its place.
            position += history.steps[index] is now
    return history


def _if_it_shows(history: History, index: int, step: Step, shows: Shows) -> History:
    if step == history.steps[index]:
        return history
    candidate = history.with_steps((*history.steps[:index], step, *history.steps[index + 1 :]))
    return candidate if shows(candidate) else history


def _paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Of every field and element, the outer ones first, the last of a list first."""
    if isinstance(value, dict):
        if next(iter(value), "").startswith("$"):
            return []
        keys: list[Any] = [key for key in value if key not in _KEPT]
    elif isinstance(value, list):
        keys = list(reversed(range(len(value))))
    else:
        return []
    own = [(*path, key) for key in keys]
    return own + [below for key in keys for below in _paths(value[key], (*path, key))]


def _removed(value: Any, path: tuple[Any, ...]) -> Any:
    copy = value.copy()
    if len(path) == 1:
        del copy[path[0]]
    else:
        copy[path[0]] = _removed(value[path[0]], path[1:])
    return copy
