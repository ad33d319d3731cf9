"""Where Java and the jars of Apache Kafka are found, and how the programs here are run."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2] / ".jars"
JARS: Final = ROOT / "kafka-4.4"
CLASSES: Final = ROOT / "classes"

QUICK: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Of a JVM that lives for seconds: compiling its code well would take longer than running it."""


def missing() -> str | None:
    """Why Java clients and Apache Kafka cannot be run here; None if they can."""
    if shutil.which("java") is None:
        return "Java is not installed"
    if not (JARS / ".complete").exists():
        return "Apache Kafka's jars are not there: run `make jars` (it needs Maven)"
    return None


def java(
    *arguments: str, heap_mb: int = 256, log_level: str = "off", jars: Path = JARS, classes: Path | None = None
) -> list[str]:
    """The command that runs a main class, named in `arguments`, with Apache Kafka's jars, and `classes` beside them."""
    own = "" if classes is None else f":{classes}"
    return [
        "java",
        *_from_archive(jars),
        f"-Xmx{heap_mb}m",
        f"-Dorg.slf4j.simpleLogger.defaultLogLevel={log_level}",
        "-cp",
        f"{jars}/*{own}",
        *arguments,
    ]


@cache
def _from_archive(jars: Path) -> list[str]:
    """A JVM that cannot use the archive says nothing and starts without it."""
    path = archive(jars)
    return [f"-XX:SharedArchiveFile={path}"] if path.exists() else []


def archive(jars: Path) -> Path:
    """Where the archive of these jars' classes is, for the JVM that `java` is (see `compat_tests.java.archive`)."""
    program = Path(shutil.which("java") or "java").resolve()
    told = hashlib.sha256(str(program).encode())
    for file in (program, *sorted(jars.glob("*.jar"))):
        # An archive is for files as they are: the JVM looks at their sizes and times.
        known = file.stat() if file.exists() else None
        told.update(f"{file} {known and (known.st_size, known.st_mtime_ns)}".encode())
    return CLASSES / f"{jars.name}-{told.hexdigest()[:16]}.jsa"


def java_program(source: Path, *arguments: str, jars: Path = JARS, heap_mb: int = 256) -> list[str]:
    """The command that runs a program of one source file: see `compiled`."""
    return java(*QUICK, source.stem, *arguments, heap_mb=heap_mb, jars=jars, classes=compiled(source, jars))


def compiled(source: Path, jars: Path = JARS) -> Path:
    """The folder with the classes of a source file. It is compiled once for all processes and test runs, until it or
    the jars change: java would take two seconds of a core to do so at each start.
    """
    told = hashlib.sha256(source.read_bytes())
    for jar in sorted(jars.glob("*.jar")):
        told.update(jar.name.encode())
    folder = CLASSES / f"{source.stem}-{told.hexdigest()[:16]}"
    if not folder.exists():
        CLASSES.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=CLASSES) as made:
            target = ("-d", f"{made}/classes", str(source))
            subprocess.run(
                ["javac", "-encoding", "UTF-8", "-nowarn", "-cp", f"{jars}/*", *target], check=True, capture_output=True
            )
            with suppress(OSError):  # another process has been quicker
                (Path(made) / "classes").rename(folder)
    return folder
