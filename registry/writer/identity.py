"""The messages of registries in their group: their identities, and the choice of the writer. JSON as in Confluent's
registry (its `SchemaRegistryIdentity` and `SchemaRegistryProtocol.Assignment`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

_VERSION: Final = 1
NO_ERROR: Final = 0
DUPLICATE_URLS: Final = 1


class Identity(NamedTuple):
    """An instance, by the address at which the others reach it."""

    scheme: str
    host: str
    port: int
    may_lead: bool = True

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    def fields(self) -> dict[str, Any]:
        return {
            "version": _VERSION,
            "host": self.host,
            "port": self.port,
            "master_eligibility": self.may_lead,
            "scheme": self.scheme,
        }

    def encode(self) -> bytes:
        """Its bytes as a member's metadata."""
        return json.dumps(self.fields(), separators=(",", ":")).encode()


class Assignment(NamedTuple):
    """The registry that writes: its member id and its identity; None if none may."""

    error: int
    member_id: str | None
    leader: Identity | None

    def encode(self) -> bytes:
        """Its bytes as a member's assignment."""
        fields: dict[str, Any] = {"version": _VERSION, "error": self.error}
        if self.member_id is not None and self.leader is not None:
            fields |= {"master": self.member_id, "master_identity": self.leader.fields()}
        return json.dumps(fields, separators=(",", ":")).encode()


def parse_identity(data: bytes) -> Identity:
    """The identity in a member's metadata. Raises ValueError."""
    return _identity(_object(data))


def parse_assignment(data: bytes) -> Assignment:
    """A member's assignment. Raises ValueError."""
    fields = _object(data)
    leader = fields.get("master_identity")
    member_id = fields.get("master")
    return Assignment(
        int(fields.get("error") or NO_ERROR),
        None if member_id is None else str(member_id),
        _identity(leader) if isinstance(leader, dict) else None,
    )


def elect(members: Mapping[str, Identity], present: str | None) -> Assignment:
    """Choose the writer among members, by their ids: the present one if it is among them, else the one with the
    smallest address.
    """
    error = NO_ERROR if len({it.url for it in members.values()}) == len(members) else DUPLICATE_URLS
    eligible = {member_id: it for member_id, it in members.items() if it.may_lead}
    if not eligible:
        return Assignment(error, None, None)
    chosen = present if present in eligible else min(eligible, key=lambda member_id: eligible[member_id].url)
    return Assignment(error, chosen, eligible[chosen])


def _object(data: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(bytes(data))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"a registry's group says what is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise ValueError("a registry's group says what is no object")  # noqa: TRY004 - callers skip it
    return fields


def _identity(fields: Mapping[str, Any]) -> Identity:
    try:
        return Identity(
            str(fields.get("scheme") or "http"),
            str(fields["host"]),
            int(fields["port"]),
            bool(fields.get("master_eligibility", True)),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"a registry says who it is without its {error}") from None
