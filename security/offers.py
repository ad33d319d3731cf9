"""Which SASL mechanisms a listener offers, and how each checks its clients, according to the settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from ottla.client.jaas import JaasError, parse_jaas
from ottla.metadata.scram_changes import ScramMechanism
from ottla.security.credentials import Credentials
from ottla.security.mechanism import GSSAPI, MAX_MESSAGE_BYTES, MECHANISMS, OAUTHBEARER, PLAIN, Exchange
from ottla.security.plain import PlainExchange
from ottla.security.sasl import OfferedMechanism, SaslOffer
from ottla.security.scram import ScramExchange
from ottla.settings.config import BrokerConfig, ConfigError

_USER_PREFIX: Final = "user_"
_LOGIN_MODULES: Final = {
    PLAIN: "PlainLoginModule",
    OAUTHBEARER: "OAuthBearerLoginModule",
    GSSAPI: "Krb5LoginModule",
}
_SCRAM_LOGIN_MODULE: Final = "ScramLoginModule"


def sasl_offer(config: BrokerConfig, listener: str, credentials: Credentials) -> SaslOffer:
    """The SASL mechanisms and limits of a listener; raises ConfigError."""
    own = config.for_listener(listener)
    names = tuple(dict.fromkeys(own.sasl_enabled_mechanisms))
    if not names or not set(names) <= set(MECHANISMS):
        raise ConfigError(
            f"The listener {listener} asks for sasl.enabled.mechanisms={','.join(names)}; served are "
            f"{', '.join(MECHANISMS)}: write listener.name.{listener.lower()}.sasl.enabled.mechanisms=SCRAM-SHA-512."
        )
    offered = {}
    for name in names:
        mechanism = config.for_listener(listener, name)
        offered[name] = _offered(mechanism, listener, name, credentials)
    return SaslOffer(offered, own.connection_failed_authentication_delay_ms / 1000, own.sasl_server_max_receive_size)


def _offered(config: BrokerConfig, listener: str, mechanism: str, credentials: Credentials) -> OfferedMechanism:
    begin: Callable[[], Exchange]
    max_message_bytes = MAX_MESSAGE_BYTES
    if mechanism == PLAIN:
        begin = partial(PlainExchange, credentials, configured_users(config, listener))
    elif mechanism == OAUTHBEARER:
        from ottla.security.oauth.oauthbearer import MAX_TOKEN_MESSAGE_BYTES, OAuthBearerExchange
        from ottla.security.oauth.token_validators import token_validator

        options = login_options(config, listener, mechanism)
        begin = partial(OAuthBearerExchange, token_validator(config, listener, options, credentials.clock))
        max_message_bytes = MAX_TOKEN_MESSAGE_BYTES
    elif mechanism == GSSAPI:
        try:
            from ottla.security.kerberos import MAX_TICKET_MESSAGE_BYTES, KerberosService
        except ImportError:
            raise ConfigError(
                f"The listener {listener} offers GSSAPI, which needs another package: pip install 'ottla[kerberos]'; "
                f"or name others in listener.name.{listener.lower()}.sasl.enabled.mechanisms."
            ) from None
        begin = KerberosService(config, listener, login_options(config, listener, mechanism)).begin
        max_message_bytes = MAX_TICKET_MESSAGE_BYTES
    else:
        login_options(config, listener, mechanism)
        begin = partial(ScramExchange, ScramMechanism[mechanism.replace("-", "_")], credentials)
    return OfferedMechanism(begin, config.connections_max_reauth_ms, max_message_bytes)


def configured_users(config: BrokerConfig, listener: str) -> dict[str, str]:
    """The passwords of the users that the login configuration of PLAIN names. Raises ConfigError."""
    return {
        name.removeprefix(_USER_PREFIX): password
        for name, password in login_options(config, listener, PLAIN).items()
        if name.startswith(_USER_PREFIX)
    }


def login_options(config: BrokerConfig, listener: str, mechanism: str) -> Mapping[str, str]:
    """The options in the login configuration of a listener's mechanism."""
    where = f"listener.name.{listener.lower()}.{mechanism.lower()}.sasl.jaas.config"
    if not any(where in layer for layer in (config.dynamic, config.dynamic_default, config.static)):
        return {}  # without the mechanism in its name Kafka does not look at it either
    try:
        module = parse_jaas(str(config.sasl_jaas_config))
    except JaasError as error:
        raise ConfigError(f"{where} cannot be read: {error}.") from None
    expected = _LOGIN_MODULES.get(mechanism, _SCRAM_LOGIN_MODULE)
    if module.name != expected:
        raise ConfigError(f"{where} names {module.name}; Ottla knows {expected} there.")
    return module.options
