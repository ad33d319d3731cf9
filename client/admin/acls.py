"""Entries of access control lists as people write them: `alice read topic:orders topic:logs-* group:billing`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from ottla.kproto.messages.access.create_acls import AclCreation

OPERATIONS: Final = {
    "all": 2,
    "read": 3,
    "write": 4,
    "create": 5,
    "delete": 6,
    "alter": 7,
    "describe": 8,
    "cluster-action": 9,
    "describe-configs": 10,
    "alter-configs": 11,
    "idempotent-write": 12,
    "create-tokens": 13,
    "describe-tokens": 14,
    "two-phase-commit": 15,
}
PERMISSIONS: Final = {"deny": 2, "allow": 3}
LITERAL, PREFIXED, ANY, MATCH = 3, 4, 1, 2
CLUSTER_NAME: Final = "kafka-cluster"
RESOURCE_HELP: Final = (
    "topic:NAME, topic:PREFIX*, topic:*, group:…, transactional-id:…, delegation-token:…, user:…, or cluster"
)

_RESOURCES: Final = {"topic": 2, "group": 3, "cluster": 4, "transactional-id": 5, "delegation-token": 6, "user": 7}
_DENY: Final = "--deny"
_HOST: Final = "--host"


class AclTextError(ValueError):
    """A text is not an entry, or not part of one."""


class AclTarget(NamedTuple):
    """The resource of an entry, by the numbers of the wire."""

    type: int
    name: str
    pattern: int


def principal(text: str) -> str:
    """A user's name, or `type:name`."""
    return text if ":" in text else f"User:{text}"


def operation(text: str) -> int:
    """One of OPERATIONS; raises AclTextError."""
    number = OPERATIONS.get(text.lower().replace("_", "-"))
    if number is None:
        raise AclTextError(f"{text!r} is not an operation: write one of {', '.join(OPERATIONS)}")
    return number


def operations(text: str) -> list[int]:
    """Several of OPERATIONS, separated by commas, each once; raises AclTextError."""
    return list(dict.fromkeys(operation(part.strip()) for part in text.split(",")))


def target(text: str) -> AclTarget:
    """Parse a resource as RESOURCE_HELP shows it; raises AclTextError."""
    kind, colon, name = text.partition(":")
    number = _RESOURCES.get(kind.lower().replace("_", "-"))
    if number is None or (bool(colon and name) is (number == _RESOURCES["cluster"])):
        raise AclTextError(f"{text!r} is not a resource: write {RESOURCE_HELP}")
    if number == _RESOURCES["cluster"]:
        return AclTarget(number, CLUSTER_NAME, LITERAL)
    if number == _RESOURCES["user"] and name != "*":
        name = principal(name)
    if name.endswith("*") and name != "*":
        return AclTarget(number, name[:-1], PREFIXED)
    return AclTarget(number, name, LITERAL)


def creations(
    who: str, what: Sequence[int], targets: Sequence[AclTarget], *, host: str = "*", permission: str = "allow"
) -> list[AclCreation]:
    """An entry for each operation on each target."""
    return [
        AclCreation(
            resource_type=it.type,
            resource_name=it.name,
            resource_pattern_type=it.pattern,
            principal=who,
            host=host,
            operation=number,
            permission_type=PERMISSIONS[permission],
        )
        for number in what
        for it in targets
    ]


def parse_entry(text: str) -> list[AclCreation]:
    """Parse an entry of `ottla acl add`: `alice all topic:secret --deny --host 10.0.0.1`; raises AclTextError."""
    words = text.split()
    permission = "allow"
    host = "*"
    if _DENY in words:
        words.remove(_DENY)
        permission = "deny"
    if _HOST in words:
        at = words.index(_HOST)
        host = "".join(words[at + 1 : at + 2])
        del words[at : at + 2]
    if len(words) < 3 or not host:
        raise AclTextError(
            f"{text!r} is not an entry: write PRINCIPAL OPERATION RESOURCE …, as `alice read topic:orders`"
        )
    who, what, *named = words
    return creations(principal(who), operations(what), [target(it) for it in named], host=host, permission=permission)
