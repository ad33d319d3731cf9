"""How `ottla proxy` meets clients and upstream: TLS and SASL by Kafka's own settings, from files that may change.

Towards clients these are a broker's settings for one listener (`security.protocol`, `ssl.keystore.location`,
`ssl.client.auth`, `sasl.enabled.mechanisms`, …), and `users`; towards upstream a client's.
"""

from __future__ import annotations

import logging
import secrets
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import trio

from ottla.cli import CommandError
from ottla.client.errors import SecurityConfigError
from ottla.client.properties import parse_properties
from ottla.client.security import NO_SECURITY, Security, from_properties
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.access.sasl_authenticate import SaslAuthenticateRequest
from ottla.kproto.messages.access.sasl_handshake import SaslHandshakeRequest
from ottla.metadata.scram_changes import ScramCredential, ScramKey, ScramMechanism, credential_of
from ottla.proxy.errors import NotLetInError
from ottla.proxy.login import ANONYMOUS
from ottla.proxy.shared import Ways
from ottla.proxy.transport import Accepted, SocketTransport, Transport, open_tcp, unmapped
from ottla.proxy.upstream_login import log_in
from ottla.runtime.errors import CloseConnectionError
from ottla.runtime.file_states import FileState, file_states
from ottla.security.credentials import Credentials, salted
from ottla.security.errors import NoRuleError
from ottla.security.listener_auth import ListenerAuth, listener_auth
from ottla.server.apis.access.sasl_authenticate import answer as answer_authenticate
from ottla.server.apis.access.sasl_handshake import answer as answer_handshake
from ottla.server.network.tls_transport import TlsTransport
from ottla.settings.config import ConfigError
from ottla.settings.sources import load

if TYPE_CHECKING:
    import ssl

    from ottla.client.tls import Tls
    from ottla.kproto.schema import Request, Response
    from ottla.proxy.login import ClientLogin
    from ottla.security.sasl import Sasl

logger = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 5.0
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_LISTENER: Final = "CLIENTS"
_PREFIX: Final = "listener.name.clients."
_USERS: Final = "users"
_FILE_SETTINGS: Final = (
    "ssl.keystore.location",
    "ssl.truststore.location",
    "ssl.ca.location",
    "ssl.key.location",
    "ssl.certificate.location",
    _USERS,
)
_CLIENT_ID: Final = "ottla-proxy-login"
_ITERATIONS: Final = 4096
_SALT_BYTES: Final = 16

Source = Path | Mapping[str, Any]
"""A properties file, or a table of the TOML file."""


