"""The source of the console's schemas: a folder, a registry or the broker's own; a descriptor set for Protobuf."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from ottla.client.schema_registry import RegistryError
from ottla.console.messages.protobuf import Descriptors
from ottla.schemas.errors import SchemaError
from ottla.schemas.files import FolderSchemas
from ottla.server.schemas.registry_address import RegistryAtAddress
from ottla.server.schemas.source import Codecs, SchemasUnavailableError

if TYPE_CHECKING:
    from ottla.client.schema_registry import SchemaText
    from ottla.schemas.codec import Codec
    from ottla.server.schemas.source import SchemaSource
    from ottla.settings.config import BrokerConfig

_THREADS: Final = 2


class Schemas:
    """Schemas by id; those of the broker, unless the console's own settings name others."""

    def __init__(self, config: BrokerConfig, codecs: Codecs) -> None:
        self._config = config
        self._codecs = codecs
        own = _own_source(config)
        if own is not None:
            self._codecs = Codecs()
            self._codecs.look_up_in(own)
        self.protobuf = Descriptors(lambda: config.ottla_console_protobuf_descriptor_set)

    def value_type(self, topic: str) -> str | None:
        """The Protobuf type of a topic's values, if one is set."""
        return self._types().get(topic)

    def key_type(self, topic: str) -> str | None:
        """The Protobuf type of a topic's keys, if one is set."""
        return self._types().get(f"{topic}/key")

    def _types(self) -> dict[str, str]:
        pairs = (item.partition("=") for item in self._config.ottla_console_protobuf_types)
        return {topic.strip(): name.strip() for topic, _, name in pairs}

    @property
    def has_source(self) -> bool:
        """Whether there is somebody to ask for schemas by id."""
        return self._codecs.source is not None

    async def get(self, number: int) -> tuple[Codec | None, str]:
        """The codec of a schema's values; or None, and the reason."""
        try:
            found = await self._codecs.find(number)
        except (SchemaError, SchemasUnavailableError) as error:
            return None, f"schema {number}: {error}"
        return found, "" if found is not None else f"perhaps of a schema, but schema {number} is not known"


class _Folder:
    """Implements SchemaSource over files."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._threads = trio.CapacityLimiter(_THREADS)

    async def schema(self, schema_id: int) -> SchemaText | None:
        return await trio.to_thread.run_sync(self._find, schema_id, limiter=self._threads, abandon_on_cancel=True)

    async def subjects(self, schema_id: int) -> frozenset[str]:
        return frozenset()

    def _find(self, schema_id: int) -> SchemaText | None:
        try:
            return FolderSchemas(self._folder).schema(schema_id)
        except RegistryError as error:
            raise SchemasUnavailableError(str(error)) from None


def _own_source(config: BrokerConfig) -> SchemaSource | None:
    """The source in the console's settings, if there is one; an invalid address has no schemas."""
    if config.ottla_console_schema_dir:
        return _Folder(config.ottla_console_schema_dir)
    try:
        url = config.ottla_console_schema_registry_url
        return RegistryAtAddress(url) if url else None
    except RegistryError:
        return None
