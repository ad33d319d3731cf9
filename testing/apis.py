"""Kafka's names of APIs, as tests write them."""

from __future__ import annotations

from functools import cache

from ottla.kproto.api_keys import ApiKey


def api_key(name: str) -> ApiKey:
    """The API of that name: `OffsetCommit`, `offset_commit`. Raises ValueError if there is none."""
    wanted = name.replace("_", "").lower()
    for key in ApiKey:
        if key.name.replace("_", "").lower() == wanted:
            return key
    raise ValueError(f"there is no API {name!r}; its names are Kafka's, such as 'Produce' and 'OffsetCommit'")


@cache
def api_name(key: ApiKey) -> str:
    """Kafka's name of an API: `OffsetCommit`."""
    return "".join(word.capitalize() for word in key.name.split("_"))
