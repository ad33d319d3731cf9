"""AlterClientQuotas (API key 49): set or remove quotas of users, client ids and addresses (KIP-546).

Promises: each entity on its own; a null name is the default entity, `remove` deletes the quota. Keys are
producer_byte_rate, consumer_byte_rate, request_percentage, controller_mutation_rate and
connection_creation_rate.

Versions: 1 is flexible.
"""

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.schema import Request, Response, Struct, array, boolean, float64, int16, int32, string


class EntityData(Struct):
    entity_type: str = string("0+")
    entity_name: str | None = string("0+", nullable="0+")


class OpData(Struct):
    key: str = string("0+")
    value: float = float64("0+")
    remove: bool = boolean("0+")


class EntryData(Struct):
    entity: list[EntityData] = array(EntityData, "0+")
    ops: list[OpData] = array(OpData, "0+")


class AlterClientQuotasRequest(Request, api_key=ApiKey.ALTER_CLIENT_QUOTAS, versions="0-1", flexible="1+"):
    entries: list[EntryData] = array(EntryData, "0+")
    validate_only: bool = boolean("0+")


class EntryDataResponse(Struct, official_name="EntryData"):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    entity: list[EntityData] = array(EntityData, "0+")


class AlterClientQuotasResponse(Response, api_key=ApiKey.ALTER_CLIENT_QUOTAS, versions="0-1", flexible="1+"):
    throttle_time_ms: int = int32("0+")
    entries: list[EntryDataResponse] = array(EntryDataResponse, "0+")
