"""Where Java and the jars of Apache Kafka are found."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

JARS = Path(__file__).resolve().parents[2] / ".jars" / "kafka-4.4"


def missing() -> str | None:
    """Why Java clients and Apache Kafka cannot be run here; None if they can."""
    if shutil.which("java") is None:
        return "Java is not installed"
    if not (JARS / ".complete").exists():
        return "Apache Kafka's jars are not there: run `make jars` (it needs Maven)"
    return None


def java(*arguments: str, heap_mb: int = 256, log_level: str = "off", classes: Path | None = None) -> list[str]:
    """The command that runs a main class, named in `arguments`, with Apache Kafka's jars, and `classes` beside them."""
    own = "" if classes is None else f":{classes}"
    return [
        "java",
        f"-Xmx{heap_mb}m",
        f"-Dorg.slf4j.simpleLogger.defaultLogLevel={log_level}",
        "-cp",
        f"{JARS}/*{own}",
        *arguments,
    ]


def compile_java(source: Path, folder: Path) -> Path:
    """Compile one of the classes here into a folder."""
    subprocess.run(["javac", "-cp", f"{JARS}/*", "-d", str(folder), str(source)], check=True)
    return folder
