"""Validators of the tokens that clients send to a listener by OAUTHBEARER, according to its settings.

Unsigned tokens are accepted only if Kafka's class for them is named, or its options are in the login configuration;
Kafka itself accepts them by default.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from ottla.client.errors import SecurityConfigError
from ottla.security.oauth.oauthbearer import TokenValidator
from ottla.settings.config import BrokerConfig, ConfigError

if TYPE_CHECKING:
    from ssl import SSLContext

    from ottla.storage.clock import Clock

logger = logging.getLogger(__name__)

_PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer"
_SECURED: Final = (f"{_PACKAGE}.OAuthBearerValidatorCallbackHandler",)
_UNSECURED: Final = (
    f"{_PACKAGE}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler",
    f"{_PACKAGE}.internals.secured.OAuthBearerUnsecuredValidatorCallbackHandler",
)
_UNSECURED_OPTIONS: Final = ("unsecuredValidator", "unsecuredLogin")


def token_validator(config: BrokerConfig, listener: str, options: Mapping[str, str], clock: Clock) -> TokenValidator:
    """The validator of one listener; `options` are those of its login configuration. Reads files.

    Raises ConfigError.
    """
    if _takes_unsigned(config, listener, options):
        return _unsecured(listener, options, clock)
    try:
        from ottla.security.oauth import jwks, jwt_validator
    except ImportError:
        raise ConfigError("OAUTHBEARER needs another package: pip install 'ottla[oauth]'.") from None
    url = config.sasl_oauthbearer_jwks_endpoint_url
    if url is None:
        raise ConfigError(
            f"The listener {listener} offers OAUTHBEARER: say where the issuer's public keys are, as "
            "sasl.oauthbearer.jwks.endpoint.url=https://issuer.example.org/keys or file:///path."
        )
    _require_expectations(config, listener)
    path = jwks.path_of(url)
    keys: jwks.KeySource
    if path is not None:
        keys = jwks.FileKeys(path)
    elif urlsplit(url).scheme in ("http", "https"):
        keys = jwks.UrlKeys(
            url,
            _trust(options),
            refresh_ms=config.sasl_oauthbearer_jwks_endpoint_refresh_ms,
            backoff_ms=config.sasl_oauthbearer_jwks_endpoint_retry_backoff_ms,
            backoff_max_ms=config.sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms,
        )
    else:
        raise ConfigError(f"sasl.oauthbearer.jwks.endpoint.url is {url}: write an https or a file URL.")
    return jwt_validator.JwtValidator(
        keys,
        clock,
        issuer=config.sasl_oauthbearer_expected_issuer,
        audiences=config.sasl_oauthbearer_expected_audience,
        clock_skew_seconds=config.sasl_oauthbearer_clock_skew_seconds,
        scope_claim=config.sasl_oauthbearer_scope_claim_name,
        name_claim=config.sasl_oauthbearer_sub_claim_name,
    )


def _require_expectations(config: BrokerConfig, listener: str) -> None:
    """A token is for somebody, and of somebody: what nobody checks must be meant to be unchecked (Kafka 4.4)."""
    for what, expected, is_unverified in (
        ("audience", config.sasl_oauthbearer_expected_audience, config.sasl_oauthbearer_allow_unverified_audience),
        ("issuer", config.sasl_oauthbearer_expected_issuer, config.sasl_oauthbearer_allow_unverified_issuer),
    ):
        if not expected and not is_unverified:
            raise ConfigError(
                f"The listener {listener} would accept tokens of any {what}: set sasl.oauthbearer.expected.{what}, or "
                f"sasl.oauthbearer.allow.unverified.{what}=true if that is meant."
            )


def _takes_unsigned(config: BrokerConfig, listener: str, options: Mapping[str, str]) -> bool:
    name = config.sasl_server_callback_handler_class
    if name is not None and name not in (*_SECURED, *_UNSECURED):
        raise ConfigError(
            f"sasl.server.callback.handler.class of the listener {listener} is {name}; Ottla has {_SECURED[0]} and "
            f"{_UNSECURED[0]}."
        )
    if name is not None:
        return name in _UNSECURED
    is_meant = any(option.startswith(_UNSECURED_OPTIONS) for option in options)
    return is_meant and config.sasl_oauthbearer_jwks_endpoint_url is None


def _unsecured(listener: str, options: Mapping[str, str], clock: Clock) -> TokenValidator:
    from ottla.security.oauth.unsecured_jwt import UnsecuredValidator

    logger.warning(
        "the listener %s accepts unsigned tokens: whoever connects can claim to be anybody",
        listener,
        extra={"listener": listener},
    )
    try:
        return UnsecuredValidator(options, clock)
    except ValueError as error:
        raise ConfigError(f"The login configuration of OAUTHBEARER on the listener {listener}: {error}.") from None


def _trust(options: Mapping[str, str]) -> SSLContext | None:
    """Whom to trust when keys are fetched: as in Kafka, the ssl.* options of the login configuration say."""
    from ottla.client.tls import context_of, from_properties

    named = {name: value for name, value in options.items() if name.startswith("ssl.")}
    if not named:
        return None
    try:
        return context_of(from_properties(named))
    except SecurityConfigError as error:
        raise ConfigError(f"The login configuration of OAUTHBEARER: {error}.") from None
