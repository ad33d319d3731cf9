"""Members of groups, of all protocols: they join, heartbeat, commit and leave as consumers do."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import trio

from ottla.coordinator.errors import (
    CoordinatorError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    MemberIdRequiredError,
    NotCoordinatorError,
    RebalanceInProgressError,
    StaleMemberEpochError,
)
from ottla.coordinator.group.classic.member import JoinResult, Protocol
from ottla.coordinator.group.classic.protocol import JoinRequest
from ottla.coordinator.group.consumer.protocol import Heartbeat
from ottla.coordinator.group.modern.heartbeat import HeartbeatResult
from ottla.coordinator.group.streams.assignor import NO_TASKS
from ottla.coordinator.group.streams.heartbeat import StreamsHeartbeat, StreamsHeartbeatResult
from ottla.coordinator.group.streams.topology import Topology
from ottla.kproto.internal_records.consumer_protocol import ConsumerProtocolSubscription, build_consumer_protocol
from ottla.kproto.internal_records.streams_group import Subtopology
from ottla.simulation.coordinators.clients import Client
from ottla.simulation.coordinators.world import GROUPS, REBALANCE_TIMEOUT_MS, SESSION_TIMEOUT_MS, TOPICS, World

TOPOLOGY = Topology(0, [Subtopology(subtopology_id=topic, source_topics=[topic]) for topic in TOPICS])
"""One subtopology for each topic: while a topic is deleted none of them has tasks."""

RETRIABLE = (
    NotCoordinatorError,
    CoordinatorNotAvailableError,
    CoordinatorLoadInProgressError,
    RebalanceInProgressError,
    StaleMemberEpochError,
)


class Member(Client):
    """Is in one group at a time. After it has given up a request it starts over, like a consumer that was killed."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.lives = 0
        self.group = ""
        self.member_id = ""
        self.begin_anew()

    def begin_anew(self) -> None:
        self.lives += 1
        self.group = self.rng.choice(GROUPS)

    async def step(self) -> None:
        is_answered = False
        try:
            await self.go_on()
            is_answered = True
        except RETRIABLE as error:
            is_answered = True
            self.told(error)
        except CoordinatorError:
            pass
        finally:
            if not is_answered or self.rng.random() < 0.03:
                self.begin_anew()

    async def go_on(self) -> None:
        raise NotImplementedError

    def told(self, error: CoordinatorError) -> None:
        """It was refused for now."""


class ModernMember(Member):
    """Asks for its assignment by heartbeats, and names its epoch in them."""

    def begin_anew(self) -> None:
        super().begin_anew()
        self.member_id = f"{self.name}-{self.lives}"
        self.epoch = 0

    async def go_on(self) -> None:
        chance = self.rng.random()
        if self.epoch <= 0 or chance < 0.6:
            await self.beat(self.epoch)
        elif chance < 0.85:
            await self.commit(self.group, member_id=self.member_id, generation_id=self.epoch)
        else:
            await self.beat(-1)
            self.begin_anew()

    async def beat(self, epoch: int) -> None:
        raise NotImplementedError


class ConsumerMember(ModernMember):
    """Speaks KIP-848."""

    def begin_anew(self) -> None:
        super().begin_anew()
        self.owned: dict[UUID, frozenset[int]] = {}

    async def beat(self, epoch: int) -> None:
        joins = epoch == 0
        beat = Heartbeat(
            member_id=self.member_id,
            member_epoch=epoch,
            instance_id=None,
            rack_id=None,
            client_id=self.name,
            client_host="/127.0.0.1",
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if joins else -1,
            topic_names=frozenset(TOPICS) if joins else None,
            topic_regex=None,
            server_assignor=None,
            owned={} if joins else self.owned,
        )
        answer: HeartbeatResult = await self.ask(
            f"beat {self.group} {self.member_id} {epoch}",
            lambda: self.world.coordinator.consumer_groups.heartbeat(self.group, beat),
        )
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.owned = {topic_id: frozenset(indexes) for topic_id, indexes in answer.assignment.items()}


class StreamsMember(ModernMember):
    """Speaks KIP-1071."""

    def begin_anew(self) -> None:
        super().begin_anew()
        self.owned = NO_TASKS

    async def beat(self, epoch: int) -> None:
        joins = epoch == 0
        beat = StreamsHeartbeat(
            member_id=self.member_id,
            member_epoch=epoch,
            endpoint_epoch=0,
            rack_id=None,
            client_id=self.name,
            client_host="/127.0.0.1",
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if joins else None,
            topology=TOPOLOGY if joins else None,
            owned=NO_TASKS if joins else self.owned,
            process_id=self.name,
            user_endpoint=None,
            client_tags=None,
        )
        answer: StreamsHeartbeatResult = await self.ask(
            f"beat {self.group} {self.member_id} {epoch}",
            lambda: self.world.coordinator.streams_groups.heartbeat(self.group, beat),
        )
        self.epoch = answer.member_epoch
        if answer.tasks is not None:
            self.owned = answer.tasks


class ClassicMember(Member):
    """Speaks JoinGroup and SyncGroup."""

    def begin_anew(self) -> None:
        super().begin_anew()
        self.member_id = ""
        self.generation_id = -1

    async def go_on(self) -> None:
        chance = self.rng.random()
        if self.generation_id < 0:
            await self.join()
        elif chance < 0.5:
            self.beat()
        elif chance < 0.8:
            await self.commit(self.group, member_id=self.member_id, generation_id=self.generation_id)
        elif chance < 0.9:
            self.generation_id = -1  # it joins again
        else:
            await self.ask(
                f"leave {self.group} {self.member_id}",
                lambda: self.world.coordinator.classic_groups.leave(self.group, self.member_id, None),
            )
            self.begin_anew()

    async def join(self) -> None:
        try:
            joined: JoinResult = await self.ask(
                f"join {self.group} {self.member_id}",
                lambda: self.world.coordinator.classic_groups.join(self.group, self._request()),
            )
        except MemberIdRequiredError as required:
            self.member_id = required.member_id
            return
        self.member_id = joined.member_id
        await trio.sleep(self.rng.choice((0, 0.01)))
        plan = {member.member_id: f"for {member.member_id}".encode() for member in joined.members}
        await self.ask(f"sync {self.group} {self.member_id} {joined.generation_id}", lambda: self._sync(joined, plan))
        self.generation_id = joined.generation_id

    def _request(self) -> JoinRequest:
        subscription = build_consumer_protocol(ConsumerProtocolSubscription(topics=list(TOPICS)), 1)
        return JoinRequest(
            member_id=self.member_id,
            group_instance_id=None,
            client_id=self.name,
            client_host="/127.0.0.1",
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            protocol_type="consumer",
            protocols=[Protocol("range", subscription)],
            known_member_id_required=self.rng.random() < 0.5,
            supports_skipping_assignment=True,
        )

    async def _sync(self, joined: JoinResult, plan: dict[str, bytes]) -> Any:
        return await self.world.coordinator.classic_groups.sync(
            self.group,
            member_id=self.member_id,
            group_instance_id=None,
            generation_id=joined.generation_id,
            protocol_type=None,
            protocol_name=None,
            assignments=plan,
        )

    def beat(self) -> None:
        self.world.coordinator.classic_groups.heartbeat(
            self.group, member_id=self.member_id, group_instance_id=None, generation_id=self.generation_id
        )

    def told(self, error: CoordinatorError) -> None:
        if isinstance(error, RebalanceInProgressError):
            self.generation_id = -1
