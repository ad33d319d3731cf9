"""An API as this node serves it: which versions, by which handler and codec, and what its requests have cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import trio

from ottla.kproto import codec
from ottla.kproto.api_keys import ApiKey
from ottla.server.apis.declaration import general_codec
from ottla.server.request_metrics import RequestMetrics

if TYPE_CHECKING:
    from ottla.kproto.codec import Buffer, Part
    from ottla.kproto.schema import Request
    from ottla.server.apis.declaration import Api
    from ottla.server.apis.pending import Answer
    from ottla.server.apis.rules import Rule

Handler = Callable[[Any, Any], "Answer"]
"""From a request and its context (`ottla.server.apis.context`) to its answer (`ottla.server.apis.pending`).

It touches no task, because the event loop's wait may call it, which serves all connections.
"""


class ServedApi:
    """One served API. Its declaration and handler are loaded before its first request."""

    __slots__ = (
        "_load",
        "advertised_min_version",
        "build_in_steps",
        "build_parts",
        "changes_metadata",
        "handler",
        "is_pipelined",
        "key",
        "lets_frame_go",
        "max_version",
        "may_wait",
        "metrics",
        "min_version",
        "parse",
        "parse_in_steps",
        "parse_lone",
        "prepared_versions",
        "rule",
        "tagged_from_version",
        "versions_in_steps",
    )

    def __init__(
        self, key: ApiKey, load: Callable[[ApiKey], tuple[Api, Handler]], *, at_most: int | None = None
    ) -> None:
        self.key = key
        self.min_version, self.max_version = key.valid_versions
        if at_most is not None:
            self.max_version = min(self.max_version, at_most)
        # Older librdkafka turns compression off unless Produce 0 is advertised (KAFKA-18659); it is never served.
        self.advertised_min_version = 0 if key is ApiKey.PRODUCE else self.min_version
        #: The first version whose responses have a header with tagged fields; one that does not exist if none has.
        is_tagged = key.response_header_version(self.max_version) == 1
        self.tagged_from_version = key.flexible_versions.lowest if is_tagged else self.max_version + 1
        self.prepared_versions: set[int] = set()
        self.versions_in_steps: set[int] = set()
        #: What its requests cost; None until the first one.
        self.metrics: RequestMetrics | None = None
        self._load = load
        # From here on as declared, once a version is prepared.
        self.is_pipelined = False
        #: Whether others may be waited for as long as the request says.
        self.may_wait = False
        self.lets_frame_go = False
        self.changes_metadata = False
        self.rule: Rule
        self.handler: Handler
        self.parse: Callable[[int, Buffer, int], Request]
        self.build_parts: Callable[[Any, int], Sequence[Part]]
        self.parse_lone: Callable[[int, Buffer, int], Request | None]
        self.parse_in_steps: Callable[[int, Buffer, int, codec.Begun], codec.Steps[Request]]
        self.build_in_steps: Callable[[Any, int], codec.Steps[Sequence[Part]]]

    def __repr__(self) -> str:
        return f"{self.key.name} {self.min_version}-{self.max_version}"

    async def prepare(self, version: int) -> None:
        """Make ready for the first request of a version.

        Imports and compilation take some ten milliseconds, for which a worker thread holds up nobody else.
        """
        await trio.to_thread.run_sync(self.load, version)
        self.prepared_versions.add(version)

    async def prepare_steps(self, version: int) -> None:
        """`prepare` for the first large request of a version."""
        await trio.to_thread.run_sync(codec.prepare_steps, self.key, version)
        self.versions_in_steps.add(version)

    def load(self, version: int) -> None:
        """Import what serving this API needs, and make it ready for a version."""
        codec.prepare(self.key, version)
        declared, handler = self._load(self.key)
        if self.metrics is None:
            self.metrics = RequestMetrics(declared.error_counter())
        self.is_pipelined = declared.pipelined
        self.may_wait = declared.may_wait or declared.pipelined
        self.lets_frame_go = self.may_wait and self.key is not ApiKey.PRODUCE
        self.changes_metadata = declared.changes_metadata
        self.rule = declared.rule
        used = declared.codec or general_codec(self.key)
        self.parse, self.parse_lone, self.parse_in_steps = used.parse, used.parse_lone, used.parse_in_steps
        self.build_parts, self.build_in_steps = used.build_parts, used.build_in_steps
        self.handler = handler
