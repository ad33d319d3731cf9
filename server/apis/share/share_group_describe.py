"""ShareGroupDescribe (77): epochs and members of share groups, with what each fetches from (KIP-932).

A group that does not exist, or is of another type, is GROUP_ID_NOT_FOUND.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.group.consumer.assignors import assignor_names
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.messages.share.share_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    TopicPartitions,
)
from ottla.metadata.acls import AclOperation, AclResource
from ottla.server.apis.declaration import Api
from ottla.server.apis.groups.group_protocols import GroupProtocol
from ottla.server.apis.groups.modern_groups import Description, describe, names_of
from ottla.server.apis.rules import Each, Rule, itself

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.coordinator.group.share.group import ShareGroup
    from ottla.coordinator.group.share.member import ShareMember
    from ottla.server.apis.context import RequestContext

API = Api(ApiKey.SHARE_GROUP_DESCRIBE, Rule(each=Each(AclOperation.DESCRIBE, "group_ids", itself(AclResource.GROUP))))


async def handle(request: ShareGroupDescribeRequest, context: RequestContext) -> ShareGroupDescribeResponse:
    return ShareGroupDescribeResponse(groups=await describe(request, _Description(context)))


class _Description(Description):
    described = DescribedGroup
    tells_why = True

    @property
    def is_served(self) -> bool:
        return GroupProtocol.SHARE.is_enabled(self.context)

    def find(self, group_id: str) -> ShareGroup:
        return self.context.broker.group_coordinator.share_groups.describe(group_id)

    def topic_names(self, group: ShareGroup) -> Iterable[str]:
        return _topic_names(self.context, group)

    async def tell(self, group: ShareGroup) -> DescribedGroup:
        return await _group(self.context, group)


def _topic_names(context: RequestContext, group: ShareGroup) -> set[str]:
    names: set[str] = set()
    for member in group.members.values():
        names |= member.subscription.topic_names | names_of(member.current.assigned, context)
    return names


async def _group(context: RequestContext, group: ShareGroup) -> DescribedGroup:
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.group_epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=assignor_names(context.broker.config.group_share_assignors)[0],
        members=[await _member(member, context) for member in list(group.members.values())],
    )


async def _member(member: ShareMember, context: RequestContext) -> Member:
    subscription, assigned = member.subscription, member.current.assigned
    await context.work.charge(1 + len(subscription.topic_names) + sum(map(len, assigned.values())))
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
