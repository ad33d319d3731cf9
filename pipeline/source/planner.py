"""From what the options ask for to partitions and exact offsets of a cluster, on the driver."""

from __future__ import annotations

import re

from ottla.pipeline.client import Cluster, TopicPartition
from ottla.pipeline.errors import TopicError
from ottla.pipeline.source.options import SourceOptions
from ottla.pipeline.source.resolver import OffsetResolver

__all__ = ["Planner"]


class Planner:
    """Finds the partitions of a subscription; `offsets` finds where they are read."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self.cluster = Cluster(options.client)
        self.offsets = OffsetResolver(options, self.cluster.offsets)

    def partitions(self, *, must_exist: bool) -> list[TopicPartition]:
        """The subscribed partitions that exist. TopicError for a missing one if it must exist, or is assigned."""
        subscription = self.options.subscription
        if subscription.pattern:
            pattern = re.compile(subscription.pattern)
            topics = [name for name in self.cluster.topic_names() if pattern.fullmatch(name)]
            if must_exist and not topics:
                raise TopicError(
                    f"No topic at {self.options.client.servers} matches subscribePattern {subscription.pattern!r}."
                )
        else:
            topics = list(subscription.topics) or [part.topic for part in subscription.assigned]
        held = self.cluster.partitions(topics)
        if must_exist and (missing := [topic for topic in topics if topic not in held]):
            servers = self.options.client.servers
            raise TopicError(f"There is no topic {missing[0]!r} at {servers}: check the name, or create the topic.")
        if not subscription.assigned:
            return [TopicPartition(topic, number) for topic in sorted(held) for number in held[topic]]
        found = [part for part in subscription.assigned if part.partition in held.get(part.topic, ())]
        if must_exist and (absent := set(subscription.assigned).difference(found)):
            raise TopicError(f"Option assign names partition {min(absent)}, which does not exist: leave it out.")
        return sorted(found)
