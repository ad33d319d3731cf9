"""The group as it will be once a heartbeat is committed: its epochs, target and owned partitions."""

from collections.abc import Iterable, Set
from functools import partial
from typing import Final
from uuid import UUID

import trio

from ottla.coordinator.group.assignment import EMPTY_ASSIGNMENT
from ottla.coordinator.group.consumer import records
from ottla.coordinator.group.consumer.assignors import ASSIGNORS, MemberSpec
from ottla.coordinator.group.consumer.group import ConsumerConfig, ConsumerGroup, preferred_assignor
from ottla.coordinator.group.consumer.member import ConsumerMember, ResolvedRegex, Subscription
from ottla.coordinator.group.topics import GroupTopics, MayDescribe
from ottla.coordinator.replay import CoordinatorRecord
from ottla.runtime.time_slice import TimeSlice

ASSIGNED_ON_THE_LOOP: Final = 200
"""So many members and partitions are assigned in less than 500 µs; more are assigned in a worker thread."""


class Plan:
    """One member's heartbeat, as the group will see it once its records are committed."""

    def __init__(
        self,
        group: ConsumerGroup,
        topics: GroupTopics,
        member_id: str,
        subscription: Subscription,
        *,
        config: ConsumerConfig,
        may_describe: MayDescribe | None = None,
    ) -> None:
        """Expressions match only topics that the member `may_describe`; all topics if that is None.

        As in Kafka (`filterTopicDescribeAuthorizedTopics`), this holds for all expressions of the group: what counts
        are the rights of the member whose request has them matched.
        """
        self.group = group
        self.target = group.target
        self.target_epoch = group.target_epoch
        self.version = topics.version
        self._config = config
        self._regex_records: list[CoordinatorRecord] = []
        self._topics = topics
        self._may_describe = may_describe
        self._member_id = member_id
        self._replaced: ConsumerMember | None = None
        self._regexes = dict(group.regexes)
        self._subscriptions = {each.member_id: each.subscription for each in group.members.values()}
        # A member that joins without a subscription, or keeps its subscription, changes nothing for the others.
        self._resubscribed = not _same_topics(self._subscriptions.get(member_id, Subscription()), subscription)
        former_assignor = self._assignor()
        self._subscriptions[member_id] = subscription
        self._bumps = self._resubscribed or (subscription.classic is None and self._assignor() != former_assignor)

    def replace(self, former: ConsumerMember) -> None:
        """The member replaces a former one in its place, without a rebalance."""
        self._replaced = former
        before, said = self._subscriptions.pop(former.member_id), self._subscriptions[self._member_id]
        assignor_before = self.group.assignor(self._config.assignors)
        self._resubscribed = not _same_topics(before, said)
        self._bumps = self._resubscribed or (said.classic is None and self._assignor() != assignor_before)
        self.target = dict(self.target)
        self.target[self._member_id] = self.target.pop(former.member_id, EMPTY_ASSIGNMENT)

    @property
    def resubscribed(self) -> bool:
        """Whether the topics that the member subscribes to have changed."""
        return self._resubscribed

    def subscribed(self, topic_ids: Iterable[UUID]) -> Set[UUID]:
        """The topics of these that the member subscribes to. Deleted topics are left out."""
        wanted = self._names(self._subscriptions[self._member_id])
        return {topic_id for topic_id, name in self._topics.names(topic_ids).items() if name in wanted}

    def is_free(self, topic_id: UUID, index: int) -> bool:
        owner = self.group.owners.get((topic_id, index))
        mine = {self._member_id} if self._replaced is None else {self._member_id, self._replaced.member_id}
        return owner is None or owner in mine

    async def changes(self, now_ms: int) -> list[CoordinatorRecord]:
        """The records that follow from changes of the group's topics, expressions and members."""
        await self._resolve_regexes(now_ms)
        return self._regex_records + await self._new_epochs(now_ms)

    async def _resolve_regexes(self, now_ms: int) -> None:
        """Match the members' expressions against the topics, unless that was done for the current topics."""
        group_id, version = self.group.group_id, self.version
        used = {each.topic_regex for each in self._subscriptions.values() if each.topic_regex}
        for regex in sorted(used):
            known = self._regexes.get(regex)
            # It may be a later one: of another coordinator, or of the metadata store before the metadata was moved.
            if known is not None and known.version == version:
                continue
            matched = await self._described(await self._topics.matching(regex))
            resolved = ResolvedRegex(matched, version, now_ms)
            if known is None or known.topics != matched:
                self._regex_records.append(records.resolved_regex(group_id, regex, resolved))
                self._bumps = self._resubscribed = True
            else:
                self.group.regexes[regex] = resolved  # the same topics, seen later: no need to look again
            self._regexes[regex] = resolved
        for regex in sorted(self._regexes.keys() - used):
            self._regex_records.append(records.regex_tombstone(group_id, regex))

    async def _described(self, names: frozenset[str]) -> frozenset[str]:
        """The topics of these that the member may describe."""
        if self._may_describe is None:
            return names
        left = set()
        time_slice = TimeSlice()
        for name in names:
            if self._may_describe(name):
                left.add(name)
            await time_slice.maybe_yield()
        return frozenset(left)

    async def _new_epochs(self, now_ms: int) -> list[CoordinatorRecord]:
        """Raise the group's epoch if its topics or members changed, and then compute the target again."""
        group = self.group
        written: list[CoordinatorRecord] = []
        names = {member_id: self._names(each) for member_id, each in self._subscriptions.items()}
        metadata_hash = await self._topics.metadata_hash(frozenset().union(*names.values()))
        epoch = group.group_epoch
        if self._bumps or metadata_hash != group.metadata_hash:
            epoch += 1
            written.append(records.group_epoch(group.group_id, epoch, metadata_hash))
        if epoch > group.target_epoch and group.may_assign(now_ms, self._config.assignment_interval_ms):
            written += await self._new_target(epoch, names, now_ms)
        elif self._replaced is not None:
            inherited = self.target[self._member_id]
            written.append(records.target_assignment(group.group_id, self._member_id, inherited))
        return written

    def _names(self, subscription: Subscription) -> frozenset[str]:
        resolved = self._regexes.get(subscription.topic_regex) if subscription.topic_regex else None
        return subscription.topic_names if resolved is None else subscription.topic_names | resolved.topics

    async def _new_target(self, epoch: int, names: dict[str, frozenset[str]], now_ms: int) -> list[CoordinatorRecord]:
        group = self.group
        ids = self._topics.ids(frozenset().union(*names.values()))
        members = [
            MemberSpec(
                member_id=member_id,
                instance_id=subscription.instance_id,
                topic_ids=frozenset(ids[name] for name in names[member_id] if name in ids),
                current=self.target.get(member_id, EMPTY_ASSIGNMENT),
            )
            for member_id, subscription in self._subscriptions.items()
        ]
        assign = partial(ASSIGNORS[self._assignor()], members, counts := self._topics.partition_counts(ids.values()))
        is_large = len(members) + sum(counts.values()) > ASSIGNED_ON_THE_LOOP
        computed = await trio.to_thread.run_sync(assign) if is_large else assign()
        written = [
            records.target_assignment(group.group_id, member_id, assignment)
            for member_id, assignment in computed.items()
            if group.target.get(member_id) != assignment
        ]
        self.target = computed
        self.target_epoch = epoch
        return [*written, records.target_epoch(group.group_id, epoch, now_ms)]

    def _assignor(self) -> str:
        return preferred_assignor(self._subscriptions.values(), self._config.assignors)


def _same_topics(before: Subscription, after: Subscription) -> bool:
    return before.topic_names == after.topic_names and before.topic_regex == after.topic_regex
