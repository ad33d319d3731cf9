"""The cluster's topics as groups need them: ids, partition counts, and the names that an expression matches."""

import zlib
from collections.abc import Callable, Iterable, Mapping
from uuid import UUID

import trio

from ottla.coordinator.errors import InvalidRegularExpressionError
from ottla.metadata.image import MetadataView
from ottla.runtime.client_regex import ClientRegexError, Pattern, compile_client_regex
from ottla.runtime.time_slice import TimeSlice

MayDescribe = Callable[[str], bool]
"""Whether somebody may describe a topic of this name."""


class GroupTopics:
    """A view of the metadata for the groups of one broker."""

    def __init__(self, metadata: MetadataView) -> None:
        self._metadata = metadata

    @property
    def version(self) -> int:
        """The revision of the metadata: what was resolved at an older one may have changed."""
        return self._metadata.image.revision

    def ids(self, names: Iterable[str]) -> dict[str, UUID]:
        """The ids of those topics that exist."""
        image = self._metadata.image
        return {name: topic.topic_id for name in names if (topic := image.topic(name)) is not None}

    def names(self, topic_ids: Iterable[UUID]) -> dict[UUID, str]:
        """The names of those topics that exist."""
        image = self._metadata.image
        found = {topic_id: image.topic_by_id(topic_id) for topic_id in topic_ids}
        return {topic_id: topic.name for topic_id, topic in found.items() if topic is not None}

    def is_living(self, topic_id: UUID) -> bool:
        """Whether the topic exists. One without an id, from before offsets were stored with ids, counts as existing."""
        return not topic_id.int or self._metadata.image.topic_by_id(topic_id) is not None

    def partition_counts(self, topic_ids: Iterable[UUID]) -> Mapping[UUID, int]:
        image = self._metadata.image
        found = {topic_id: image.topic_by_id(topic_id) for topic_id in topic_ids}
        return {topic_id: len(topic.partitions) for topic_id, topic in found.items() if topic is not None}

    def partition_count(self, name: str) -> int | None:
        """How many partitions a topic has; None if there is no such topic."""
        topic = self._metadata.image.topic(name)
        return None if topic is None else len(topic.partitions)

    async def metadata_hash(self, names: Iterable[str]) -> int:
        """A number that changes when any of these topics comes, goes or grows; 0 if none of them exists.

        Computed in steps, from what the metadata says when it begins: an expression may match thousands of topics.
        """
        image = self._metadata.image
        time_slice = TimeSlice()
        found = 0
        for name in sorted(names):
            topic = image.topic(name)
            if topic is not None:
                found = zlib.crc32(f"{name}\0{topic.topic_id}\0{len(topic.partitions)}\n".encode(), found)
            await time_slice.maybe_yield()
        return found

    async def matching(self, regex: str) -> frozenset[str]:
        """The topics whose whole name matches. Runs in a worker thread, in time linear in what it reads (RE2)."""
        names = [topic.name for topic in self._metadata.image.topics.values() if not topic.is_internal]
        return await trio.to_thread.run_sync(_matching, regex, names)


def compile_regex(regex: str) -> Pattern:
    """Compile a client's expression. Raises InvalidRegularExpressionError."""
    try:
        return compile_client_regex(regex)
    except ClientRegexError as error:
        raise InvalidRegularExpressionError(str(error)) from None


def _matching(regex: str, names: list[str]) -> frozenset[str]:
    pattern = compile_regex(regex)
    return frozenset(name for name in names if pattern.fullmatch(name))
