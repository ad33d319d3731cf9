"""What clients have asked a broker under test: a test looks at the requests, counts them and waits for them."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ottla.testing import event_loops
from ottla.testing.apis import api_key, named_topics
from ottla.testing.errors import WaitTimeoutError

if TYPE_CHECKING:
    from ottla.server.apis.context import RequestContext

_KEPT: Final = 10_000
_SHOWN: Final = 10
_SCALARS: Final = (str, int, float, bool)


@dataclass(frozen=True, slots=True)
class Request:
    """A request as it came in, before a fault struck it."""

    api: str
    """Kafka's name of the API, such as `Produce` or `OffsetCommit`."""
    version: int
    client_id: str | None
    topics: tuple[str, ...]
    """The topics that it names. A Fetch that goes on with a session names only those that have changed."""
    fields: Mapping[str, object]
    """Its own texts, numbers and flags by the names of Kafka's schema in snake case: `fields["acks"]`, `["group_id"]`.
    What lies in its lists and structures is left out."""


class Requests:
    """The last 10,000 requests of a broker's clients, without the fixture's own, since its start or its last reset."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._kept: deque[Request] = deque(maxlen=_KEPT)

    def __iter__(self) -> Iterator[Request]:
        with self._changed:
            return iter(list(self._kept))

    def __len__(self) -> int:
        return len(self._kept)

    def find(
        self,
        api: str | None = None,
        *,
        topic: str | None = None,
        client_id: str | None = None,
        where: Callable[[Request], object] | None = None,
    ) -> list[Request]:
        """Those of an API (`Produce`), of a topic and of a client, for which `where` holds; in the order they came."""
        wanted = None if api is None else api_key(api).kafka_name
        return [
            each
            for each in self
            if wanted in (None, each.api)
            and (topic is None or topic in each.topics)
            and client_id in (None, each.client_id)
            and (where is None or where(each))
        ]

    def count(self, api: str | None = None, **filters: Any) -> int:
        """How many `find` finds."""
        return len(self.find(api, **filters))

    def wait_for(
        self, api: str | None = None, count: int = 1, *, timeout_s: float = 10.0, **filters: Any
    ) -> list[Request]:
        """Wait until `find` finds `count` of them, and return these.

        Raises WaitTimeoutError, an AssertionError, which names the last requests. It blocks; see `wait_for_async`.
        """
        event_loops.refuse_to_block()
        return self._wait_for(api, count, timeout_s, filters)

    async def wait_for_async(
        self, api: str | None = None, count: int = 1, *, timeout_s: float = 10.0, **filters: Any
    ) -> list[Request]:
        """`wait_for` for asyncio and Trio."""
        return await event_loops.in_worker_thread(lambda: self._wait_for(api, count, timeout_s, filters))

    def clear(self) -> None:
        """Forget those that came until now."""
        with self._changed:
            self._kept.clear()

    def _wait_for(self, api: str | None, count: int, timeout_s: float, filters: Mapping[str, Any]) -> list[Request]:
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while len(found := self.find(api, **filters)) < count:
                if not self._changed.wait(deadline - time.monotonic()):
                    last = ", ".join(f"{each.api} {each.version}" for each in list(self._kept)[-_SHOWN:]) or "none"
                    raise WaitTimeoutError(
                        f"{len(found)} of {count} requests {api or 'of any kind'} after {timeout_s:g} s; "
                        f"the last requests are: {last}"
                    )
        return found

    # On the broker's loop.

    def note(self, context: RequestContext) -> None:
        """A request that has come in."""
        request: Any = context.request
        header = context.header
        fields: dict[str, object] = {}
        topics: tuple[str, ...] = ()
        if request is not None:
            names = [field.name for field in request.FIELDS if field.versions.includes(header.api_version)]
            values = ((name, getattr(request, name)) for name in names)
            fields = {name: value for name, value in values if value is None or isinstance(value, _SCALARS)}
            topics = named_topics(request, header.api_version, context.broker.metadata)
        noted = Request(context.api.key.kafka_name, header.api_version, header.client_id, topics, fields)
        with self._changed:
            self._kept.append(noted)
            self._changed.notify_all()
