"""Requests that leave what is plausible, whatever their API: one field is changed, or the bytes of the request are."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any, Final

from compat_tests.differential.normalise import CLIENTS_OWN
from ottla.kproto.schema import Field, Request, StructType

_INTS: Final = {
    "int8": (-1, 0, 1, 2, 127, -128),
    "int16": (-1, 0, 1, 2, 32_767, -32_768),
    "int32": (-1, 0, 1, 2, 2_147_483_647, -2_147_483_648),
    "int64": (-1, 0, 1, 2, 2**63 - 1, -(2**63), -2, -3),
}
#: `$raw` is a string that is not UTF-8.
_STRINGS: Final = (
    "",
    " ",
    ".",
    "..",
    "~nobody",
    "~ü",
    "a" * 300,
    "~/",
    {"$raw": "7e6162fffe6364"},
    {"$raw": "c3286262"},
)
#: What has such a name is kept by the brokers, and seen by other histories: it is of this history's own.
_KEPT: Final = frozenset({"group_id", "group_ids", "groups", "groups_names", "transactional_id", "transactional_ids"})
_LARGE: Final = 1_000
_BYTES: Final = ("", "00", "ffff", "0001000000", "00" * 40)
#: With other values a request waits for long, or makes what the brokers cannot bear.
_LEFT_ALONE: Final = frozenset(
    {
        "max_wait_ms", "timeout_ms", "num_partitions", "count", "replication_factor", "acks", "max_records",
        "session_timeout_ms", "rebalance_timeout_ms", "transaction_timeout_ms", "iterations", "min_bytes",
        "include_cluster_authorized_operations", "broker_id",
    }
)  # fmt: skip


def strayed(
    chance: random.Random, cls: type[Request], fields: dict[str, Any], version: int
) -> tuple[dict[str, Any], int, dict[str, Any]]:
    """Fields, version and further options of a step."""
    dice = chance.random()
    if dice < 0.04:
        return fields, version, {"cut_bytes": chance.randint(1, 12)}
    if dice < 0.08:
        return fields, version, {"extra_hex": chance.choice(("00", "ff", "00" * 9))}
    if dice < 0.12:
        return fields, version, {"client_id": chance.choice((None, "", "c" * 300, {"$raw": "ff61fe6263"}))}
    if dice < 0.3:
        valid = cls.API_KEY.valid_versions
        return fields, chance.randint(valid.lowest, valid.highest), {}
    fields = copy.deepcopy(fields)
    places = list(_places(cls, fields, version))
    if places:
        holder, field, key = chance.choice(places)
        _change(chance, holder, field, key, version)
    return fields, version, {}


def _places(cls: StructType, fields: dict[str, Any], version: int) -> Iterator[tuple[Any, Field, Any]]:
    """Each field, and each element of a list of plain values: what holds it, its declaration, its key there."""
    for field in cls.FIELDS:
        if not field.versions.includes(version) or field.name in _LEFT_ALONE:
            continue
        yield fields, field, field.name
        value = fields.get(field.name)
        if isinstance(value, list):
            if isinstance(field.element, StructType):
                for element in value:
                    if isinstance(element, dict) and not next(iter(element), "").startswith("$"):
                        yield from _places(field.element, element, version)
            else:
                yield from ((value, field, index) for index in range(len(value)))


def _change(chance: random.Random, holder: Any, field: Field, key: Any, version: int) -> None:
    if isinstance(key, int):
        holder[key] = _own(field, _value(chance, getattr(field.element, "name", ""), holder[key]))
    elif field.nullable.includes(version) and chance.random() < 0.25:
        holder[key] = None
    elif field.kind == "array":
        value = holder.get(key) or []
        value = value if isinstance(value, list) else []
        holder[key] = chance.choice(([], value + value, value[:1] * 2, value[:-1], list(reversed(value))))
    elif field.kind == "struct":
        holder.pop(key, None)
    else:
        holder[key] = _own(field, _value(chance, field.kind, holder.get(key, field.default)))


def _own(field: Field, value: Any) -> Any:
    """A name that no other history has, if it is one under which brokers keep something; a leader epoch counts from
    that of a new topic, but for one that is only kept.
    """
    is_leaders = field.name.endswith(("leader_epoch", "last_fetched_epoch")) and field.name not in CLIENTS_OWN
    if is_leaders and isinstance(value, int) and value >= 0:
        return {"$epoch": value} if value < _LARGE else value
    if field.name.removeprefix("v3_and_below_") not in _KEPT or not value:
        return value
    return f"~{value.removeprefix('~')}" if isinstance(value, str) else "~\ufffd"


def _value(chance: random.Random, kind: str, value: Any) -> Any:
    if kind in _INTS:
        return chance.choice(_INTS[kind])
    if kind == "string":
        return chance.choice(_STRINGS)
    if kind == "bytes":
        return {"$bytes": chance.choice(_BYTES)}
    if kind == "bool":
        return not value
    if kind == "float64":
        return chance.choice((0.0, -1.0, 1e300, 0.5))
    if kind == "uuid":
        return {
            "$uuid": chance.choice(("00000000-0000-0000-0000-000000000000", "00000000-0000-0000-0000-00000000beef"))
        }
    return value
