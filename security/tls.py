"""TLS for a listener, from Kafka's ssl.* settings: PEM in files and inline, and PKCS12.

Kafka's counterpart is org.apache.kafka.common.security.ssl.DefaultSslEngineFactory, which knows no lists of revoked
certificates: here a truststore in PEM may contain some. The type of a store is told by its bytes, not by its setting:
Kafka's default type is JKS, and Java reads PKCS12, which keytool writes since version 9, under that name, too.
"""

from __future__ import annotations

import re
import ssl
from pathlib import Path
from typing import Final, NamedTuple

from ottla.client.tls import as_file
from ottla.runtime.file_states import FileState, file_states
from ottla.settings.config import BrokerConfig, ConfigError

_PEM: Final = b"-----BEGIN "
_REVOKED: Final = b"-----BEGIN X509 CRL-----"
_JKS: Final = b"\xfe\xed\xfe\xed"
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH: Final = {
    "required": ssl.CERT_REQUIRED,
    "requested": ssl.CERT_OPTIONAL,
    "none": ssl.CERT_NONE,
}
_AES: Final = re.compile(r"(AES|CAMELLIA|ARIA)_(\d+)_")


class TlsFiles(NamedTuple):
    """The files that a listener's certificates come from, each with what shows that it has changed."""

    states: tuple[FileState, ...]


def client_auth(config: BrokerConfig, listener: str, protocol: str) -> str:
    """Whether clients of a listener must show certificates: required, requested or none.

    If they also authenticate by SASL, only the listener's own setting counts (KIP-684).
    """
    if protocol == "SASL_SSL":
        name = f"listener.name.{listener.lower()}.ssl.client.auth"
        if not any(name in layer for layer in (config.dynamic, config.dynamic_default, config.static)):
            return "none"
    return str(config.for_listener(listener).ssl_client_auth)


def server_context(config: BrokerConfig, listener: str, protocol: str) -> ssl.SSLContext:
    """The TLS context for a listener's connections; reads files, and raises ConfigError."""
    own = config.for_listener(listener)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _choose_versions(context, own)
    _load_key(context, own, listener)
    _load_authorities(context, own, ssl.Purpose.CLIENT_AUTH)
    context.verify_mode = _CLIENT_AUTH[client_auth(config, listener, protocol)]
    # A connection that is cut needs no error here, because frames say how long they are; OpenSSL would call it a broken
    # peer.
    context.options |= ssl.OP_IGNORE_UNEXPECTED_EOF
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
    return context


class _Newest(ssl.SSLContext):
    """Stands for the newest of several contexts, for a server that is given one for good."""

    newest: ssl.SSLContext

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        newest = self.newest
        newest.sslobject_class = self.sslobject_class
        return newest.wrap_bio(incoming, outgoing, server_side, server_hostname, session)


class ReloadedTls:
    """The context of a port whose files, of its certificate and of whom it trusts, are read again when they change.

    Raises ConfigError if they cannot be used at first.
    """

    def __init__(self, config: BrokerConfig, listener: str, protocol: str) -> None:
        self._config = config
        self._listener = listener
        self._protocol = protocol
        self._files = tls_files(config, listener)
        self.context = _Newest(ssl.PROTOCOL_TLS_SERVER)
        self.context.newest = server_context(config, listener, protocol)
        self.context.verify_mode = self.context.newest.verify_mode

    def renew(self) -> bool:
        """Use what is in the files now for new connections. False if nothing has changed.

        Raises ConfigError if it cannot be used.
        """
        files = tls_files(self._config, self._listener)
        if files == self._files:
            return False
        self.context.newest = server_context(self._config, self._listener, self._protocol)
        self._files = files
        return True


def client_context(config: BrokerConfig, listener: str) -> ssl.SSLContext:
    """The TLS context for connections to other brokers' listener of this name; as `server_context`."""
    own = config.for_listener(listener)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _choose_versions(context, own)
    if own.ssl_keystore_location is not None or own.ssl_keystore_key is not None:
        _load_key(context, own, listener)
    _load_authorities(context, own, ssl.Purpose.SERVER_AUTH)
    context.check_hostname = own.ssl_endpoint_identification_algorithm.lower() == "https"
    return context


def tls_files(config: BrokerConfig, listener: str) -> TlsFiles:
    """The state of the files that `server_context` reads, to be compared with a later one."""
    own = config.for_listener(listener)
    paths = (own.ssl_keystore_location, own.ssl_truststore_location)
    return TlsFiles(file_states(path for path in paths if path is not None))


