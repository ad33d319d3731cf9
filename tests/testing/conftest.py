"""Brokers for these tests: one for each of them, or one that several share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.testing import Broker

pytest_plugins = ["pytester"]


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker
