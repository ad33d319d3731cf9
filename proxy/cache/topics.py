"""Topics as upstream describes them: ids, names, leaders of partitions, and whether records may be kept.

A compacted topic is not kept: a reader might get a record whose deletion upstream has already forgotten.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

import trio

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.configs.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.kproto.messages.topics.metadata import MetadataRequest, MetadataRequestTopic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from contextlib import AbstractAsyncContextManager

    from ottla.kproto.schema import Request

    Ask = Callable[[Request, int], AbstractAsyncContextManager[Any]]
    """Asks upstream, as a client; the answer is there for the length of a `with` block."""

COUNTS_SECONDS: Final = 5.0
"""How long upstream's word on a topic is valid. A broker's cleaner takes longer to notice a change of policy."""

_VERSIONS: Final = {ApiKey.METADATA: 12, ApiKey.DESCRIBE_CONFIGS: 4}
_MAX_TOPICS: Final = 10_000
_TOPIC: Final = 2  # Kafka's ConfigResource.Type
_POLICY: Final = "cleanup.policy"
_NO_ID: Final = UUID(int=0)

Key = tuple[UUID, int]
"""A topic's id, and the index of a partition."""
Name = UUID | str
"""How a request calls a topic: by its id from version 13 on, before that by its name."""


class Topic(NamedTuple):
    """Upstream's description of a topic, at time `at`."""

    topic_id: UUID
    name: str
    leaders: Mapping[int, tuple[int, int]]
    """The node id and the epoch of each partition's leader."""
    is_kept: bool
    at: float


class Topics:
    """All known topics. Those in `vouched` are cached without asking."""

    def __init__(self, vouched: re.Pattern[str] | None = None) -> None:
        self._vouched = vouched
        self._topics: OrderedDict[Name, Topic] = OrderedDict()

    @staticmethod
    def can_ask(served: Mapping[int, int]) -> bool:
        """Whether upstream serves the requests of `learn`."""
        return all(served.get(key, -1) >= version for key, version in _VERSIONS.items())

    def known(self, name: Name) -> Topic | None:
        """The description of a topic, if it is recent."""
        topic = self._topics.get(name)
        return topic if topic is not None and trio.current_time() - topic.at < COUNTS_SECONDS else None

    def forget(self, name: Name) -> None:
        """An answer of upstream contradicts the description."""
        if (topic := self._topics.pop(name, None)) is not None:
            self._topics.pop(topic.topic_id, None)
            self._topics.pop(topic.name, None)

    async def learn(self, ask: Ask, names: Iterable[Name]) -> list[UUID]:
        """Ask upstream what is not known now; returns the topics that are gone, or may no longer be kept."""
        unknown = [it for it in names if self.known(it) is None]
        if not unknown:
            return []
        asked = [
            MetadataRequestTopic(name=it) if isinstance(it, str) else MetadataRequestTopic(topic_id=it, name=None)
            for it in unknown
        ]
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
        async with ask(request, _VERSIONS[ApiKey.METADATA]) as metadata:
            found = [it for it in metadata.topics if not it.error_code and it.name and it.topic_id != _NO_ID]
        policies = await self._policies(ask, [it.name for it in found])
        dropped = []
        for it in found:
            before = self._topics.get(it.topic_id)
            policy = policies.get(it.name)
            if policy is None and before is not None and before.is_kept and self.known(it.topic_id) is not None:
                continue  # meanwhile it was described to another client, with more rights
            is_kept = policy == "delete"
            if before is not None and before.is_kept and not is_kept:
                dropped.append(it.topic_id)
            if (other := self._topics.get(it.name)) is not None and other.topic_id != it.topic_id:
                dropped.append(other.topic_id)
            leaders = {one.partition_index: (one.leader_id, one.leader_epoch) for one in it.partitions}
            self._put(Topic(it.topic_id, it.name, leaders, is_kept, trio.current_time()))
        return dropped

    async def _policies(self, ask: Ask, names: list[str]) -> dict[str, str]:
        """The cleanup policies of the topics that the client may ask about, or that are in `vouched`."""
        vouched = {it for it in names if self._vouched is not None and self._vouched.fullmatch(it)}
        policies = dict.fromkeys(vouched, "delete")
        resources = [
            DescribeConfigsResource(resource_type=_TOPIC, resource_name=it, configuration_keys=[_POLICY])
            for it in names
            if it not in vouched
        ]
        if resources:
            request = DescribeConfigsRequest(resources=resources)
            async with ask(request, _VERSIONS[ApiKey.DESCRIBE_CONFIGS]) as answer:
                for result in answer.results:
                    if result.error_code == ErrorCode.NONE:
                        policies[result.resource_name] = _value(result.configs)
        return policies

    def _put(self, topic: Topic) -> None:
        for name in (topic.topic_id, topic.name):
            self._topics[name] = topic
            self._topics.move_to_end(name)
        while len(self._topics) > _MAX_TOPICS:
            self._topics.popitem(last=False)


def _value(configs: list[Any]) -> str:
    return next((it.value or "" for it in configs if it.name == _POLICY), "")