class Securities(Ways):
    """Both sides as they are now. `run` follows the files; an error in one of them changes nothing.

    CommandError says what is wrong at the start.
    """

    def __init__(self, listen: Source | None, upstream: Source | None) -> None:
        self._listen = listen
        self._upstream = upstream
        self._logins: tuple[bool, bool] | None = None
        try:
            self._read()
        except (ConfigError, SecurityConfigError) as error:
            raise CommandError(str(error)) from None
        self._states = self._look()

    @property
    def asks_clients(self) -> bool:
        assert self._logins is not None
        return self._logins[0]

    @property
    def security(self) -> Security:
        return self._security

    async def run(self, look_seconds: float = _LOOK_SECONDS) -> None:
        """Read everything again when a file has changed, until cancelled. New connections use it."""
        if not self._states:
            return
        told = ""
        while True:
            await trio.sleep(look_seconds)
            states = await trio.to_thread.run_sync(self._look)
            if states == self._states:
                continue
            wrong = await trio.to_thread.run_sync(self._renew)
            if not wrong:
                self._states = states
                logger.info("new connections use the new certificates, users and passwords")
            elif wrong != told:
                logger.warning("certificates, users and passwords stay as they were: %s", wrong, extra={"error": wrong})
            told = wrong

    async def accept(self, accepted: socket.socket) -> Accepted:
        way = self._auth
        if way is None or way.tls is None:
            return Accepted(SocketTransport(accepted), ANONYMOUS, _login(way))
        transport = _encrypted(accepted, way.tls)
        try:
            with trio.fail_after(way.handshake_seconds):
                await transport.handshake()
            principal = way.principal_of(transport.peer_subject) or ANONYMOUS
        except trio.TooSlowError:
            transport.close()
            raise NotLetInError(f"its TLS handshake has not ended within {way.handshake_seconds:g} s") from None
        except (CloseConnectionError, NoRuleError) as error:
            transport.close()
            raise NotLetInError(str(error)) from None
        except BaseException:
            transport.close()
            raise
        return Accepted(transport, principal, _login(way))

    async def connect(self, host: str, port: int) -> Transport:
        security = self._security
        connected = await open_tcp(host, port)
        if security.tls is None:
            transport: Transport = SocketTransport(connected)
        else:
            transport = await _encrypted_upstream(connected, security.tls, host)
        try:
            if security.login is not None:
                await log_in(transport, security.login, f"{host}:{port}", _CLIENT_ID)
        except BaseException:
            transport.close()
            raise
        return transport

    def _renew(self) -> str:
        """Apply what the files say now. If that is wrong, say so in the log and change nothing."""
        try:
            self._read()
        except (ConfigError, SecurityConfigError, CommandError) as error:
            return str(error)
        return ""

    def _read(self) -> None:
        listen = None if self._listen is None else _settings(self._listen)
        upstream = {} if self._upstream is None else _settings(self._upstream)
        try:
            listener_auth = None if listen is None else _auth(dict(listen))
        except ConfigError as error:
            raise ConfigError(str(error).replace(_PREFIX, "")) from None
        security = _security(upstream)
        logins = (listener_auth is not None and listener_auth.sasl is not None, security.login is not None)
        if self._logins not in (None, logins):
            raise ConfigError("SASL cannot be switched on or off while the proxy runs: restart it.")
        self._logins = logins
        self._files = sorted(_files(self._listen, listen or {}) | _files(self._upstream, upstream))
        self._auth, self._security = listener_auth, security

    def _look(self) -> tuple[FileState, ...]:
        return file_states(self._files)


class _Encrypted(TlsTransport):
    """TLS as the proxy needs it."""

    __slots__ = ()

    def expect(self, size_bytes: int) -> None:
        """Records of 16 KiB are decrypted as they arrive."""

    def local_host(self) -> str:
        return unmapped(self._socket.getsockname()[0])


class _SaslLogin:
    """A client's authentication, done as the broker does it."""

    def __init__(self, sasl: Sasl) -> None:
        self._sasl = sasl
        self.max_frame_bytes = sasl.max_frame_bytes
        self.seconds = sasl.seconds

    @property
    def is_complete(self) -> bool:
        return self._sasl.is_complete

    @property
    def principal(self) -> str:
        return self._sasl.principal

    @property
    def failure(self) -> str:
        return self._sasl.failure

    def admit(self, key: ApiKey) -> ErrorCode:
        """See `ottla.proxy.login.ClientLogin`."""
        try:
            if self._sasl.is_complete:
                self._sasl.check_session(key)
                return ErrorCode.NONE
            code = self._sasl.admit(key)
        except CloseConnectionError as error:
            raise NotLetInError(str(error)) from None
        if code is ErrorCode.NONE and key is ApiKey.API_VERSIONS:
            self._sasl.api_versions_answered()
        return code

    async def answer(self, request: Request, version: int) -> Response:
        """See `ottla.proxy.login.ClientLogin`."""
        if isinstance(request, SaslHandshakeRequest):
            return await answer_handshake(request, self._sasl, version)
        assert isinstance(request, SaslAuthenticateRequest)
        return await answer_authenticate(request, self._sasl, version)


def _login(way: ListenerAuth | None) -> ClientLogin | None:
    return None if way is None or way.sasl is None else _SaslLogin(way.sasl.begin())


