"""Client quotas as they are stored: which entities and keys there are, and how they may change.

Kafka's counterpart is org.apache.kafka.controller.ClientQuotaControlManager.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from ottla.server.metadata.errors import InvalidRequestError, UnsupportedEntityTypeError
from ottla.server.metadata.image import CLIENT_ID, IP, USER, QuotaEntity

_CLIENT_KEYS: Final = {
    "producer_byte_rate": int,
    "consumer_byte_rate": int,
    "request_percentage": float,
    "controller_mutation_rate": float,
}
_IP_KEYS: Final = {"connection_creation_rate": int}

QUOTA_NAMES: Final = (*_CLIENT_KEYS, *_IP_KEYS)


class Match(IntEnum):
    """How a filter looks at one component of an entity; the numbers are those of DescribeClientQuotas."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


@dataclass(frozen=True, slots=True)
class EntityFilter:
    """One component that an entity must have."""

    type: str
    match: Match
    name: str | None = None

    def accepts(self, entity: Mapping[str, str | None]) -> bool:
        if self.type not in entity:
            return False
        name = entity[self.type]
        if self.match is Match.EXACT:
            return name is not None and name == self.name
        return self.match is Match.ANY or name is None


def change_quota(
    entity: Sequence[tuple[str, str | None]], current: Mapping[str, float], changes: Mapping[str, float | None]
) -> dict[str, float]:
    """The quotas of an entity after the changes, None of which removes one; raises InvalidRequestError."""
    allowed = _keys_of(entity)
    result = dict(current)
    for key, value in changes.items():
        if key not in allowed:
            raise InvalidRequestError(f"Invalid configuration key {key}")
        if value is None:
            result.pop(key, None)
            continue
        if allowed[key] is int and not value.is_integer():
            raise InvalidRequestError(f"{key} cannot be a fractional value.")
        if not value > 0:
            raise InvalidRequestError(f"Quota {key} must be greater than 0")
        result[key] = value
    return result


def select_quotas(
    quotas: Mapping[QuotaEntity, Mapping[str, float]], filters: Sequence[EntityFilter], *, strict: bool
) -> dict[QuotaEntity, Mapping[str, float]]:
    """The entities that have all of the components, and no others if `strict`."""
    types = [component.type for component in filters]
    for type_ in types:
        if type_ not in (USER, CLIENT_ID, IP):
            raise UnsupportedEntityTypeError(f"Unsupported entity type {type_}")
        if types.count(type_) > 1:
            raise InvalidRequestError(f"Entity type {type_} cannot appear more than once in the filter.")
    if IP in types and len(types) > 1:
        raise InvalidRequestError(
            "Invalid entity filter component combination. IP filter component should not be used with user or "
            "clientId filter component."
        )
    return {
        entity: values
        for entity, values in quotas.items()
        if all(component.accepts(dict(entity)) for component in filters) and (not strict or len(entity) == len(filters))
    }


def _keys_of(entity: Sequence[tuple[str, str | None]]) -> Mapping[str, type]:
    types = [type_ for type_, _ in entity]
    if not types:
        raise InvalidRequestError("Invalid empty client quota entity")
    if len(set(types)) != len(types):
        raise InvalidRequestError("Invalid client quota entity, duplicate entity types")
    for type_, name in entity:
        if type_ not in (USER, CLIENT_ID, IP):
            raise InvalidRequestError(f"Unhandled client quota entity type: {type_}")
        if name == "":
            raise InvalidRequestError(f"Empty {type_} not supported")
    if IP not in types:
        return _CLIENT_KEYS
    if len(types) > 1:
        raise InvalidRequestError(
            "Invalid quota entity combination, IP entity should not be combined with User or ClientId"
        )
    name = dict(entity)[IP]
    if name is not None:
        try:
            ipaddress.ip_address(name)
        except ValueError:
            raise InvalidRequestError(f"{name} is not a valid IP or resolvable host.") from None
    return _IP_KEYS
