"""Members of a share group (KIP-932): they accept, release, reject or renew what they are given, or do nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import trio

from ottla.client.errors import ClientError, UnreachableError
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.share import share_acknowledge, share_fetch
from ottla.kproto.messages.share.share_acknowledge import ShareAcknowledgeRequest
from ottla.kproto.messages.share.share_fetch import ShareFetchRequest
from ottla.kproto.messages.share.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.kproto.records import iter_batches, iter_records
from ottla.simulation.cluster.clients.group_client import GroupClient
from ottla.simulation.cluster.clients.producer import RETRIABLE
from ottla.simulation.cluster.clients.transactions import COORDINATOR_MOVES
from ottla.simulation.cluster.histories.deliveries import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    Deliveries,
    Delivery,
    Giver,
    ShareSession,
)

if TYPE_CHECKING:
    from ottla.simulation.cluster.clients.dead_letters import DeadLetters
    from ottla.simulation.cluster.histories.attempts import Partition
    from ottla.simulation.cluster.histories.client_environment import ClientEnvironment

__all__ = ["Drainer", "Leaders", "ShareMember"]

Leaders = Callable[[int, str, "Partition"], Giver | None]
"""Who leads a group's share of a partition on a node at this moment."""

_HEARTBEAT_S: Final = 0.5
_MAX_WAIT_MS: Final = 300
_QUIET_S: Final = 10.0
"""The longest time without a delivery while there is something to be had: locks end, and states are initialized."""
_FINAL_EPOCH: Final = -1
_PASSING: Final = RETRIABLE | COORDINATOR_MOVES | {ErrorCode.GROUP_ID_NOT_FOUND}
_FETCHED_AGAIN: Final = _PASSING | {ErrorCode.OFFSET_NOT_AVAILABLE}
"""Where a share partition begins at the end of a log, its new leader may not know that end yet (KIP-207)."""
_REFUSALS: Final = frozenset({ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST})
"""Nothing has come of an acknowledgement. After other errors something may have: the state may have been stored."""
_EXPELLED: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND})
_NO_SESSION: Final = frozenset(
    {
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    }
)


class _Held(NamedTuple):
    """What is to be said of a record, and when. `delivery` is None where there is no record."""

    due_s: float
    kind: int
    delivery: Delivery | None


_Said = dict["Partition", dict[int, _Held]]


