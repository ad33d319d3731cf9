"""Numbers and times as people read them; the filters of the templates."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

_UNITS: Final = ("B", "kB", "MB", "GB", "TB", "PB")
NOTHING: Final = "\u2013"


def count(number: float | None) -> str:
    """A number with its thousands separated: 1 234 567."""
    return NOTHING if number is None else f"{number:,.0f}".replace(",", "\u202f")


def size(size_bytes: float | None) -> str:
    """Bytes in the unit that leaves one to three digits before the point; units of powers of 1000, as everywhere."""
    if size_bytes is None:
        return NOTHING
    unit = 0
    while size_bytes >= 999.5 and unit < len(_UNITS) - 1:
        size_bytes /= 1000
        unit += 1
    if unit == 0 or size_bytes >= 999.5:
        return f"{size_bytes:.0f} {_UNITS[unit]}"
    return f"{size_bytes:.3g} {_UNITS[unit]}"


def rate(per_second: float | None) -> str:
    """A rate of records, with a decimal only if it is informative."""
    if per_second is None:
        return NOTHING
    return count(per_second) if per_second >= 10 or per_second == 0 else f"{per_second:.1f}"


def duration(seconds: float) -> str:
    """A span of time in its two largest units: 3 d 4 h."""
    whole = int(seconds)
    parts = ((whole // 86_400, "d"), (whole // 3600 % 24, "h"), (whole // 60 % 60, "min"), (whole % 60, "s"))
    first = next((number for number, (amount, _) in enumerate(parts) if amount), len(parts) - 1)
    return " ".join(f"{amount} {unit}" for amount, unit in parts[first : first + 2])


def moment(timestamp_ms: int) -> str:
    """A timestamp as date and time in UTC with milliseconds; a dash for none, the number itself if it is not a date."""
    if timestamp_ms < 0:
        return NOTHING
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)


def iso(timestamp_ms: int) -> str:
    """A timestamp for programs, in `<time datetime>`; empty if there is none, or it is not a date."""
    text = moment(timestamp_ms)
    return f"{text.replace(' ', 'T')}Z" if text[4:5] == "-" else ""


FILTERS: Final = {"count": count, "size": size, "rate": rate, "duration": duration, "moment": moment, "iso": iso}
