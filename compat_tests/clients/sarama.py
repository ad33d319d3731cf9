"""Sarama, a client in Go: with TLS and SASL (compat_tests/go/sarama/main.go)."""

from __future__ import annotations

from pathlib import Path

PROGRAM = Path(__file__).resolve().parents[1] / "go" / "build" / "sarama"


def missing() -> str | None:
    """What this machine lacks to run it, in a sentence; None if it lacks nothing."""
    return None if PROGRAM.is_file() else "the program by Sarama is not built: it takes Go and `make clients`"
