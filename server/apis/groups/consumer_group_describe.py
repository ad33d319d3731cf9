"""ConsumerGroupDescribe (69): epochs, members, current and target assignments of groups of the consumer protocol.

- A group that does not exist, or is a classic one, is GROUP_ID_NOT_FOUND: clients then ask DescribeGroups.
- `member_type` (version 1) tells members of the consumer protocol from those of the classic one in the same group.
"""

from collections.abc import Iterable
from typing import Final

from ottla.coordinator.group.assignment import Assignment as PartitionsByTopic
from ottla.coordinator.group.consumer.assignors import assignor_names
from ottla.coordinator.group.consumer.group import ConsumerGroup
from ottla.coordinator.group.consumer.member import ConsumerMember
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.messages.groups.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from ottla.metadata.acls import AclOperation, AclResource
from ottla.server.apis.context import RequestContext
from ottla.server.apis.declaration import Api
from ottla.server.apis.groups.group_protocols import GroupProtocol
from ottla.server.apis.groups.modern_groups import Description, describe, names_of
from ottla.server.apis.rules import Each, Rule, itself

API = Api(
    ApiKey.CONSUMER_GROUP_DESCRIBE, Rule(each=Each(AclOperation.DESCRIBE, "group_ids", itself(AclResource.GROUP)))
)

CLASSIC_MEMBER: Final = 0
CONSUMER_MEMBER: Final = 1


async def handle(request: ConsumerGroupDescribeRequest, context: RequestContext) -> ConsumerGroupDescribeResponse:
    return ConsumerGroupDescribeResponse(groups=await describe(request, _Description(context)))


class _Description(Description):
    described = DescribedGroup

    @property
    def is_served(self) -> bool:
        return GroupProtocol.CONSUMER.is_enabled(self.context)

    def find(self, group_id: str) -> ConsumerGroup:
        return self.context.broker.group_coordinator.consumer_groups.describe(group_id)

    def topic_names(self, group: ConsumerGroup) -> Iterable[str]:
        return _topic_names(self.context, group)

    async def tell(self, group: ConsumerGroup) -> DescribedGroup:
        return await _group(self.context, group)


def _topic_names(context: RequestContext, group: ConsumerGroup) -> set[str]:
    names: set[str] = set()
    for member in group.members.values():
        names |= member.subscription.topic_names
        names |= names_of((*member.current.held, *group.target_of(member.member_id)), context)
    return names


async def _group(context: RequestContext, group: ConsumerGroup) -> DescribedGroup:
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.group_epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=group.assignor(assignor_names(context.broker.config.group_consumer_assignors)),
        members=[await _member(group, member, context) for member in list(group.members.values())],
    )


async def _member(group: ConsumerGroup, member: ConsumerMember, context: RequestContext) -> Member:
    subscription, held = member.subscription, member.current.held
    told = len(subscription.topic_names) + sum(map(len, held.values()))
    await context.work.charge(1 + told)
    return Member(
        member_id=member.member_id,
        instance_id=subscription.instance_id,
        rack_id=subscription.rack_id,
        member_epoch=member.current.epoch,
        client_id=subscription.client_id,
        client_host=subscription.client_host,
        subscribed_topic_names=sorted(subscription.topic_names),
        subscribed_topic_regex=subscription.topic_regex or "",
        assignment=_assignment(held, context),
        target_assignment=_assignment(group.target_of(member.member_id), context),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _assignment(assignment: PartitionsByTopic, context: RequestContext) -> Assignment:
    """Topics that have been deleted since are left out: they have no name any more."""
    image = context.broker.metadata
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, topic_name=topic.name, partitions=sorted(assignment[topic_id]))
            for topic_id in sorted(assignment)
            if (topic := image.topic_by_id(topic_id)) is not None
        ]
    )
