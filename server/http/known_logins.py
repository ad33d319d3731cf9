"""Lets the cluster's users in to ports that programs ask, request by request.

Programs send user and password by HTTP's Basic authentication, or a token where the HTTP port takes them. A password
that was right is not hashed again for some minutes, unless it has changed. Where the port asks for no user, a client's
certificate says who it is, as on a listener with SSL.
"""

from __future__ import annotations

import hmac
import logging
import secrets
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from ottla.security.errors import NoRuleError
from ottla.security.listener_auth import principal_rules
from ottla.security.principal import ANONYMOUS, user
from ottla.server.http.login import HttpLogin, LockedOutError, WrongPasswordError, basic_credentials
from ottla.server.network.endpoints import HTTP_LISTENER

if TYPE_CHECKING:
    from ottla.server.broker import Broker

audit = logging.getLogger("ottla.audit")

_ASK_BASIC: Final = {"www-authenticate": 'Basic realm="Ottla", charset="UTF-8"'}
_ASK_BEARER: Final = {"www-authenticate": 'Bearer realm="Ottla"'}
_KEPT_LOGINS: Final = 1_000
_KEPT_SECONDS: Final = 300.0
_MAX_HEADER_LENGTH: Final = 4_096


class NotLetInError(Exception):
    """The login failed (status 401) or has to wait (429); with headers for the answer."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str]) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers


class _Kept(NamedTuple):
    """A login that was right: of a user with a password, or by a token (None)."""

    principal: str
    name: str | None
    proof: Hashable
    ends_at: float


class KnownLogins:
    """Authenticates requests, and remembers logins for a while.

    Without a `login` a request that shows no certificate is anonymous.
    """

    def __init__(self, broker: Broker, login: HttpLogin | None) -> None:
        """Raises ConfigError."""
        self._login = login
        self._rules = principal_rules(broker.config, HTTP_LISTENER)
        self._secret = secrets.token_bytes(32)
        self._kept: OrderedDict[bytes, _Kept] = OrderedDict()

    async def principal(self, headers: Mapping[str, str], host: str, certificate: str | None) -> str:
        """The principal of a request with these headers (names in lower case) from an address, by a connection with a
        certificate of this name. Raises NotLetInError.
        """
        if self._login is None:
            return self._certified(certificate, host)
        return await self._known(self._login, headers, host)

    def _certified(self, certificate: str | None, host: str) -> str:
        if certificate is None:
            return ANONYMOUS
        try:
            return user(self._rules.user(certificate))
        except NoRuleError as error:
            audit.info("a certificate from %s was refused: %s", host, error, extra={"host": host, "error": str(error)})
            raise NotLetInError(401, "The certificate is not accepted.", {}) from None

    async def _known(self, login: HttpLogin, headers: Mapping[str, str], host: str) -> str:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        is_token = scheme.lower() == "bearer" and login.takes_tokens
        if not is_token and (scheme.lower() != "basic" or len(given) > _MAX_HEADER_LENGTH):
            raise NotLetInError(401, "Unauthorized", _ASK_BASIC)
        key = hmac.new(self._secret, f"{is_token} {given}".encode(), sha256).digest()
        kept = self._kept.get(key)
        if kept is not None and kept.ends_at > trio.current_time() and kept.proof == _proof(login, kept.name):
            return kept.principal
        self._kept.pop(key, None)
        try:
            checked = await (_by_token(login, given.strip(), host) if is_token else _by_password(login, given, host))
        except LockedOutError as error:
            raise NotLetInError(429, str(error), {"retry-after": str(round(error.seconds) + 1)}) from None
        except WrongPasswordError as error:
            raise NotLetInError(401, str(error), _ASK_BEARER if is_token else _ASK_BASIC) from None
        self._kept[key] = checked
        if len(self._kept) > _KEPT_LOGINS:
            self._kept.popitem(last=False)
        return checked.principal


async def _by_password(login: HttpLogin, given: str, host: str) -> _Kept:
    name, password = basic_credentials(given)
    principal = await login.check(name, password, host)
    return _Kept(principal, name, login.proof(name), trio.current_time() + _KEPT_SECONDS)


async def _by_token(login: HttpLogin, token: str, host: str) -> _Kept:
    found = await login.check_token(token, host)
    return _Kept(found.principal, None, None, trio.current_time() + min(found.valid_seconds, _KEPT_SECONDS))


def _proof(login: HttpLogin, name: str | None) -> Hashable:
    """The credential that a valid login depends on; None of a token, which only its time ends."""
    return None if name is None else login.proof(name)
