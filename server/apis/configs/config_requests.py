"""Common parts of AlterConfigs and IncrementalAlterConfigs: resources in, one result for each out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from ottla.kproto.errors import ErrorCode
from ottla.metadata.acls import CLUSTER_NAME, AclOperation, AclResource
from ottla.metadata.changes.config_changes import ConfigChange, ConfigOperation, check_broker_name, check_changes
from ottla.metadata.errors import InvalidConfigError, InvalidRequestError
from ottla.metadata.image import ConfigResource, ResourceType
from ottla.metastore.errors import MetadataError
from ottla.runtime.errors import kept
from ottla.runtime.time_slice import TimeSlice
from ottla.server.apis.results import outcome
from ottla.server.broker import Broker
from ottla.settings.loggers import ROOT, is_level, level_names, logger_levels, set_level

if TYPE_CHECKING:
    from ottla.security.access import Access

ResourceKey = tuple[int, str]

_PROTECTED: Final = {ResourceType.TOPIC: AclResource.TOPIC, ResourceType.GROUP: AclResource.GROUP}
_REPEATED: Final = "Each resource must appear at most once."


async def alter(
    asked: Sequence[tuple[ResourceKey, Sequence[ConfigChange] | MetadataError]],
    broker: Broker,
    access: Access | None,
    *,
    replace: bool,
    validate_only: bool,
) -> list[tuple[ErrorCode, str | None]]:
    """Carry out the changes that the sender may make, and answer each resource, in the order of the request.

    Duplicates and omissions in a request are reported to every sender. All else is only checked if the sender may
    change the resource, as in Kafka 4.4. (Its ConfigAdminManager asks about brokers, its controller about all others.)

    Changes that could not be read are given as the error with which they are answered.
    """
    keys = [key for key, _ in asked]
    times = Counter(keys)
    results: dict[ResourceKey, MetadataError | None] = {}
    denied: dict[ResourceKey, tuple[ErrorCode, str | None]] = {}
    stored: dict[ConfigResource, Sequence[ConfigChange]] = {}
    time_slice = TimeSlice()
    for key, changes in asked:
        await time_slice.maybe_yield()
        try:
            if times[key] > 1:
                raise InvalidRequestError(_REPEATED)
            if not isinstance(changes, MetadataError):
                check_changes(changes)
            resource = _resource(key, allow_loggers=not replace)
            if access is not None and not access.allows(AclOperation.ALTER_CONFIGS, *_protected(resource)):
                denied[key] = _denial(resource)
                continue
            if isinstance(changes, MetadataError):
                raise changes
            if resource.type is ResourceType.BROKER_LOGGER:
                _alter_loggers(resource.name, changes, broker.node_id, validate_only=validate_only)
            else:
                stored[resource] = changes
            results[key] = None
        except MetadataError as error:
            results[key] = kept(error)
    try:
        done: Mapping[ConfigResource, MetadataError | None] = await broker.controller.alter_configs(
            stored, replace=replace, validate_only=validate_only
        )
    except MetadataError as error:
        done = dict.fromkeys(stored, error)
    results.update(((resource.type, resource.name), error) for resource, error in done.items())
    return [denied[key] if key in denied else outcome(results[key]) for key in keys]


def _protected(resource: ConfigResource) -> tuple[AclResource, str]:
    kind = _PROTECTED.get(resource.type, AclResource.CLUSTER)
    return kind, CLUSTER_NAME if kind is AclResource.CLUSTER else resource.name


def _denial(resource: ConfigResource) -> tuple[ErrorCode, str | None]:
    """Kafka's controller says it in words, its broker does not."""
    if resource.type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None
    if resource.type is ResourceType.TOPIC:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed."
    if resource.type is ResourceType.GROUP:
        return ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed."
    return ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed."


def _resource(key: ResourceKey, *, allow_loggers: bool) -> ConfigResource:
    number, name = key
    try:
        type_ = ResourceType(number)
    except ValueError:
        raise InvalidRequestError(f"Unknown resource type {number}") from None
    if type_ is ResourceType.BROKER_LOGGER and not allow_loggers:
        raise InvalidRequestError(f"Unknown resource type {number}")
    return ConfigResource(type_, name)


def _alter_loggers(name: str, changes: Sequence[ConfigChange], node_id: int, *, validate_only: bool) -> None:
    if not name:
        raise InvalidRequestError("Node id must be an integer, but it is: ")
    check_broker_name(name, node_id)
    known = logger_levels()
    for change in changes:
        if change.operation not in (ConfigOperation.SET, ConfigOperation.DELETE):
            raise InvalidRequestError(
                f"{change.operation.name} operation is not allowed for the BROKER_LOGGER resource"
            )
        if change.name not in known:
            raise InvalidConfigError(f"Logger {change.name} does not exist!")
        if change.operation is ConfigOperation.DELETE and change.name == ROOT:
            raise InvalidRequestError(f"Removing the log level of the {ROOT} logger is not allowed")
        if change.operation is ConfigOperation.SET and not is_level(change.value or ""):
            raise InvalidConfigError(
                f"Cannot set the log level of {change.name} to {change.value} as it is not a supported log level. "
                f"Valid log levels are {level_names()}"
            )
    if not validate_only:
        for change in changes:
            set_level(change.name, change.value if change.operation is ConfigOperation.SET else None)
