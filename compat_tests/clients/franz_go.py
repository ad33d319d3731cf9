"""franz-go, a client in Go: as a member of a group (compat_tests/go/member.go), with TLS and SASL (secure/main.go)."""

from __future__ import annotations

from pathlib import Path

PROGRAM = Path(__file__).resolve().parents[1] / "go" / "build" / "member"
SECURE = PROGRAM.with_name("secure")


def missing() -> str | None:
    """What this machine lacks to run it, in a sentence; None if it lacks nothing."""
    return None if PROGRAM.is_file() else "the member by franz-go is not built: it takes Go and `make clients`"


def member() -> list[str]:
    """The command that runs a member; its options follow."""
    return [str(PROGRAM)]
