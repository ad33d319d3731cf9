"""Authentication at the HTTP port: users of the cluster, with the passwords that they have for PLAIN.

`ottla.http.security.protocol` says what is asked for, as of a listener whose name is HTTP: with SASL_SSL or
SASL_PLAINTEXT a user and a password, whose users may be given by `listener.name.http.plain.sasl.jaas.config` as well.
Programs send them by HTTP's Basic authentication, people to the console's own page. With OAUTHBEARER in
`listener.name.http.sasl.enabled.mechanisms` programs may show a token instead, as they do to a listener.
"""

from __future__ import annotations

import hmac
import logging
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Awaitable, Callable, Hashable
from functools import wraps
from ipaddress import IPv6Address, IPv6Network, ip_address
from typing import TYPE_CHECKING, Final, NamedTuple

import trio
from starlette.responses import PlainTextResponse, Response

from ottla.metadata.acls import AclOperation
from ottla.security.access import Access
from ottla.security.errors import InvalidCredentialsError
from ottla.security.mechanism import OAUTHBEARER, PLAIN
from ottla.security.oauth.oauthbearer import MAX_TOKEN_MESSAGE_BYTES, TokenRefusedError
from ottla.security.offers import configured_users, login_options
from ottla.security.principal import user
from ottla.server.http.lockout import ADDRESS, USER, Key, LockedOutError, Lockout
from ottla.server.http.peer import peer_host
from ottla.server.network.endpoints import HTTP_LISTENER

if TYPE_CHECKING:
    from starlette.requests import Request

    from ottla.security.credentials import Credentials
    from ottla.security.oauth.oauthbearer import AccessToken, TokenValidator
    from ottla.server.broker import Broker
    from ottla.settings.config import BrokerConfig

__all__ = ["HttpLogin", "LockedOutError", "WrongPasswordError", "basic_credentials", "guarded_metrics", "login_of"]

audit = logging.getLogger("ottla.audit")

_MECHANISMS: Final = f"listener.name.{HTTP_LISTENER.lower()}.sasl.enabled.mechanisms"
_MAX_NAME_LENGTH: Final = 255
_MAX_PASSWORD_LENGTH: Final = 1024
_ASK_BASIC: Final = {"www-authenticate": 'Basic realm="Ottla", charset="UTF-8"'}
_ASK_BEARER: Final = {"www-authenticate": 'Bearer realm="Ottla"'}

Endpoint = Callable[["Request"], Awaitable[Response]]


class WrongPasswordError(Exception):
    """User or password is wrong; which of them is not told."""


class TokenLogin(NamedTuple):
    """The user of a token, and for how long the token is valid."""

    principal: str
    valid_seconds: float


class HttpLogin:
    """Checks passwords: bounded, without leaks by timing, and with growing pauses after wrong guesses."""

    def __init__(self, config: BrokerConfig, credentials: Credentials) -> None:
        self._credentials = credentials
        self._users = configured_users(config.for_listener(HTTP_LISTENER, PLAIN), HTTP_LISTENER)
        own = config.for_listener(HTTP_LISTENER)
        self._failure_delay_seconds = own.connection_failed_authentication_delay_ms / 1000
        self._lockout = Lockout(trio.current_time)
        self._tokens = _token_validator(config, credentials)

    @property
    def takes_tokens(self) -> bool:
        """Whether a token is as good as a password."""
        return self._tokens is not None

    async def check_token(self, token: str, host: str) -> TokenLogin:
        """Whose token this is. Raises LockedOutError or WrongPasswordError."""
        keys: tuple[Key, ...] = ((ADDRESS, _network(host)),)
        began = self._begin(keys, host)
        try:
            found = await self._validated(token)
        except TokenRefusedError as error:
            audit.info("a token from %s was refused: %s", host, error, extra={"host": host, "error": str(error)})
            await trio.sleep_until(began + self._failure_delay_seconds)
            raise WrongPasswordError("The token is not accepted.") from None
        self._lockout.succeeded(keys)
        return TokenLogin(user(found.name), (found.expires_at_ms - self._credentials.clock.time_ms()) / 1000)

    def _begin(self, keys: tuple[Key, ...], host: str) -> float:
        """When a login begins, unless it has to wait."""
        try:
            self._lockout.begin(keys)
        except LockedOutError:
            audit.info("a login to the HTTP port from %s has to wait", host, extra={"host": host})
            raise
        return trio.current_time()

    async def _validated(self, token: str) -> AccessToken:
        if self._tokens is None:
            raise TokenRefusedError("tokens are not taken here")
        if len(token) > MAX_TOKEN_MESSAGE_BYTES:
            raise TokenRefusedError("it is too long")
        return await self._tokens.validate(token)

    async def check(self, name: str, password: str, host: str) -> str:
        """The principal whose password this is. Raises LockedOutError or WrongPasswordError."""
        keys: tuple[Key, ...] = ((ADDRESS, _network(host)), (USER, name[:_MAX_NAME_LENGTH]))
        began = self._begin(keys, host)
        if not await self._is_right(name, password):
            audit.info("a login to the HTTP port from %s was refused", host, extra={"host": host})
            await trio.sleep_until(began + self._failure_delay_seconds)
            raise WrongPasswordError("User or password is wrong.")
        self._lockout.succeeded(keys)
        return user(name)

    def proof(self, name: str) -> Hashable:
        """The user's stored credential: as long as it is unchanged, an earlier login stays valid."""
        return self._credentials.proof(name, self._users)

    async def _is_right(self, name: str, password: str) -> bool:
        if not (name and password and len(name) <= _MAX_NAME_LENGTH and len(password) <= _MAX_PASSWORD_LENGTH):
            return False
        try:
            return await self._credentials.has_password(name, password, self._users)
        except InvalidCredentialsError:
            return False


