"""One compaction pass over one partition: note the keys of the dirty part, then rewrite all up to its end.

The engine drives it, in a worker thread if it likes, and may abandon it at any moment:

1. `index` every batch from the first dirty offset on, until it returns False or the range ends;
2. `begin_rewrite`;
3. `clean` every batch from the log start offset on, up to `end_offset`, and put what it returns in the batch's place,
   durably and in ascending order of offsets: a tombstone may go only because older records of its key went before it;
4. when all is in place, `first_dirty_offset` is where the next pass begins, and `AbortedTransactions.replaced_before`
   takes `end_offset` and `retained_aborted`. Both must be durable before the next pass of this log begins: it may drop
   the markers of transactions that it no longer finds in the index, and an index that came back from before, after a
   crash, would hide the producer's later records from read_committed readers.

What is abandoned between steps 3 and 4 is done again by the next pass; nothing is lost by that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.kproto.records import BatchHeader, BytesLike
from ottla.storage.state.aborted_transactions import AbortedTransaction
from ottla.storage.upkeep.compaction.batch_filter import BatchFilter, LastRecord, index_batch
from ottla.storage.upkeep.compaction.offset_map import OffsetMap
from ottla.storage.upkeep.compaction.policy import CleanableRange
from ottla.storage.upkeep.compaction.transactions import CleanedTransactions


class CleaningPass:
    """A pass over a cleanable range; see the module for the order of calls.

    `aborted` are the partition's aborted transactions that begin below the range's end, `producers` the
    `last_records` of its producer state, and `high_watermark` its own, all as of now. `memory_bytes` bounds the key
    map: when it is full the pass accounts for fewer records and the next one continues there.
    """

    __slots__ = (
        "_aborted",
        "_delete_retention_ms",
        "_filter",
        "_high_watermark",
        "_is_full",
        "_last_offsets",
        "_map",
        "_now_ms",
        "_producers",
        "_range",
        "_transactions",
    )

    def __init__(
        self,
        cleanable: CleanableRange,
        *,
        aborted: Iterable[AbortedTransaction],
        producers: Mapping[int, LastRecord],
        high_watermark: int,
        now_ms: int,
        delete_retention_ms: int,
        memory_bytes: int,
    ) -> None:
        self._now_ms = now_ms
        self._delete_retention_ms = delete_retention_ms
        self._range = cleanable
        self._aborted = tuple(aborted)
        self._producers = producers
        self._high_watermark = high_watermark
        self._map = OffsetMap(memory_bytes)
        self._map.accounts_to(cleanable.first_dirty_offset - 1)
        self._transactions = CleanedTransactions(self._aborted)
        self._is_full = False
        # Producer id -> its last batch among those that were indexed.
        self._last_offsets: dict[int, int] = {}
        self._filter: BatchFilter | None = None

    @property
    def end_offset(self) -> int:
        """Batches at and beyond this offset are neither indexed nor rewritten."""
        return self._range.end_offset

    def index(self, buf: BytesLike, pos: int, header: BatchHeader) -> bool:
        """Note a batch's keys; False if the map is full, and then no more batches are wanted.

        RecordError for a corrupt batch: the pass must be abandoned, as the keys in it are unknown.
        """
        if header.producer_id in self._producers and not header.is_control:
            self._last_offsets[header.producer_id] = header.last_offset
        first_dirty_offset = self._range.first_dirty_offset
        self._is_full = not index_batch(self._map, self._transactions, buf, pos, header, first_dirty_offset)
        return not self._is_full

    def begin_rewrite(self) -> None:
        """All batches of the dirty part have been indexed, or as many as fit."""
        if not self._is_full:
            self._map.accounts_to(self.end_offset - 1)
        self._transactions = CleanedTransactions(self._aborted)
        self._filter = BatchFilter(
            self._map,
            self._transactions,
            {producer_id: self._last_below(producer_id, last) for producer_id, last in self._producers.items()},
            high_watermark=self._high_watermark,
            now_ms=self._now_ms,
            delete_retention_ms=self._delete_retention_ms,
        )

    def _last_below(self, producer_id: int, last: LastRecord) -> LastRecord:
        """What must stay of a producer below the range's end, also if all that it wrote beyond is truncated later.

        Where nothing of it was indexed, every batch of it that was kept up to now stays once more.
        """
        if last.data_offset < self.end_offset:
            return last
        return last._replace(data_offset=self._last_offsets.get(producer_id, 0))

    def clean(self, buf: BytesLike, pos: int, header: BatchHeader) -> BytesLike | None:
        """The batch as it is to be: a view of it if nothing changes, new bytes, or None if it goes.

        RecordError for a corrupt batch: the pass must be abandoned.
        """
        return self._rewriting.clean(buf, pos, header)

    @property
    def first_dirty_offset(self) -> int:
        """Where the next pass begins: beyond the last record whose key was noted, the range's end if all were."""
        return self._map.latest_offset + 1

    @property
    def retained_aborted(self) -> list[AbortedTransaction]:
        """The aborted transactions below the range's end whose records or marker are still of interest."""
        return self._transactions.retained_aborted

    @property
    def _rewriting(self) -> BatchFilter:
        if self._filter is None:
            raise AssertionError("clean was called before begin_rewrite")
        return self._filter
