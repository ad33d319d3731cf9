"""Names of those who use a broker, as `type:name` (org.apache.kafka.common.security.auth.KafkaPrincipal)."""

from __future__ import annotations

from typing import Final

USER: Final = "User"
ANONYMOUS: Final = "User:ANONYMOUS"


def user(name: str) -> str:
    """The principal of a user."""
    return f"{USER}:{name}"
