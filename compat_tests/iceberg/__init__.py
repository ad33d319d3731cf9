"""Apache Iceberg's catalogues behind its REST interface, for tests: see Catalogue.java."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from compat_tests.java import java_program

__all__ = ["RestCatalogues", "missing", "rest_catalogues"]

JARS: Final = Path(__file__).resolve().parents[2] / ".jars" / "iceberg"
SERVER: Final = Path(__file__).resolve().parent / "Catalogue.java"
CREDENTIAL: Final = "ada:lovelace"


def missing() -> str | None:
    """Why the server cannot be run here; None if it can."""
    if shutil.which("java") is None:
        return "Java is not installed"
    if not (JARS / ".complete").exists():
        return "Apache Iceberg's jars are not there: run `make jars` (it needs Maven)"
    return None


class RestCatalogues:
    """A server that runs. Each folder has a catalogue of its own."""

    def __init__(self, port: int) -> None:
        self._port = port

    def settings(self, warehouse: Path, credential: str = CREDENTIAL) -> Mapping[str, str]:
        """What `[iceberg]` says to use the catalogue of this folder."""
        uri = f"http://127.0.0.1:{self._port}"
        login = {"oauth2-server-uri": f"{uri}/v1/oauth/tokens", "credential": credential}
        return {"type": "rest", "uri": uri, "warehouse": warehouse.as_uri(), **login}


@contextmanager
def rest_catalogues() -> Iterator[RestCatalogues]:
    """Runs the server while the block does."""
    command = java_program(SERVER, CREDENTIAL, jars=JARS)
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            yield RestCatalogues(int(process.stdout.readline()))
        finally:
            process.communicate("")
