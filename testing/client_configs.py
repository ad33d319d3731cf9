"""How a client connects, as settings: by librdkafka's names, and by those of Java's clients."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.client.security import protocol_of

if TYPE_CHECKING:
    from ottla.client.security import Login, Security
    from ottla.client.tls import Tls

_LOGIN_MODULES: Final = {
    "PLAIN": "plain.PlainLoginModule",
    "OAUTHBEARER": "oauthbearer.OAuthBearerLoginModule",
}
_SCRAM_MODULE: Final = "scram.ScramLoginModule"


def librdkafka_config(bootstrap: str, security: Security) -> dict[str, Any]:
    """The settings of `confluent_kafka` and all others that stand on librdkafka."""
    found = _both(bootstrap, security)
    login, tls = security
    if login is not None and login.token_file is None:
        found |= {"sasl.username": login.user, "sasl.password": login.password}
    if tls is not None:
        if tls.authorities is not None:
            found["ssl.ca.pem"] = tls.authorities
        if tls.key_and_chain is not None:
            found |= {"ssl.key.pem": tls.key_and_chain, "ssl.certificate.pem": tls.key_and_chain}
        if not tls.checks_names:
            found["ssl.endpoint.identification.algorithm"] = "none"
        if not tls.checks_certificates:
            found["enable.ssl.certificate.verification"] = False
    return found


def java_config(bootstrap: str, security: Security) -> dict[str, Any]:
    """The settings of Java's clients, of Spark's connector and of the `ottla` commands.

    Java has none that lets a certificate be signed by anybody: that is left out.
    """
    found = _both(bootstrap, security)
    login, tls = security
    if login is not None:
        found["sasl.jaas.config"] = _jaas(login)
    if tls is not None:
        found |= _java_stores(tls)
        if not tls.checks_names:
            found["ssl.endpoint.identification.algorithm"] = ""
    return found


def _both(bootstrap: str, security: Security) -> dict[str, Any]:
    """What has the same name in both."""
    login, tls = security
    found: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "security.protocol": protocol_of(logs_in=login is not None, encrypts=tls is not None),
    }
    if login is not None:
        found["sasl.mechanism"] = login.mechanism
        if login.token_file is not None:
            found["sasl.oauthbearer.token.endpoint.url"] = Path(login.token_file).absolute().as_uri()
    if tls is not None and tls.key_password is not None:
        found["ssl.key.password"] = tls.key_password
    return found


def _jaas(login: Login) -> str:
    module = _LOGIN_MODULES.get(login.mechanism, _SCRAM_MODULE)
    options = {}
    if login.token_file is None:
        options = {"username": login.user, "password": login.password}
    if login.is_token:
        options["tokenauth"] = "true"
    written = "".join(f' {name}="{_quoted(value)}"' for name, value in options.items())
    return f"org.apache.kafka.common.security.{module} required{written};"


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _java_stores(tls: Tls) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if tls.authorities is not None:
        found |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": tls.authorities}
    if tls.key_and_chain is not None:
        found |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": tls.key_and_chain,
            "ssl.keystore.certificate.chain": tls.key_and_chain,
        }
    return found
