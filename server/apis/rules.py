"""Authorization of APIs: the kinds of rules that a handler's module declares.

Kafka's counterparts are the checks in KafkaApis and ControllerApis.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from ottla.kproto.errors import ErrorCode
from ottla.kproto.schema import ZERO_UUID
from ottla.metadata.acls import AclOperation, AclResource

if TYPE_CHECKING:
    from ottla.metadata.image import MetadataImage
    from ottla.security.access import Access

DENIED: Final = {
    AclResource.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    AclResource.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    AclResource.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    AclResource.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
"""How a refusal is answered."""

#: The resource that an item means, and its name; None if that is not known, in which case the handler says so.
Meant = tuple[AclResource, str] | None


class Whole(Protocol):
    """The right that a whole request needs."""

    def refusal(self, request: Any, version: int, access: Access) -> ErrorCode:
        """NONE, or the code that the whole request is answered with."""


class Cluster(NamedTuple):
    """The whole request needs one of these operations on the cluster."""

    operations: Sequence[AclOperation]
    #: From this version of the API on.
    since: int = 0

    def refusal(self, _request: Any, version: int, access: Access) -> ErrorCode:
        if version < self.since:
            return ErrorCode.NONE
        *others, last = self.operations
        if any(access.allows_on_cluster(it, is_asked=False) for it in others) or access.allows_on_cluster(last):
            return ErrorCode.NONE
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED


class Named(NamedTuple):
    """The whole request needs an operation on what one of its fields names."""

    operation: AclOperation
    resource: AclResource
    field: str
    #: Up to this version of the API.
    until: int = 99

    def refusal(self, request: Any, version: int, access: Access) -> ErrorCode:
        name = getattr(request, self.field)
        if version > self.until or name is None or access.allows(self.operation, self.resource, name):
            return ErrorCode.NONE
        return DENIED[self.resource]


class All(NamedTuple):
    """The whole request needs an operation on every item of a list of names."""

    operation: AclOperation
    resource: AclResource
    field: str


class Each(NamedTuple):
    """Each item of a list needs an operation on what it names."""

    operation: AclOperation
    field: str
    meant: Callable[[Any, Any, MetadataImage], Meant]
    #: Fields of a refusal beside its code that do not have their default.
    denied_fields: Mapping[str, Any] = {}
    #: The operation on the cluster that makes all other rights unnecessary.
    unless: AclOperation | None = None


class Left(NamedTuple):
    """Only those entries of the answer's list are left that may be described."""

    field: str
    resource: AclResource
    name: str
    unless: AclOperation | None = None


class Rule(NamedTuple):
    """The rights that an API needs, checked in this order."""

    whole: Sequence[Whole | All] = ()
    each: Each | None = None
    left: Left | None = None


def by(resource: AclResource, field: str) -> Callable[[Any, Any, MetadataImage], Meant]:
    """The item names it in a field."""
    return lambda item, _request, _image: (resource, getattr(item, field))


def itself(resource: AclResource) -> Callable[[Any, Any, MetadataImage], Meant]:
    """The item is the name."""
    return lambda item, _request, _image: (resource, item)


def by_name_or_id(item: Any, _request: Any, image: MetadataImage) -> Meant:
    """A topic; if its id is not known, there is nothing to hide."""
    if item.topic_id == ZERO_UUID:
        return (AclResource.TOPIC, item.name) if item.name else None
    topic = image.topic_by_id(item.topic_id)
    return None if topic is None else (AclResource.TOPIC, topic.name)


ANYBODY: Final = Rule()
"""Who one is and what is served is no secret, and anybody may say something about themselves."""

BY_HANDLER: Final = Rule()
"""The handler checks through `context.access`: more must be known than the request says."""


def on_cluster(operation: AclOperation) -> Rule:
    """The whole request needs the operation on the cluster."""
    return Rule([Cluster([operation])])
