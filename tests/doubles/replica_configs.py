"""What replicas are told by the settings, in tests that run them without a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.replica.config import ReplicaConfig, TopicRules
from ottla.replica.unopened import OPENED_AT_START
from ottla.settings.config import BrokerConfig
from ottla.storage.config import LogConfig

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.metadata.image import TopicImage


class FixedRules(ReplicaConfig):
    """The same rules for all topics, as they are now."""

    def __init__(
        self,
        rules: Callable[[], TopicRules] = lambda: TopicRules(LogConfig()),
        *,
        node_id: int = 0,
        opened_at_start: int = OPENED_AT_START,
    ) -> None:
        super().__init__(BrokerConfig({"node.id": str(node_id)}), opened_at_start=opened_at_start)
        self._rules = rules

    def topic_rules(self, topic: TopicImage) -> TopicRules:
        return self._rules()
