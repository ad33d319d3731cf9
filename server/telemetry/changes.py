"""A log line for each change of the cluster's metadata: who looks into the log sees what was done to the cluster."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.metadata.image import MetadataDelta

logger = logging.getLogger(__name__)


async def log_changes(delta: MetadataDelta) -> None:
    """A subscriber of the controller. What existed when the node started is not a change."""
    if not delta.before.revision:
        return
    created = {topic.topic_id for topic in delta.created_topics}
    for topic in delta.deleted_topics:
        logger.info("topic %s was deleted", topic.name, extra={"topic": topic.name})
    for topic in delta.created_topics:
        keys = {"topic": topic.name, "partitions": len(topic.partitions)}
        logger.info("topic %s was created, partitions: %d", topic.name, len(topic.partitions), extra=keys)
    for name in {
        change.topic.name
        for change in delta.changed_partitions
        if change.topic.topic_id not in created and not change.before
    }:
        count = len(delta.after.topics[name].partitions)
        logger.info("topic %s has more partitions now: %d", name, count, extra={"topic": name, "partitions": count})
    for topic in delta.reconfigured_topics:
        settings = _differing(delta.before.topics[topic.name].configs, topic.configs)
        logger.info("topic %s: changed %s", topic.name, settings, extra={"topic": topic.name, "settings": settings})
    for resource in delta.changed_configs:
        settings = _differing(delta.before.resource_configs(resource), delta.after.resource_configs(resource))
        what = f"{resource.type.name.lower().replace('_', ' ')} {resource.name or '(default)'}"
        logger.info("%s: changed %s", what, settings, extra={"settings": settings})
    if delta.quotas_changed:
        logger.info("client quotas were changed; users, clients and addresses with quotas: %d", len(delta.after.quotas))
    if delta.features_changed:
        logger.info("features were changed: %s", ", ".join(f"{k}={v}" for k, v in sorted(delta.after.features.items())))


def _differing(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """The names of what differs. Values are left out: some are secrets."""
    return ", ".join(sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name)))
