"""Checks of a setting's value beyond its type.

A check raises ValueError with Kafka's reason and, where that is not the whole value, the part which is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import urlsplit


class Check(NamedTuple):
    """A validator and how the reference page words it."""

    validate: Callable[[Any], None]
    text: str


def between(least: float | None, most: float | None = None) -> Check:
    """A number within bounds, both of them allowed themselves; None means no bound."""

    def validate(value: Any) -> None:
        if least is not None and value < least:
            raise ValueError(f"Value must be at least {least}")
        if most is not None and value > most:
            raise ValueError(f"Value must be no more than {most}")

    if most is None:
        return Check(validate, f"at least {least}")
    return Check(validate, f"{least} to {most}")


def one_of(*allowed: str, ignore_case: bool = False) -> Check:
    """One of the given words."""
    accepted = frozenset(word.lower() for word in allowed) if ignore_case else frozenset(allowed)

    def validate(value: Any) -> None:
        if (value.lower() if ignore_case else value) not in accepted:
            raise ValueError(f"String must be one of: {', '.join(allowed)}")

    return Check(validate, " | ".join(allowed))


def pairs(what: str) -> Check:
    """A list of `name=value`."""

    def validate(value: Any) -> None:
        for item in value:
            name, equals, text = (part.strip() for part in item.partition("="))
            if not (name and equals and text):
                raise ValueError(f"{item!r} is not {what}")

    return Check(validate, what)


def web_addresses(what: str) -> Check:
    """A list of `name=URL` with http or https."""

    def validate(value: Any) -> None:
        for item in value:
            name, _, address = (part.strip() for part in item.partition("="))
            url = urlsplit(address)
            if not (name and url.hostname and url.scheme in ("http", "https")):
                raise ValueError(f"{item!r} is not {what}")

    return Check(validate, what)


def _has_no_empty_values(value: Any) -> None:
    if not all(value):
        raise ValueError("values must not be empty.")


NO_EMPTY_VALUES = Check(_has_no_empty_values, "values that are not empty")


def _has_distinct_values(value: Any) -> None:
    _has_no_empty_values(value)
    if len({*value}) < len(value):
        raise ValueError("values must not be duplicated.")


DISTINCT_VALUES = Check(_has_distinct_values, "values that are not empty, each once")


def any_of(*allowed: str, least: int = 0, most: int | None = None) -> Check:
    """A list of some of the given words: `least` to `most` of them."""

    def validate(value: Any) -> None:
        for word in value:
            if word not in allowed:
                raise ValueError(f"String must be one of: {', '.join(allowed)}", word)
        if len(value) < least:
            raise ValueError(f"must name at least {least}")
        if most is not None and len(value) > most:
            raise ValueError(f"must name no more than {most}")

    how_many = "one" if least == most == 1 else "some"
    return Check(validate, f"{how_many} of {', '.join(allowed)}")


def matching(test: Callable[[str], bool], reason: str, text: str) -> Check:
    """Any text that passes `test`."""

    def validate(value: Any) -> None:
        if not test(value):
            raise ValueError(reason)

    return Check(validate, text)


def _are_connection_overrides(value: Any) -> None:
    for entry in filter(None, map(str.strip, value.split(","))):
        host, _, count = entry.rpartition(":")
        if not (host and count.strip().isascii() and count.strip().isdigit()):
            raise ValueError("must be host:count pairs, separated by commas")


CONNECTION_OVERRIDES = Check(_are_connection_overrides, "host:count, host:count, …")


def _is_gzip_level(value: Any) -> None:
    if value != -1 and not 1 <= value <= 9:
        raise ValueError("Value must be between 1 and 9 or equal to -1")


GZIP_LEVEL = Check(_is_gzip_level, "1 to 9, or -1 for gzip's own default")


def _are_throttled_replicas(value: Any) -> None:
    # An entry may be empty: Kafka takes a comma at the end.
    if value == ("*",) or all(not entry or _is_partition_and_broker(entry) for entry in value):
        return
    raise ValueError(
        "must be the literal '*' or a list of replicas in the following format: "
        "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
    )


def _is_partition_and_broker(entry: str) -> bool:
    partition, colon, broker = entry.partition(":")
    return bool(colon) and partition.strip().isascii() and partition.strip().isdigit() and broker.strip().isdigit()


THROTTLED_REPLICAS = Check(_are_throttled_replicas, "* or partition:broker, partition:broker, …")
