"""Which clients a subscription to their metrics means: `match` of `ClientMetricsSettings` (KIP-714).

Patterns are those of RE2, which never take more than linear time: what they are matched with comes from clients.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ottla.runtime.client_regex import ClientRegexError, Pattern, compile_client_regex

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


def parse_match(pairs: Iterable[str]) -> dict[str, Pattern]:
    """The pattern of each selector. Raises ValueError with the pair that is none."""
    patterns: dict[str, Pattern] = {}
    for pair in pairs:
        selector, *rest = pair.split("=")
        if len(rest) != 1 or not rest[0] or selector.strip() not in SELECTORS:
            raise ValueError(pair)
        try:
            patterns[selector.strip()] = compile_client_regex(rest[0].strip())
        except ClientRegexError:
            raise ValueError(pair) from None
    return patterns


def matches(patterns: Mapping[str, Pattern], attributes: Mapping[str, str]) -> bool:
    """Whether every selector's pattern matches the whole of the client's attribute."""
    return all(pattern.fullmatch(attributes.get(selector, "")) for selector, pattern in patterns.items())
