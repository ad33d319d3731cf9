"""How a client connects securely, by the settings that Kafka's clients have, Java's names or librdkafka's.

| what | Java | librdkafka |
|---|---|---|
| protocol | `security.protocol` | the same |
| mechanism | `sasl.mechanism` | `sasl.mechanism`, `sasl.mechanisms` |
| user | `sasl.jaas.config` | `sasl.username`, `sasl.password` |
| delegation token | `sasl.jaas.config` with `tokenauth="true"`; its id and HMAC are user and password | |
| token of OAUTHBEARER | `sasl.oauthbearer.token.endpoint.url`, a file URL | the same |

Those of TLS are in `tls.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.client import sasl
from ottla.client.errors import SecurityConfigError
from ottla.client.jaas import JaasError, parse_jaas

if TYPE_CHECKING:
    from ottla.client.tls import Tls

PLAINTEXT: Final = "PLAINTEXT"
#: librdkafka's ssl.crl.location is as near to ssl.ca.location as 0.903, sasl.mechansim to sasl.mechanism as 0.929.
_NEAR: Final = 0.92
_PROTOCOLS: Final = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")

#: What `from_properties` looks at, and what says of a file what shows in it anyway.
SETTINGS: Final = frozenset(
    {
        "security.protocol",
        *("sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password", "sasl.jaas.config"),
        "sasl.oauthbearer.token.endpoint.url",
        *("ssl.truststore.type", "ssl.truststore.location", "ssl.truststore.certificates"),
        *("ssl.keystore.type", "ssl.keystore.location", "ssl.keystore.key", "ssl.keystore.certificate.chain"),
        *("ssl.key.password", "ssl.endpoint.identification.algorithm", "enable.ssl.certificate.verification"),
        *("ssl.ca.location", "ssl.ca.pem", "ssl.key.location", "ssl.key.pem"),
        *("ssl.certificate.location", "ssl.certificate.pem"),
    }
)


class Login(NamedTuple):
    """The mechanism by which the client says who it is, and the secret."""

    mechanism: str
    user: str = ""
    password: str = ""
    #: The file with the token. It is read again for each connection, because the token may have been renewed.
    token_file: str | None = None
    #: Whether user and password are those of a delegation token.
    is_token: bool = False

    def __repr__(self) -> str:
        return f"Login({self.mechanism!r}, {self.user!r})"

    def begin(self) -> sasl.Exchange:
        """For a new connection; SecurityConfigError if the token cannot be read."""
        if self.token_file is None:
            return sasl.begin(self.mechanism, self.user, self.password, is_token=self.is_token)
        try:
            token = Path(self.token_file).read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not a token"
            raise SecurityConfigError(f"the token in {self.token_file} cannot be read: {reason}") from None
        return sasl.begin_with_token(token)


class Security(NamedTuple):
    """How to connect. The default is without a login, and unencrypted."""

    login: Login | None = None
    tls: Tls | None = None


NO_SECURITY: Final = Security()


def protocol_of(*, logs_in: bool, encrypts: bool) -> str:
    """The `security.protocol` of connections with or without a login, encrypted or not."""
    return ("SASL_" if logs_in else "") + ("SSL" if encrypts else PLAINTEXT)


def read_properties(path: str | Path) -> dict[str, str]:
    """A client's properties out of a file; raises SecurityConfigError."""
    from ottla.client.properties import parse_properties

    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise SecurityConfigError(f"{path} cannot be read: {reason}") from None
    return {name: value for name, value, _ in parse_properties(text)}


def from_properties(properties: Mapping[str, str]) -> Security:
    """TLS and SASL from a client's properties; other properties are ignored. Raises SecurityConfigError."""
    protocol = properties.get("security.protocol", PLAINTEXT).upper()
    if protocol not in _PROTOCOLS:
        raise SecurityConfigError(f"security.protocol is {protocol}; known are {', '.join(_PROTOCOLS)}")
    login = _login(properties) if protocol.startswith("SASL_") else None
    if not protocol.endswith("SSL"):
        return Security(login)
    from ottla.client import tls

    return Security(login, tls.from_properties(properties))


def misspelt(properties: Mapping[str, str]) -> dict[str, str]:
    """Names that are as good as one of SETTINGS and are not, each with the one that was probably meant.

    A name that is less like any of them is taken for a setting that matters to other clients.
    """
    from difflib import get_close_matches

    unknown = [name for name in properties if name not in SETTINGS]
    near = {name: get_close_matches(name, SETTINGS, n=1, cutoff=_NEAR) for name in unknown}
    return {name: found[0] for name, found in near.items() if found}


def _login(properties: Mapping[str, str]) -> Login:
    mechanism = properties.get("sasl.mechanism") or properties.get("sasl.mechanisms") or "GSSAPI"
    if mechanism not in sasl.MECHANISMS:
        raise SecurityConfigError(f"sasl.mechanism is {mechanism}; known are {', '.join(sasl.MECHANISMS)}")
    if mechanism == sasl.OAUTHBEARER:
        return Login(mechanism, token_file=_token_file(properties))
    user, password = properties.get("sasl.username"), properties.get("sasl.password")
    is_token = False
    jaas = properties.get("sasl.jaas.config")
    if jaas is not None:
        try:
            options = parse_jaas(jaas).options
        except JaasError as error:
            raise SecurityConfigError(f"sasl.jaas.config cannot be read: {error}") from None
        user, password = options.get("username"), options.get("password")
        is_token = mechanism in sasl.DIGESTS and options.get("tokenauth", "").lower() == "true"
    if user is None or password is None:
        raise SecurityConfigError(
            f"{mechanism} needs a user and a password: sasl.username and sasl.password, or sasl.jaas.config"
        )
    return Login(mechanism, user, password, is_token=is_token)


def _token_file(properties: Mapping[str, str]) -> str:
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    url = properties.get("sasl.oauthbearer.token.endpoint.url", "")
    parts = urlsplit(url)
    if parts.scheme != "file":
        raise SecurityConfigError(
            "OAUTHBEARER needs a file with the token: sasl.oauthbearer.token.endpoint.url=file:///…"
        )
    return url2pathname(parts.path)
