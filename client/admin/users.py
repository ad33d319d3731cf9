"""Passwords as a cluster keeps them: salted and hashed before they leave this process."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from typing import Final

from ottla.client.sasl import DIGESTS
from ottla.kproto.messages.access.alter_user_scram_credentials import ScramCredentialUpsertion

#: The mechanisms that a user may have a password for, with their numbers on the wire.
MECHANISMS: Final[Mapping[str, int]] = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}

_ITERATIONS: Final = 4096
_SALT_BYTES: Final = 16


def credential(user: str, password: str, mechanism: str) -> ScramCredentialUpsertion:
    """The change that sets a user's password; takes milliseconds."""
    salt = secrets.token_bytes(_SALT_BYTES)
    return ScramCredentialUpsertion(
        name=user,
        mechanism=MECHANISMS[mechanism],
        iterations=_ITERATIONS,
        salt=salt,
        salted_password=hashlib.pbkdf2_hmac(DIGESTS[mechanism], password.encode(), salt, _ITERATIONS),
    )
