"""The settings of share groups that their partitions' leaders obey."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_DURATION: Final = re.compile(
    r"by_duration:P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>[\d.]+)S)?)?"
)
_SECONDS: Final = {"days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}


class ShareConfig(NamedTuple):
    """One group's `share.…` settings, else the broker's `group.share.…`."""

    lock_duration_ms: int = 30_000
    max_records: int = 2_000
    max_delivery_count: int = 5
    is_read_committed: bool = False
    auto_offset_reset: str = "latest"
    may_renew: bool = True
    dead_letter_topic: str = ""
    """The topic of the group's dead-letter queue (KIP-1191); empty if it has none, or the cluster no such queues."""
    copies_dead_letters: bool = False
    """Whether dead letters have the keys and values of the records that they are about."""


def duration_ms(auto_offset_reset: str) -> int | None:
    """How far back `by_duration:PnDTnHnMn.nS` goes; None for anything else."""
    matched = _DURATION.fullmatch(auto_offset_reset)
    if matched is None:
        return None
    return round(1000 * sum(float(matched[unit] or 0) * seconds for unit, seconds in _SECONDS.items()))
