"""TLS as a client: whom to trust, and the certificate to show. PEM only, in files or as text.

| what | Java | librdkafka |
|---|---|---|
| authorities | `ssl.truststore.location`, `ssl.truststore.certificates` | `ssl.ca.location`, `ssl.ca.pem` |
| chain | `ssl.keystore.location`, `….certificate.chain` | `ssl.certificate.location`, `ssl.certificate.pem` |
| key | the same file, `ssl.keystore.key` | `ssl.key.location`, `ssl.key.pem` |
| its password | `ssl.key.password` | the same |
| check names | `ssl.endpoint.identification.algorithm` | the same, `enable.ssl.certificate.verification` |
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import NamedTuple

from ottla.client.errors import SecurityConfigError


class Tls(NamedTuple):
    """The certificates of a TLS client; texts are PEM."""

    authorities: str | None = None
    key_and_chain: str | None = None
    key_password: str | None = None
    checks_names: bool = True
    checks_certificates: bool = True

    def __repr__(self) -> str:
        return "Tls(…)"


def from_properties(properties: Mapping[str, str]) -> Tls:
    """TLS from a client's properties; reads files, and raises SecurityConfigError."""
    authorities = properties.get("ssl.truststore.certificates") or properties.get("ssl.ca.pem")
    for name in ("ssl.truststore.location", "ssl.ca.location"):
        authorities = authorities or _read(properties, name)
    key = properties.get("ssl.keystore.key") or properties.get("ssl.key.pem") or _read(properties, "ssl.key.location")
    chain = (
        properties.get("ssl.keystore.certificate.chain")
        or properties.get("ssl.certificate.pem")
        or _read(properties, "ssl.certificate.location")
    )
    both = f"{key}\n{chain}\n" if key and chain else _read(properties, "ssl.keystore.location")
    identification = properties.get("ssl.endpoint.identification.algorithm", "https")
    return Tls(
        authorities,
        both,
        properties.get("ssl.key.password"),
        identification.lower() == "https",
        properties.get("enable.ssl.certificate.verification", "true").lower() != "false",
    )


@lru_cache(maxsize=16)
def context_of(tls: Tls) -> ssl.SSLContext:
    """The context of connections; raises SecurityConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = tls.checks_names and tls.checks_certificates
    context.verify_mode = ssl.CERT_REQUIRED if tls.checks_certificates else ssl.CERT_NONE
    try:
        if tls.authorities is None:
            context.load_default_certs()
        else:
            context.load_verify_locations(cadata=tls.authorities)
        if tls.key_and_chain is not None:
            with as_file(tls.key_and_chain.encode()) as path:
                context.load_cert_chain(path, password=tls.key_password or "")
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise SecurityConfigError(f"a certificate or key cannot be used: {reason}") from None
    return context


def speaks_tls(host: str, port: int, timeout_seconds: float) -> bool:
    """Whether who listens there answers a TLS handshake, even by refusing it; nobody is trusted with anything."""
    context = context_of(Tls(checks_certificates=False))
    try:
        with (
            socket.create_connection((host, port), timeout_seconds) as connected,
            context.wrap_socket(connected, server_hostname=host),
        ):
            return True
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")
    except OSError:
        return False


@contextmanager
def as_file(data: bytes) -> Iterator[str]:
    """A name under which OpenSSL can read bytes that are to be on no disk.

    Only Linux has files without a disk. Elsewhere it is a file that nobody else may read, and that is removed.
    """
    if not hasattr(os, "memfd_create"):
        with NamedTemporaryFile(prefix="ottla-key-") as file:
            file.write(data)
            file.flush()
            yield file.name
        return
    descriptor = os.memfd_create("ottla-key", os.MFD_CLOEXEC)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _read(properties: Mapping[str, str], name: str) -> str | None:
    path = properties.get(name)
    if not path:
        return None
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise SecurityConfigError(f"{name}: {path} cannot be read: {error.strerror}") from None
    if b"-----BEGIN " not in data:
        raise SecurityConfigError(f"{name}: {path} is not PEM; keytool and openssl pkcs12 convert other stores")
    return data.decode("ascii", "replace")
