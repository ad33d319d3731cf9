"""GSSAPI (RFC 4752): the client shows a Kerberos ticket for this service.

Uses `gssapi`, which the extra `ottla[kerberos]` brings, and the system's Kerberos library. There is no security layer
beyond authentication, as in Kafka: for encryption there is TLS.

Kafka's counterparts are Java's GssKrb5Server and
org.apache.kafka.common.security.authenticator.SaslServerCallbackHandler.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import gssapi
import trio
from gssapi.exceptions import GSSError

from ottla.security.distinguished_name import RuleError
from ottla.security.errors import InvalidCredentialsError, NoRuleError
from ottla.security.kerberos_names import KerberosRules
from ottla.settings.config import BrokerConfig, ConfigError

#: Tickets from Windows list the user's groups.
MAX_TICKET_MESSAGE_BYTES: Final = 65_536

_AUTHENTICATION_ONLY: Final = 1
_MAX_THREADS: Final = 2


class KerberosService:
    """The service, with its key, that clients' tickets have to be for; one for all connections of a listener."""

    def __init__(self, config: BrokerConfig, listener: str, options: Mapping[str, str]) -> None:
        """`options` are those of the login configuration. Reads the keytab, and raises ConfigError."""
        keytab = options.get("keyTab")
        if not keytab or not Path(keytab).is_file():
            where = f"listener.name.{listener.lower()}.gssapi.sasl.jaas.config"
            raise ConfigError(
                f"{where} must name a keytab that is there, as com.sun.security.auth.module.Krb5LoginModule required "
                'keyTab="/etc/ottla/kafka.keytab" principal="kafka/broker.example.org@EXAMPLE.ORG";'
            )
        try:
            name = _own_name(config, options)
            # For Kerberos alone: the library would also negotiate other mechanisms (SPNEGO), which Kafka does not.
            self.credentials = gssapi.Credentials(
                name=name, usage="accept", store={"keytab": f"FILE:{keytab}"}, mechs=[gssapi.MechType.kerberos]
            )
        except GSSError as error:
            raise ConfigError(f"the keytab {keytab} cannot be used: {error}.") from None
        try:
            self.rules = KerberosRules(config.sasl_kerberos_principal_to_local_rules, _default_realm())
        except RuleError as error:
            raise ConfigError(f"sasl.kerberos.principal.to.local.rules: {error}.") from None
        self.threads = trio.CapacityLimiter(_MAX_THREADS)

    def begin(self) -> GssapiExchange:
        """For a new connection."""
        return GssapiExchange(self)


class GssapiExchange:
    """First the client's ticket, then the agreement on a security layer: there is none."""

    def __init__(self, service: KerberosService) -> None:
        self._service = service
        self._context = gssapi.SecurityContext(creds=service.credentials, usage="accept")
        # Only the log is told what is wrong: an error is raised at once, and not sent as an answer first.
        self._context.__DEFER_STEP_ERRORS__ = False
        self._is_offered = False
        self.user: str | None = None
        self.lifetime_ms: int | None = None
        self.is_token_authenticated = False

    async def step(self, message: bytes) -> bytes:
        """See `Exchange.step`. The library reads files and computes, so a thread does it; nothing else touches this."""
        try:
            return await trio.to_thread.run_sync(self._take, message, limiter=self._service.threads)
        except (GSSError, NoRuleError) as error:
            raise InvalidCredentialsError(str(error)) from None

    def _take(self, message: bytes) -> bytes:
        if self._is_offered:
            return self._agree(message)
        if self._context.complete:
            return self._offer(message)
        if not message:
            raise InvalidCredentialsError("the client has presented no ticket")
        answer: bytes | None = self._context.step(message)
        return answer or (self._offer(b"") if self._context.complete else b"")

    def _offer(self, message: bytes) -> bytes:
        if message:
            raise InvalidCredentialsError("the client sent a message where it must not")
        self._is_offered = True
        # No layer, and so no maximum message size.
        return bytes(self._context.wrap(bytes([_AUTHENTICATION_ONLY, 0, 0, 0]), False).message)

    def _agree(self, message: bytes) -> bytes:
        chosen: bytes = self._context.unwrap(message).message
        if len(chosen) < 4 or chosen[0] != _AUTHENTICATION_ONLY:
            raise InvalidCredentialsError("the client asks for a layer of security that was not offered")
        # Kafka does not look at the authorization id that may follow.
        self.user = self._service.rules.user(str(self._context.initiator_name))
        return b""


def _own_name(config: BrokerConfig, options: Mapping[str, str]) -> Any:
    """The principal that is configured, or any of the service; None for all that are in the keytab."""
    if principal := options.get("principal"):
        return gssapi.Name(principal, gssapi.NameType.kerberos_principal)
    service = options.get("serviceName") or config.sasl_kerberos_service_name
    return gssapi.Name(service, gssapi.NameType.hostbased_service) if service else None


def _default_realm() -> str:
    """The realm of krb5.conf; empty if there is none."""
    try:
        name = gssapi.Name("somebody", gssapi.NameType.kerberos_principal).canonicalize(gssapi.MechType.kerberos)
    except GSSError:
        return ""
    return str(name).rpartition("@")[2]
