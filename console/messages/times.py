"""Times as people write them into a form."""

from __future__ import annotations

from datetime import UTC, datetime

from ottla.settings.units import duration_ms


class TimeError(Exception):
    """The text in the form is not a time; the error's text is for the form."""


def read_time_ms(text: str, now_ms: int) -> int:
    """Milliseconds since the epoch of `-7d` (so long ago) or `2026-01-31T12:00`, which is UTC unless it says more."""
    ago_ms = duration_ms(text[1:]) if text.startswith("-") else None
    if ago_ms is not None:
        return max(0, now_ms - ago_ms)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise TimeError(f"{text or 'Nothing'} is not a time: write -7d or 2026-01-31T12:00Z.") from None
    return max(0, round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000))
