"""ConsumerGroupDescribe (69): epochs, members, current and target assignments of groups of the consumer protocol.

- A group that does not exist, or is a classic one, is GROUP_ID_NOT_FOUND: clients then ask DescribeGroups.
- `member_type` (version 1) tells members of the consumer protocol from those of the classic one in the same group.
"""

from typing import Final

from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from ottla.server.apis.context import RequestContext
from ottla.server.apis.describe_groups import group_operations
from ottla.server.apis.errors import error_code, error_message
from ottla.server.coordinator.errors import CoordinatorError
from ottla.server.coordinator.group import assignors
from ottla.server.coordinator.group.consumer_group import ConsumerGroup, ConsumerMember
from ottla.server.metadata.acls import AclOperation, AclResource
from ottla.server.security.access import Access

CLASSIC_MEMBER: Final = 0
CONSUMER_MEMBER: Final = 1


async def handle(request: ConsumerGroupDescribeRequest, context: RequestContext) -> ConsumerGroupDescribeResponse:
    described = [await _describe(group_id, context) for group_id in request.group_ids]
    if request.include_authorized_operations:
        for group in described:
            if group.error_code == ErrorCode.NONE:
                group.authorized_operations = group_operations(group.group_id, context)
    return ConsumerGroupDescribeResponse(groups=described)


async def _describe(group_id: str, context: RequestContext) -> DescribedGroup:
    await context.work.rest()
    if not group_id:
        return DescribedGroup(group_id=group_id, error_code=ErrorCode.INVALID_GROUP_ID)
    try:
        group: ConsumerGroup = context.broker.group_coordinator.describe_consumer_group(group_id)
    except CoordinatorError as error:
        return DescribedGroup(group_id=group_id, error_code=error_code(error), error_message=error_message(error))
    if context.access is not None and not _may_see_topics(group, context, context.access):
        return DescribedGroup(
            group_id=group_id,
            error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            error_message="The group has described topic(s) that the client is not authorized to describe.",
        )
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.group_epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=group.assignor,
        members=[await _member(group, member, context) for member in group.members.values()],
    )


def _may_see_topics(group: ConsumerGroup, context: RequestContext, access: Access) -> bool:
    """Whether the sender may see every topic that the answer would name."""
    image = context.broker.metadata
    names: set[str] = set()
    for member in group.members.values():
        names |= member.subscription.topic_names
        for topic_id in (*member.current.assigned, *group.target_of(member.member_id)):
            if (topic := image.topic_by_id(topic_id)) is not None:
                names.add(topic.name)
    return all(access.allows(AclOperation.DESCRIBE, AclResource.TOPIC, name) for name in names)


async def _member(group: ConsumerGroup, member: ConsumerMember, context: RequestContext) -> Member:
    subscription = member.subscription
    told = len(subscription.topic_names) + sum(map(len, member.current.assigned.values()))
    await context.work.rest(1 + told)
    return Member(
        member_id=member.member_id,
        instance_id=subscription.instance_id,
        rack_id=subscription.rack_id,
        member_epoch=member.current.epoch,
        client_id=subscription.client_id,
        client_host=subscription.client_host,
        subscribed_topic_names=sorted(subscription.topic_names),
        subscribed_topic_regex=subscription.topic_regex or "",
        assignment=_assignment(member.current.assigned, context),
        target_assignment=_assignment(group.target_of(member.member_id), context),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _assignment(assignment: assignors.Assignment, context: RequestContext) -> Assignment:
    """Topics that are gone since are left out: they have no name any more."""
    image = context.broker.metadata
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, topic_name=topic.name, partitions=sorted(assignment[topic_id]))
            for topic_id in sorted(assignment)
            if (topic := image.topic_by_id(topic_id)) is not None
        ]
    )
