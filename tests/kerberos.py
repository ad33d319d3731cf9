"""A realm of Kerberos for tests: MIT's KDC on a free port, with principals and their keytabs in a folder."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

HOST: Final = "127.0.0.1"
REALM: Final = "OTTLA.TEST"
SERVICE: Final = "kafka"
_TIMEOUT_S: Final = 120.0
#: Debian has the KDC where only root's path leads.
_PATH: Final = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
_PROGRAMS: Final = ("krb5kdc", "kdb5_util", "kadmin.local")


def missing() -> str:
    """What this machine lacks for it; empty if nothing."""
    lacking = [program for program in _PROGRAMS if shutil.which(program, path=_PATH) is None]
    if lacking:
        return f"{', '.join(lacking)} not installed (Debian: krb5-kdc, krb5-admin-server)"
    return "" if importlib.util.find_spec("gssapi") else "gssapi is not installed (the extra kerberos)"


class Realm:
    """Runs until the context ends. `environment` is what programs need to find it."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.environment = {
            "KRB5_CONFIG": str(folder / "krb5.conf"),
            "KRB5_KDC_PROFILE": str(folder / "kdc.conf"),
            "KRB5CCNAME": f"FILE:{folder / 'tickets'}",
        }
        (folder / "krb5.conf").write_text(
            f"[libdefaults]\ndefault_realm = {REALM}\ndns_lookup_kdc = false\ndns_lookup_realm = false\n"
            "rdns = false\ndns_canonicalize_hostname = false\nudp_preference_limit = 1\n"
            f"[realms]\n{REALM} = {{\n  kdc = {HOST}:{port}\n}}\n"
        )
        (folder / "kdc.conf").write_text(
            f"[realms]\n{REALM} = {{\n  kdc_listen = {HOST}:{port}\n  kdc_tcp_listen = {HOST}:{port}\n"
            f"  database_name = {folder / 'principals'}\n  key_stash_file = {folder / 'stash'}\n}}\n"
        )

    def run(self, program: str, *arguments: str) -> None:
        """A program of Kerberos, to its end."""
        path = shutil.which(program, path=_PATH)
        assert path is not None
        done = subprocess.run([path, *arguments], env=self._env(), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def keytab(self, *principals: str) -> Path:
        """Make principals with random keys; the file that has them, named after the first."""
        path = self.folder / f"{principals[0].replace('/', '-')}.keytab"
        for principal in principals:
            self.run("kadmin.local", "-r", REALM, "-q", f"addprinc -randkey {principal}")
            self.run("kadmin.local", "-r", REALM, "-q", f"ktadd -k {path} {principal}")
        return path

    def start(self, port: int) -> subprocess.Popen[bytes]:
        self.run("kdb5_util", "create", "-r", REALM, "-s", "-P", "only for tests")
        path = shutil.which("krb5kdc", path=_PATH)
        assert path is not None
        process = subprocess.Popen([path, "-n", "-r", REALM], env=self._env(), stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            assert process.poll() is None, "the KDC has ended"
            with suppress(OSError), socket.create_connection((HOST, port), timeout=1):
                return process
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def _env(self) -> dict[str, str]:
        return {**os.environ, **self.environment}


@contextmanager
def realm(folder: Path) -> Iterator[Realm]:
    """A realm whose KDC runs until the end. This process finds it as well."""
    with socket.socket() as free:
        free.bind((HOST, 0))
        port = int(free.getsockname()[1])
    made = Realm(folder, port)
    process = made.start(port)
    before = {name: os.environ.get(name) for name in made.environment}
    os.environ.update(made.environment)
    try:
        yield made
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        process.terminate()
        process.wait()
