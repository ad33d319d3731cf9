"""Where schemas come from: a folder with `<id>.avsc` files or a registry for Avro, a descriptor set for Protobuf.

All of them are asked in a thread.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import Request, build_opener

import trio

from ottla.console.protobuf import Descriptors

if TYPE_CHECKING:
    from ottla.console.avro import Schema
    from ottla.server.settings.config import BrokerConfig

MAX_SCHEMAS: Final = 200
MAX_SCHEMA_BYTES: Final = 1_048_576
_TIMEOUT_SECONDS: Final = 2.0
_MISS_SECONDS: Final = 30.0


class Schemas:
    """Schemas by id, the last used ones in memory. An id that was not found is asked for again after a while."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._known: OrderedDict[int, tuple[Schema | None, float]] = OrderedDict()
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
    def has_avro(self) -> bool:
        return bool(self._config.ottla_console_schema_dir or self._config.ottla_console_schema_registry_url)

    async def get(self, number: int) -> Schema | None:
        """The schema, or None where there is none, or nobody who knows it can be reached."""
        if not self.has_avro:
            return None
        now = trio.current_time()
        found, valid_until = self._known.get(number, (None, 0.0))
        if now >= valid_until:
            found = await trio.to_thread.run_sync(self._find, number, abandon_on_cancel=True)
            self._known[number] = (found, float("inf") if found is not None else now + _MISS_SECONDS)
            if len(self._known) > MAX_SCHEMAS:
                self._known.popitem(last=False)
        self._known.move_to_end(number)
        return found

    def _find(self, number: int) -> Schema | None:
        folder, registry = self._config.ottla_console_schema_dir, self._config.ottla_console_schema_registry_url
        try:
            if folder:
                path = Path(folder) / f"{number}.avsc"
                if path.is_file():
                    with path.open("rb") as file:
                        return _parsed(file.read(MAX_SCHEMA_BYTES))
            if registry and urlsplit(registry).scheme in ("http", "https"):
                request = Request(
                    f"{registry.rstrip('/')}/schemas/ids/{number}", headers={"accept": "application/json"}
                )
                with build_opener().open(request, timeout=_TIMEOUT_SECONDS) as answer:
                    described = _parsed(answer.read(MAX_SCHEMA_BYTES))
                if isinstance(described, dict) and described.get("schemaType", "AVRO") == "AVRO":
                    return _parsed(str(described["schema"]).encode())
        except (URLError, OSError, ValueError, KeyError, RecursionError):
            return None
        return None


def _parsed(text: bytes) -> Schema:
    schema: Schema = json.loads(text)
    return schema
