"""One partition's part of a Fetch response, as light as it can be: a fetch may answer for thousands of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ottla.kproto.types import Buffer, Part


class RecordsChain(Protocol):
    """Records that lie in several places, in memory or in files, as storage reads them."""

    @property
    def size_bytes(self) -> int: ...

    def parts(self) -> Iterator[Part]: ...


class FetchedPartition:
    """One partition's ordinary part of a FetchResponse: the light twin of `PartitionData`.

    It has records or an error code, but no leader hint and no diverging epoch. A response may mix the two. Aborted
    transactions are pairs of producer id and first offset. `records` may be a chain, whose parts are taken when the
    response is built: their memory, or the files that they lie in, must live until it is sent. None stands for no
    records, which are sent as empty.
    """

    __slots__ = (
        "aborted_transactions", "error_code", "high_watermark", "last_stable_offset", "log_start_offset",
        "partition_index", "records",
    )  # fmt: skip

    def __init__(
        self,
        partition_index: int,
        error_code: int,
        high_watermark: int,
        last_stable_offset: int,
        log_start_offset: int,
        aborted_transactions: Sequence[tuple[int, int]] | None,
        records: Buffer | RecordsChain | None,
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_start_offset = log_start_offset
        self.aborted_transactions = aborted_transactions
        self.records = records
