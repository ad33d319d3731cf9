"""The purgatories of a node's partitions, which every change of a partition signals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.runtime.purgatory import Purgatory

if TYPE_CHECKING:
    from ottla.replica.partition import Partition
    from ottla.storage.turn import Turn


class DelayedOperations:
    """What waits for partitions, by the kind of operation. The table in `ottla.runtime.purgatory` lists the events."""

    def __init__(self, turn: Turn) -> None:
        # What a write completes is noted after all stores have written, before anybody is answered.
        self.append = Purgatory("append", turn.note)
        self.fetch = Purgatory("fetch", turn.note)
        self.delete_records = Purgatory("delete records")
        #: Where share fetches wait for records, and for what other members have given back.
        self.share_fetch = Purgatory("share fetch")
        self._all = (self.append, self.fetch, self.delete_records, self.share_fetch)

    def signal(self, partition: Partition) -> None:
        """A partition has changed, and the change is whole: what waits for it looks again."""
        partition.count_change()
        for purgatory in self._all:
            if purgatory.watching:
                purgatory.signal(partition)

    def close(self) -> None:
        """End every wait now."""
        for purgatory in self._all:
            purgatory.close()
