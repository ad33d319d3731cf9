"""What each API asks an authorizer: one table, and how it is applied.

A request is checked before its handler runs: what its sender may not do is taken out of it and answered with the error
code, in the shape of `getErrorResponse`; the handler sees the rest. Some handlers check for themselves, through
`context.access`, if more must be known (marked below). Kafka's counterparts are KafkaApis and ControllerApis.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.error_responses import error_response_in_steps, item_errors_in_steps
from ottla.kproto.errors import ErrorCode
from ottla.kproto.schema import ZERO_UUID, Response, Struct
from ottla.server.apis.pending import Answer, Changed, InTask, Pending, begin, finish
from ottla.server.errors import CloseConnectionError
from ottla.server.event_loop.stages import Stages
from ottla.server.metadata.acls import AclOperation, AclResource
from ottla.server.metadata.image import MetadataImage, ResourceType

if TYPE_CHECKING:
    from ottla.server.apis.context import RequestContext
    from ottla.server.security.access import Access

_DENIED: Final = {
    AclResource.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    AclResource.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    AclResource.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    AclResource.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
_TOPIC, _GROUP, _CLUSTER, _TRANSACTIONAL_ID = _DENIED
_READ, _WRITE, _DELETE = AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE
_ALTER, _DESCRIBE = AclOperation.ALTER, AclOperation.DESCRIBE
_CLUSTER_ACTION = AclOperation.CLUSTER_ACTION
_DESCRIBE_CONFIGS, _ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS

#: The resource that an item means, and its name; None if that is not known, in which case the handler says so.
Meant = tuple[AclResource, str] | None


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
        return _DENIED[self.resource]


class All(NamedTuple):
    """The whole request needs an operation on every item of a list of names."""

    operation: AclOperation
    resource: AclResource
    field: str


class Coordinated(NamedTuple):
    """FindCoordinator: what a key means depends on its type, and before version 4 there is one."""

    def refusal(self, request: Any, version: int, access: Access) -> ErrorCode:
        resource = _COORDINATED.get(request.key_type)
        if request.key_type == _SHARE and not access.allows_on_cluster(_CLUSTER_ACTION):
            return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        if version >= _FIRST_OF_MANY or resource is None or access.allows(_DESCRIBE, resource, request.key):
            return ErrorCode.NONE
        return _DENIED[resource]


class Each(NamedTuple):
    """Each item of a list needs an operation on what it names."""

    operation: AclOperation
    field: str
    meant: Callable[[Any, Any, MetadataImage], Meant]
    #: What a refusal says in addition to its code, if that is not the default.
    told: Mapping[str, Any] = {}
    #: Whoever may do this to the cluster needs nothing else.
    unless: AclOperation | None = None


class Left(NamedTuple):
    """Only those entries of the answer's list are left that may be described."""

    field: str
    resource: AclResource
    name: str
    unless: AclOperation | None = None


class Rule(NamedTuple):
    """What an API asks for, in this order."""

    whole: Sequence[Cluster | Named | All | Coordinated] = ()
    each: Each | None = None
    left: Left | None = None


def _by(resource: AclResource, field: str) -> Callable[[Any, Any, MetadataImage], Meant]:
    """The item names it in a field."""
    return lambda item, _request, _image: (resource, getattr(item, field))


def _itself(resource: AclResource) -> Callable[[Any, Any, MetadataImage], Meant]:
    """The item is the name."""
    return lambda item, _request, _image: (resource, item)


def _by_name_or_id(item: Any, _request: Any, image: MetadataImage) -> Meant:
    """A topic; if its id is not known, there is nothing to hide."""
    if item.topic_id == ZERO_UUID:
        return (_TOPIC, item.name) if item.name else None
    topic = image.topic_by_id(item.topic_id)
    return None if topic is None else (_TOPIC, topic.name)


def _config(item: Any, _request: Any, _image: MetadataImage) -> Meant:
    if item.resource_type == ResourceType.TOPIC:
        return _TOPIC, item.resource_name
    if item.resource_type == ResourceType.GROUP:
        return _GROUP, item.resource_name
    if item.resource_type in list(ResourceType):
        return _CLUSTER, "kafka-cluster"
    return None


_COORDINATED: Final = {0: _GROUP, 1: _TRANSACTIONAL_ID}
_SHARE: Final = 2
_FIRST_OF_MANY: Final = 4


def _coordinated(item: Any, request: Any, _image: MetadataImage) -> Meant:
    resource = _COORDINATED.get(request.key_type)
    return None if resource is None else (resource, item)


