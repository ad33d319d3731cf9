"""Schemas by id, as the broker uses them: from the registry in its process, or from one that its settings name."""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

import trio

from ottla.schemas.codec import codec_of
from ottla.schemas.errors import SchemaError

if TYPE_CHECKING:
    from ottla.client.schema_registry import SchemaText
    from ottla.schemas.codec import Codec

_MAX_CODECS: Final = 500
_THREADS: Final = 2


class SchemasUnavailableError(Exception):
    """The registry does not answer now; the caller may retry."""


class SchemaSource(Protocol):
    """Knows schemas. Raises SchemasUnavailableError."""

    async def schema(self, schema_id: int) -> SchemaText | None:
        """The schema of an id; None if there is none."""

    async def subjects(self, schema_id: int) -> frozenset[str]:
        """The subjects that have the id in a version that is not deleted."""


class Codecs:
    """Codecs of schemas by id, the last used ones in memory. They are kept by the schema's text, not by its id."""

    def __init__(self) -> None:
        #: The source of schemas; None where no registry is served or named.
        self.source: SchemaSource | None = None
        self._kept: OrderedDict[SchemaKey, Codec | SchemaError] = OrderedDict()
        self._threads = trio.CapacityLimiter(_THREADS)

    def look_up_in(self, source: SchemaSource | None) -> None:
        """Look schemas up in this source from now on; codecs that were found before are kept by their schemas' text."""
        self.source = source

    async def find(self, schema_id: int) -> Codec | None:
        """The codec of an id; None if there is no such schema.

        Raises SchemaError if it cannot be used, SchemasUnavailableError if no registry can be reached.
        """
        if self.source is None:
            raise SchemasUnavailableError("this broker has no schema registry: start it with one, or name one")
        schema = await self.source.schema(schema_id)
        if schema is None:
            return None
        key = schema.kind, schema.text, tuple(schema.references.items())
        found = self._kept.get(key)
        if found is None:
            found = await trio.to_thread.run_sync(partial(_made, schema), limiter=self._threads)
            self._kept[key] = found
            if len(self._kept) > _MAX_CODECS:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(key)
        if isinstance(found, SchemaError):
            raise SchemaError(str(found))
        return found


SchemaKey = tuple[str, str, tuple[tuple[str, str], ...]]


def _made(schema: SchemaText) -> Codec | SchemaError:
    try:
        return codec_of(schema)
    except SchemaError as error:
        return error
