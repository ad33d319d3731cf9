"""The levels of the broker's loggers, as DescribeConfigs and IncrementalAlterConfigs see them (KIP-412)."""

from __future__ import annotations

import logging
from typing import Final

ROOT: Final = "root"

_PREFIX: Final = "ottla"
_LEVELS: Final = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": logging.DEBUG // 2,
}


def logger_levels() -> dict[str, str]:
    """The effective level of every logger of this broker, and of the root."""
    names = sorted(name for name in logging.root.manager.loggerDict if name.split(".", 1)[0] == _PREFIX)
    levels = {name: _name_of(logging.getLogger(name).getEffectiveLevel()) for name in names}
    return {ROOT: _name_of(logging.root.level), **levels}


def is_level(text: str) -> bool:
    return text.upper() in _LEVELS


def level_names() -> str:
    return ", ".join(sorted(_LEVELS))


def set_level(logger: str, level: str | None) -> None:
    """Set a logger's level, or let it follow its parent again (None)."""
    target = logging.root if logger == ROOT else logging.getLogger(logger)
    target.setLevel(logging.NOTSET if level is None else _LEVELS[level.upper()])


def _name_of(level: int) -> str:
    return next((name for name, number in _LEVELS.items() if level >= number), "TRACE")
