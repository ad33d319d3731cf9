"""Units behind numbers, as people write them: `7d` for retention.ms, `100MiB` for segment.bytes.

Kafka's settings are bare numbers, and their names say of what. A unit is turned into that number where Ottla reads what
people wrote: files, the environment, flags and the command line. Over the wire only numbers are taken, as by Kafka.
"""

from __future__ import annotations

import re
from typing import Final

_WITH_UNIT: Final = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]+)\s*")
_TIME_NAME: Final = re.compile(r"(?:^|[._])(ms|seconds|minutes|hours)(?=$|[._])")
_SIZE_NAME: Final = re.compile(r"byte|buffer\.size|throttled\.rate")

_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_NAMED_MS: Final = {"ms": 1, "seconds": 1_000, "minutes": 60_000, "hours": 3_600_000}
_NAME_OF: Final = {"ms": "milliseconds", "seconds": "seconds", "minutes": "minutes", "hours": "hours"}
_BYTES: Final = {
    "b": 1,
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", 1)},
    **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", 1)},
}


def duration_ms(text: str) -> int | None:
    """Milliseconds of `90s`, `1.5h` and the like; None if the text is not a duration."""
    found = _WITH_UNIT.fullmatch(text)
    if found is None or found[2] not in _MS:
        return None
    return _times(found[1], _MS[found[2]])[0]


def size_bytes(text: str) -> int | None:
    """Bytes of `100MiB` (powers of 1024), `1.5GB` (powers of 1000) and the like; None if the text is not a size."""
    found = _WITH_UNIT.fullmatch(text)
    if found is None or found[2].lower() not in _BYTES:
        return None
    return _times(found[1], _BYTES[found[2].lower()])[0]


def without_unit(name: str, text: str) -> str:
    """The number that a setting takes, if its value was written with a unit; else the text as it is.

    Raises ValueError, whose text is for people, if the unit does not suit the setting.
    """
    found = _WITH_UNIT.fullmatch(text)
    if found is None:
        return text
    kinds = _TIME_NAME.findall(name)
    if kinds:
        if found[2] not in _MS:
            raise ValueError(f"{name} is a time: write a number of {_NAME_OF[kinds[-1]]}, or one with {', '.join(_MS)}")
        number, rest = _times(found[1], _MS[found[2]], _NAMED_MS[kinds[-1]])
        if rest:
            raise ValueError(f"{name} is in {_NAME_OF[kinds[-1]]}, and {text.strip()} is not a whole number of them")
        return str(number)
    if _SIZE_NAME.search(name):
        size = size_bytes(text)
        if size is None:
            raise ValueError(f"{name} is a size: write a number of bytes, or one with kB, MB, GB, KiB, MiB, GiB")
        return str(size)
    return text


def with_unit(name: str, text: str) -> str | None:
    """How a person would write a setting's number (`7d`, `1GiB`); None if it is not such a number, or is as short."""
    if not text.isdecimal() or not (number := int(text)):
        return None
    kinds = _TIME_NAME.findall(name)
    if kinds:
        units, smallest = {unit: _MS[unit] for unit in ("d", "h", "m", "s")}, _NAMED_MS[kinds[-1]]
    elif _SIZE_NAME.search(name):
        units, smallest = {f"{letter}iB": 1024**power for power, letter in zip((4, 3, 2, 1), "TGMK", strict=True)}, 1
    else:
        return None
    found = next((unit for unit, size in units.items() if size > smallest and not number * smallest % size), None)
    return None if found is None else f"{number * smallest // units[found]}{found}"


def _times(number: str, factor: int, divisor: int = 1) -> tuple[int, int]:
    """A decimal number times a factor, through a divisor: whole, and what is left."""
    whole, _, part = number.partition(".")
    return divmod(int(whole + part) * factor, int(10 ** len(part)) * divisor)
