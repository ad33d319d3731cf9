"""How far this machine's clock is from another machine's, as the times in its answers show.

A cluster's safety does not depend on it: the metadata store ends leases, and each node measures time by its own
monotonic clock. But records, retention, tokens and the times of groups carry what the clock of some node has said.
"""

from __future__ import annotations

import logging
from email.utils import parsedate_to_datetime
from typing import Final

logger = logging.getLogger(__name__)

TOLERATED_SECONDS: Final = 2.0
_DATE_SECONDS: Final = 1.0
"""HTTP's Date says no more than the second."""


def difference(date: str, sent: float, received: float) -> float:
    """How many seconds, at least, this clock is ahead of the one that wrote `date` (HTTP's header).

    Negative if it is behind, 0 if the two may agree. The answer was asked for at `sent` and came at `received`, by this
    clock. Raises ValueError for what is not a date.
    """
    said = parsedate_to_datetime(date).timestamp()
    if sent > said + _DATE_SECONDS:
        return sent - said - _DATE_SECONDS
    return min(0.0, received - said)


class ClockWatch:
    """Logs once that a clock differs, and once that it agrees again."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        """By how much this clock was ahead of each other one when that was last heard from."""

    def heard(self, name: str, date: str | None, sent: float, received: float) -> None:
        """The machine of this name has answered."""
        try:
            seconds = difference(date or "", sent, received)
        except ValueError:
            return
        before, self.seconds[name] = self.seconds.get(name, 0.0), seconds
        differs = abs(seconds) > TOLERATED_SECONDS
        fields = {"other": name, "seconds": round(seconds, 1)}
        if differs and not abs(before) > TOLERATED_SECONDS:
            logger.warning("%s: %s", sentence(name, seconds), CONSEQUENCE, extra=fields)
        elif abs(before) > TOLERATED_SECONDS and not differs:
            logger.info("the clock of this machine agrees with that of %s again", name, extra=fields)


CONSEQUENCE: Final = (
    "no lease and no election depends on it, but timestamps, retention and what expires do; run an NTP client on both"
)


def sentence(name: str, seconds: float) -> str:
    """A difference in words."""
    where = "ahead of" if seconds > 0 else "behind"
    return f"the clock of this machine is {abs(seconds):.0f} s {where} that of {name}"
