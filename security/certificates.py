"""Making certificates: an authority of one's own, and what it signs for brokers and clients.

Uses `cryptography`, which the extra `ottla[security]` brings. Keys are on the curve P-256, with which signing a
handshake takes a tenth of the time that it takes with RSA.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from ottla.settings.config import ConfigError

AUTHORITY_DAYS: Final = 3650
DAYS: Final = 825


class Pair(NamedTuple):
    """A private key and its certificate, in PEM."""

    key: bytes
    certificate: bytes

    def __repr__(self) -> str:
        return "Pair(…)"


def make_authority(name: str, days: int = AUTHORITY_DAYS) -> Pair:
    """A certificate that signs others, and itself. Raises ConfigError if the package for it is missing."""
    _require_package()
    from cryptography import x509

    key = _new_key()
    builder = _builder(name, name, key, days)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_key_usage(signs=True), critical=True)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    return _signed(builder, key, key)


def issue(authority: Pair, name: str, hosts: Sequence[str] = (), days: int = DAYS) -> Pair:
    """A certificate for `name`, which a client may show and, if there are `hosts`, a server of that name as well.

    Raises ConfigError if the package for it is missing.
    """
    _require_package()
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from cryptography.x509.oid import ExtendedKeyUsageOID

    signer = load_pem_private_key(authority.key, None)
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    key = _new_key()
    builder = _builder(name, issuer.subject, key, days)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_key_usage(signs=False), critical=True)
    usages = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if hosts else [])]
    builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    issuer_key: Any = issuer.public_key()
    builder = builder.add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key), critical=False)
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName([_alternative(it) for it in hosts]), critical=False)
    return _signed(builder, key, signer)


def _require_package() -> None:
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise ConfigError("making certificates needs another package: pip install 'ottla[security]'.") from None


def _new_key() -> Any:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _builder(name: str, issuer: Any, key: Any, days: int) -> Any:
    from cryptography import x509

    # A clock that is a little behind must not refuse what was made just now.
    begin = datetime.now(UTC) - timedelta(minutes=10)
    builder = x509.CertificateBuilder().subject_name(_subject(name))
    builder = builder.issuer_name(_subject(issuer) if isinstance(issuer, str) else issuer)
    builder = builder.public_key(key.public_key()).serial_number(x509.random_serial_number())
    return builder.not_valid_before(begin).not_valid_after(begin + timedelta(days=days))


def _subject(name: str) -> Any:
    from cryptography import x509

    if "=" in name:
        return x509.Name.from_rfc4514_string(name)
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


def _key_usage(*, signs: bool) -> Any:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative(host: str) -> Any:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _signed(builder: Any, key: Any, signer: Any) -> Pair:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    certificate = builder.sign(signer, hashes.SHA256())
    private: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    public: bytes = certificate.public_bytes(Encoding.PEM)
    return Pair(private, public)
