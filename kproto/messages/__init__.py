"""The messages of every API key, one module each in a folder by subject, loaded on first use."""

from __future__ import annotations

import os
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.kproto.api_keys import ApiKey
    from ottla.kproto.schema import Request, Response


@cache
def request_class(api_key: ApiKey) -> type[Request]:
    """The class of an API key's request, all versions in one."""
    found: type[Request] = _lookup(api_key, "Request")
    return found


@cache
def response_class(api_key: ApiKey) -> type[Response]:
    """The class of an API key's response, all versions in one."""
    found: type[Response] = _lookup(api_key, "Response")
    return found


def all_message_classes() -> Iterator[type[Request] | type[Response]]:
    """Every request and response, in the order of their keys. Loads all of them."""
    from ottla.kproto.api_keys import ApiKey

    for api_key in ApiKey:
        yield request_class(api_key)
        yield response_class(api_key)


def _lookup(api_key: ApiKey, kind: str) -> type:
    """The module is the key's name in lower case, the class the same name in Kafka's camel case."""
    name = api_key.name.lower()
    module = import_module(f"{__name__}.{_subjects()[name]}.{name}")
    found: type = getattr(module, api_key.kafka_name + kind)
    return found


@cache
def _subjects() -> dict[str, str]:
    """The folder of each module."""
    found: dict[str, str] = {}
    for root in __path__:
        folders = [entry for entry in os.scandir(root) if entry.is_dir() and not entry.name.startswith("_")]
        for folder in folders:
            found.update((name.removesuffix(".py"), folder.name) for name in os.listdir(folder))
    return found
