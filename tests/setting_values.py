"""Values for every setting of a broker that can be changed while it runs: of its type, at its bounds, and mistaken."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from ottla.settings.config import BROKER_SETTINGS
from ottla.settings.declaration import Setting
from ottla.settings.types import SettingType

#: Mistakes that people make with any setting.
_ANYTHING: Final = (None, "", " ", "nonsense", "0", "-1", "1", "-2", "1.5", "2147483648", "9223372036854775808", ",")
_OF_TYPE: Final[Mapping[SettingType, tuple[str, ...]]] = {
    SettingType.BOOLEAN: ("true", "FALSE", "yes"),
    SettingType.STRING: ("true", "a:b", "a:1,b:2", "10.0.0.1:5", "lz4", "CreateTime"),
    SettingType.INT: ("2147483647", "2", "100", " 5 "),
    SettingType.SHORT: ("32767", "32768", "100"),
    SettingType.LONG: ("9223372036854775807", "2", "100"),
    SettingType.DOUBLE: ("0.5", "1.1", "1e3", "-0.1"),
    SettingType.LIST: ("a,b", "a,a", "delete", "compact,delete"),
    SettingType.CLASS: ("java.lang.String",),
    SettingType.PASSWORD: ("secret",),
}
_NUMBER: Final = re.compile(r"-?\d+")
_WORD: Final = re.compile(r"[A-Za-z]\w+")


def dynamic_settings() -> list[str]:
    """The names of the settings that can be changed while a broker runs."""
    return [name for name, setting in BROKER_SETTINGS.items() if setting.dynamic]


def values(setting: Setting) -> list[str | None]:
    """What to give it: None is no value at all."""
    return list(dict.fromkeys((*_ANYTHING, *_OF_TYPE[setting.type], *_at_bounds(setting))))


def _at_bounds(setting: Setting) -> Iterator[str]:
    if setting.check is None:
        return
    for found in _NUMBER.findall(setting.check.text):
        yield from (str(int(found) + step) for step in (-1, 0, 1))
    yield from _WORD.findall(setting.check.text)
