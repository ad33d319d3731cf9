"""The consumer protocol (KIP-848): one heartbeat that joins, leaves, subscribes, revokes and takes partitions.

What it promises (Kafka's GroupMetadataManager, consumerGroupHeartbeat):

- All that a heartbeat changes is committed as one batch before it is answered, and the group follows the log. The
  operations of one group come one after the other.
- A partition has one owner at a time: it is passed on only when its former owner has said that it revoked it, has left,
  or was fenced because its session or its rebalance timeout ended.
- A heartbeat whose answer was lost may be repeated with the previous epoch.
"""

import math
import uuid
from typing import NamedTuple, Protocol

from ottla.coordinator.errors import FencedInstanceIdError, UnknownMemberIdError
from ottla.coordinator.group.assignment import EMPTY_ASSIGNMENT, Assignment
from ottla.coordinator.group.consumer import records
from ottla.coordinator.group.consumer.group import ConsumerConfig, ConsumerGroup
from ottla.coordinator.group.consumer.member import ConsumerMember, Current, MemberState, Subscription
from ottla.coordinator.group.consumer.plan import Plan
from ottla.coordinator.group.consumer.reconciliation import next_assignment
from ottla.coordinator.group.modern.group import JOIN_EPOCH, LEAVE_EPOCH
from ottla.coordinator.group.modern.heartbeat import HeartbeatResult
from ottla.coordinator.group.modern.protocol import GroupServices, ModernProtocol
from ottla.coordinator.group.modern.static_members import LEAVE_STATIC_EPOCH
from ottla.coordinator.group.topics import MayDescribe, compile_regex
from ottla.coordinator.replay import CoordinatorRecord


class Heartbeat(NamedTuple):
    """A ConsumerGroupHeartbeat that was found valid. None means unchanged."""

    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    topic_names: frozenset[str] | None
    topic_regex: str | None
    server_assignor: str | None
    owned: Assignment | None
    #: Whether the sender may describe a topic; None where everybody may.
    may_describe: MayDescribe | None = None


class ConsumerConfigs(Protocol):
    """The settings of each consumer group."""

    def of_consumer_group(self, group_id: str) -> ConsumerConfig: ...


class Downgrade(Protocol):
    """Turns groups into classic ones."""

    async def downgrade(self, group: ConsumerGroup, leaving: ConsumerMember | None) -> bool:
        """Turn the group into a classic one if that is due, without the member that is leaving. Returns whether that
        was done: then the sessions of its members have ended."""


