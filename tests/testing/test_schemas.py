"""The registry of the broker for tests."""

from __future__ import annotations

import json
from urllib.request import urlopen

import pytest

from ottla.testing.broker import Broker
from ottla.testing.errors import BrokerError


def test_it_starts_when_it_is_asked_for_and_is_reset_with_the_rest() -> None:
    with Broker() as broker:
        assert broker.topics() == {}
        assert broker.schemas.register("orders-value", {"type": "string"}) == 1
        assert broker.schemas.subjects() == ["orders-value"]
        assert broker.schemas.schema(1) == '"string"'
        with urlopen(f"{broker.schema_registry_url}/subjects/orders-value/versions/latest") as response:
            assert json.load(response)["schema"] == '"string"'
        broker.schemas.register("orders-value", '"bytes"')
        with pytest.raises(BrokerError, match=r"incompatible .* \(409\)"):
            broker.schemas.register("orders-value", '"int"')
        for _ in range(3):
            broker.reset()
            assert broker.schemas.subjects() == []
            assert broker.schemas.register("other", '"long"') == 1


def test_it_goes_on_with_a_broker_that_was_restarted() -> None:
    with Broker() as broker:
        broker.schemas.register("s", '"int"')
        broker.restart()
        assert broker.schemas.register("t", '"long"') == 2
        assert broker.schemas.subjects() == ["s", "t"]


def test_it_knows_how_to_log_in() -> None:
    with Broker(users={"ann": "secret"}, acls=[]) as broker:
        assert broker.schemas.register("s", '"int"') == 1
