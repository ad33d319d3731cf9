"""One task on an executor: the records of some deliveries, read from their partition by their offsets.

The driver holds their locks, so a task only reads. It can be run again, in two copies, or on another executor, and
always finds the same records.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from ottla.client.offsets import TopicPartition
from ottla.pipeline.client import EARLIEST, ClientSettings, Cluster, OffsetOutOfRangeError, PartitionFetcher
from ottla.pipeline.decoder import RecordDecoder
from ottla.pipeline.errors import BrokerUnavailableError
from ottla.pipeline.share.deliveries import Run, SharePartition
from ottla.pipeline.share.schema import share_arrow_schema
from ottla.pipeline.share.settings import GroupSettings

__all__ = ["DeliveryTask", "read_deliveries"]

_log = logging.getLogger(__name__)

# Fetching so many records that others have is quicker than another request.
_NEAR_OFFSETS: Final = 500


class DeliveryTask(InputPartition):
    """What an executor needs to read deliveries of one partition; it is pickled."""

    def __init__(
        self,
        part: SharePartition,
        deliveries: Sequence[Run],
        client: ClientSettings,
        settings: GroupSettings,
        *,
        include_headers: bool,
    ) -> None:
        self.part = part
        self.deliveries = list(deliveries)
        self.client = client
        self.settings = settings
        self.include_headers = include_headers


def read_deliveries(task: DeliveryTask) -> Iterator[Any]:
    """Yield the records as Arrow batches.

    Offsets without a record (compaction, a transaction's end) are passed over. So are records that retention or the
    deletion of their topic has removed since: a share group never delivers those again.
    """
    cluster = Cluster(task.client)
    part = task.part
    try:
        if cluster.topic_ids([part.topic]).get(part.topic) != part.topic_id:
            _log.warning("Topic %s was deleted before records of it that a batch has were read", part.topic)
            return
        for near in _near(task.deliveries):
            yield from _Reading(cluster, task, near).run()
    finally:
        cluster.close()


def _near(deliveries: Sequence[Run]) -> Iterator[list[Run]]:
    """Deliveries that lie so close together that they are fetched at once."""
    found: list[Run] = []
    for delivery in sorted(deliveries):
        if found and delivery.first - found[-1].last > _NEAR_OFFSETS:
            yield found
            found = []
        found.append(delivery)
    if found:
        yield found


class _Reading:
    """Reads from the first of some deliveries to the last."""

    def __init__(self, cluster: Cluster, task: DeliveryTask, deliveries: list[Run]) -> None:
        self._cluster = cluster
        self._task = task
        self._partition = TopicPartition(task.part.topic, task.part.partition)
        self._starts = np.array([delivery.first for delivery in deliveries], dtype=np.int64)
        self._lasts = np.array([delivery.last for delivery in deliveries], dtype=np.int64)
        self._counts = np.array([delivery.label for delivery in deliveries], dtype=np.int32)
        self._schema = share_arrow_schema(include_headers=task.include_headers)
        self._decoder = RecordDecoder(
            *self._partition, include_headers=task.include_headers, check_crcs=task.client.check_crcs
        )

    def run(self) -> Iterator[Any]:
        offset, end = int(self._starts[0]), int(self._lasts[-1]) + 1
        patience_s = self._cluster.settings.default_api_timeout_ms / 1000
        while offset < end:
            deadline = time.monotonic() + patience_s
            fetcher = PartitionFetcher(self._cluster, self._partition, topic_id=self._task.part.topic_id)
            try:
                for fetched in fetcher.fetch(offset, end):
                    if fetched.next_offset > offset:
                        deadline = time.monotonic() + patience_s
                        for rows in self._decoder.decode(fetched.records, offset, end):
                            yield from self._delivered(rows)
                        offset = fetched.next_offset
                    elif time.monotonic() > deadline:
                        raise BrokerUnavailableError(
                            f"Partition {self._partition} does not give the records from offset {offset} on that the "
                            "share group has delivered. Try again when the cluster is well."
                        )
            except OffsetOutOfRangeError:
                offset = self._after_removed(offset)

    def _after_removed(self, offset: int) -> int:
        earliest = self._cluster.offsets({self._partition: EARLIEST})[self._partition]
        if earliest <= offset:
            raise BrokerUnavailableError(
                f"Partition {self._partition} ends before offset {offset}, which the share group has delivered: its "
                "leader has lost records."
            )
        _log.warning("Records of %s from offset %d to %d were removed by retention", self._partition, offset, earliest)
        return earliest

    def _delivered(self, rows: Any) -> Iterator[Any]:
        """The rows that were delivered, with what the group says of them."""
        offsets = rows.column("offset").to_numpy()
        at = np.searchsorted(self._starts, offsets, side="right") - 1
        wanted = (at >= 0) & (offsets <= self._lasts[np.maximum(at, 0)])
        if not bool(wanted.all()):
            rows, at = rows.filter(pa.array(wanted)), at[wanted]
        count = rows.num_rows
        if not count:
            return
        limit, topic = self._task.settings.delivery_limit, self._task.settings.dead_letter_topic
        more = [
            pa.array(self._counts[at]),
            pa.nulls(count, pa.int32()) if limit is None else pa.array(np.full(count, limit, dtype=np.int32)),
            pa.nulls(count, pa.string()) if topic is None else pa.repeat(pa.scalar(topic, pa.string()), count),
        ]
        yield pa.RecordBatch.from_arrays([*rows.columns, *more], schema=self._schema)