class ConsumerProtocol(ModernProtocol[ConsumerGroup, ConsumerMember, Heartbeat, HeartbeatResult]):
    """Runs the consumer protocol for all groups of one broker."""

    group_class = ConsumerGroup

    def __init__(
        self,
        services: GroupServices,
        *,
        configs: ConsumerConfigs,
        conversion: Downgrade,
    ) -> None:
        super().__init__(services)
        self._configs = configs
        self._conversion = conversion

    async def heartbeat(self, group: ConsumerGroup, beat: Heartbeat) -> HeartbeatResult:
        """Take one step with a member. Raises CoordinatorError, and then nothing has changed.

        Here as below, the caller holds the group's lock.
        """
        if beat.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
            return await self._leave(group, beat)
        return await self._advance(group, beat)

    def lacks_target(self, group: ConsumerGroup) -> bool:
        """Whether the next step of a member would compute a new target."""
        interval_ms = self._configs.of_consumer_group(group.group_id).assignment_interval_ms
        return group.group_epoch > group.target_epoch and group.may_assign(self._clock.time_ms(), interval_ms)

    def config(self, group_id: str) -> ConsumerConfig:
        """The settings of a group."""
        return self._configs.of_consumer_group(group_id)

    # Joining and staying

    async def _advance(self, group: ConsumerGroup, beat: Heartbeat) -> HeartbeatResult:
        former = self._find_member(group, beat)
        check_expression(former, beat)
        member_id = beat.member_id or str(uuid.uuid4())
        before = Current() if former is None else former.current
        takes_place = former is not None and beat.member_epoch == JOIN_EPOCH and beat.instance_id is not None
        start = before.rejoined() if takes_place else before
        subscription = _subscription(former, beat)
        member = await self.step(group, member_id, former, subscription, start, beat.owned, beat.may_describe)
        self.touch(group, member)
        changed = former is None or member.current.assigned != before.assigned or _is_full(beat)
        return HeartbeatResult(
            member_id=member_id,
            member_epoch=member.current.epoch,
            heartbeat_interval_ms=self._configs.of_consumer_group(group.group_id).heartbeat_interval_ms,
            assignment=member.current.assigned if changed else None,
        )

    async def step(
        self,
        group: ConsumerGroup,
        member_id: str,
        former: ConsumerMember | None,
        subscription: Subscription,
        start: Current,
        owned: Assignment | None,
        may_describe: MayDescribe | None,
    ) -> ConsumerMember:
        """Commit what a member says about itself, and its next step towards the target from where it stands (`start`).

        `former` is the member as it was, under another id if a static one came back; None for a new one.
        `may_describe` is as in `Plan`.
        """
        group_id = group.group_id
        planned = Plan(
            group,
            self._topics,
            member_id,
            subscription,
            config=self._configs.of_consumer_group(group_id),
            may_describe=may_describe,
        )
        written: list[CoordinatorRecord] = []
        if former is not None and former.member_id != member_id:
            # A static member came back under a new id: it inherits its current and its target assignment.
            written += records.RECORDS.member_tombstones(group_id, former.member_id)
            planned.replace(former)
        if former is None or former.subscription != subscription or former.member_id != member_id:
            written.append(records.member_subscription(group_id, member_id, subscription))
        if written or group.checked_version != self._topics.version or group.group_epoch != group.target_epoch:
            written += await planned.changes(self._clock.time_ms())
        stepped = next_assignment(
            start,
            target=planned.target.get(member_id, EMPTY_ASSIGNMENT),
            target_epoch=planned.target_epoch,
            owned=owned,
            is_free=planned.is_free,
            subscribed=planned.subscribed,
            resubscribed=planned.resubscribed,
        )
        if former is None or former.member_id != member_id or stepped != former.current:
            written.append(records.current_assignment(group_id, member_id, stepped))
        await self.commit(group, written)
        group.checked(planned.version)
        return group.members[member_id]

    def _find_member(self, group: ConsumerGroup, beat: Heartbeat) -> ConsumerMember | None:
        """The member that a heartbeat speaks for; None for a new one."""
        if beat.member_epoch == JOIN_EPOCH:
            max_size = self._configs.of_consumer_group(group.group_id).max_size
            return group.find_joining(beat.member_id, beat.instance_id, max_size)
        member = group.find_static(beat.member_id, beat.instance_id)
        member.check_epoch(beat.member_epoch, beat.owned)
        return member

    # Leaving

    async def _leave(self, group: ConsumerGroup, beat: Heartbeat) -> HeartbeatResult:
        member = group.find_static(beat.member_id, beat.instance_id)
        if beat.member_epoch == LEAVE_STATIC_EPOCH:
            away = member.current.away()
            await self.commit(group, [records.current_assignment(group.group_id, member.member_id, away)])
            # What it was to revoke is free: only its session counts.
            member.expect_nothing()
        else:
            await self._remove(group, member)
        return HeartbeatResult(beat.member_id, beat.member_epoch, 0, None)

    async def expel(self, group: ConsumerGroup, member_id: str, instance_id: str | None) -> str:
        """LeaveGroup: an administrator removes a member, by its id or by its static instance id; returns its id."""
        holder_id = member_id
        if instance_id is not None:
            holder_id = group.static_members.get(instance_id, "")
            if holder_id and member_id not in ("", holder_id):
                raise FencedInstanceIdError(f"{instance_id} is now {holder_id}")
        member = group.members.get(holder_id)
        if member is None:
            raise UnknownMemberIdError(f"no member {member_id or instance_id} in group {group.group_id}")
        await self._remove(group, member)
        return holder_id

    async def settle_protocol(self, group: ConsumerGroup) -> None:
        """A member has changed its protocol: the group follows if nobody speaks the consumer protocol any more."""
        await self._conversion.downgrade(group, None)

    async def _remove(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """Remove a member; the others get its partitions with their next heartbeats."""
        if await self._conversion.downgrade(group, member):
            return
        remaining: set[str] = set()
        for other in group.members.values():
            if other is not member:
                remaining |= group.subscribed_topics(other.subscription)
        metadata_hash = await self._topics.metadata_hash(remaining)
        written = records.RECORDS.member_tombstones(group.group_id, member.member_id)
        regex = member.subscription.topic_regex
        used = {other.subscription.topic_regex for other in group.members.values() if other is not member}
        if regex and regex in group.regexes and regex not in used:
            written.append(records.regex_tombstone(group.group_id, regex))
        epoch = group.group_epoch + 1
        written.append(records.group_epoch(group.group_id, epoch, metadata_hash))
        if len(group.members) == 1:
            written.append(records.target_epoch(group.group_id, epoch, 0))
        await self.commit(group, written)
        self._purgatory.signal(member)

    # Sessions

    def touch(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """Prolong the session, and watch over a revocation that is under way."""
        self.prolong(group, member)
        if member.current.state is not MemberState.UNREVOKED_PARTITIONS:
            member.expect_nothing()
        else:
            self.expect(member)

    def expect(self, member: ConsumerMember) -> None:
        """Start the rebalance timeout for what the member has to do next, unless it is already running."""
        if math.isinf(member.rebalance_deadline):
            self._set_rebalance_deadline(member, member.subscription.rebalance_timeout_ms)

    def _session_timeout_ms(self, group: ConsumerGroup, member: ConsumerMember) -> int:
        if member.classic is not None:
            return member.classic.session_timeout_ms
        return self._configs.of_consumer_group(group.group_id).session_timeout_ms


def check_expression(former: ConsumerMember | None, beat: Heartbeat) -> None:
    """Raises InvalidRegularExpressionError if an expression is new to the member and cannot be read."""
    if beat.topic_regex and (former is None or former.subscription.topic_regex != beat.topic_regex):
        compile_regex(beat.topic_regex)


def _is_full(beat: Heartbeat) -> bool:
    """A request that says everything is answered with everything: the member starts, or recovers from an error."""
    subscribed = beat.topic_names is not None or beat.topic_regex is not None
    return beat.rebalance_timeout_ms != -1 and subscribed and beat.owned is not None


def _subscription(former: ConsumerMember | None, beat: Heartbeat) -> Subscription:
    """The member's subscription after a heartbeat: fields that it leaves out stay as they were."""
    before = former.subscription if former is not None else None
    names, regex, assignor = beat.topic_names, beat.topic_regex, beat.server_assignor
    if before is not None:
        names = before.topic_names if names is None else names
        regex = before.topic_regex if regex is None else regex
        assignor = before.server_assignor if assignor is None else assignor
    timeout_ms = beat.rebalance_timeout_ms
    if timeout_ms == -1 and before is not None:
        timeout_ms = before.rebalance_timeout_ms
    return Subscription(
        instance_id=beat.instance_id if before is None or beat.instance_id is not None else before.instance_id,
        rack_id=beat.rack_id if before is None or beat.rack_id is not None else before.rack_id,
        client_id=beat.client_id,
        client_host=beat.client_host,
        topic_names=names or frozenset(),
        topic_regex=regex or None,
        rebalance_timeout_ms=timeout_ms,
        server_assignor=assignor,
    )
