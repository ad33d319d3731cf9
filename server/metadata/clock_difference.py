"""How far this machine's clock is from another one's, as the other one's answers tell it.

Nothing of a cluster's safety rests on it: leases are the metadata store's to end, and each node measures time by its
own monotonic clock. But records, retention, tokens and the times of groups carry what the clock of some node has said.
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
    """By how many seconds this clock is at least ahead of the one that said `date` (HTTP's header), or behind: below 0.

    The answer was asked for at `sent` and came at `received`, by this clock. 0 where they may agree. Raises ValueError
    for what is not a date.
    """
    said = parsedate_to_datetime(date).timestamp()
    if sent > said + _DATE_SECONDS:
        return sent - said - _DATE_SECONDS
    return min(0.0, received - said)


class ClockWatch:
    """Says once that a clock differs, and once that it does so no more."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        """By how much this clock was ahead of each other one when it was last heard of."""

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
    """What is to be said of a difference."""
    where = "ahead of" if seconds > 0 else "behind"
    return f"the clock of this machine is {abs(seconds):.0f} s {where} that of {name}"
