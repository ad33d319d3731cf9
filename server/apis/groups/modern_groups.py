"""Common parts of the Describe requests of groups with one heartbeat: the right to see a group, and the errors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ottla.coordinator.errors import CoordinatorError, GroupIdNotFoundError
from ottla.kproto.errors import ErrorCode
from ottla.metadata.acls import AclOperation, AclResource
from ottla.server.apis.errors import error_code, error_message
from ottla.server.apis.groups.describe_groups import group_operations

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from uuid import UUID

    from ottla.server.apis.context import RequestContext

T = TypeVar("T")

UNSEEN_TOPICS: Final = "The group has described topic(s) that the client is not authorized to describe."


class Description(ABC):
    """How the groups of one protocol are described. `described` is the message of one group."""

    described: type[Any]
    unseen_topics = UNSEEN_TOPICS
    #: If a group cannot be looked for, the answer has a sentence, as Kafka's `getErrorDescribedGroupList` has it.
    tells_why = False

    def __init__(self, context: RequestContext) -> None:
        self.context = context

    @property
    @abstractmethod
    def is_served(self) -> bool:
        """Whether the cluster has this protocol."""

    @abstractmethod
    def find(self, group_id: str) -> Any:
        """The group; raises CoordinatorError."""

    @abstractmethod
    def topic_names(self, group: Any) -> Iterable[str]:
        """The topics that its description names."""

    @abstractmethod
    async def tell(self, group: Any) -> Any:
        """The description."""


async def describe(request: Any, how: Description) -> list[Any]:
    """Each group of the request, or why it is not described; with the sender's rights, if it asks for them."""
    groups = [await _describe(group_id, how) for group_id in request.group_ids]
    if request.include_authorized_operations:
        for group in groups:
            if group.error_code == ErrorCode.NONE:
                group.authorized_operations = group_operations(group.group_id, how.context)
    return groups


async def _describe(group_id: str, how: Description) -> Any:
    context = how.context
    await context.work.charge()
    if not how.is_served:
        return how.described(group_id=group_id, error_code=ErrorCode.UNSUPPORTED_VERSION)
    if not group_id:
        return how.described(group_id=group_id, error_code=ErrorCode.INVALID_GROUP_ID)
    try:
        group = how.find(group_id)
    except CoordinatorError as error:
        is_told = how.tells_why or isinstance(error, GroupIdNotFoundError)
        message = error_message(error) if is_told else None
        return how.described(group_id=group_id, error_code=error_code(error), error_message=message)
    access = context.access
    if access is not None and not all(
        access.allows(AclOperation.DESCRIBE, AclResource.TOPIC, name) for name in how.topic_names(group)
    ):
        return how.described(
            group_id=group_id,
            error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            error_message=how.unseen_topics,
        )
    return await how.tell(group)


def names_of(topic_ids: Iterable[UUID], context: RequestContext) -> set[str]:
    """The names of those topics that are still there."""
    image = context.broker.metadata
    return {topic.name for topic_id in topic_ids if (topic := image.topic_by_id(topic_id)) is not None}


def by_topic(assignment: Mapping[UUID, Collection[int]], message: Callable[..., T]) -> list[T]:
    """The assignment in a heartbeat's answer: a message for each topic, with its partitions, all in order."""
    return [message(topic_id=topic_id, partitions=sorted(assignment[topic_id])) for topic_id in sorted(assignment)]
