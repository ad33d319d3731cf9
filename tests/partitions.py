"""Changing one partition's state in the metadata, as tests do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.metastore.errors import MetadataError

if TYPE_CHECKING:
    from ottla.metadata.changes.partition_changes import PartitionUpdate
    from ottla.metadata.controller import Controller
    from ottla.metadata.image import PartitionState


async def change_partition(
    controller: Controller, topic: str, partition: int, update: PartitionUpdate
) -> PartitionState:
    """Replace a partition's state by `update(state)`, which may raise a MetadataError to refuse."""
    found = controller.image.topic(topic)
    assert found is not None
    key = (found.topic_id, partition)
    result = (await controller.change_partitions({key: update}))[key]
    if isinstance(result, MetadataError):
        raise result
    return result
