"""The link to the cluster that is mirrored, while there is one: it finds what there is to copy, again and again."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from ottla.client.addresses import parse_addresses
from ottla.client.errors import BrokerError, ClientError, SecurityConfigError
from ottla.client.properties import parse_properties
from ottla.client.security import NO_SECURITY, Security, from_properties
from ottla.kproto.errors import ErrorCode
from ottla.metastore.errors import MetadataError
from ottla.server.mirror.fetcher import SourceFetcher
from ottla.server.mirror.groups import MirroredGroups
from ottla.server.mirror.names import NamePattern
from ottla.server.mirror.partitions import MirroredPartitions
from ottla.server.mirror.source import Source
from ottla.server.mirror.topics import follow_topics

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ottla.coordinator.coordinators import Coordinators
    from ottla.kproto.messages.topics.metadata import MetadataResponse
    from ottla.metadata.controller import Controller
    from ottla.metadata.producer_ids import ProducerIds
    from ottla.replica.manager import ReplicaManager
    from ottla.server.cluster.peers import Peers
    from ottla.server.mirror.progress import MirrorProgress
    from ottla.settings.config import BrokerConfig
    from ottla.storage.clock import Clock

logger = logging.getLogger(__name__)

#: The source is asked no more often than this, however often something changes.
_LEAST_SECONDS: Final = 0.1


class Link:
    """One node's part of the mirror: the partitions that it leads, the groups that it coordinates, and the topics of
    all of it while it is the controller."""

    def __init__(
        self,
        controller: Controller,
        manager: ReplicaManager,
        coordinators: Coordinators,
        producer_ids: ProducerIds,
        peers: Peers,
        config: BrokerConfig,
        clock: Clock,
        progress: MirrorProgress,
    ) -> None:
        self._controller = controller
        self._manager = manager
        self._coordinators = coordinators
        self._producer_ids = producer_ids
        self._peers = peers
        self._config = config
        self._clock = clock
        self._progress = progress
        self._stale = trio.Event()
        self._failures: set[str] = set()
        self._has_ids_apart = False

    def look_again(self) -> None:
        """Compare both clusters soon: something has changed in one of them."""
        self._stale.set()

    async def run(self) -> None:
        """Mirror until cancelled; a source that cannot be reached is tried again."""
        config = self._config
        try:
            security = _security(config.ottla_mirror_client_properties)
        except SecurityConfigError as error:
            logger.warning(
                "nothing is mirrored: ottla.mirror.client.properties: %s", error, extra={"error": str(error)}
            )
            return
        async with trio.open_nursery() as nursery:
            source = Source(
                parse_addresses(",".join(config.ottla_mirror_bootstrap_servers)),
                security,
                nursery,
                client_id=f"ottla-mirror-{self._controller.node_id}",
            )
            groups = MirroredGroups(
                source,
                NamePattern(config.ottla_mirror_groups),
                self._controller,
                self._manager,
                self._coordinators,
                self._peers,
                config,
                self._clock,
                self._progress,
            )
            partitions = MirroredPartitions(
                self._controller, self._manager, self._progress, partial(self._new_fetcher, source), nursery
            )
            nursery.start_soon(self._follow_topics, source, partitions)
            nursery.start_soon(self._follow_groups, groups, source)

    def _new_fetcher(self, source: Source, broker_id: int) -> SourceFetcher:
        return SourceFetcher(broker_id, source, self._manager, self._config, self._clock, self._progress, self)

    async def _set_producer_ids_apart(self) -> None:
        """Once, before anything is copied: the source's producers are known here by the ids that it gave them."""
        if not self._has_ids_apart:
            await self._controller.set_producer_ids_apart()
            self._producer_ids.forget_block()
            self._has_ids_apart = True

    async def _follow_topics(self, source: Source, partitions: MirroredPartitions) -> None:
        names = NamePattern(self._config.ottla_mirror_topics)

        async def follow() -> None:
            await self._set_producer_ids_apart()
            found = await source.metadata()
            _refuse_old(found)
            self._progress.reached(is_reachable=True)
            if self._controller.image.controller_id == self._controller.node_id:
                self._log_problems(dict(await follow_topics(self._controller, source, found, names)))
            await partitions.follow(found)

        while True:
            self._stale = trio.Event()
            if not await self._try("topics", follow):
                self._progress.reached(is_reachable=False)
            with trio.move_on_after(self._config.ottla_mirror_interval_ms / 1000):
                await self._stale.wait()
            await trio.sleep(_LEAST_SECONDS)

    async def _follow_groups(self, groups: MirroredGroups, source: Source) -> None:
        while True:
            if source.broker_ids:
                await self._try("groups", groups.follow)
            await trio.sleep(self._config.ottla_mirror_interval_ms / 1000 if source.broker_ids else _LEAST_SECONDS)

    async def _try(self, what: str, act: Callable[[], Awaitable[None]]) -> bool:
        """Whether it went well. One line when it does not any more, and one when it does again."""
        try:
            await act()
        except (ClientError, MetadataError) as error:
            if what not in self._failures:
                self._failures.add(what)
                logger.warning("the mirror's %s have to wait: %s", what, error, extra={"error": str(error)})
            return False
        if what in self._failures:
            self._failures.discard(what)
            logger.info("the mirror's %s continue", what)
        return True

    def _log_problems(self, problems: dict[str, str]) -> None:
        for name, why in problems.items():
            if self._progress.problems.get(name) != why:
                logger.warning(
                    "topic %s is not mirrored as it should be: it %s", name, why, extra={"topic": name, "reason": why}
                )
        self._progress.set_problems(problems)


def _refuse_old(found: MetadataResponse) -> None:
    if any(topic.topic_id.int == 0 and not topic.error_code for topic in found.topics):
        raise BrokerError(
            ErrorCode.UNSUPPORTED_VERSION, "its topics have no ids: it is older than Kafka 3.1", what="the source"
        )


def _security(properties: str | None) -> Security:
    if not properties:
        return NO_SECURITY
    return from_properties({name: value for name, value, _ in parse_properties(properties)})
