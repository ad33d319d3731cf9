"""What each listener asks of its clients, out of the settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from ottla.client.jaas import JaasError, parse_jaas
from ottla.server.metadata.scram_changes import ScramMechanism
from ottla.server.security.credentials import Credentials
from ottla.server.security.mechanism import MECHANISMS, PLAIN, Exchange
from ottla.server.security.plain import PlainExchange
from ottla.server.security.sasl import OfferedMechanism, SaslOffer
from ottla.server.security.scram import ScramExchange
from ottla.server.settings.config import BrokerConfig, ConfigError

_USER_PREFIX: Final = "user_"
_LOGIN_MODULES: Final = {True: "PlainLoginModule", False: "ScramLoginModule"}


def sasl_offer(config: BrokerConfig, listener: str, credentials: Credentials) -> SaslOffer:
    """What a listener that speaks SASL offers; raises ConfigError."""
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
        users = configured_users(mechanism, listener, name)
        offered[name] = OfferedMechanism(_beginner(name, credentials, users), mechanism.connections_max_reauth_ms)
    return SaslOffer(offered, own.connection_failed_authentication_delay_ms / 1000, own.sasl_server_max_receive_size)


def _beginner(name: str, credentials: Credentials, users: Mapping[str, str]) -> Callable[[], Exchange]:
    if name == PLAIN:
        return partial(PlainExchange, credentials, users)
    return partial(ScramExchange, ScramMechanism[name.replace("-", "_")], credentials)


def configured_users(config: BrokerConfig, listener: str, mechanism: str) -> dict[str, str]:
    """The passwords of the users that the login configuration names."""
    where = f"listener.name.{listener.lower()}.{mechanism.lower()}.sasl.jaas.config"
    if not any(where in layer for layer in (config.dynamic, config.dynamic_default, config.static)):
        return {}  # without the mechanism in its name Kafka does not look at it either
    try:
        module = parse_jaas(str(config.sasl_jaas_config))
    except JaasError as error:
        raise ConfigError(f"{where} cannot be read: {error}.") from None
    expected = _LOGIN_MODULES[mechanism == PLAIN]
    if module.name != expected:
        raise ConfigError(f"{where} names {module.name}; Ottla knows {expected} there.")
    if mechanism != PLAIN:
        return {}
    return {
        name.removeprefix(_USER_PREFIX): password
        for name, password in module.options.items()
        if name.startswith(_USER_PREFIX)
    }
