"""SCRAM credentials of users as they are stored, and how a request changes them (KIP-554).

Only what a server needs to check a password is kept, never the password, and not the salted password either. Kafka's
counterpart is org.apache.kafka.controller.ScramControlManager.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from ottla.metadata.errors import (
    DuplicateResourceError,
    ResourceNotFoundError,
    UnacceptableCredentialError,
    UnsupportedSaslMechanismError,
)
from ottla.metastore.errors import MetadataError
from ottla.runtime.errors import kept

MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 16_384


class ScramMechanism(IntEnum):
    """The numbers are those of the wire."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def digest(self) -> str:
        """The name of the hash function."""
        return "sha256" if self is ScramMechanism.SCRAM_SHA_256 else "sha512"


class ScramCredential(NamedTuple):
    """The credential that a server keeps of a user's password (RFC 5802)."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


class ScramDeletion(NamedTuple):
    """Remove a user's credential for one mechanism."""

    user: str
    mechanism: int


class ScramUpsertion(NamedTuple):
    """Set a user's credential for one mechanism. The client has computed `salted_password`."""

    user: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes


#: Whose credential it is, and for which mechanism.
ScramKey = tuple[str, ScramMechanism]

ScramPlan = tuple[dict[ScramKey, ScramCredential | None], dict[str, MetadataError | None]]


def plan_scram(
    current: Mapping[ScramKey, ScramCredential],
    deletions: Iterable[ScramDeletion],
    upsertions: Iterable[ScramUpsertion],
) -> ScramPlan:
    """The credentials to store (None: remove), and for each user the error, or None."""
    changes: dict[str, tuple[ScramKey, ScramCredential | None]] = {}
    errors: dict[str, MetadataError | None] = {}
    asked: Sequence[ScramDeletion | ScramUpsertion] = [*deletions, *upsertions]
    for one in asked:
        if one.user in errors:
            if errors[one.user] is None:
                errors[one.user] = DuplicateResourceError(
                    "A user credential cannot be altered twice in the same request"
                )
            continue
        errors[one.user] = None
        try:
            changes[one.user] = _change(one, current)
        except MetadataError as error:
            errors[one.user] = kept(error)
    for one in asked:
        if isinstance(one, ScramUpsertion) and not one.salted_password and errors[one.user] is None:
            errors[one.user] = UnacceptableCredentialError("Salted password must not be empty")
    done = dict(change for user, change in changes.items() if errors[user] is None)
    return done, errors


def _change(
    one: ScramDeletion | ScramUpsertion, current: Mapping[ScramKey, ScramCredential]
) -> tuple[ScramKey, ScramCredential | None]:
    if not one.user:
        raise UnacceptableCredentialError("Username must not be empty")
    try:
        mechanism = ScramMechanism(one.mechanism)
    except ValueError:
        raise UnsupportedSaslMechanismError("Unknown SCRAM mechanism") from None
    key = (one.user, mechanism)
    if isinstance(one, ScramDeletion):
        if key not in current:
            raise ResourceNotFoundError("Attempt to delete a user credential that does not exist")
        return key, None
    if one.iterations < MIN_ITERATIONS:
        raise UnacceptableCredentialError("Too few iterations")
    if one.iterations > MAX_ITERATIONS:
        raise UnacceptableCredentialError("Too many iterations")
    return key, credential_of(mechanism, one.salt, one.salted_password, one.iterations)


def credential_of(mechanism: ScramMechanism, salt: bytes, salted_password: bytes, iterations: int) -> ScramCredential:
    """The credential of a salted password (RFC 5802, section 3)."""
    import hashlib
    import hmac

    client_key = hmac.digest(salted_password, b"Client Key", mechanism.digest)
    return ScramCredential(
        bytes(salt),
        hashlib.new(mechanism.digest, client_key).digest(),
        hmac.digest(salted_password, b"Server Key", mechanism.digest),
        iterations,
    )
