"""What the broker's settings say about its replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.replica.throttles import NO_THROTTLES, Throttled, throttled_partitions
from ottla.replica.tiered.rules import remote_rules
from ottla.replica.unopened import OPENED_AT_START
from ottla.settings.storage import log_config

if TYPE_CHECKING:
    from ottla.metadata.image import TopicImage
    from ottla.replica.tiered.rules import RemoteRules
    from ottla.settings.config import BrokerConfig
    from ottla.storage.config import LogConfig


class TopicRules(NamedTuple):
    """How its logs are kept, how many replicas must be in sync (`min.insync.replicas`), which are throttled, and what
    of it is in the object store, None if nothing is.
    """

    log: LogConfig
    min_insync_replicas: int = 1
    throttled: Throttled = NO_THROTTLES
    remote: RemoteRules | None = None


class ReplicaConfig:
    """Reads show dynamic changes at once: keep the object, not the values."""

    def __init__(self, config: BrokerConfig, *, opened_at_start: int = OPENED_AT_START) -> None:
        self._config = config
        #: Where a start finds more partitions, it leaves what it can for when the node serves.
        self.opened_at_start = opened_at_start
        self.node_id = config.node_id
        self.max_lag_ms = config.replica_lag_time_max_ms
        self.fetch_session_slots = config.max_incremental_fetch_session_cache_slots

    @property
    def remote_wait_ms(self) -> int:
        """How long a fetch waits for the object store at most."""
        return self._config.remote_fetch_max_wait_ms

    def topic_rules(self, topic: TopicImage) -> TopicRules:
        """What a topic's settings mean for its partitions here."""
        own = self._config.topic_config(topic.configs)
        throttled = Throttled(
            throttled_partitions(own.leader_replication_throttled_replicas, self.node_id),
            throttled_partitions(own.follower_replication_throttled_replicas, self.node_id),
        )
        return TopicRules(log_config(own), own.min_insync_replicas, throttled, remote_rules(own))