class ShareMember(GroupClient):
    """Has one task for each node, with a session there, which fetches what that one leads."""

    def __init__(
        self,
        world: ClientEnvironment,
        name: str,
        deliveries: Deliveries,
        partitions: Sequence[Partition],
        leaders: Leaders,
        *,
        rejects: int = 1,
    ) -> None:
        """Of ten records it rejects about as many as `rejects` says."""
        super().__init__(world, name, deliveries.group)
        self._rejects = rejects
        self.deliveries = deliveries
        self._topic = partitions[0][0]
        self._leader_now = leaders
        self._member_id = f"{name}-simulated"
        self._member_epoch = 0
        self._assigned: list[Partition] = []
        self._max_records = world.rng.choice((1, 3, 100))
        self._is_strict = world.rng.random() < 0.5
        self._at_most = world.rng.choice((1, 2, 2))

    @property
    def is_done(self) -> bool:
        return self.world.is_ending

    async def work(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._belong)
            followed: list[int] = []
            while not self.is_done:
                for node_id in [each for each in self.known_nodes if each not in followed]:
                    followed.append(node_id)
                    nursery.start_soon(self._consume, node_id)
                await trio.sleep(0.1)

    # The group

    async def _belong(self) -> None:
        while not self.is_done:
            await self._beat()
            await trio.sleep(_HEARTBEAT_S * self.rng.uniform(0.2, 1.5))
            if self._member_epoch > 0 and self.rng.random() < 0.02:
                await self._leave()
        await self._leave()

    async def _beat(self) -> None:
        request = ShareGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self._member_id,
            member_epoch=self._member_epoch,
            subscribed_topic_names=None if self._member_epoch else [self._topic],
        )
        answer = await self.ask(request)
        if answer is None:
            return
        code = ErrorCode(answer.error_code)
        if code is not ErrorCode.NONE:
            self.note(f"beats: {code.name}")
            self.world.check(code in _EXPELLED, f"{self.name} beats and is told {code.name}: {answer.error_message}")
            self._member_epoch = 0
            return
        self._member_epoch = answer.member_epoch
        if answer.assignment is not None:
            await self.refresh(self._topic)
            named = {self.topic_id(self._topic): self._topic}
            self._assigned = [
                (named[each.topic_id], index)
                for each in answer.assignment.topic_partitions
                for index in sorted(each.partitions)
            ]
            self.note(f"has {[index for _, index in self._assigned]} in {self._member_epoch}")

    async def _leave(self) -> None:
        self.note("leaves")
        self._assigned = []
        self._member_epoch = 0
        await self.ask(ShareGroupHeartbeatRequest(group_id=self.group, member_id=self._member_id, member_epoch=-1))

    # Records

    async def _consume(self, node_id: int) -> None:
        session, held = ShareSession(node_id), _Said()
        while not self.is_done:
            led = [each for each in self._assigned if self.known_leader(each) == node_id]
            if not led:
                if any(self.known_leader(each) < 0 for each in self._assigned):
                    await self.refresh(self._topic)
                await trio.sleep(0.2)
                continue
            is_last = session.epoch > 0 and self.rng.random() < 0.02
            said = self._due(held, led) if session.epoch else {}
            if said and (is_last or self.rng.random() < 0.5):
                goes_on = await self._acknowledge(session, said, is_last=is_last)
            else:
                goes_on = await self._fetch(session, held, said, led)
            if not goes_on:
                session, held = ShareSession(node_id), _Said()
        if session.epoch and self.rng.random() < 0.5:
            await self._acknowledge(session, self._due(held, session.partitions), is_last=True)

    def _due(self, held: _Said, led: Sequence[Partition]) -> _Said:
        """What is to be said now, taken out of `held`; of what another node leads now nothing can be said."""
        due: _Said = {}
        for partition in led:
            records = held.get(partition, {})
            for offset in [each for each, what in records.items() if what.due_s <= trio.current_time()]:
                what = due.setdefault(partition, {})[offset] = records.pop(offset)
                if what.kind == RENEW and what.delivery is not None:
                    records[offset] = _Held(trio.current_time() + 0.5, ACCEPT, what.delivery)
        return due

    def _begin(self, said: _Said) -> None:
        for records in said.values():
            for what in records.values():
                if what.delivery is not None:
                    self.deliveries.say(what.delivery, what.kind)

    def _told(self, session: ShareSession, partition: Partition, said: _Said, code: ErrorCode, said_s: float) -> None:
        """An acknowledgement was answered."""
        leader = self._leader_now(session.node_id, self.group, partition)
        kinds = "".join(f" {offset}:{what.kind}" for offset, what in said[partition].items())
        self.note(f"says of {partition[1]}{kinds}: {code.name}")
        self.world.check(
            code is ErrorCode.NONE or code in _REFUSALS | _PASSING, f"{self.name} acknowledges and is told {code.name}"
        )
        if code is ErrorCode.NONE or code in _REFUSALS:
            for what in said[partition].values():
                if what.delivery is not None:
                    self.deliveries.settle(
                        what.delivery, what.kind, is_done=code is ErrorCode.NONE, said_s=said_s, leader=leader
                    )

    async def _acknowledge(self, session: ShareSession, said: _Said, *, is_last: bool) -> bool:
        """False if the session is over."""
        renews = any(what.kind == RENEW for records in said.values() for what in records.values())
        topic = share_acknowledge.AcknowledgeTopic(
            topic_id=self.topic_id(self._topic),
            partitions=[
                share_acknowledge.AcknowledgePartition(
                    partition_index=index,
                    acknowledgement_batches=self._batches(records, share_acknowledge.AcknowledgementBatch),
                )
                for (_, index), records in said.items()
            ],
        )
        request = ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self._member_id,
            share_session_epoch=_FINAL_EPOCH if is_last else session.epoch,
            is_renew_ack=renews,
            topics=[topic] if said else [],
        )
        answer, said_s = await self._ask(session, request, said)
        if answer is None:
            return False
        for told in answer.responses:
            for part in told.partitions:
                self._told(session, (self._topic, part.partition_index), said, ErrorCode(part.error_code), said_s)
        return not is_last

    async def _ask(self, session: ShareSession, request: Any, said: _Said) -> tuple[Any, float]:
        """The answer, and when the request was sent; no answer if the session is over."""
        self._begin(said)
        said_s = trio.current_time()
        renews = request.is_renew_ack
        try:
            answer = await self.call(session.node_id, request, channel="share", at_most=2 if renews else self._at_most)
        except ClientError as error:
            if isinstance(request, ShareFetchRequest) and not isinstance(error, UnreachableError):
                self.deliveries.lose(session.partitions)
            for partition in session.partitions:
                self.forget_leader(partition)
            await trio.sleep(self.rng.uniform(0, 0.2))
            return None, said_s
        code = ErrorCode(answer.error_code)
        if code is not ErrorCode.NONE:
            self.note(f"asks {session.node_id} in {session.epoch}: {code.name}")
            self.world.check(code in _NO_SESSION, f"{self.name} asks in its session and is told {code.name}")
            for records in said.values():
                for what in records.values():
                    if what.delivery is not None:
                        self.deliveries.settle(what.delivery, what.kind, is_done=False, said_s=said_s, leader=None)
            await trio.sleep(self.rng.uniform(0, 0.1))
            return None, said_s
        session.alive_s = max(session.alive_s, said_s)
        session.epoch += 1
        return answer, said_s

    async def _fetch(self, session: ShareSession, held: _Said, said: _Said, led: Sequence[Partition]) -> bool:
        """False if the session is over. Locks are renewed by requests of their own."""
        if any(what.kind == RENEW for records in said.values() for what in records.values()):
            return await self._acknowledge(session, said, is_last=False)
        before = {each: self._leader_now(session.node_id, self.group, each) for each in led}
        request = self._fetch_request(session, said, led)
        session.partitions = list(led)
        answer, asked_s = await self._ask(session, request, said)
        if answer is None:
            return False
        for topic in answer.responses:
            for data in topic.partitions:
                partition = (self._topic, data.partition_index)
                if partition in said:
                    self._told(session, partition, said, ErrorCode(data.acknowledge_error_code), asked_s)
                code = ErrorCode(data.error_code)
                if code is not ErrorCode.NONE:
                    self.note(f"fetches {partition[1]} from {session.node_id}: {code.name}")
                    self.world.check(
                        self.reads_again(code, _FETCHED_AGAIN), f"{self.name} fetches and is told {code.name}"
                    )
                    self.forget_leader(partition)
                    await trio.sleep(self.rng.uniform(0, 0.1))
                    continue
                leader = self._leader_now(session.node_id, self.group, partition)
                giver = leader if before.get(partition) is leader else None
                self._take(session, held.setdefault(partition, {}), partition, data, asked_s=asked_s, giver=giver)
        return True

    def _fetch_request(self, session: ShareSession, said: _Said, led: Sequence[Partition]) -> ShareFetchRequest:
        topic_id = self.topic_id(self._topic)
        named = [
            share_fetch.FetchPartition(
                partition_index=partition[1],
                acknowledgement_batches=self._batches(said.get(partition, {}), share_fetch.AcknowledgementBatch),
            )
            for partition in led
            if partition in said or partition not in session.partitions
        ]
        gone = [index for topic, index in session.partitions if (topic, index) not in led]
        return ShareFetchRequest(
            group_id=self.group,
            member_id=self._member_id,
            share_session_epoch=session.epoch,
            max_wait_ms=_MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=1_000_000,
            max_records=self._max_records,
            batch_size=self._max_records,
            share_acquire_mode=int(self._is_strict),
            topics=[share_fetch.FetchTopic(topic_id=topic_id, partitions=named)] if named else [],
            forgotten_topics_data=[share_fetch.ForgottenTopic(topic_id=topic_id, partitions=gone)] if gone else [],
        )

    def _batches(self, records: Mapping[int, _Held], kind: Callable[..., Any]) -> list[Any]:
        """Runs of offsets, each with one type if all have the same, or with a type for each offset."""
        batches = []
        for _, run in groupby(enumerate(sorted(records)), key=lambda each: each[1] - each[0]):
            offsets = [offset for _, offset in run]
            types = [records[offset].kind for offset in offsets]
            if len(set(types)) == 1 and self.rng.random() < 0.5:
                del types[1:]
            batches.append(kind(first_offset=offsets[0], last_offset=offsets[-1], acknowledge_types=types))
        return batches

    def _take(
        self,
        session: ShareSession,
        held: dict[int, _Held],
        partition: Partition,
        data: Any,
        *,
        asked_s: float,
        giver: Giver | None,
    ) -> None:
        values: dict[int, bytes] = {}
        raw = bytes(data.records or b"")
        for position, header in iter_batches(raw):
            if not header.is_control:
                values.update((each.offset, each.value or b"") for each in iter_records(raw, position, header))
        for acquired in data.acquired_records:
            self.note(
                f"is given {partition[1]}: {acquired.first_offset} to {acquired.last_offset} by {session.node_id}, "
                f"for the {acquired.delivery_count}. time"
            )
            for offset in range(acquired.first_offset, acquired.last_offset + 1):
                if offset not in values:
                    held[offset] = _Held(trio.current_time(), GAP, None)
                    continue
                delivery = Delivery(
                    self.name,
                    partition,
                    offset,
                    acquired.delivery_count,
                    asked_s=asked_s,
                    lock_s=self.deliveries.lock_s,
                    giver=giver,
                    session=session,
                )
                is_committed = self.deliveries.is_committed
                self.world.history.saw(self.name, partition, offset, values[offset], is_committed=is_committed)
                self.deliveries.deliver(delivery)
                delay_s, kind = self._decide()
                held[offset] = _Held(trio.current_time() + delay_s, kind, delivery)

    def _decide(self) -> tuple[float, int]:
        """How it acknowledges a record, and after what time."""
        delay_s = self.rng.choice((0.0, 0.0, 0.0, 0.3, 1.5 * self.deliveries.lock_s))
        kinds = (
            (ACCEPT,) * 6 + (RELEASE,) * 2 + (REJECT,) * self._rejects + ((RENEW,) if self._at_most > 1 else (ACCEPT,))
        )
        return delay_s, self.rng.choice(kinds)


class Drainer(ShareMember):
    """Accepts all that is left in the end, until none of these records is missing any more, nor any dead letter."""

    def __init__(
        self,
        world: ClientEnvironment,
        deliveries: Deliveries,
        logs: Mapping[Partition, Mapping[int, bytes]],
        leaders: Leaders,
        letters: DeadLetters | None = None,
    ) -> None:
        super().__init__(world, "drainer", deliveries, list(logs), leaders)
        self._logs = logs
        self._letters = letters
        self._max_records = 100
        self._began_s = trio.current_time()

    @property
    def is_done(self) -> bool:
        """Whether all have been delivered, or may have been and there was time for the rest."""
        deliveries = self.deliveries
        is_quiet = trio.current_time() > max(self._began_s, deliveries.last_s) + _QUIET_S
        if deliveries.missing(self._logs, is_certain=is_quiet):
            return False
        return self._letters is None or not self._letters.unwritten(self._logs)

    def _decide(self) -> tuple[float, int]:
        return 0.0, ACCEPT
