"""The types of settings: how a value is read from text and written back, as Kafka's ConfigDef does."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final

INT32_MAX: Final = (1 << 31) - 1
INT64_MAX: Final = (1 << 63) - 1
#: The largest array of a JVM, which bounds what Kafka decompresses.
MAX_DECOMPRESSED_BYTES: Final = 2_147_483_639

_LIST_SEPARATOR: Final = re.compile(r"\s*,\s*")
_CLASS_NAME: Final = re.compile(r"[^\W\d][\w$]*(\.[^\W\d][\w$]*)*")
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_DOUBLE: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


class SettingType(IntEnum):
    """The type of a setting; the numbers are those of DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


_INTEGER_BITS: Final = {SettingType.SHORT: 16, SettingType.INT: 32, SettingType.LONG: 64}


def parse(type_: SettingType, text: str) -> Any:
    """Read a value; raises ValueError with Kafka's reason if the text is not of the type."""
    text = text.strip() if type_ is not SettingType.PASSWORD else text
    return _PARSERS[type_](type_, text)


def to_text(type_: SettingType, value: Any) -> str | None:
    """Write a value as DescribeConfigs shows it; None stays None."""
    if value is None:
        return None
    if type_ is SettingType.BOOLEAN:
        return "true" if value else "false"
    if type_ is SettingType.LIST:
        return ",".join(value)
    if type_ is SettingType.DOUBLE:
        return repr(float(value)).replace("e+", "E").replace("e", "E")
    return str(value)


def _parse_boolean(_: SettingType, text: str) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise ValueError("Expected value to be either true or false")
    return lowered == "true"


def _parse_integer(type_: SettingType, text: str) -> int:
    bits = _INTEGER_BITS[type_]
    # int() also takes underscores, blanks and other scripts' digits, and Java's parsers take none of them.
    if not _INTEGER.fullmatch(text) or len(text) > 20 or not -(1 << bits - 1) <= int(text) < 1 << bits - 1:
        raise ValueError(f"Not a number of type {type_.name}")
    return int(text)


def _parse_double(type_: SettingType, text: str) -> float:
    # float() also takes underscores, other scripts' digits and what is not a number at all.
    if not _DOUBLE.fullmatch(text):
        raise ValueError(f"Not a number of type {type_.name}")
    return float(text)


def _parse_list(_: SettingType, text: str) -> tuple[str, ...]:
    return tuple(_LIST_SEPARATOR.split(text)) if text else ()


def _parse_class(_: SettingType, text: str) -> str:
    if text and not _CLASS_NAME.fullmatch(text):
        raise ValueError(f"Class {text} could not be found.")
    return text


def _parse_string(_: SettingType, text: str) -> str:
    return text


_PARSERS: Final[dict[SettingType, Callable[[SettingType, str], Any]]] = {
    SettingType.BOOLEAN: _parse_boolean,
    SettingType.STRING: _parse_string,
    SettingType.INT: _parse_integer,
    SettingType.SHORT: _parse_integer,
    SettingType.LONG: _parse_integer,
    SettingType.DOUBLE: _parse_double,
    SettingType.LIST: _parse_list,
    SettingType.CLASS: _parse_class,
    SettingType.PASSWORD: _parse_string,
}
