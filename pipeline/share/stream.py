"""`spark.readStream.format("ottla-share")`: what a share group delivers, in batches.

The driver is the member of the group. It acquires records, and writes down in the batch's end which: so a batch holds
the same records however often Spark repeats it, and tasks only read them. While Spark works on the batch, the keeper
renews the locks. When Spark asks for the next batch, this one is committed, and is acknowledged.

A run that died after the commit and before that leaves its records to be delivered again. The checkpoint still says
which they were: they are acknowledged then, and not put into a second batch.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from ottla.pipeline.errors import PipelineError, TopicError
from ottla.pipeline.share.deliveries import (
    Deliveries,
    Json,
    Known,
    Run,
    SharePartition,
    Unsettled,
    count_of,
    deliveries_of,
    joined,
    left_of,
    pieces,
    separated,
    to_json,
    unsettled_of,
    unsettled_to_json,
    without,
)
from ottla.pipeline.share.keeper import Keeper
from ottla.pipeline.share.member import ShareMember
from ottla.pipeline.share.options import ShareOptions
from ottla.pipeline.share.outcomes import OutcomeFolder, RecordKey
from ottla.pipeline.share.session import Outcome
from ottla.pipeline.share.settings import GroupSettings, GroupSettingsReader, Progress, group_progress
from ottla.pipeline.share.target import Target
from ottla.pipeline.share.task import DeliveryTask, read_deliveries
from ottla.pipeline.source.admission import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

__all__ = ["ShareStreamReader"]

_log = logging.getLogger(__name__)

_BATCH: Final = "batch"
_DELIVERED: Final = "delivered"
_UNSETTLED: Final = "unsettled"
# Each costs some 20 bytes of a checkpoint's file and of each progress report.
_MAX_RUNS: Final = 20_000
# Of one partition. What is forgotten may get into a second batch.
_MAX_UNSETTLED_RUNS: Final = 2_000
_MAX_RECORDS: Final = 1_000_000
_JOIN_PAUSE_S: Final = 0.1


class ShareStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Acquires batches, plans them and acknowledges them on Spark's driver; they are read on the executors."""

    def __init__(self, options: ShareOptions) -> None:
        self._options = options
        self._keeper: Keeper | None = None
        self._target: Target | None = None
        self._outcomes = OutcomeFolder(options.outcomes)
        self._settings: GroupSettingsReader | None = None
        self._unsettled: Unsettled = {}
        # What this run has acquired last, and from where on; None before the first.
        self._last: Json | None = None
        self._last_start: Json | None = None
        self._replayed: Json | None = None
        self._is_settled = False

    def initialOffset(self) -> Json:  # noqa: N802 - Spark's name
        """Before the first batch. Where a group begins is the group's own setting."""
        return {_BATCH: 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """maxRecordsPerTrigger; the group itself limits how many records may be held at once."""
        most = self._options.max_records_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Note how far the topics reach: the query ends when all before it has been handed out."""
        with self._member() as member:
            self._target = Target(member, self._options.topics, self._group_settings().session_timeout_ms)

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802
        """Acknowledge the batch that ended at `start`, and acquire the next one; `start` if there is nothing."""
        _batch_of(start)
        with self._member() as member:
            if self._last is not None and start == self._last_start != self._last:
                return self._last  # it was asked for, and not begun yet
            self._settle(member, start)
            most = limit.max_rows if isinstance(limit, ReadMaxRows) else _MAX_RECORDS
            delivered = self._acquire(member, most)
            if not delivered:
                return start
            end: Json = {_BATCH: _batch_of(start) + 1, _DELIVERED: to_json(delivered)}
            if any(self._unsettled.values()):
                end[_UNSETTLED] = unsettled_to_json(self._unsettled)
            self._outcomes.begin_batch()
            self._last_start, self._last, self._is_settled = start, end, False
            return end

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        """The tasks of a batch: its records by what its end says, even if other members have acquired them since."""
        if start == end:
            return []
        if end != self._last:
            self._replayed = end
        delivered = deliveries_of(end.get(_DELIVERED, {}))
        size = self._piece_size(count_of(delivered))
        settings = self._group_settings()
        return [
            DeliveryTask(part, piece, self._options.client, settings, include_headers=self._options.include_headers)
            for part, held in delivered.items()
            for piece in pieces(held, size)
        ]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """One task's rows."""
        return read_deliveries(partition) if isinstance(partition, DeliveryTask) else iter(())

    def commit(self, end: Json) -> None:
        """The batch that ends there is committed: acknowledge it, unless that was done."""
        if self._keeper is not None and end == self._last:
            with self._keeper as member:
                self._settle(member, end)

    def stop(self) -> None:
        """Give back what is held, and leave the group."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.stop()
            with keeper as member:
                member.close()
        self._outcomes.close()

    def _member(self) -> Keeper:
        """The member, which joins the group when it is first needed."""
        if self._keeper is None:
            self._outcomes.open()
            member = ShareMember(self._options.client, self._options.group, self._options.topics)
            held = member.cluster.partitions(self._options.topics)
            if missing := [topic for topic in self._options.topics if topic not in held]:
                servers = self._options.client.servers
                raise TopicError(f"There is no topic {missing[0]!r} at {servers}: check the name, or create the topic.")
            self._settings = GroupSettingsReader(member.cluster, self._options.group)
            _join(member)
            self._keeper = Keeper(member)
            self._keeper.start()
        return self._keeper

    def _group_settings(self) -> GroupSettings:
        with self._member():
            assert self._settings is not None
            return self._settings.read()

    def _piece_size(self, records: int) -> int:
        size = self._options.max_records_per_partition or max(1, records)
        if self._options.min_partitions is not None:
            size = min(size, max(1, records // self._options.min_partitions))
        return size

    def _settle(self, member: ShareMember, start: Json) -> None:
        """Acknowledge the batch that ended at `start`, or note what an earlier run has left of it."""
        if self._last is None:
            if not self._is_settled:
                self._note_earlier_run(member, start)
                self._is_settled = True
            return
        if start != self._last:
            raise PipelineError(
                f"Spark goes on after batch {_batch_of(start)} of share group {self._options.group}, but batch "
                f"{_batch_of(self._last)} was the last: start the query again."
            )
        if self._is_settled:
            return
        delivered = deliveries_of(self._last[_DELIVERED])
        outcomes = self._with_outcomes(delivered)
        for part in member.acknowledge(outcomes):
            # They were committed in this run of the query: they may come again with any count of deliveries.
            self._note_unsettled(part, delivered[part], outcomes[part], is_this_run=True)
        self._outcomes.forget_older()
        self._is_settled = True

    def _note_earlier_run(self, member: ShareMember, start: Json) -> None:
        """What an earlier run may not have acknowledged: of its last batch, and of those before."""
        self._unsettled = unsettled_of(start.get(_UNSETTLED, {}))
        delivered = deliveries_of(start.get(_DELIVERED, {}))
        outcomes = self._with_outcomes(delivered)
        for part, held in delivered.items():
            self._note_unsettled(part, held, outcomes[part], is_this_run=start == self._replayed)
        progress: dict[tuple[str, int], Progress] = {}
        with suppress(PipelineError):  # without the right to ask, a few numbers more are kept
            progress = group_progress(member.cluster, member.group)
        for part, known in self._unsettled.items():
            begin = progress.get((part.topic_id, part.partition), Progress()).start_offset
            self._unsettled[part] = [each for each in known if each.run.last >= begin]
        self._unsettled = {part: known for part, known in self._unsettled.items() if known}

    def _note_unsettled(self, part: SharePartition, held: list[Run], outcomes: list[Run], *, is_this_run: bool) -> None:
        """Remember what is to be said when it is delivered again. Released records are simply delivered again."""
        counts = {offset: count for first, last, count in held for offset in range(first, last + 1)}
        known = self._unsettled.setdefault(part, [])
        for first, last, outcome in outcomes:
            if outcome != Outcome.RELEASE:
                runs = joined((offset, counts[offset]) for offset in range(first, last + 1))
                known += [Known(run, 1 if is_this_run else run.label + 1, outcome) for run in runs]
        if len(known) > _MAX_UNSETTLED_RUNS:
            del known[: len(known) - _MAX_UNSETTLED_RUNS]

    def _with_outcomes(self, delivered: Deliveries) -> Deliveries:
        """What is said of each record, in place of the counts."""
        said = self._outcomes.read()
        if not said:
            return {part: [each._replace(label=Outcome.ACCEPT) for each in held] for part, held in delivered.items()}
        return {
            part: joined(
                (offset, said.get(RecordKey(part.topic, part.partition, offset, count), Outcome.ACCEPT))
                for first, last, count in held
                for offset in range(first, last + 1)
            )
            for part, held in delivered.items()
        }

    def _acquire(self, member: ShareMember, most: int) -> Deliveries:
        """Acquire until the limit is reached or nothing comes; wait only for the first."""
        found: Deliveries = {}
        if self._target is not None and self._target.is_reached(member):
            return found
        wait_ms = 0
        while (room := most - count_of(found)) > 0 and sum(map(len, found.values())) < _MAX_RUNS:
            self._member().tend()
            acquired = member.fetch(room, wait_ms)
            if self._target is not None:
                self._target.note(acquired)
            for part, held in self._without_known(member, acquired).items():
                found[part] = [*left_of(found.get(part, ()), held), *held]
            if acquired:
                wait_ms = 0
            elif found:
                break
            elif wait_ms:
                if self._target is None or self._target.is_reached(member) or self._target.is_overdue:
                    break
            else:
                wait_ms = self._options.client.fetch_max_wait_ms
        return {part: sorted(held) for part, held in found.items()}

    def _without_known(self, member: ShareMember, acquired: Deliveries) -> Deliveries:
        """Acknowledge what was committed before and came again; the rest is to be worked on."""
        found: Deliveries = {}
        for part, held in acquired.items():
            again, fresh = separated(held, self._unsettled.get(part, ()))
            if again and part not in member.acknowledge({part: again}):
                self._unsettled[part] = without(self._unsettled[part], again)
                _log.info("%d records of %s came again and had been committed", count_of({part: again}), part)
            if fresh:
                found[part] = fresh
        return found


def _batch_of(offset: Json) -> int:
    number = offset.get(_BATCH)
    if not isinstance(number, int):
        raise PipelineError(
            f"The checkpoint holds {offset!r} where a batch of a share group should be: it belongs to another source. "
            "Use a new checkpointLocation."
        )
    return number


def _join(member: ShareMember) -> None:
    """Join, and wait until partitions are assigned, or for as long as the settings wait for anything."""
    deadline = time.monotonic() + member.cluster.settings.default_api_timeout_ms / 1000
    member.heartbeat()
    while not member.is_assigned and time.monotonic() < deadline:
        time.sleep(_JOIN_PAUSE_S)
        member.heartbeat()
