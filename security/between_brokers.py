"""How this broker connects to others, by the settings of the listener that brokers use among themselves.

| protocol | what is needed |
|---|---|
| PLAINTEXT | nothing |
| SSL, SASL_SSL | `ssl.truststore.*`: whom to trust; `ssl.keystore.*`: who this broker is, if it is asked |
| SASL_… | `sasl.mechanism.inter.broker.protocol`; user and password in that mechanism's `sasl.jaas.config` |
| OAUTHBEARER | a file with the token: `sasl.oauthbearer.token.endpoint.url` |

Each may be given for the listener alone, with `listener.name.<listener>.` in front.
"""

from __future__ import annotations

import ssl
from functools import partial
from typing import TYPE_CHECKING

import trio

from ottla.client.errors import SecurityConfigError
from ottla.client.security import from_properties
from ottla.client.trio_connection import encrypt
from ottla.security.tls import client_context
from ottla.settings.config import BrokerConfig, ConfigError

if TYPE_CHECKING:
    from ottla.client.security import Login
    from ottla.client.trio_connection import OpenStream
    from ottla.metadata.image import Endpoint


def login(config: BrokerConfig, endpoint: Endpoint) -> Login | None:
    """How this broker logs in to another one; None if that does not ask. Raises SecurityConfigError."""
    if not endpoint.security_protocol.startswith("SASL_"):
        return None
    mechanism = config.for_listener(endpoint.listener).sasl_mechanism_inter_broker_protocol
    own = config.for_listener(endpoint.listener, mechanism)
    properties = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism}
    for name, value in (
        ("sasl.jaas.config", own.sasl_jaas_config),
        ("sasl.oauthbearer.token.endpoint.url", own.sasl_oauthbearer_token_endpoint_url),
    ):
        if value is not None:
            properties[name] = value
    return from_properties(properties).login


def open_stream(config: BrokerConfig, endpoint: Endpoint) -> OpenStream:
    """A function that connects to another broker's listener. Raises SecurityConfigError."""
    if not endpoint.security_protocol.endswith("SSL"):
        return partial(trio.open_tcp_stream, endpoint.host, endpoint.port)
    try:
        context = client_context(config, endpoint.listener)
    except ConfigError as error:
        raise SecurityConfigError(str(error)) from None
    return partial(_open_encrypted, endpoint.host, endpoint.port, context)


async def _open_encrypted(host: str, port: int, context: ssl.SSLContext) -> trio.abc.Stream:
    return await encrypt(await trio.open_tcp_stream(host, port), context, host)
