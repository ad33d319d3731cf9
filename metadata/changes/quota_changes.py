"""Client quotas as they are stored: which entities and keys there are, and how they may change.

Kafka's counterpart is org.apache.kafka.controller.ClientQuotaControlManager.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from ottla.metadata.errors import InvalidRequestError, UnsupportedEntityTypeError
from ottla.metadata.image import CLIENT_ID, IP, USER, QuotaEntity
from ottla.storage.config import INT64_MAX

#: The largest value of a whole number, None of one with a fraction.
_CLIENT_KEYS: Final[dict[str, int | None]] = {
    "producer_byte_rate": INT64_MAX,
    "consumer_byte_rate": INT64_MAX,
    "request_percentage": None,
    "controller_mutation_rate": None,
}
_IP_KEYS: Final[dict[str, int | None]] = {"connection_creation_rate": 2**31 - 1}
#: Of a whole number, as Kafka has it.
_LARGEST_REMAINDER: Final = 1e-6

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
    """The quotas of an entity after the changes, None of which removes one, whatever its key; raises
    InvalidRequestError.
    """
    allowed = _keys_of(entity)
    result = dict(current)
    for key, value in changes.items():
        if value is None:
            result.pop(key, None)
            continue
        if key not in allowed:
            raise InvalidRequestError(f"Invalid configuration key {key}")
        _check_value(key, value, allowed[key])
        result[key] = value
    return result


def _check_value(key: str, value: float, largest: int | None) -> None:
    if not math.isfinite(value):
        raise InvalidRequestError(f"Quota {key} must be a finite number")
    if value <= 0:
        raise InvalidRequestError(f"Quota {key} must be greater than 0")
    if largest is not None and value > largest:
        kind = "a LONG" if largest == INT64_MAX else "an INT"
        raise InvalidRequestError(f"Proposed value for {key} is too large for {kind}.")
    if largest is not None and value % 1.0 > _LARGEST_REMAINDER:
        raise InvalidRequestError(f"{key} cannot be a fractional value.")


def check_component(type_: str, earlier: Sequence[EntityFilter]) -> None:
    """Raise unless a filter may have a component of this type beside the earlier ones."""
    if not type_:
        raise InvalidRequestError("Invalid empty entity type.")
    if any(component.type == type_ for component in earlier):
        raise InvalidRequestError(f"Entity type {type_} cannot appear more than once in the filter.")
    if type_ not in (USER, CLIENT_ID, IP):
        raise UnsupportedEntityTypeError(f"Unsupported entity type {type_}")


def select_quotas(
    quotas: Mapping[QuotaEntity, Mapping[str, float]], filters: Sequence[EntityFilter], *, strict: bool
) -> dict[QuotaEntity, Mapping[str, float]]:
    """The entities that have all of the components, and no others if `strict`; raises InvalidRequestError."""
    types = [component.type for component in filters]
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


def _keys_of(entity: Sequence[tuple[str, str | None]]) -> Mapping[str, int | None]:
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
