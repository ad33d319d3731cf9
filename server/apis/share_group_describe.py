"""ShareGroupDescribe (77): epochs and members of share groups, with what each fetches from (KIP-932).

A group that does not exist, or is of another type, is GROUP_ID_NOT_FOUND.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.share_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    TopicPartitions,
)
from ottla.server.apis import share_requests
from ottla.server.apis.describe_groups import group_operations
from ottla.server.apis.errors import error_code, error_message
from ottla.server.coordinator.errors import CoordinatorError
from ottla.server.coordinator.group.share_group import ASSIGNOR_NAME
from ottla.server.metadata.acls import AclOperation, AclResource

if TYPE_CHECKING:
    from ottla.server.apis.context import RequestContext
    from ottla.server.coordinator.group.share_group import ShareGroup, ShareMember
    from ottla.server.security.access import Access


async def handle(request: ShareGroupDescribeRequest, context: RequestContext) -> ShareGroupDescribeResponse:
    described = [await _describe(group_id, context) for group_id in request.group_ids]
    if request.include_authorized_operations:
        for group in described:
            if group.error_code == ErrorCode.NONE:
                group.authorized_operations = group_operations(group.group_id, context)
    return ShareGroupDescribeResponse(groups=described)


async def _describe(group_id: str, context: RequestContext) -> DescribedGroup:
    await context.work.rest()
    if not share_requests.is_enabled(context):
        return DescribedGroup(group_id=group_id, error_code=ErrorCode.UNSUPPORTED_VERSION)
    if not group_id:
        return DescribedGroup(group_id=group_id, error_code=ErrorCode.INVALID_GROUP_ID)
    try:
        group = context.broker.group_coordinator.describe_share_group(group_id)
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
        assignor_name=ASSIGNOR_NAME,
        members=[await _member(member, context) for member in group.members.values()],
    )


def _may_see_topics(group: ShareGroup, context: RequestContext, access: Access) -> bool:
    """Whether the sender may see every topic that the answer would name."""
    image = context.broker.metadata
    names: set[str] = set()
    for member in group.members.values():
        names |= member.subscription.topic_names
        names.update(it.name for id_ in member.current.assigned if (it := image.topic_by_id(id_)) is not None)
    return all(access.allows(AclOperation.DESCRIBE, AclResource.TOPIC, name) for name in names)


async def _member(member: ShareMember, context: RequestContext) -> Member:
    subscription, assigned = member.subscription, member.current.assigned
    await context.work.rest(1 + len(subscription.topic_names) + sum(map(len, assigned.values())))
    image = context.broker.metadata
    return Member(
        member_id=member.member_id,
        rack_id=subscription.rack_id,
        member_epoch=member.current.epoch,
        client_id=subscription.client_id,
        client_host=subscription.client_host,
        subscribed_topic_names=sorted(subscription.topic_names),
        # Topics that are gone since are left out: they have no name any more.
        assignment=Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, topic_name=topic.name, partitions=sorted(assigned[topic_id]))
                for topic_id in sorted(assigned)
                if (topic := image.topic_by_id(topic_id)) is not None
            ]
        ),
    )