_NO_OFFSETS: Final = {"base_offset": -1, "log_append_time_ms": -1, "log_start_offset": -1}
_ON_CLUSTER: Final = {
    ApiKey.DESCRIBE_ACLS: _DESCRIBE,
    ApiKey.CREATE_ACLS: _ALTER,
    ApiKey.DELETE_ACLS: _ALTER,
    ApiKey.ALTER_REPLICA_LOG_DIRS: _ALTER,
    ApiKey.DESCRIBE_LOG_DIRS: _DESCRIBE,
    ApiKey.ELECT_LEADERS: _ALTER,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _ALTER,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _DESCRIBE,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _DESCRIBE_CONFIGS,
    ApiKey.ALTER_CLIENT_QUOTAS: _ALTER_CONFIGS,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _DESCRIBE,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _ALTER,
    ApiKey.DESCRIBE_QUORUM: _DESCRIBE,
    ApiKey.UPDATE_FEATURES: _ALTER,
    ApiKey.UNREGISTER_BROKER: _ALTER,
    ApiKey.UNREGISTER_CONTROLLER: _ALTER,
    ApiKey.ADD_RAFT_VOTER: _ALTER,
    ApiKey.REMOVE_RAFT_VOTER: _ALTER,
    ApiKey.LIST_CONFIG_RESOURCES: _DESCRIBE_CONFIGS,
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: _CLUSTER_ACTION,
    ApiKey.READ_SHARE_GROUP_STATE: _CLUSTER_ACTION,
    ApiKey.WRITE_SHARE_GROUP_STATE: _CLUSTER_ACTION,
    ApiKey.DELETE_SHARE_GROUP_STATE: _CLUSTER_ACTION,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: _CLUSTER_ACTION,
}

