"""The REST proxy of a broker or cluster under test, in a thread of this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar
from urllib.request import BaseHandler, ProxyHandler

import trio

from ottla.client.schema_registry import Registry, RegistryError, RegistryLogin, SchemaText
from ottla.rest.errors import invalid_schema
from ottla.schemas.codec import Codec, codec_of
from ottla.testing.faults.dispatcher import EXEMPT_CLIENT_ID
from ottla.testing.services.trio_thread import TrioThread

if TYPE_CHECKING:
    from ottla.client.security import Security
    from ottla.rest.standalone import Running


T = TypeVar("T")


class _OnThisMachine(Registry):
    """A registry that is asked directly, whatever proxy the environment names."""

    def _handlers(self, login: RegistryLogin | None) -> list[BaseHandler]:
        return [ProxyHandler({})]


class RegistryBroker(Protocol):
    """The broker under test."""

    @property
    def schema_registry_url(self) -> str:
        """Its registry, which is started for the first who asks."""


class _Schemas:
    """Implements SchemaStore by the registry under test, which starts when it is first needed."""

    def __init__(self, broker: RegistryBroker) -> None:
        self._broker = broker

    async def codec(self, schema_id: int) -> Codec | None:
        return await self._in_thread(lambda registry: _codec(registry.schema(schema_id)))

    async def subjects(self, schema_id: int) -> frozenset[str]:
        return frozenset()  # everybody may use them

    async def register(self, subject: str, kind: str, text: str) -> int:
        try:
            return await self._in_thread(lambda registry: registry.register(subject, SchemaText(kind, text)))
        except RegistryError as error:
            raise invalid_schema(error) from None

    async def _in_thread(self, work: Callable[[Registry], T]) -> T:
        return await trio.to_thread.run_sync(lambda: work(_OnThisMachine(self._broker.schema_registry_url)))


def _codec(schema: SchemaText | None) -> Codec | None:
    return None if schema is None else codec_of(schema)


class Rest:
    """A REST proxy, started when this is made."""

    def __init__(self, bootstrap: Sequence[tuple[str, int]], security: Security, broker: RegistryBroker) -> None:
        from ottla.rest import standalone

        program = partial(
            standalone.run,
            bootstrap,
            ("127.0.0.1", 0),
            _Schemas(broker),
            security=security,
            client_id=EXEMPT_CLIENT_ID,
        )
        self._thread: TrioThread[Running] = TrioThread("REST proxy", program)

    @property
    def url(self) -> str:
        """Its address: `http://127.0.0.1:port`."""
        return self._thread.started.url

    def reset(self) -> None:
        """End its consumers, before their groups are forgotten."""

        async def abandon() -> None:
            self._thread.started.consumers.abandon_all()

        self._thread.call(abandon)

    def close(self) -> None:
        """Stop it."""
        self._thread.close()
