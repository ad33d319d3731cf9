"""Makes a broker as new, without stopping it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.metadata.scram_changes import ScramDeletion

if TYPE_CHECKING:
    from ottla.server.broker import Broker


async def reset(broker: Broker) -> None:
    """Delete every topic, group, transaction, quota, setting, password and token that was made while the broker ran.

    Connected clients see that topics are deleted: a waiting fetch is answered with UNKNOWN_TOPIC_ID or
    UNKNOWN_TOPIC_OR_PARTITION. Groups and transactions go with the topics that keep them. Those topics are created
    again at once, so that a member that still sends heartbeats is told UNKNOWN_MEMBER_ID.
    """
    controller = broker.controller
    image = broker.metadata
    if image.configs:
        await controller.alter_configs(dict.fromkeys(image.configs, ()), replace=True)
    if image.quotas:
        await controller.alter_client_quotas(
            {entity: dict.fromkeys(quotas, None) for entity, quotas in image.quotas.items()}
        )
    for mechanism in {mechanism for _, mechanism in image.scram_credentials}:  # a request changes a user once
        deletions = [ScramDeletion(user, mechanism) for user, other in image.scram_credentials if other == mechanism]
        await controller.alter_scram_credentials(deletions, [])
    if image.delegation_tokens:
        await controller.change_delegation_tokens(dict.fromkeys)
    topics = list(image.topics.values())
    if topics:
        await controller.delete_topics([topic.topic_id for topic in topics])
        # Otherwise blocks of deleted topics would leave this cache only when it is full: after thousands of small
        # topics.
        broker.log_manager.context.tail.clear()
    for topic in topics:
        if topic.is_internal:
            await controller.ensure_topic(topic.name)
