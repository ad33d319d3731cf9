"""Where a query ends that takes what is available now."""

from __future__ import annotations

import time
from collections.abc import Iterable

from ottla.client.offsets import TopicPartition
from ottla.pipeline.client import EARLIEST, LATEST
from ottla.pipeline.share.deliveries import Deliveries
from ottla.pipeline.share.member import ShareMember
from ottla.pipeline.share.settings import Progress, group_progress

__all__ = ["Target"]


class Target:
    """How far the topics reached when the query began.

    It is reached when the group has done with every record before it: whatever was released, by the job or by a run
    that died, is delivered first. What other members hold is waited for as long as the client waits for anything, and
    as long as the group takes to notice that a member is dead.
    """

    def __init__(self, member: ShareMember, topics: Iterable[str], session_timeout_ms: int) -> None:
        topics = tuple(topics)
        cluster = member.cluster
        parts = [
            TopicPartition(topic, number) for topic, numbers in cluster.partitions(topics).items() for number in numbers
        ]
        ids = cluster.topic_ids(topics)
        earliest = cluster.offsets(dict.fromkeys(parts, EARLIEST))
        latest = cluster.offsets(dict.fromkeys(parts, LATEST))
        self._ends = {
            (ids[part.topic], part.partition): end
            for part, end in latest.items()
            if end > earliest[part] and part.topic in ids
        }
        self._topics = topics
        self._beyond: dict[tuple[str, int], set[int]] = {}
        self._seen: dict[tuple[str, int], int] = {}
        self._patience_s = (cluster.settings.default_api_timeout_ms + session_timeout_ms) / 1000
        self._last_progress_s = time.monotonic()

    @property
    def is_overdue(self) -> bool:
        """Whether nothing has come for so long that nothing will."""
        return time.monotonic() - self._last_progress_s > self._patience_s

    def note(self, acquired: Deliveries) -> None:
        """Something was acquired, or nothing."""
        if acquired:
            self._last_progress_s = time.monotonic()
        for part, held in acquired.items():
            end = self._ends.get((part.topic_id, part.partition))
            if end is not None:
                beyond = self._beyond.setdefault((part.topic_id, part.partition), set())
                beyond.update(n for first, last, _ in held for n in range(max(first, end), last + 1))
                self._seen[part.topic_id, part.partition] = max(last for _, last, _ in held)

    def is_reached(self, member: ShareMember) -> bool:
        """Whether the group has done with all that was there when the query began.

        What is acquired has been acknowledged when this is asked.
        """
        latest = {}
        if self._ends:
            names = {topic_id: name for name, topic_id in member.cluster.topic_ids(self._topics).items()}
            parts = {key: TopicPartition(names[key[0]], key[1]) for key in self._ends if key[0] in names}
            found = member.cluster.offsets(dict.fromkeys(parts.values(), LATEST))
            latest = {key: found[part] for key, part in parts.items()}
        # The ends are asked for first: what comes in between makes the lag larger, and this waits on.
        progress = group_progress(member.cluster, member.group) if latest else {}
        for key in list(self._ends):
            if key not in latest or self._is_done(key, latest[key], progress.get(key, Progress())):
                del self._ends[key]
                self._last_progress_s = time.monotonic()
        return not self._ends

    def _is_done(self, key: tuple[str, int], latest: int, progress: Progress) -> bool:
        end = self._ends[key]
        if progress.start_offset >= end:
            return True
        if progress.lag < 0:  # Apache Kafka 4.1 does not tell it
            return self._seen.get(key, -1) >= end - 1
        # Of the records that are not done, so many lie behind the end.
        return progress.lag <= latest - end - len(self._beyond.get(key, ()))
