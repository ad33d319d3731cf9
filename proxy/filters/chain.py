"""The filters of one client's connection, one after the other."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.error_responses import error_response
from ottla.kproto.errors import ErrorCode
from ottla.kproto.schema import Request, Response, Struct
from ottla.proxy.errors import RefusedError
from ottla.proxy.filters.filter import RefusedByFilterError

if TYPE_CHECKING:
    from ottla.proxy.filters.filter import Call, Client, Filter
    from ottla.proxy.metrics import Metrics

logger = logging.getLogger(__name__)

#: The highest versions in which these messages name topics and not their ids.
NAMED_UP_TO: Final = {
    ApiKey.PRODUCE: 12,
    ApiKey.FETCH: 12,
    ApiKey.OFFSET_COMMIT: 9,
    ApiKey.OFFSET_FETCH: 9,
    ApiKey.DELETE_TOPICS: 5,
}
# They have no version with names.
_WITHOUT_NAMES: Final = frozenset({ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE})


class Scope(NamedTuple):
    """The clients of a filter: on which listeners, and of which principals; by default, all."""

    listeners: re.Pattern[str] | None = None
    principals: re.Pattern[str] | None = None

    def includes(self, client: Client) -> bool:
        return (self.listeners is None or self.listeners.fullmatch(client.listener) is not None) and (
            self.principals is None or self.principals.fullmatch(client.principal) is not None
        )


EVERYBODY: Final = Scope()


class Named(NamedTuple):
    """A filter, its name in logs and metrics, and its scope."""

    name: str
    filter: Filter
    scope: Scope = EVERYBODY


class Filters:
    """All filters of a proxy, and which APIs and versions can be offered because of them."""

    def __init__(self, filters: Sequence[Named]) -> None:
        self.filters = filters
        self._needs_names = any(it.filter.NEEDS_TOPIC_NAMES for it in filters)
        self.parsed: frozenset[ApiKey] = frozenset().union(
            *(it.filter.requests() | it.filter.responses() for it in filters)
        )

    def highest(self, key: ApiKey) -> int:
        """The highest version that is offered and forwarded; -1 if the API is not."""
        if not all(it.filter.offers(key) for it in self.filters) or (self._needs_names and key in _WITHOUT_NAMES):
            return -1
        highest = key.valid_versions.highest
        return min(highest, NAMED_UP_TO.get(key, highest)) if self._needs_names else highest

    def lowest(self, key: ApiKey) -> int:
        """The lowest version that is forwarded; where messages are parsed, Kafka 4.3's lowest."""
        return key.valid_versions.lowest if key in self.parsed else 0


NO_FILTERS: Final = Filters(())


class Chain:
    """The filters of one connection's messages."""

    def __init__(self, filters: Filters, client: Client, metrics: Metrics) -> None:
        self._filters = [(it.name, it.filter.for_client(client)) for it in filters.filters if it.scope.includes(client)]
        self._requests = [one.requests() for _, one in self._filters]
        self._responses = [one.responses() for _, one in self._filters]
        self._metrics = metrics
        self.client = client
        self.requests = frozenset[ApiKey]().union(*self._requests)
        self.responses = frozenset[ApiKey]().union(*self._responses)

    async def request(self, request: Request, call: Call) -> Request | Response | None:
        """A request after the filters: another one, its answer, or None if it is unchanged.

        Raises RefusedError if the connection must end because a refusal cannot be answered.
        """
        changed = False
        for number, (name, one) in enumerate(self._filters):
            if call.key not in self._requests[number]:
                continue
            outcome: Request | Response | None
            began = time.perf_counter()
            try:
                outcome = await one.on_request(request, call)
            except RefusedByFilterError as error:
                outcome = self._refuse(name, request, call, error.code, str(error))
            except RefusedError:
                raise
            except Exception:
                logger.exception("filter %s failed with a request: %r", name, call)
                outcome = self._refuse(name, request, call, ErrorCode.UNKNOWN_SERVER_ERROR, "the filter failed")
            finally:
                self._count(name, began)
            if isinstance(outcome, Response):
                return await self.response(outcome, call, number) or outcome
            if outcome is not None:
                request, changed = outcome, True
        return request if changed else None

    async def response(self, response: Response, call: Call, before: int | None = None) -> Response | None:
        """A response after the filters before this number; None if it is unchanged.

        A filter that fails ends the connection with RefusedError: what it would have hidden must not be seen.
        """
        changed = False
        for number in reversed(range(len(self._filters) if before is None else before)):
            name, one = self._filters[number]
            if call.key not in self._responses[number]:
                continue
            began = time.perf_counter()
            try:
                outcome = await one.on_response(response, call)
            except RefusedError:
                raise
            except Exception as error:
                logger.exception("filter %s failed with a response: %r", name, call)
                raise RefusedError(f"an answer with which the filter {name} failed ({error})") from None
            finally:
                self._count(name, began)
            if outcome is not None:
                response, changed = outcome, True
        return response if changed else None

    def _refuse(self, name: str, request: Request, call: Call, code: ErrorCode, message: str) -> Response:
        self._metrics.filter_refusals[name] += 1
        response = error_response(request, call.version, code)
        if response is None:
            raise RefusedError(f"a Produce without acknowledgement that the filter {name} refuses: {message}")
        _explain(response, call.version, message)
        return response

    def _count(self, name: str, began: float) -> None:
        self._metrics.filter_calls[name] += 1
        self._metrics.filter_seconds[name] += time.perf_counter() - began


def _explain(response: Response, version: int, message: str) -> None:
    """Put the reason into an answer's error messages: its own, or those in its lists."""
    level: list[Struct] = [response]
    while level:
        below: list[Struct] = []
        for one in level:
            for field in one.FIELDS:
                if field.name == "error_message" and field.versions.includes(version):
                    one.error_message = message[:1000]  # type: ignore[attr-defined]
                elif field.kind == "array":
                    below += [item for item in getattr(one, field.name) or () if isinstance(item, Struct)]
        level = below