def _choose_versions(context: ssl.SSLContext, config: BrokerConfig) -> None:
    unknown = [name for name in config.ssl_enabled_protocols if name not in _VERSIONS]
    if unknown or not config.ssl_enabled_protocols:
        raise ConfigError(
            f"ssl.enabled.protocols is {','.join(config.ssl_enabled_protocols)}; served are {', '.join(_VERSIONS)}."
        )
    chosen = [_VERSIONS[name] for name in config.ssl_enabled_protocols]
    context.minimum_version, context.maximum_version = min(chosen), max(chosen)
    suites = [_openssl_name(name) for name in config.ssl_cipher_suites]
    # The ciphers of TLS 1.3 are OpenSSL's own choice; all of them are secure.
    older = [name for name in suites if not name.startswith("TLS_")]
    if older:
        try:
            context.set_ciphers(":".join(older))
        except ssl.SSLError:
            raise ConfigError(f"ssl.cipher.suites has none that OpenSSL knows: {', '.join(older)}.") from None


def _openssl_name(suite: str) -> str:
    """OpenSSL's name for a cipher suite of TLS 1.2, which may be given by Java's name."""
    if "_WITH_" not in suite:
        return suite
    return _AES.sub(r"\1\2_", suite).removeprefix("TLS_").replace("_WITH_", "_").replace("_CBC_", "_").replace("_", "-")


def _load_key(context: ssl.SSLContext, config: BrokerConfig, listener: str) -> None:
    password = config.ssl_key_password
    if config.ssl_keystore_key is not None or config.ssl_keystore_certificate_chain is not None:
        pem = f"{config.ssl_keystore_key or ''}\n{config.ssl_keystore_certificate_chain or ''}\n".encode()
        where = "ssl.keystore.key and ssl.keystore.certificate.chain"
    elif config.ssl_keystore_location is not None:
        where = f"ssl.keystore.location ({config.ssl_keystore_location})"
        pem = _read(config.ssl_keystore_location, where)
        if not _is_pem(pem, where):
            from ottla.security.pkcs12 import key_and_chain

            pem = key_and_chain(pem, config.ssl_keystore_password, where)
            password = None
    else:
        raise ConfigError(
            f"The listener {listener} needs a certificate: give ssl.keystore.location, a PEM file with key and chain."
        )
    try:
        with as_file(pem) as path:
            # Without a password OpenSSL would ask on the terminal.
            context.load_cert_chain(path, password=password or "")
    except (ssl.SSLError, ValueError, OSError) as error:
        raise ConfigError(f"{where} cannot be used as key and certificate: {_reason(error)}.") from None


def _load_authorities(context: ssl.SSLContext, config: BrokerConfig, purpose: ssl.Purpose) -> None:
    if config.ssl_truststore_certificates is not None:
        where = "ssl.truststore.certificates"
        pem = config.ssl_truststore_certificates.encode()
    elif config.ssl_truststore_location is not None:
        where = f"ssl.truststore.location ({config.ssl_truststore_location})"
        pem = _read(config.ssl_truststore_location, where)
        if not _is_pem(pem, where):
            from ottla.security.pkcs12 import certificates

            pem = certificates(pem, config.ssl_truststore_password, where)
    else:
        context.load_default_certs(purpose)
        return
    try:
        if _REVOKED in pem:
            # Lists of revoked certificates are read from files only.
            with as_file(pem) as path:
                context.load_verify_locations(cafile=path)
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
        else:
            context.load_verify_locations(cadata=pem.decode("ascii", "replace"))
    except (ssl.SSLError, ValueError, OSError) as error:
        raise ConfigError(f"{where} has no certificates that can be used: {_reason(error)}.") from None


def _read(path: str, where: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"{where} cannot be read: {error.strerror}.") from None


def _is_pem(data: bytes, where: str) -> bool:
    if data.startswith(_JKS):
        raise ConfigError(
            f"{where} is in Java's old format JKS; convert it: keytool -importkeystore -srckeystore FILE "
            "-destkeystore FILE.p12 -deststoretype PKCS12."
        )
    return _PEM in data


def _reason(error: Exception) -> str:
    """OpenSSL's reason without its file names and line numbers."""
    reason = getattr(error, "reason", None)
    return str(reason).lower().replace("_", " ") if reason else str(error).partition("(_ssl")[0].strip()
