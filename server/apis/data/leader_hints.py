"""Who leads a partition now, told with an error so that the client need not ask for metadata first (KIP-951)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.metadata.image import BrokerImage, Endpoint
    from ottla.server.apis.context import RequestContext


class LeaderHint(NamedTuple):
    """A partition's leader and epoch (-1 if unknown), and the leader's address on the request's listener."""

    leader_id: int
    leader_epoch: int
    broker: BrokerImage | None
    endpoint: Endpoint | None


def leader_hint(context: RequestContext, topic_id: UUID, partition: int) -> LeaderHint:
    """The current leader of a partition, from the metadata."""
    image = context.broker.metadata
    topic = image.topic_by_id(topic_id)
    if topic is None or not 0 <= partition < len(topic.partitions):
        return LeaderHint(-1, -1, None, None)
    state = topic.partitions[partition]
    broker = image.brokers.get(state.leader)
    return LeaderHint(
        state.leader, state.leader_epoch, broker, None if broker is None else broker.endpoint(context.listener)
    )
