"""Copies the source's committed offsets. Each node does so for the groups that it coordinates."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ottla.client.errors import BrokerError, ClientError
from ottla.coordinator.errors import (
    CoordinatorError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    NotCoordinatorError,
)
from ottla.coordinator.group.offset_and_metadata import CommittedOffset, OffsetToCommit, TopicPartition
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.data.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.kproto.messages.groups.find_coordinator import FindCoordinatorRequest
from ottla.kproto.messages.groups.list_groups import ListGroupsRequest
from ottla.kproto.messages.groups.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.kproto.messages.topics.metadata import MetadataRequest, MetadataRequestTopic
from ottla.replica.errors import ReplicaError
from ottla.runtime.time_slice import TimeSlice
from ottla.settings.mirrored import Mirroring
from ottla.storage.errors import StorageError

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.coordinator.coordinators import Coordinators
    from ottla.kproto.messages.groups.offset_fetch import OffsetFetchResponseGroup
    from ottla.kproto.schema import Request
    from ottla.metadata.controller import Controller
    from ottla.metadata.image import MetadataImage
    from ottla.replica.manager import ReplicaManager
    from ottla.server.cluster.peers import Peers
    from ottla.server.mirror.names import NamePattern
    from ottla.server.mirror.progress import MirrorProgress
    from ottla.server.mirror.source import Source
    from ottla.settings.config import BrokerConfig
    from ottla.storage.clock import Clock

logger = logging.getLogger(__name__)

_GROUPS_A_REQUEST: Final = 50
_BY_NAME: Final = 9
"""The last version of OffsetFetch that names topics."""
_LATEST: Final = -1
_CONSUMER_OFFSETS: Final = "__consumer_offsets"
_MINUTE_MS: Final = 60_000

Offsets = dict[TopicPartition, OffsetToCommit]


class MirroredGroups:
    """Commits here what groups have committed there, where that differs, as an administrator would.

    An offset beyond what is copied so far waits: a consumer that begins there would find nothing and go to an end of
    the log. A group that has members here is left to them.
    """

    def __init__(
        self,
        source: Source,
        names: NamePattern,
        controller: Controller,
        manager: ReplicaManager,
        coordinators: Coordinators,
        peers: Peers,
        config: BrokerConfig,
        clock: Clock,
        progress: MirrorProgress,
    ) -> None:
        self._source = source
        self._names = names
        self._controller = controller
        self._manager = manager
        self._coordinators = coordinators
        self._peers = peers
        self._config = config
        self._clock = clock
        self._progress = progress
        self._logged: set[str] = set()
        #: Why some of the source's brokers did not answer in this turn.
        self._failure: ClientError | None = None

    async def follow(self) -> None:
        """Copy once. Raises a ClientError, when all is done that could be without it, or a MetadataError."""
        self._failure = None
        groups = [group for group in await self._list() if self._is_coordinated_here(group)]
        for coordinator, some in (await self._by_coordinator(groups)).items():
            for first in range(0, len(some), _GROUPS_A_REQUEST):
                await self._follow_some(coordinator, some[first : first + _GROUPS_A_REQUEST])
        if self._failure is not None:
            raise self._failure

    async def _follow_some(self, coordinator: int, groups: Sequence[str]) -> None:
        asked = [OffsetFetchRequestGroup(group_id=group, topics=None) for group in groups]
        answer = await self._ask(coordinator, OffsetFetchRequest(groups=asked), at_most=_BY_NAME)
        if answer is None:
            return
        answers = [it for it in answer.groups if it.error_code == ErrorCode.NONE]
        source_ids = await self._source_ids(coordinator, {topic.name for it in answers for topic in it.topics})
        time_slice = TimeSlice()
        for it in answers:
            await time_slice.maybe_yield()
            await self._commit(it.group_id, self._wanted(it, self._controller.image, source_ids))

    async def _source_ids(self, coordinator: int, names: set[str]) -> Mapping[str, UUID]:
        """The ids of the mirrored ones of these topics at the source, after their offsets have been told.

        Offsets are told by the topics' names, and go with the topic. So those that were told before a topic is seen
        with its id are of that topic, or of none.
        """
        asked = [
            MetadataRequestTopic(name=name)
            for name in sorted(names)
            if (topic := self._controller.image.topic(name)) is not None and topic.is_mirrored
        ]
        if not asked:
            return {}
        answer = await self._ask(coordinator, MetadataRequest(topics=asked, allow_auto_topic_creation=False))
        return {} if answer is None else {it.name: it.topic_id for it in answer.topics}

    async def _ask(self, broker: int, request: Request, *, at_most: int = 32767) -> Any:
        """The answer of one broker of the source; None if there is none, which ends nothing of the others'."""
        try:
            return await self._source.call(broker, request, at_most=at_most)
        except ClientError as error:
            self._failure = error
            return None

    async def _list(self) -> list[str]:
        """The groups at the source that commit offsets, of any protocol or none."""
        found: set[str] = set()
        for broker in self._source.broker_ids:
            answer = await self._ask(broker, ListGroupsRequest())
            if answer is None:
                continue
            if answer.error_code:
                self._failure = BrokerError(answer.error_code, what=f"groups of broker {broker} of the source")
            found |= {
                it.group_id
                for it in answer.groups
                if it.group_type.lower() != "share" and self._names.matches(it.group_id)
            }
        if found and self._controller.image.topic(_CONSUMER_OFFSETS) is None:
            await self._controller.ensure_topic(_CONSUMER_OFFSETS)
        return sorted(found)

    def _is_coordinated_here(self, group_id: str) -> bool:
        state = self._controller.image.partition(_CONSUMER_OFFSETS, self._coordinators.groups.partition_for(group_id))
        return state is not None and state.leader == self._controller.node_id

    async def _by_coordinator(self, groups: Sequence[str]) -> Mapping[int, list[str]]:
        found: dict[int, list[str]] = defaultdict(list)
        for first in range(0, len(groups), _GROUPS_A_REQUEST):
            request = FindCoordinatorRequest(coordinator_keys=list(groups[first : first + _GROUPS_A_REQUEST]))
            for coordinator in (await self._source.call_any(request)).coordinators:
                if coordinator.error_code == ErrorCode.NONE:
                    found[coordinator.node_id].append(coordinator.key)
        return found

    def _wanted(
        self, answered: OffsetFetchResponseGroup, image: MetadataImage, source_ids: Mapping[str, UUID]
    ) -> Offsets:
        """The group's committed offsets of topics that are mirrored here now, and are still those at the source."""
        wanted: Offsets = {}
        for answer in answered.topics:
            topic = image.topic(answer.name)
            if (
                topic is None
                or topic.mirrored.mirroring is Mirroring.NO
                or topic.mirrored.source_id != source_ids.get(answer.name)
            ):
                continue
            for it in answer.partitions:
                if (
                    it.error_code == ErrorCode.NONE
                    and it.committed_offset >= 0
                    and 0 <= it.partition_index < len(topic.partitions)
                ):
                    wanted[TopicPartition(answer.name, it.partition_index)] = OffsetToCommit(
                        it.committed_offset, it.committed_leader_epoch, it.metadata or "", topic_id=topic.topic_id
                    )
        return wanted

    async def _commit(self, group_id: str, wanted: Offsets) -> None:
        groups = self._coordinators.groups
        try:
            here = groups.offsets.fetch(group_id, list(wanted), require_stable=False)
            differing = {it: offset for it, offset in wanted.items() if self._differs(here.get(it), offset)}
            ends = await self._ends(differing)
            due = {it: offset for it, offset in differing.items() if offset.offset <= ends.get(it, -1)}
            if due:
                await groups.offsets.commit(group_id, due)
                self._progress.count_committed(len(due))
        except (CoordinatorLoadInProgressError, CoordinatorNotAvailableError, NotCoordinatorError):
            return  # it will be loaded, or is another node's by now
        except CoordinatorError as error:
            if group_id not in self._logged:
                self._logged.add(group_id)
                keys = {"group": group_id, "error": str(error)}
                logger.info(
                    "offsets of group %s are not mirrored for now: %s",
                    group_id,
                    error or type(error).__name__,
                    extra=keys,
                )
        else:
            self._logged.discard(group_id)

    def _differs(self, here: CommittedOffset | Exception | None, there: OffsetToCommit) -> bool:
        """Whether it has to be committed; also what would otherwise be forgotten here while it is kept there."""
        if not isinstance(here, CommittedOffset):
            return True
        kept_ms = self._config.offsets_retention_minutes * _MINUTE_MS
        is_old = self._clock.time_ms() - here.commit_timestamp_ms > kept_ms // 2
        return is_old or (here.offset, here.leader_epoch, here.metadata) != (
            there.offset,
            there.leader_epoch,
            there.metadata,
        )

    async def _ends(self, partitions: Offsets) -> dict[TopicPartition, int]:
        """Up to where these are copied, as far as their leaders say so."""
        image = self._controller.image
        ends: dict[TopicPartition, int] = {}
        elsewhere: dict[int, dict[str, list[ListOffsetsPartition]]] = {}
        for it, offset in partitions.items():
            state = image.partition(it.topic, it.partition)
            if state is None:
                continue
            if state.leader == self._controller.node_id:
                try:
                    ends[it] = self._manager.get_partition(offset.topic_id, it.partition).log.high_watermark
                except (ReplicaError, StorageError):
                    continue
            elif state.leader >= 0:
                asked = ListOffsetsPartition(partition_index=it.partition, timestamp=_LATEST)
                elsewhere.setdefault(state.leader, {}).setdefault(it.topic, []).append(asked)
        for leader, topics in elsewhere.items():
            asked_topics = [ListOffsetsTopic(name=name, partitions=parts) for name, parts in topics.items()]
            try:
                answer = await self._peers.call(leader, ListOffsetsRequest(replica_id=-1, topics=asked_topics))
            except ClientError:
                continue
            ends |= {
                TopicPartition(topic.name, part.partition_index): part.offset
                for topic in answer.topics
                for part in topic.partitions
                if not part.error_code
            }
        return ends
