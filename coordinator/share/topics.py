"""The cluster's topics, as the share coordinator needs them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from ottla.metadata.image import MetadataImage


class ShareTopics:
    """A view of the metadata for the share coordinator."""

    def __init__(self, image: Callable[[], MetadataImage]) -> None:
        self._image = image

    def is_living(self, topic_id: UUID) -> bool:
        return self._image().topic_by_id(topic_id) is not None

    def has_partition(self, topic_id: UUID, partition: int) -> bool:
        topic = self._image().topic_by_id(topic_id)
        return topic is not None and partition < len(topic.partitions)
