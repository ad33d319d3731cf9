"""How log lines name a member of a group."""

from __future__ import annotations

from typing import Protocol


class FromClient(Protocol):
    """A request that names its client."""

    @property
    def client_id(self) -> str: ...

    @property
    def client_host(self) -> str: ...


def who(member_id: str, client: FromClient) -> str:
    """`reader-1-59f2… (client.id 'reader' at /10.0.0.5)`: an id alone says nothing of which program it is."""
    return f"{member_id} (client.id {client.client_id!r} at {client.client_host})"
