"""The cluster's topics, as the share coordinator needs them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.metadata.image import MetadataView


class ShareTopics:
    """A view of the metadata for the share coordinator."""

    def __init__(self, metadata: MetadataView) -> None:
        self._metadata = metadata

    def is_living(self, topic_id: UUID) -> bool:
        return self._metadata.image.topic_by_id(topic_id) is not None

    def has_partition(self, topic_id: UUID, partition: int) -> bool:
        topic = self._metadata.image.topic_by_id(topic_id)
        return topic is not None and partition < len(topic.partitions)
