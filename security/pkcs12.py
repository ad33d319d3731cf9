"""PKCS12 stores, converted to PEM. Uses `cryptography`, which the extra `ottla[security]` brings."""

from __future__ import annotations

from typing import Any

from ottla.settings.config import ConfigError


def key_and_chain(data: bytes, password: str | None, where: str) -> bytes:
    """The private key and its certificates as PEM; raises ConfigError."""
    store = _load(data, password, where)
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    if store.key is None or store.cert is None:
        raise ConfigError(f"{where} has no private key with a certificate.")
    pem: bytes = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    for entry in (store.cert, *store.additional_certs):
        pem += entry.certificate.public_bytes(Encoding.PEM)
    return pem


def certificates(data: bytes, password: str | None, where: str) -> bytes:
    """The certificates of authorities as PEM; raises ConfigError."""
    store = _load(data, password, where)
    from cryptography.hazmat.primitives.serialization import Encoding

    entries = [*([store.cert] if store.cert is not None else []), *store.additional_certs]
    return b"".join(entry.certificate.public_bytes(Encoding.PEM) for entry in entries)


def _load(data: bytes, password: str | None, where: str) -> Any:
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12
    except ImportError:
        raise ConfigError(f"{where} is PKCS12, which needs another package: pip install 'ottla[security]'.") from None
    try:
        return load_pkcs12(data, None if password is None else password.encode())
    except ValueError:
        raise ConfigError(f"{where} is neither PEM nor PKCS12 with this password.") from None
    except UnsupportedAlgorithm as error:
        raise ConfigError(f"{where} cannot be read: {error}.") from None
