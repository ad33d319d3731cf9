"""Where Java and the jars of Apache Kafka are found."""

from __future__ import annotations

import shutil
from pathlib import Path

JARS = Path(__file__).resolve().parents[2] / ".jars" / "kafka"


def missing() -> str | None:
    """Why Java clients and Apache Kafka cannot be run here; None if they can."""
    if shutil.which("java") is None:
        return "Java is not installed"
    if not (JARS / ".complete").exists():
        return "Apache Kafka's jars are not there: run `make jars` (it needs Maven)"
    return None


def java(*arguments: str, heap_mb: int = 256, log_level: str = "off") -> list[str]:
    """The command that runs a main class, named in `arguments`, with Apache Kafka's jars."""
    return [
        "java",
        f"-Xmx{heap_mb}m",
        f"-Dorg.slf4j.simpleLogger.defaultLogLevel={log_level}",
        "-cp",
        f"{JARS}/*",
        *arguments,
    ]
