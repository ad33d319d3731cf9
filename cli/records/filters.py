"""Which records `ottla consume` prints: by key, by header, by what their JSON has."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any, NamedTuple

from ottla.client.json_condition import Condition, ConditionError, parse_condition
from ottla.kproto.records import Record

Keep = Callable[[Record], bool]


class Header(NamedTuple):
    """A header that a record must have; with a value, exactly that one."""

    name: str
    value: bytes | None

    def is_in(self, record: Record) -> bool:
        return any(name == self.name and self.value in (None, value) for name, value in record.headers)


def add_filters(parser: argparse.ArgumentParser) -> None:
    """The options that `filter_of` reads."""
    parser.add_argument("--key", metavar="TEXT", help="only records with this key")
    parser.add_argument(
        "--header",
        type=_header,
        action="append",
        default=[],
        metavar="NAME[=VALUE]",
        help="only records with this header; may be repeated",
    )
    parser.add_argument(
        "--where",
        type=_condition,
        action="append",
        default=[],
        metavar="CONDITION",
        help="only records whose value is JSON for which this holds, such as '$.customer.country == \"CZ\"', "
        "'$.items[*].price > 100', '$.name ~ \"part\"' or, for a path that leads somewhere, '$.error'; may be repeated",
    )


def filter_of(arguments: argparse.Namespace) -> Keep | None:
    """Whether to print a record; None if all are printed."""
    key = None if arguments.key is None else arguments.key.encode()
    headers, conditions = arguments.header, arguments.where
    if key is None and not headers and not conditions:
        return None

    def keep(record: Record) -> bool:
        if key is not None and record.key != key:
            return False
        return all(header.is_in(record) for header in headers) and (not conditions or _holds(conditions, record.value))

    return keep


def _holds(conditions: list[Condition], value: bytes | None) -> bool:
    try:
        tree: Any = json.loads(value or b"")
    except (ValueError, RecursionError):
        return False
    return all(condition.holds(tree) for condition in conditions)


def _header(text: str) -> Header:
    name, equals, value = text.partition("=")
    if not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not a header: write NAME or NAME=VALUE")
    return Header(name, value.encode() if equals else None)


def _condition(text: str) -> Condition:
    try:
        return parse_condition(text)
    except ConditionError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
