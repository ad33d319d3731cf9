"""Certificates for tests: an authority, and files of what it has signed."""

from __future__ import annotations

import ssl
from pathlib import Path

from ottla.security.certificates import issue, make_authority


class Signed:
    """The authority, whose certificate is the file `ca`; `server` is for 127.0.0.1."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._authority = make_authority("Test CA")
        self.ca = self._written("ca", self._authority.certificate)
        self.server = self.file("server", "CN=server", ["127.0.0.1", "localhost"])

    def file(self, file: str, name: str, hosts: list[str] | None = None) -> str:
        """A file with key and certificate of this distinguished name."""
        return self._written(file, b"".join(issue(self._authority, name, hosts or [], 1)))

    def context(self, key: str | None = None) -> ssl.SSLContext:
        """For a client that shows the certificate of a file."""
        made = ssl.create_default_context(cafile=self.ca)
        if key is not None:
            made.load_cert_chain(key)
        return made

    def _written(self, file: str, data: bytes) -> str:
        path = self._folder / f"{file}.pem"
        path.write_bytes(data)
        return str(path)
