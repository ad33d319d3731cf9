"""What the tests of every message share."""

from __future__ import annotations

import os
import pkgutil
from importlib import import_module

import pytest

from ottla.kproto import internal_records
from ottla.kproto.headers import RequestHeader, ResponseHeader
from ottla.kproto.messages import all_message_classes
from ottla.kproto.schema import Message
from ottla.kproto.versions import NO_VERSIONS


def _every_class() -> list[type[Message]]:
    internal = [
        value
        for module in pkgutil.iter_modules(internal_records.__path__, internal_records.__name__ + ".")
        for value in vars(import_module(module.name)).values()
        if isinstance(value, type) and issubclass(value, Message) and value.VERSIONS != NO_VERSIONS
    ]
    return [*all_message_classes(), RequestHeader, ResponseHeader, *dict.fromkeys(internal)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes `message_class` runs for every message, header and internal record."""
    if "message_class" in metafunc.fixturenames:
        metafunc.parametrize("message_class", _every_class(), ids=lambda cls: cls.__name__)


@pytest.fixture(scope="session")
def example_factor() -> int:
    """How many times as many examples as usual: OTTLA_TEST_EXAMPLE_FACTOR in the environment."""
    return int(os.environ.get("OTTLA_TEST_EXAMPLE_FACTOR", "1"))


@pytest.fixture(scope="session")
def every_message_class() -> list[type[Message]]:
    """Every message, header and internal record."""
    return _every_class()
