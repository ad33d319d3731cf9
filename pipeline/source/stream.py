"""`spark.readStream.format("ottla")`.

Offsets are the connector's: `{"topic":{"0":23}}`, the next offset of each partition. Spark keeps only the end of a
batch in a checkpoint, and asks for the start of the very first one again when that batch is repeated. So that it then
reads the same records, its end also says where it began, under a name that no topic can have.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from ottla.pipeline.client import EARLIEST, LATEST, TopicPartition
from ottla.pipeline.errors import OptionError, PipelineError
from ottla.pipeline.source.admission import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from ottla.pipeline.source.options import SourceOptions
from ottla.pipeline.source.planner import Planner
from ottla.pipeline.source.positions import Offsets
from ottla.pipeline.source.ranges import OffsetRange, split
from ottla.pipeline.source.task import RangeTask, read_range

__all__ = ["BEGAN", "StreamReader", "from_json", "limited", "to_json"]

BEGAN: Final = "/began"
"""Where the first batch began, in place of a topic."""

Json = dict[str, dict[str, Any]]


def to_json(offsets: Offsets) -> Json:
    """Offsets as Spark keeps them: string keys, always in the same order."""
    found: Json = {}
    for part in sorted(offsets):
        found.setdefault(part.topic, {})[str(part.partition)] = offsets[part]
    return found


def from_json(offsets: Json) -> Offsets:
    """The opposite of `to_json`; PipelineError if a checkpoint holds something else."""
    try:
        return {
            TopicPartition(topic, int(number)): int(offset)
            for topic, parts in offsets.items()
            if topic != BEGAN
            for number, offset in parts.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise PipelineError(
            f"The checkpoint holds {offsets!r} where offsets of topics should be: it belongs to another source. Use a "
            "new checkpointLocation."
        ) from None


def limited(start: Offsets, end: Offsets, max_records: int) -> Offsets:
    """An end at most `max_records` offsets after `start`, every partition in proportion to what it has."""
    sizes = {part: max(0, end[part] - start[part]) for part in end}
    total = sum(sizes.values())
    if total <= max_records:
        return end
    taken = {part: size * max_records // total for part, size in sizes.items()}
    # What rounding left over goes where the most is, one record each, so that there is always progress.
    rest = max_records - sum(taken.values())
    for part in sorted(sizes, key=lambda part: (taken[part] - sizes[part], part))[:rest]:
        taken[part] += 1
    return {part: start[part] + taken[part] if sizes[part] else end[part] for part in end}


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Tells Spark's driver how far the topics reach, and plans each batch; its ranges are read on the executors.

    Partitions that appear are read from their beginning. Nothing is kept at the broker: `commit` has nothing to do.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._planner = Planner(options)
        self._offsets = self._planner.offsets
        self._initial: Json | None = None
        self._target: Offsets | None = None
        self._has_planned = False
        self._topic_ids: dict[str, str] = {}
        # Topics of the batch that is next planned, which are other ones than in the batch before.
        self._anew: set[str] = set()
        self._last_trigger_s = time.monotonic()

    def initialOffset(self) -> Json:  # noqa: N802 - Spark's name
        """Where a new query begins; the same however often it is asked."""
        if self._initial is None:
            partitions = self._planner.partitions(must_exist=True)
            starting = self._offsets.starting(partitions)
            self._look_for_other_topics(starting)
            self._initial = to_json(self._not_behind_target(starting))
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """maxOffsetsPerTrigger and minOffsetsPerTrigger; where both are set, the minimum is kept here."""
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Note how far the query will read."""
        self._target = self._offsets.ends(self._planner.partitions(must_exist=False), LATEST)

    def latestOffset(self, start: Json | None = None, limit: ReadLimit | None = None) -> Json:  # noqa: N802
        """How far the next batch reaches; `start` itself if there is nothing to read, or not yet enough.

        Before Spark 4.2 neither is given, and a batch takes all that there is.
        """
        if start is None or limit is None:
            return self._all_there_is()
        before = from_json(start)
        self._refuse_other_topics(before)
        end = self._target
        if end is None:
            end = self._offsets.ends(self._planner.partitions(must_exist=False), LATEST)
        self._look_for_other_topics(end)
        begin = self._begin(before, end)
        if not isinstance(limit, ReadAllAvailable) and self._should_wait(begin, end):
            return start
        if isinstance(limit, ReadMaxRows):
            end = limited(begin, end, limit.max_rows)
        if end == before:
            return start
        self._last_trigger_s = time.monotonic()
        found = to_json(end)
        if start == self._initial:
            found[BEGAN] = start
        return found

    def _all_there_is(self) -> Json:
        ends = self._offsets.ends(self._planner.partitions(must_exist=False), LATEST)
        self._look_for_other_topics(ends)
        found = to_json(ends)
        if self._initial is None:
            self._target = ends  # A query that ends by itself asks for its end first.
        elif not self._has_planned:
            found[BEGAN] = self._initial
        return found

    def reportLatestOffset(self) -> Json | None:  # noqa: N802
        """How far the topics reach now, for the progress that Spark reports."""
        return to_json(self._offsets.ends(self._planner.partitions(must_exist=False), LATEST))

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        """The tasks of a batch."""
        self._has_planned = True
        options = self._options
        began = end.get(BEGAN)
        before, until = from_json(start if began is None else began), from_json(end)
        self._refuse_other_topics(before)
        if gone := sorted(set(before).difference(until)):
            self._offsets.lost(f"Partition {gone[0]} was read up to offset {before[gone[0]]} and is gone")
        begin = self._begin(before, until)
        self._anew.clear()
        ranges = []
        for part in sorted(until):
            first = begin[part]
            if until[part] < first:
                self._offsets.lost(f"Partition {part} was read up to offset {first} and now ends at {until[part]}")
                first = self._offsets.ends([part], EARLIEST)[part]
            ranges.append(OffsetRange(part, first, until[part]))
        parts = split(ranges, options.min_partitions, options.max_records_per_partition)
        return [
            RangeTask(
                part,
                options.client,
                include_headers=options.include_headers,
                fail_on_data_loss=options.fail_on_data_loss,
            )
            for part in parts
        ]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """One task's rows."""
        return read_range(partition) if isinstance(partition, RangeTask) else iter(())

    def commit(self, end: Json) -> None:
        """Nothing to do: Spark's checkpoint is where offsets are kept."""

    def stop(self) -> None:
        """Close the driver's connections."""
        self._planner.cluster.close()

    def _not_behind_target(self, starting: Offsets) -> Offsets:
        """A query that begins at the end does not skip records that came after the end was noted."""
        target = self._target or {}
        return {part: min(offset, target.get(part, offset)) for part, offset in starting.items()}

    def _look_for_other_topics(self, end: Offsets) -> None:
        """DataLossError for a topic that was deleted and created again since this query began, unless loss is allowed.

        Where the old one ended says nothing about the new one, which is read from its beginning.
        """
        for topic in sorted({part.topic for part in end}):
            now = self._planner.cluster.known_ids.get(topic, "")
            if self._topic_ids.setdefault(topic, now) != now:
                self._offsets.lost(f"Topic {topic} was deleted and created again while the query ran")
                self._topic_ids[topic] = now
                self._anew.add(topic)

    def _begin(self, before: Offsets, end: Offsets) -> Offsets:
        """Where a batch begins that ends there: partitions of new topics begin with what they have."""
        kept = {part: offset for part, offset in before.items() if part.topic not in self._anew}
        return before | self._with_new_partitions(kept, end)

    def _with_new_partitions(self, before: Offsets, end: Offsets) -> Offsets:
        """The starts of all partitions in `end`: of those that appeared since, the earliest offset."""
        new = sorted(set(end).difference(before))
        if not new:
            return before
        earliest = self._offsets.ends(new, EARLIEST)
        for part, offset in earliest.items():
            if offset > 0:
                self._offsets.lost(f"Partition {part} appeared and already begins at offset {offset}")
        return before | earliest

    def _should_wait(self, begin: Offsets, end: Offsets) -> bool:
        """Say whether minOffsetsPerTrigger asks for more, and maxTriggerDelay is not over yet."""
        least = self._options.min_offsets_per_trigger
        if least is None or self._target is not None:
            return False
        waited_s = time.monotonic() - self._last_trigger_s
        if waited_s * 1000 >= self._options.max_trigger_delay_ms:
            return False
        return sum(max(0, end[part] - begin[part]) for part in end) < least

    def _refuse_other_topics(self, before: Offsets) -> None:
        """OptionError if a checkpoint knows none of the topics that this query reads."""
        topics = sorted({part.topic for part in before})
        subscription = self._options.subscription
        if topics and not any(map(subscription.includes, topics)):
            raise OptionError(
                f"The checkpoint belongs to a query on {', '.join(topics)}, this one reads {subscription}: use a new "
                "checkpointLocation for another topic."
            )
