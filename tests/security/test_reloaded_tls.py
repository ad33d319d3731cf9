"""A port whose files are read again: new connections are those of the new files, whoever was given the context."""

from __future__ import annotations

import shutil
import ssl
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cryptography")

from ottla.security.distinguished_name import distinguished_name
from ottla.security.tls import ReloadedTls
from ottla.settings.config import BrokerConfig
from tests.security.signed import Signed


def shown_name(server_context: ssl.SSLContext, client_context: ssl.SSLContext) -> str | None:
    """Whose certificate a server sees of a client with this context; None if it does not let them in."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    client = client_context.wrap_bio(to_client, to_server, server_hostname="127.0.0.1")
    ended: set[ssl.SSLObject] = set()
    while len(ended) < 2:
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError:
                return None
            ended.add(side)
    certificate: Any = server.getpeercert()
    return distinguished_name(certificate["subject"])


def test_whom_it_trusts_is_read_again(tmp_path: Path) -> None:
    folders = [tmp_path / "old", tmp_path / "new"]
    for folder in folders:
        folder.mkdir()
    old, new = map(Signed, folders)
    trusted, key = tmp_path / "trusted.pem", tmp_path / "key.pem"
    shutil.copy(old.ca, trusted)
    shutil.copy(old.server, key)
    settings = {
        "listener.name.http.ssl.keystore.location": str(key),
        "listener.name.http.ssl.truststore.location": str(trusted),
        "listener.name.http.ssl.client.auth": "required",
    }
    tls = ReloadedTls(BrokerConfig(settings), "HTTP", "SSL")
    context = tls.context
    assert context.verify_mode is ssl.CERT_REQUIRED
    alice = old.context(old.file("alice", "CN=alice"))
    bob = old.context(new.file("bob", "CN=bob"))
    assert (shown_name(context, alice), shown_name(context, bob)) == ("CN=alice", None)
    trusted.write_text(Path(new.ca).read_text() + "\n")
    assert tls.renew()
    assert not tls.renew()
    assert (shown_name(context, alice), shown_name(context, bob)) == (None, "CN=bob")
    shutil.copy(new.server, key)
    assert tls.renew()
    bob.load_verify_locations(cafile=new.ca)
    assert shown_name(context, bob) == "CN=bob"
