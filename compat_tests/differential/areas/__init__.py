"""What histories are about. An area is a module here with a function that writes a history, and a line in `AREAS`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from compat_tests.differential.areas import (
    access,
    classic_groups,
    cluster,
    consumer_groups,
    migration,
    offsets,
    records,
    share_groups,
    share_state,
    streams_groups,
    topics,
    transactions,
)
from compat_tests.differential.draft import Draft
from compat_tests.differential.history import History


class Area(NamedTuple):
    write: Callable[[Draft], None]
    #: It changes what all histories of a broker see: one at a time, and without others.
    is_exclusive: bool = False


AREAS: Final[dict[str, Area]] = {
    "classic_groups": Area(classic_groups.write),
    "consumer_groups": Area(consumer_groups.write),
    "offsets": Area(offsets.write),
    "transactions": Area(transactions.write),
    "records": Area(records.write),
    "share_groups": Area(share_groups.write),
    "streams_groups": Area(streams_groups.write),
    "migration": Area(migration.write),
    "access": Area(access.write),
    "topics": Area(topics.write),
    "cluster": Area(cluster.write),
    "share_state": Area(share_state.write),
}


def written(area: str, seed: int) -> History:
    """The history of that seed: always the same."""
    draft = Draft(area, seed)
    AREAS[area].write(draft)
    return draft.history
