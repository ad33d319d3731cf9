"""Which clients a subscription to their metrics means: `match` of `ClientMetricsSettings` (KIP-714).

Patterns are those of RE2, which never take more than linear time: what they are matched with comes from clients.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

SELECTORS: Final = frozenset(
    {
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)

_MAX_MEMORY_BYTES: Final = 1 << 20


class Pattern(Protocol):
    """A compiled expression."""

    def fullmatch(self, text: str) -> object | None: ...


def parse_match(pairs: Iterable[str]) -> dict[str, Pattern]:
    """The pattern of each selector. Raises ValueError with the pair that is none."""
    patterns: dict[str, Pattern] = {}
    for pair in pairs:
        selector, *rest = pair.split("=")
        if len(rest) != 1 or not rest[0] or selector.strip() not in SELECTORS:
            raise ValueError(pair)
        patterns[selector.strip()] = _compile(rest[0].strip(), pair)
    return patterns


def matches(patterns: Mapping[str, Pattern], attributes: Mapping[str, str]) -> bool:
    """Whether every selector's pattern matches the whole of the client's attribute."""
    return all(pattern.fullmatch(attributes.get(selector, "")) for selector, pattern in patterns.items())


def _compile(text: str, pair: str) -> Pattern:
    import re2  # type: ignore[import-untyped]

    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MAX_MEMORY_BYTES
    try:
        pattern: Pattern = re2.compile(text, options)
    except re2.error:
        raise ValueError(pair) from None
    return pattern
