"""Deliberate faults, for tests of applications: requests wait, fail or are lost, or their answers are lost.

    [[filter]]
    type = "faults"
    seed = 1
    rules = [
        { api = "Produce", error = "NOT_ENOUGH_REPLICAS", topic = "orders", times = 3 },
        { api = "Fetch", delay-ms = 500, jitter-ms = 200, share = 0.1 },
        { api = "OffsetCommit", lose-answer = true, times = 1 },
        { drop = true, client-id = "flaky-.*" },
    ]

For each request, the first rule that matches is carried out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from random import Random
from typing import TYPE_CHECKING, Any, Final

import trio

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.proxy.errors import RefusedError
from ottla.proxy.filters.filter import Filter, RefusedByFilterError, pattern

if TYPE_CHECKING:
    from ottla.kproto.schema import Request, Response
    from ottla.proxy.filters.filter import Call

_KNOWN: Final = frozenset(
    {"api", "topic", "client-id", "share", "times", "after", "error", "delay-ms", "jitter-ms", "drop", "lose-answer"}
)
_DEEDS: Final = ("error", "delay-ms", "drop", "lose-answer")


class FaultError(RefusedError):
    """A rule ends the connection."""


class Rule:
    """A fault and the requests that it hits: `times` of them, after the first `after`, with probability `share`."""

    def __init__(self, table: Mapping[str, Any]) -> None:
        unknown = sorted(table.keys() - _KNOWN)
        if unknown:
            raise ValueError(f"a rule has no {unknown[0]!r}; known are {', '.join(sorted(_KNOWN))}")
        if not any(table.get(deed) for deed in _DEEDS):
            raise ValueError(f"a rule does nothing: write one of {', '.join(_DEEDS)}")
        self.api = api_named(table["api"]) if "api" in table else None
        self.topic: str | None = table.get("topic")
        self.client_id: re.Pattern[str] | None = (
            pattern("client-id", table["client-id"]) if "client-id" in table else None
        )
        self.share = _number("share", table.get("share", 1.0))
        self.times: int | None = table.get("times")
        self.after = int(_number("after", table.get("after", 0)))
        self.error = _error(table["error"]) if "error" in table else None
        self.delay_ms = _number("delay-ms", table.get("delay-ms", 0))
        self.jitter_ms = _number("jitter-ms", table.get("jitter-ms", 0))
        self.drops = bool(table.get("drop"))
        self.loses_answer = bool(table.get("lose-answer"))
        self.seen = 0
        self.struck = 0

    def strikes(self, request: Any, call: Call, random: Random) -> bool:
        """Whether it strikes this request, which is counted."""
        if (self.api is not None and self.api is not call.key) or self._is_spent:
            return False
        if self.client_id is not None and not self.client_id.fullmatch(call.client_id or ""):
            return False
        if self.topic is not None and self.topic not in _topics(request):
            return False
        self.seen += 1
        if self.seen <= self.after or random.random() >= self.share:
            return False
        self.struck += 1
        return True

    @property
    def _is_spent(self) -> bool:
        return self.times is not None and self.struck >= self.times


class Faults(Filter):
    """Carries out the rules. `seed` decides chances and jitter."""

    NEEDS_TOPIC_NAMES = True

    def __init__(self, *, rules: list[Mapping[str, Any]], seed: int = 0) -> None:
        if not isinstance(rules, list) or not all(isinstance(rule, Mapping) for rule in rules):
            raise TypeError('rules: write them as tables, rules = [{ api = "Produce", error = "…" }]')
        self._rules = [Rule(rule) for rule in rules]
        self._random = Random(seed)

    def requests(self) -> frozenset[ApiKey]:
        if any(rule.api is None for rule in self._rules):
            return frozenset(ApiKey) - {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
        return frozenset(rule.api for rule in self._rules if rule.api is not None)

    def responses(self) -> frozenset[ApiKey]:
        return self.requests() if any(rule.loses_answer for rule in self._rules) else frozenset()

    async def on_request(self, request: Any, call: Call) -> Request | Response | None:
        rule = next((rule for rule in self._rules if rule.strikes(request, call, self._random)), None)
        if rule is None:
            return None
        if rule.delay_ms:
            await trio.sleep((rule.delay_ms + self._random.random() * rule.jitter_ms) / 1000)
        if rule.drops:
            raise FaultError(f"a {call.key.name} request, which a fault drops")
        if rule.error is not None:
            raise RefusedByFilterError(rule.error)
        if rule.loses_answer:
            call.notes[self] = True
        return None

    async def on_response(self, response: Any, call: Call) -> Response | None:
        if call.notes.get(self):
            raise FaultError(f"an answer to {call.key.name}, which a fault loses")
        return None


def _topics(request: Any) -> set[str | None]:
    """The topics that a request names, in its lists or in itself."""
    found: set[str | None] = set()
    for field in request.FIELDS:
        value = getattr(request, field.name)
        if "topic" in field.name and isinstance(value, list):
            found |= {
                it if isinstance(it, str) else getattr(it, "topic", None) or getattr(it, "name", None) for it in value
            }
    return found


def api_named(name: Any) -> ApiKey:
    """The API with this Kafka name, such as `OffsetCommit`; ValueError says in a sentence if there is none."""
    try:
        return ApiKey[re.sub(r"(?<!^)(?=[A-Z])", "_", str(name)).upper()]
    except KeyError:
        raise ValueError(f"api: Kafka has no {name!r}; write one like OffsetCommit") from None


def _error(name: Any) -> ErrorCode:
    try:
        return ErrorCode[str(name)]
    except KeyError:
        raise ValueError(
            f"error: Kafka has no {name!r}; write it as Kafka does, for example NOT_ENOUGH_REPLICAS"
        ) from None


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
        raise ValueError(f"{name}: {value!r} is not a number of 0 or more")
    return float(value)
