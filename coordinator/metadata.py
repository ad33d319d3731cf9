"""The cluster's metadata as the coordinators of a node have followed it (Kafka's CoordinatorMetadataImage)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.metadata.image import NO_LEADER, MetadataImage

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.metadata.image import MetadataDelta

_EMPTY = MetadataImage()


class CoordinatorMetadata:
    """It may be ahead of the controller's image, which shows a change only once all parts of the node follow it."""

    def __init__(self, image: MetadataImage = _EMPTY) -> None:
        self.image = image
        self._topic_ids: dict[str, UUID | None] = {}  # of the image, as far as asked for

    def follow(self, delta: MetadataDelta) -> None:
        """A change has come."""
        self.image = delta.after
        self._topic_ids.clear()

    def topic_id(self, name: str) -> UUID | None:
        """A topic's id; None if there is no such topic."""
        if name not in self._topic_ids:
            topic = self.image.topic(name)
            self._topic_ids[name] = None if topic is None else topic.topic_id
        return self._topic_ids[name]

    def topic_id_of(self, topic: str, partition: int) -> UUID | None:
        """The id of a partition's topic; None if there is no such partition."""
        return None if self.image.partition(topic, partition) is None else self.topic_id(topic)

    def leader_of(self, topic: str, partition: int) -> int:
        """The broker that leads a partition, NO_LEADER if there is none."""
        state = self.image.partition(topic, partition)
        return NO_LEADER if state is None else state.leader