def _token_validator(config: BrokerConfig, credentials: Credentials) -> TokenValidator | None:
    """The validator of tokens, if the port is configured to take them; reads files. Raises ConfigError."""
    if (
        _MECHANISMS not in config.static
        or OAUTHBEARER not in config.for_listener(HTTP_LISTENER).sasl_enabled_mechanisms
    ):
        return None
    from ottla.security.oauth.token_validators import token_validator

    own = config.for_listener(HTTP_LISTENER, OAUTHBEARER)
    options = login_options(own, HTTP_LISTENER, OAUTHBEARER)
    return token_validator(own, HTTP_LISTENER, options, credentials.clock)


def login_of(broker: Broker) -> HttpLogin | None:
    """The login of a broker's HTTP port; None where it does not authenticate. Raises ConfigError."""
    if not broker.config.ottla_http_security_protocol.startswith("SASL_"):
        return None
    assert broker.credentials is not None, "a broker that asks has something to compare with"
    return HttpLogin(broker.config, broker.credentials)


def guarded_metrics(broker: Broker, login: HttpLogin | None, endpoint: Endpoint) -> Endpoint:
    """`endpoint` for requests with the token of `ottla.http.metrics.token`, and users who may describe the cluster."""

    @wraps(endpoint)
    async def guarded(request: Request) -> Response:
        token = broker.config.ottla_http_metrics_token
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if token is not None and scheme.lower() == "bearer":
            if hmac.compare_digest(given.strip().encode("utf-8", "replace"), token.encode()):
                return await endpoint(request)
            return PlainTextResponse("The token is wrong.\n", 401, _ASK_BEARER)
        if login is None:
            if token is None:
                return await endpoint(request)
            return PlainTextResponse("The token of ottla.http.metrics.token is required.\n", 401, _ASK_BEARER)
        if scheme.lower() != "basic":
            return PlainTextResponse("A user and password, or a token, are required.\n", 401, _ASK_BASIC)
        name, password = basic_credentials(given)
        host = peer_host(request)
        try:
            principal = await login.check(name, password, host)
        except LockedOutError as error:
            return PlainTextResponse(f"{error}\n", 429, {"retry-after": str(round(error.seconds) + 1)})
        except WrongPasswordError as error:
            return PlainTextResponse(f"{error}\n", 401, _ASK_BASIC)
        if not may_describe_cluster(broker, principal, host):
            return PlainTextResponse(f"{principal} may not describe the cluster.\n", 403)
        return await endpoint(request)

    return guarded


def may_describe_cluster(broker: Broker, principal: str, host: str) -> bool:
    """Whether a user of the HTTP port may see figures of the whole cluster."""
    if broker.authorizer is None:
        return True
    return Access(broker.authorizer, principal, host, "HTTP").allows_on_cluster(AclOperation.DESCRIBE)


def basic_credentials(text: str) -> tuple[str, str]:
    """User and password of HTTP's Basic authentication; empty where there are none."""
    try:
        name, _, password = b64decode(text.strip(), validate=True).decode().partition(":")
    except (Base64Error, ValueError):
        return "", ""
    return name, password


def _network(host: str) -> str:
    """An IPv6 address stands for its network, of which everybody has very many."""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    return str(IPv6Network((address, 64), strict=False)) if isinstance(address, IPv6Address) else host
