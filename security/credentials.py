"""Whether a user's password is right, and what SCRAM is told about a user or a delegation token.

Passwords are checked against the login configuration of a listener, else against the SCRAM credentials in the
metadata, which hold what a password hashes to. Hashing is expensive on purpose, so it is done in one worker thread, and
at most half of the time.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable, Hashable, Mapping
from time import perf_counter
from typing import TYPE_CHECKING, Final, TypeVar, TypeVarTuple

import trio

from ottla.metadata.scram_changes import (
    MIN_ITERATIONS,
    ScramCredential,
    ScramKey,
    ScramMechanism,
    credential_of,
)
from ottla.security.errors import InvalidCredentialsError
from ottla.storage.clock import Clock, SystemClock

if TYPE_CHECKING:
    from ottla.metadata.delegation_tokens import DelegationToken
    from ottla.security.delegation_tokens import DelegationTokens

R = TypeVar("R")
Ts = TypeVarTuple("Ts")

_MAX_WAITING: Final = 1_000
#: Many workers show the same token.
_MAX_KEPT_TOKENS: Final = 1_000
_SYSTEM_CLOCK: Final = SystemClock()
_SALT_BYTES: Final = 16


class Credentials:
    """The users of a cluster; one object for all listeners of a node.

    An unknown user looks like one who exists: it has a salt, which stays the same while the broker runs, and its
    password takes as long to check.
    """

    def __init__(
        self,
        stored: Callable[[], Mapping[ScramKey, ScramCredential]],
        clock: Clock = _SYSTEM_CLOCK,
        tokens: DelegationTokens | None = None,
    ) -> None:
        """`stored` gives the credentials in the metadata as they are now; without `tokens` there are no tokens."""
        self._stored = stored
        self.clock = clock
        self._tokens = tokens
        self._of_tokens: dict[tuple[str, ScramMechanism], ScramCredential] = {}
        self._secret = secrets.token_bytes(32)
        self._hashing = trio.Semaphore(1)
        self._rest_until = 0.0

    def scram(self, user: str, mechanism: ScramMechanism) -> ScramCredential:
        """The SCRAM credential of a user; of an unknown user, one that no proof fits."""
        known = self._stored().get((user, mechanism))
        return self._unknown(user, mechanism) if known is None else known

    async def scram_of_token(self, token_id: str, mechanism: ScramMechanism) -> ScramCredential:
        """The SCRAM credential of a delegation token; of an unknown token, one that no proof fits.

        Raises InvalidCredentialsError if there are no tokens, or too many others wait for an answer.
        """
        if self._tokens is None:
            raise InvalidCredentialsError("delegation tokens are not enabled (delegation.token.secret.key)")
        key = (token_id, mechanism)
        known = self._of_tokens.get(key)
        if known is not None:
            return known
        password, salt = self._tokens.password(token_id), self._salt(token_id, mechanism, _SALT_BYTES)
        made = await self._hashed(_credential, mechanism, password, salt)
        if len(self._of_tokens) >= _MAX_KEPT_TOKENS:
            del self._of_tokens[next(iter(self._of_tokens))]
        self._of_tokens[key] = made
        return made

    def good_token(self, token_id: str) -> tuple[DelegationToken, int] | None:
        """See `DelegationTokens.good_token`."""
        return None if self._tokens is None else self._tokens.good_token(token_id)

    async def has_password(self, user: str, password: str, configured: Mapping[str, str]) -> bool:
        """Whether a password is right. `configured` holds the passwords of users that a listener has for itself.

        Raises InvalidCredentialsError if too many others wait for an answer. Every wrong password is hashed, also that
        of a user who is configured: how long it takes must not reveal which users there are.
        """
        expected = configured.get(user)
        if expected is not None and hmac.compare_digest(expected.encode(), password.encode()):
            return True
        fits = await self._hashed(_fits, *self._of_any_mechanism(user), password)
        return fits and expected is None

    async def _hashed(self, hash_in_thread: Callable[[*Ts], R], *args: *Ts) -> R:
        if self._hashing.statistics().tasks_waiting >= _MAX_WAITING:
            raise InvalidCredentialsError(f"{_MAX_WAITING} passwords wait to be checked already")
        async with self._hashing:
            await trio.sleep_until(self._rest_until)
            began = perf_counter()
            result = await trio.to_thread.run_sync(hash_in_thread, *args)
            self._rest_until = trio.current_time() + perf_counter() - began
        return result

    def proof(self, user: str, configured: Mapping[str, str]) -> Hashable:
        """The user's stored credential; it changes when the password does."""
        expected = configured.get(user)
        if expected is not None:
            return expected
        return tuple(self._stored().get((user, mechanism)) for mechanism in ScramMechanism)

    def _of_any_mechanism(self, user: str) -> tuple[ScramMechanism, ScramCredential]:
        stored = self._stored()
        for mechanism in ScramMechanism:
            credential = stored.get((user, mechanism))
            if credential is not None:
                return mechanism, credential
        mechanism = next((mechanism for _, mechanism in stored), ScramMechanism.SCRAM_SHA_256)
        return mechanism, self._unknown(user, mechanism)

    def _unknown(self, user: str, mechanism: ScramMechanism) -> ScramCredential:
        # Like that of a user who exists: other tools may use more iterations, or a longer salt, than `ottla user`.
        like = next((it for key, it in self._stored().items() if key[1] == mechanism), None)
        salt_bytes, iterations = (_SALT_BYTES, MIN_ITERATIONS) if like is None else (len(like.salt), like.iterations)
        salt = self._salt(user, mechanism, salt_bytes)
        size_bytes = hashlib.new(mechanism.digest).digest_size
        return ScramCredential(salt, secrets.token_bytes(size_bytes), secrets.token_bytes(size_bytes), iterations)

    def _salt(self, name: str, mechanism: ScramMechanism, size_bytes: int) -> bytes:
        named = f"{int(mechanism)}/{name}".encode()
        return hashlib.shake_256(hmac.digest(self._secret, named, "sha256")).digest(size_bytes)


def salted(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """The password as SCRAM salts it (RFC 5802, Hi); takes milliseconds."""
    return hashlib.pbkdf2_hmac(mechanism.digest, password.encode(), salt, iterations)


def _credential(mechanism: ScramMechanism, password: str, salt: bytes) -> ScramCredential:
    return credential_of(mechanism, salt, salted(mechanism, password, salt, MIN_ITERATIONS), MIN_ITERATIONS)


def _fits(mechanism: ScramMechanism, credential: ScramCredential, password: str) -> bool:
    salted_password = salted(mechanism, password, credential.salt, credential.iterations)
    made = credential_of(mechanism, credential.salt, salted_password, credential.iterations)
    return hmac.compare_digest(made.stored_key, credential.stored_key)
