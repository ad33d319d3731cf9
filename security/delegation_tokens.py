"""Delegation tokens (KIP-48): secrets by which workers authenticate as the principal who owns the token.

A token's HMAC, the password that goes with its id, is computed from the id and `delegation.token.secret.key`: the
brokers of a cluster have the same key, and nobody stores a secret.

Kafka's counterparts are
org.apache.kafka.server.DelegationTokenManager and org.apache.kafka.controller.DelegationTokenControlManager.
"""

from __future__ import annotations

import hmac
import logging
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final
from uuid import UUID, uuid4

import trio

from ottla.metadata.delegation_tokens import (
    DelegationToken,
    TokenChanges,
    TokenPrincipal,
    added,
    changeable,
    expired,
    expiring,
    new_token,
)
from ottla.runtime.time_slice import TimeSlice
from ottla.security.access import shown

if TYPE_CHECKING:
    from ottla.metadata.controller import Controller
    from ottla.settings.config import BrokerConfig
    from ottla.storage.clock import Clock

logger = logging.getLogger(__name__)

_DIGEST: Final = "sha512"


class DelegationTokens:
    """Creates, renews and ends tokens, and knows their secrets; one object for all listeners of a node."""

    def __init__(
        self,
        secret_key: str,
        config: BrokerConfig,
        controller: Controller,
        clock: Clock,
        new_uuid: Callable[[], UUID] = uuid4,
    ) -> None:
        self._secret_key = secret_key.encode()
        self._config = config
        self._controller = controller
        self._clock = clock
        self._new_uuid = new_uuid
        #: The tokens for which `_ids` has the ids by HMAC.
        self._indexed: Mapping[str, DelegationToken] = {}
        self._ids: dict[bytes, str] = {}

    def hmac(self, token_id: str) -> bytes:
        """The secret that goes with an id, whether there is such a token or not."""
        return hmac.digest(self._secret_key, token_id.encode(), _DIGEST)

    def password(self, token_id: str) -> str:
        """The secret as clients write it."""
        return b64encode(self.hmac(token_id)).decode()

    def good_token(self, token_id: str) -> tuple[DelegationToken, int] | None:
        """The token of this id, and for how many milliseconds from now it is good; None if it is not good."""
        token, now_ms = self._controller.image.delegation_tokens.get(token_id), self._clock.time_ms()
        if token is None or not token.is_good(now_ms):
            return None
        return token, token.expiry_timestamp_ms - now_ms

    async def create(
        self,
        requester: TokenPrincipal,
        owner: TokenPrincipal,
        renewers: Sequence[TokenPrincipal],
        max_lifetime_ms: int,
    ) -> DelegationToken:
        """A new token for an owner; a lifetime that is not positive means the longest. Raises MetadataError."""
        lifetime_ms = self._config.delegation_token_max_lifetime_ms
        if max_lifetime_ms > 0:
            lifetime_ms = min(lifetime_ms, max_lifetime_ms)
        token = new_token(
            self._new_id(),
            owner,
            requester,
            renewers,
            self._clock.time_ms(),
            lifetime_ms,
            self._config.delegation_token_expiry_time_ms,
        )
        await self._controller.change_delegation_tokens(lambda tokens: added(token, tokens))
        logger.info(
            "%s has made the delegation token %s for %s",
            shown(str(requester)),
            token.token_id,
            shown(str(owner)),
            extra={"requester": shown(str(requester)), "token_id": token.token_id, "owner": shown(str(owner))},
        )
        return token

    async def renew(self, principal: TokenPrincipal, secret: bytes, period_ms: int) -> int:
        """Let a token live longer; returns until when it is good now. Raises MetadataError."""
        longest_ms = self._config.delegation_token_expiry_time_ms
        period_ms = min(longest_ms, period_ms) if period_ms > 0 else longest_ms
        return await self._set_expiry(principal, secret, period_ms)

    async def expire(self, principal: TokenPrincipal, secret: bytes, period_ms: int) -> int:
        """End a token after a period, at once if that is negative; returns until when it is good.

        Raises MetadataError.
        """
        if period_ms >= 0:
            return await self._set_expiry(principal, secret, period_ms)
        token_id, now_ms = await self._id_of(secret), self._clock.time_ms()

        def remove(tokens: Mapping[str, DelegationToken]) -> TokenChanges:
            return {changeable(token_id, tokens, principal, now_ms).token_id: None}

        await self._controller.change_delegation_tokens(remove)
        logger.info(
            "%s has ended the delegation token %s",
            shown(str(principal)),
            token_id,
            extra={"principal": shown(str(principal)), "token_id": token_id},
        )
        return now_ms

    async def remove_expired(self, controller: Controller) -> None:
        """A duty of the controller: remove what has expired, every `delegation.token.expiry.check.interval.ms`."""
        while True:
            await trio.sleep(self._config.delegation_token_expiry_check_interval_ms / 1000)
            now_ms = self._clock.time_ms()
            while expired(controller.image.delegation_tokens, now_ms):
                await controller.change_delegation_tokens(partial(expired, now_ms=now_ms))

    def _new_id(self) -> str:
        """A random id as Kafka writes them, which does not begin with '-': tools would take that for an option."""
        while True:
            token_id = urlsafe_b64encode(self._new_uuid().bytes).decode().rstrip("=")
            if not token_id.startswith("-"):
                return token_id

    async def _set_expiry(self, principal: TokenPrincipal, secret: bytes, period_ms: int) -> int:
        token_id = await self._id_of(secret)
        until_ms = 0

        def change(tokens: Mapping[str, DelegationToken]) -> TokenChanges:
            nonlocal until_ms
            now_ms = self._clock.time_ms()
            token = expiring(changeable(token_id, tokens, principal, now_ms), period_ms, now_ms)
            until_ms = token.expiry_timestamp_ms
            return {token.token_id: token}

        await self._controller.change_delegation_tokens(change)
        return until_ms

    async def _id_of(self, secret: bytes) -> str | None:
        """Which token has this secret, None if none has."""
        tokens = self._controller.image.delegation_tokens
        if tokens is not self._indexed:
            known = {token_id: it for it, token_id in self._ids.items()}
            ids, time_slice = {}, TimeSlice()
            for token_id in tokens:
                await time_slice.maybe_yield()
                ids[known.get(token_id) or self.hmac(token_id)] = token_id
            self._ids, self._indexed = ids, tokens
        return self._ids.get(secret)
