"""TLS and SASL of one listener, according to its settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.security.distinguished_name import PrincipalRules, RuleError, distinguished_name
from ottla.security.principal import user
from ottla.settings.config import BrokerConfig, ConfigError

if TYPE_CHECKING:
    from ssl import SSLContext

    from ottla.security.credentials import Credentials
    from ottla.security.sasl import SaslOffer

ENCRYPTED: Final = ("SSL", "SASL_SSL")


class ListenerAuth(NamedTuple):
    """How clients enter through a listener: encrypted or not, and how they say who they are."""

    tls: SSLContext | None
    sasl: SaslOffer | None
    rules: PrincipalRules
    #: How long a TLS handshake may take.
    handshake_seconds: float = 30.0

    def principal_of(self, subject: Any) -> str | None:
        """The principal of a certificate with this subject; None if that does not matter. Raises NoRuleError."""
        if not subject or self.sasl is not None:
            return None
        return user(self.rules.user(distinguished_name(subject)))


def listener_auth(config: BrokerConfig, listener: str, protocol: str, credentials: Credentials) -> ListenerAuth:
    """TLS and SASL of a listener. Reads files, and raises ConfigError."""
    tls = offer = None
    if protocol in ENCRYPTED:
        from ottla.security.tls import server_context

        tls = server_context(config, listener, protocol)
    if protocol.startswith("SASL_"):
        from ottla.security.offers import sasl_offer

        offer = sasl_offer(config, listener, credentials)
    return ListenerAuth(tls, offer, principal_rules(config, listener))


def principal_rules(config: BrokerConfig, listener: str) -> PrincipalRules:
    """Who the certificates of a listener's clients are. Raises ConfigError."""
    try:
        return PrincipalRules(config.for_listener(listener).ssl_principal_mapping_rules)
    except RuleError as error:
        raise ConfigError(f"ssl.principal.mapping.rules: {error}.") from None