RULES: Final[Mapping[ApiKey, Rule]] = {
    **{key: Rule([Cluster([operation])]) for key, operation in _ON_CLUSTER.items()},
    # Who one is and what is served is no secret; and anybody may say something about themselves.
    **dict.fromkeys(
        (
            ApiKey.API_VERSIONS,
            ApiKey.SASL_HANDSHAKE,
            ApiKey.SASL_AUTHENTICATE,
            ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
            ApiKey.PUSH_TELEMETRY,
        ),
        Rule(),
    ),
    # These check for themselves: all topics, sessions, what may be created, members' topics, tokens' owners,
    # what changes of configs contradict themselves.
    **dict.fromkeys(
        (
            ApiKey.METADATA,
            ApiKey.FETCH,
            ApiKey.CREATE_TOPICS,
            ApiKey.DELETE_TOPICS,
            ApiKey.ALTER_CONFIGS,
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            ApiKey.DESCRIBE_TOPIC_PARTITIONS,
            ApiKey.DESCRIBE_CLUSTER,
            ApiKey.OFFSET_FETCH,
            ApiKey.INIT_PRODUCER_ID,
            ApiKey.CREATE_DELEGATION_TOKEN,
            ApiKey.RENEW_DELEGATION_TOKEN,
            ApiKey.EXPIRE_DELEGATION_TOKEN,
            ApiKey.DESCRIBE_DELEGATION_TOKEN,
        ),
        Rule(),
    ),
    ApiKey.PRODUCE: Rule(
        [Named(_WRITE, _TRANSACTIONAL_ID, "transactional_id")],
        each=Each(_WRITE, "topic_data", _by_name_or_id, _NO_OFFSETS),
    ),
    ApiKey.LIST_OFFSETS: Rule(each=Each(_DESCRIBE, "topics", _by(_TOPIC, "name"))),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Rule(each=Each(_DESCRIBE, "topics", _by(_TOPIC, "topic"), unless=_CLUSTER_ACTION)),
    ApiKey.DELETE_RECORDS: Rule(each=Each(_DELETE, "topics", _by(_TOPIC, "name"), {"low_watermark": -1})),
    ApiKey.CREATE_PARTITIONS: Rule(each=Each(_ALTER, "topics", _by(_TOPIC, "name"))),
    ApiKey.DESCRIBE_PRODUCERS: Rule(each=Each(_READ, "topics", _by(_TOPIC, "name"))),
    ApiKey.DESCRIBE_CONFIGS: Rule(each=Each(_DESCRIBE_CONFIGS, "resources", _config)),
    # Groups
    ApiKey.FIND_COORDINATOR: Rule([Coordinated()], each=Each(_DESCRIBE, "coordinator_keys", _coordinated)),
    ApiKey.JOIN_GROUP: Rule([Named(_READ, _GROUP, "group_id")]),
    ApiKey.SYNC_GROUP: Rule([Named(_READ, _GROUP, "group_id")]),
    ApiKey.HEARTBEAT: Rule([Named(_READ, _GROUP, "group_id")]),
    ApiKey.LEAVE_GROUP: Rule([Named(_READ, _GROUP, "group_id")]),
    ApiKey.OFFSET_COMMIT: Rule([Named(_READ, _GROUP, "group_id")], Each(_READ, "topics", _by_name_or_id)),
    ApiKey.OFFSET_DELETE: Rule([Named(_DELETE, _GROUP, "group_id")], Each(_READ, "topics", _by(_TOPIC, "name"))),
    ApiKey.DESCRIBE_GROUPS: Rule(each=Each(_DESCRIBE, "groups", _itself(_GROUP))),
    ApiKey.DELETE_GROUPS: Rule(each=Each(_DELETE, "groups_names", _itself(_GROUP))),
    ApiKey.LIST_GROUPS: Rule(left=Left("groups", _GROUP, "group_id", unless=_DESCRIBE)),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: Rule(
        [Named(_READ, _GROUP, "group_id"), All(_DESCRIBE, _TOPIC, "subscribed_topic_names")]
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Rule(each=Each(_DESCRIBE, "group_ids", _itself(_GROUP))),
    # Streams groups look at the topology's topics themselves.
    ApiKey.STREAMS_GROUP_HEARTBEAT: Rule([Named(_READ, _GROUP, "group_id")]),
    ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: Rule([Named(_READ, _GROUP, "group_id")]),
    ApiKey.STREAMS_GROUP_DESCRIBE: Rule(each=Each(_DESCRIBE, "group_ids", _itself(_GROUP))),
    # Share groups; what is fetched and acknowledged looks at topics itself.
    ApiKey.SHARE_GROUP_HEARTBEAT: Rule(
        [Named(_READ, _GROUP, "group_id"), All(_DESCRIBE, _TOPIC, "subscribed_topic_names")]
    ),
    ApiKey.SHARE_GROUP_DESCRIBE: Rule(each=Each(_DESCRIBE, "group_ids", _itself(_GROUP))),
    ApiKey.SHARE_FETCH: Rule([Named(_READ, _GROUP, "group_id")]),
    ApiKey.SHARE_ACKNOWLEDGE: Rule([Named(_READ, _GROUP, "group_id")]),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: Rule(each=Each(_DESCRIBE, "groups", _by(_GROUP, "group_id"))),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: Rule(
        [Named(_READ, _GROUP, "group_id")], Each(_READ, "topics", _by(_TOPIC, "topic_name"))
    ),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: Rule(
        [Named(_DELETE, _GROUP, "group_id")], Each(_READ, "topics", _by(_TOPIC, "topic_name"))
    ),
    # Transactions
    # It checks its topics itself: one that is refused keeps out all others.
    ApiKey.ADD_PARTITIONS_TO_TXN: Rule(
        [
            Cluster([_CLUSTER_ACTION], since=4),
            Named(_WRITE, _TRANSACTIONAL_ID, "v3_and_below_transactional_id", until=3),
        ]
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: Rule(
        [Named(_WRITE, _TRANSACTIONAL_ID, "transactional_id"), Named(_READ, _GROUP, "group_id")]
    ),
    ApiKey.END_TXN: Rule([Named(_WRITE, _TRANSACTIONAL_ID, "transactional_id")]),
    ApiKey.TXN_OFFSET_COMMIT: Rule(
        [Named(_WRITE, _TRANSACTIONAL_ID, "transactional_id"), Named(_READ, _GROUP, "group_id")],
        Each(_READ, "topics", _by_name_or_id),
    ),
    ApiKey.WRITE_TXN_MARKERS: Rule([Cluster([_ALTER, _CLUSTER_ACTION])]),
    ApiKey.DESCRIBE_TRANSACTIONS: Rule(each=Each(_DESCRIBE, "transactional_ids", _itself(_TRANSACTIONAL_ID))),
    ApiKey.LIST_TRANSACTIONS: Rule(left=Left("transaction_states", _TRANSACTIONAL_ID, "transactional_id")),
}
"""Every API that is served."""


def handle(context: RequestContext, access: Access) -> Answer:
    """Let the API's handler answer what the sender may do, and refuse the rest."""
    return begin(_handle(context, access))


def _handle(context: RequestContext, access: Access) -> Stages[Answer]:
    request: Any = context.request
    rule = RULES[context.api.key]
    for whole in rule.whole:
        if isinstance(whole, All):
            code = yield from _refusal_of_all(whole, context, access)
        else:
            code = whole.refusal(request, context.header.api_version, access)
        if code:
            response = yield from _failed(context, code)
            yield from _tell(response, {} if rule.each is None else rule.each.told, context)
            return response
    refused = None
    if rule.each is not None:
        refused = yield from _take_out(rule.each, context, access)
    answer: Answer = context.api.handler(request, context)
    if rule.left is not None:
        answer = InTask(_left(rule.left, answer, context, access))
    if refused is None:
        return answer
    merge = partial(_merge, refused=refused)
    return Changed(answer, merge) if isinstance(answer, Pending) else merge(answer)


def _refusal_of_all(rule: All, context: RequestContext, access: Access) -> Stages[ErrorCode]:
    work = context.counted
    for name in getattr(context.request, rule.field) or ():
        if work is not None:
            yield partial(work.rest, 0)
        if not access.allows(rule.operation, rule.resource, name):
            return _DENIED[rule.resource]
    return ErrorCode.NONE


def _failed(
    context: RequestContext, code: ErrorCode, steps_of: Callable[..., Any] = error_response_in_steps
) -> Stages[Response]:
    steps = steps_of(context.request, context.header.api_version, code)
    response: Response | None = yield partial(context.work.run, steps)
    if response is None:
        raise CloseConnectionError(f"{context.api.key.name} is refused with {code.name} and has no answer to say so")
    return response


def _take_out(rule: Each, context: RequestContext, access: Access) -> Stages[Response | None]:
    """Take what is refused out of the request; the answer to it, None if nothing is."""
    request: Any = context.request
    items = getattr(request, rule.field, None)
    if not items or (rule.unless is not None and access.allows_on_cluster(rule.unless, is_asked=False)):
        return None
    image = context.broker.metadata
    allowed: list[Any] = []
    denied: dict[ErrorCode, list[Any]] = {}
    work = context.counted
    for item in items:
        if work is not None:
            yield partial(work.rest, 0)
        meant = rule.meant(item, request, image)
        if meant is None or access.allows(rule.operation, *meant):
            allowed.append(item)
        else:
            denied.setdefault(_DENIED[meant[0]], []).append(item)
    if not denied:
        return None
    whole: Response | None = None
    for code, some in denied.items():
        setattr(request, rule.field, some)
        failed = yield from _failed(context, code, item_errors_in_steps)
        yield from _tell(failed, rule.told, context)
        whole = failed if whole is None else _merge(whole, failed)
    setattr(request, rule.field, allowed)
    return whole


def _tell(answer: Struct, told: Mapping[str, Any], context: RequestContext) -> Stages[None]:
    """Set the fields of the answers that say why."""
    if not told:
        return
    yield partial(context.work.rest, 0)
    for field in answer.FIELDS:
        value = getattr(answer, field.name)
        if field.name in told:
            setattr(answer, field.name, told[field.name])
        elif isinstance(value, list):
            for item in value:
                if isinstance(item, Struct):
                    yield from _tell(item, told, context)


async def _left(rule: Left, answer: Answer, context: RequestContext, access: Access) -> Answer:
    """The answer without what the sender may not know of."""
    response: Any = await finish(answer)
    if response is None or (rule.unless is not None and access.allows_on_cluster(rule.unless, is_asked=False)):
        return response  # type: ignore[no-any-return]
    left = [
        item
        async for item in context.work.over(getattr(response, rule.field))
        if access.allows(_DESCRIBE, rule.resource, getattr(item, rule.name), is_asked=False)
    ]
    setattr(response, rule.field, left)
    return response  # type: ignore[no-any-return]


def _merge(response: Response | None, refused: Response) -> Response:
    """The answer to the rest, followed by the refusals."""
    if response is None:
        raise CloseConnectionError(f"{refused.API_KEY.name} is refused in part and has no answer to say so")
    if getattr(response, "error_code", ErrorCode.NONE):
        return response  # it failed as a whole
    for field in response.FIELDS:
        more = getattr(refused, field.name)
        if isinstance(more, list) and more:
            setattr(response, field.name, [*getattr(response, field.name), *more])
    return response
