"""`ottla serve --secure`: a broker with encryption, authentication and access control, from an empty folder.

The first start makes what it needs in `security/` inside the data folder, readable only by its owner; later starts use
what is there. The nodes of `--nodes` share it, and log in to each other as the administrator.
"""

from __future__ import annotations

import os
import secrets
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.cli import CommandError
from ottla.security.certificates import Pair, issue, make_authority
from ottla.storage.disk.private import make_private_folder

if TYPE_CHECKING:
    from collections.abc import Iterable

FOLDER: Final = "security"
ADMIN: Final = "admin"
LISTENER: Final = "SASL_SSL"
_DEFAULT_ADDRESS: Final = "127.0.0.1:9092"


class SecureFolder(NamedTuple):
    """The folder with keys, certificates and the administrator's password."""

    path: Path

    @property
    def authority(self) -> Path:
        return self.path / "ca.pem"

    @property
    def authority_key(self) -> Path:
        return self.path / "ca.key"

    @property
    def broker(self) -> Path:
        return self.path / "broker.pem"

    @property
    def password(self) -> Path:
        return self.path / "admin.password"

    def read_authority(self) -> Pair:
        """The certificate authority. Raises CommandError if there is none."""
        try:
            return Pair(self.authority_key.read_bytes(), self.authority.read_bytes())
        except OSError:
            raise CommandError(f"there is no authority in {self.path}: `ottla serve --secure` makes one") from None


def make_files(data_dir: Path, listen: Iterable[str], advertise: Iterable[str]) -> SecureFolder:
    """Make the files that are missing, with a certificate for these addresses."""
    folder = SecureFolder(data_dir.absolute() / FOLDER)
    if not folder.broker.exists():
        hosts = {text.rpartition(":")[0].strip("[]") for text in listen}
        hosts |= {text.rpartition(":")[0] if ":" in text else text for text in advertise}
        _make(folder, sorted((hosts | {socket.gethostname(), "localhost", "127.0.0.1"}) - {"", "0.0.0.0", "::"}))
    _write_properties(folder, folder.password.read_text().strip())
    return folder


def settings(data_dir: Path, listen: list[str], advertise: list[str]) -> dict[str, str]:
    """The settings that `--secure` stands for; makes the files that are missing."""
    addresses = listen or [_DEFAULT_ADDRESS]
    if len(addresses) > 1:
        raise CommandError("--secure has one listener; for more write the settings that docs/security.md names")
    folder = make_files(data_dir, addresses, advertise)
    password = folder.password.read_text().strip()
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    users = f'{module} user_{ADMIN}="{password}";'
    return {
        "listeners": f"{LISTENER}://{addresses[0]}",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512,SCRAM-SHA-256,PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        f"listener.name.{LISTENER.lower()}.plain.sasl.jaas.config": (
            f'{module} username="{ADMIN}" password="{password}" user_{ADMIN}="{password}";'
        ),
        "listener.name.http.plain.sasl.jaas.config": users,
        "ottla.http.security.protocol": LISTENER,
        "ssl.keystore.location": str(folder.broker),
        "ssl.truststore.location": str(folder.authority),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{ADMIN}",
    }


def tell(data_dir: Path, bootstrap: str) -> None:
    """Say on standard error where the files are, and how to try them."""
    folder = data_dir.absolute() / FOLDER
    print(
        f"secure: user {ADMIN}, files in {folder} (client.properties for Java and ottla, librdkafka.properties)\n"
        f"  ottla topic list -b {bootstrap} --command-config {folder / 'client.properties'}\n"
        f"  kcat -L -b {bootstrap} -F {folder / 'librdkafka.properties'}",
        file=sys.stderr,
        flush=True,
    )


def write_private(path: Path, data: bytes) -> None:
    """Write a file that nobody else may read; it is whole or does not exist."""
    unfinished = path.with_name(path.name + ".new")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    unfinished.replace(path)


def _make(folder: SecureFolder, hosts: list[str]) -> None:
    authority = make_authority(f"Ottla CA {secrets.token_hex(4)}")
    broker = issue(authority, "broker", hosts)
    try:
        make_private_folder(folder.path)
        write_private(folder.authority, authority.certificate)
        write_private(folder.authority_key, authority.key)
        write_private(folder.password, secrets.token_urlsafe(24).encode() + b"\n")
        write_private(folder.broker, broker.key + broker.certificate)  # last: if it exists, so do the others
    except OSError as error:
        raise CommandError(f"cannot keep keys in {folder.path}: {error.strerror}") from None


def _write_properties(folder: SecureFolder, password: str) -> None:
    java = (
        "security.protocol=SASL_SSL\n"
        "sasl.mechanism=PLAIN\n"
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'username="{ADMIN}" password="{password}";\n'
        f"ssl.truststore.type=PEM\nssl.truststore.location={folder.authority}\n"
    )
    librdkafka = (
        "security.protocol=SASL_SSL\n"
        f"sasl.mechanism=PLAIN\nsasl.username={ADMIN}\nsasl.password={password}\nssl.ca.location={folder.authority}\n"
    )
    for name, text in (("client.properties", java), ("librdkafka.properties", librdkafka)):
        if not (folder.path / name).exists():
            write_private(folder.path / name, text.encode())
