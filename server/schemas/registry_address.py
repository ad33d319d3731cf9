"""The schema registry at an address, asked by HTTP."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

import trio

from ottla.client.schema_registry import Registry, RegistryError
from ottla.server.schemas.source import SchemasUnavailableError

if TYPE_CHECKING:
    from ottla.client.schema_registry import SchemaText

T = TypeVar("T")

_MAX_ANSWERS: Final = 2_000
_FOUND_SECONDS: Final = 60.0
_MISSING_SECONDS: Final = 5.0
_DOWN_SECONDS: Final = 2.0
_THREADS: Final = 2


class RegistryAtAddress:
    """Implements SchemaSource by HTTP, in worker threads. What was found is remembered for a minute, what was not for
    some seconds; after a failure it is left alone for a moment.
    """

    def __init__(self, url: str) -> None:
        """Raises RegistryError unless it is an address of HTTP."""
        self._registry = Registry(url)
        self._threads = trio.CapacityLimiter(_THREADS)
        self._down_until, self._why = 0.0, ""
        self._answers: OrderedDict[tuple[str, int], tuple[object, float]] = OrderedDict()

    async def schema(self, schema_id: int) -> SchemaText | None:
        return await self._ask("schema", schema_id, self._registry.schema)

    async def subjects(self, schema_id: int) -> frozenset[str]:
        return await self._ask("subjects", schema_id, self._registry.subjects)

    async def _ask(self, what: str, number: int, ask: Callable[[int], T]) -> T:
        key, now = (what, number), trio.current_time()
        found, valid_until = self._answers.get(key, (None, 0.0))
        if now >= valid_until:
            if now < self._down_until:
                raise SchemasUnavailableError(self._why)
            try:
                found = await trio.to_thread.run_sync(ask, number, limiter=self._threads, abandon_on_cancel=True)
            except RegistryError as error:
                self._down_until, self._why = trio.current_time() + _DOWN_SECONDS, str(error)
                raise SchemasUnavailableError(self._why) from None
            self._answers[key] = found, now + (_FOUND_SECONDS if found else _MISSING_SECONDS)
            if len(self._answers) > _MAX_ANSWERS:
                self._answers.popitem(last=False)
        return found  # type: ignore[return-value]  # what `ask` returned for this key