def _encrypted(connected: socket.socket, context: ssl.SSLContext, server_name: str | None = None) -> _Encrypted:
    try:
        return _Encrypted(connected, context, server_name=server_name)
    except (OSError, ValueError):
        connected.close()
        raise


async def _encrypted_upstream(connected: socket.socket, tls: Tls, host: str) -> Transport:
    from ottla.client.tls import context_of

    transport = _encrypted(connected, context_of(tls), host)
    try:
        await transport.handshake()
    except CloseConnectionError as error:
        transport.close()
        raise OSError(str(error)) from None
    except BaseException:
        transport.close()
        raise
    return transport


def _settings(source: Source) -> dict[str, str]:
    """The settings by their names. Raises CommandError if a file cannot be read."""
    if not isinstance(source, Path):
        return dict(_flat("", source))
    try:
        text = source.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise CommandError(f"{source} cannot be read: {reason}") from None
    return {name: value for name, value, _ in parse_properties(text)}


def _flat(prefix: str, table: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """TOML reads dots in names as tables within tables, unless the names are quoted."""
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(f"{prefix}{name}.", value)
        elif isinstance(value, list):
            yield f"{prefix}{name}", ",".join(map(str, value))
        else:
            yield f"{prefix}{name}", str(value).lower() if isinstance(value, bool) else str(value)


def _files(source: Source | None, settings: Mapping[str, str]) -> set[str]:
    """The files from which settings were read, and those that they name."""
    named = {settings[name] for name in _FILE_SETTINGS if settings.get(name)}
    return named | ({str(source)} if isinstance(source, Path) else set())


def _security(settings: Mapping[str, str]) -> Security:
    security = from_properties(settings) if settings else NO_SECURITY
    if security.tls is not None:
        from ottla.client.tls import context_of

        context_of(security.tls)
    return security


def _auth(settings: dict[str, str]) -> ListenerAuth:
    """How clients have to authenticate. Raises ConfigError."""
    users = _users(settings)
    protocol = settings.pop("security.protocol", "PLAINTEXT").upper()
    if protocol not in _PROTOCOLS:
        raise ConfigError(f"security.protocol is {protocol}; known are {', '.join(_PROTOCOLS)}.")
    mechanisms = settings.get("sasl.enabled.mechanisms", "")
    if users and "PLAIN" in mechanisms.split(","):
        settings["plain.sasl.jaas.config"] = _jaas(users)
    config = load(
        flags={
            "listeners": f"{_LISTENER}://:0",
            "listener.security.protocol.map": f"{_LISTENER}:{protocol}",
            **{_PREFIX + name: value for name, value in settings.items()},
        }
    )
    stored = _scram_credentials(users, mechanisms) if users else {}
    return listener_auth(config, _LISTENER, protocol, Credentials(lambda: stored))


def _users(settings: dict[str, str]) -> dict[str, str]:
    """Passwords by user, from `users.NAME` or from the file that `users` names; they are removed from the settings."""
    found = {name: settings.pop(name) for name in list(settings) if name.startswith(f"{_USERS}.")}
    users = {name.removeprefix(f"{_USERS}."): password for name, password in found.items()}
    if _USERS in settings:
        users |= _settings(Path(settings[_USERS]))
        del settings[_USERS]
    return users


def _jaas(users: Mapping[str, str]) -> str:
    quoted = (f'"user_{_escaped(name)}"="{_escaped(password)}"' for name, password in users.items())
    return f"PlainLoginModule required {' '.join(quoted)};"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _scram_credentials(users: Mapping[str, str], mechanisms: str) -> dict[ScramKey, ScramCredential]:
    made = {}
    for mechanism in ScramMechanism:
        if mechanism.name.replace("_", "-") in mechanisms.split(","):
            for name, password in users.items():
                salt = secrets.token_bytes(_SALT_BYTES)
                salted_password = salted(mechanism, password, salt, _ITERATIONS)
                made[name, mechanism] = credential_of(mechanism, salt, salted_password, _ITERATIONS)
    return made
