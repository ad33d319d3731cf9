"""Eligible leader replicas (KIP-966): they are outside the in-sync set and may lead, having every committed record.

While fewer replicas are in sync than `min.insync.replicas` asks for, nothing more is committed: a replica that leaves
the set then, or makes it that small by leaving, still has every committed record. If the rest of the set dies, it may
lead without loss. As soon as enough replicas are in sync again, no replica outside the set is eligible.

`min.insync.replicas` may change at any time, on any broker. So a leader counts eligible replicas for its high watermark
as if they were in sync, until it has heard that they are not eligible any more: an election never depends on which
value the setting had at which time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.metadata.features import ELIGIBLE_LEADER_REPLICAS_VERSION
from ottla.metadata.image import NO_LEADER, ConfigResource, ResourceType
from ottla.settings.config import TOPIC_SETTINGS
from ottla.settings.declaration import InvalidSettingError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.metadata.image import MetadataImage, PartitionState, TopicImage
    from ottla.settings.config import BrokerConfig

_MIN_INSYNC_REPLICAS = "min.insync.replicas"


def is_enabled(image: MetadataImage) -> bool:
    """Whether the cluster has agreed on eligible leaders."""
    return image.features.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) > 0


def min_in_sync(image: MetadataImage, config: BrokerConfig) -> Callable[[TopicImage], int | None]:
    """For each topic, from how many replicas in sync on nobody else is eligible; None if nobody ever is."""
    if not is_enabled(image):
        return lambda topic: None
    of_all = image.resource_configs(ConfigResource(ResourceType.BROKER, "")).get(_MIN_INSYNC_REPLICAS)
    default = _count(of_all, config.min_insync_replicas)
    return lambda topic: _count(topic.configs.get(_MIN_INSYNC_REPLICAS), default)


def _count(text: str | None, otherwise: int) -> int:
    """The number of replicas that is stored; what cannot be read counts as not set."""
    try:
        return otherwise if text is None else int(TOPIC_SETTINGS[_MIN_INSYNC_REPLICAS].parse(text))
    except InvalidSettingError:
        return otherwise


def may_forget(state: PartitionState, count: int | None) -> bool:
    """Whether some replicas count as eligible that need not, so that the leader waits for them in vain."""
    return bool(state.elr) and (count is None or len(state.isr) >= min(count, len(state.replicas)))


def with_eligible(before: PartitionState, after: PartitionState, count: int | None) -> PartitionState:
    """A changed state with those eligible that `min.insync.replicas` allows and, if nobody leads, its last leader.

    An update names all replicas with every committed record; the rule is applied here, alike for every change.
    """
    elr = tuple(broker for broker in after.replicas if broker in after.elr and broker not in after.isr)
    last_known: tuple[int, ...] = ()
    if after.leader == NO_LEADER and count is not None:
        last_known = before.last_known_elr if before.leader == NO_LEADER else (before.leader,)
    after = after._replace(elr=elr, last_known_elr=last_known)
    return after._replace(elr=()) if may_forget(after, count) else after


def reconsider(state: PartitionState) -> PartitionState:
    """The same state once more, so that the rule is applied to it."""
    return state._replace(partition_epoch=state.partition_epoch + 1)


def shown(state: PartitionState, *, enabled: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The in-sync set and the eligible leaders as Kafka shows them: if nobody leads, the set is shown as empty."""
    if enabled and state.leader == NO_LEADER:
        return (), (*state.isr, *state.elr)
    return state.isr, state.elr
