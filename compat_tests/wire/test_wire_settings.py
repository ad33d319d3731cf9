"""Every setting that can be changed on a running broker, with every value of tests/setting_values.py, on both brokers.

Nothing is changed: both are asked to validate. What differs on purpose is listed here and in docs/compatibility.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import pytest

from compat_tests.brokers.process import BrokerProcess
from compat_tests.wire.wire import Wire
from ottla.kproto.messages.configs import incremental_alter_configs as iac
from ottla.settings.config import BROKER_SETTINGS
from tests.setting_values import dynamic_settings, values

BROKER: Final = 4
OWN, ALL = "1", ""
NONE, INVALID_CONFIG, INVALID_REQUEST = 0, 40, 42

#: What Kafka takes as the settings of nobody, and Ottla knows, or does not know either.
UNKNOWN_TO_KAFKA: Final = frozenset(name for name in BROKER_SETTINGS if name.startswith("ottla."))
#: Kafka adds and removes listeners of a running broker.
LISTENERS: Final = ("listeners", "listener.security.protocol.map")
#: Settings of one listener, each with a value: what both answer is compared.
OF_A_LISTENER: Final = {
    "max.connections": ("0", "5", "x"),
    "max.connection.creation.rate": ("0", "5", "-1"),
    "num.network.threads": ("3", "0"),
    "log.retention.ms": ("5",),
    "max.connections.per.ip": ("1",),
    "ssl.keystore.location": ("/nowhere",),
    "ssl.client.auth": ("required", "perhaps"),
    "sasl.enabled.mechanisms": ("PLAIN", ","),
}


class Case(NamedTuple):
    """One value of one setting, of the broker or of all brokers."""

    name: str
    value: str | None
    resource: str = OWN


def cases(name: str) -> Iterator[Case]:
    row = values(BROKER_SETTINGS[name])
    yield from (Case(name, value) for value in row)
    yield from (Case(name, value, ALL) for value in (None, "nonsense", "1"))


def on_purpose(case: Case, kafka: int, ottla: int) -> bool:
    """Whether docs/compatibility.md says that this differs."""
    if case.name == "min.insync.replicas" and kafka == INVALID_CONFIG:
        return ottla == NONE  # eligible.leader.replicas.version fixes it for a cluster of Kafka's
    if case.name == "max.connections.per.ip.overrides":
        return case.value is not None and case.value.partition(":")[0] == "" and ottla == INVALID_REQUEST
    # There is no class that Ottla could load.
    return case.name == "ssl.engine.factory.class" and (kafka, ottla) == (NONE, INVALID_REQUEST)


@pytest.fixture(scope="module")
def wires(both: tuple[BrokerProcess, BrokerProcess]) -> Iterator[tuple[Wire, Wire]]:
    kafka, ottla = (Wire(process.bootstrap) for process in both)
    yield kafka, ottla
    kafka.close()
    ottla.close()


def codes(wire: Wire, asked: list[Case]) -> list[int]:
    """What a broker answers to each, all of them sent before the first answer is read."""
    for case in asked:
        config = iac.AlterableConfig(name=case.name, config_operation=0, value=case.value)
        resource = iac.AlterConfigsResource(resource_type=BROKER, resource_name=case.resource, configs=[config])
        wire.send(iac.IncrementalAlterConfigsRequest(resources=[resource], validate_only=True), 1)
    key = iac.IncrementalAlterConfigsRequest.API_KEY
    return [wire.receive(key, 1).responses[0].error_code for _ in asked]


def differing(wires: tuple[Wire, Wire], asked: list[Case]) -> list[tuple[Case, int, int]]:
    answers = zip(asked, *(codes(wire, asked) for wire in wires), strict=True)
    return [(case, kafka, ottla) for case, kafka, ottla in answers if kafka != ottla]


@pytest.mark.java
@pytest.mark.parametrize("name", [name for name in dynamic_settings() if name not in UNKNOWN_TO_KAFKA])
def test_both_take_and_refuse_the_same_values(wires: tuple[Wire, Wire], name: str) -> None:
    found = differing(wires, list(cases(name)))
    assert [each for each in found if not on_purpose(*each)] == []


@pytest.mark.java
def test_both_take_and_refuse_the_same_of_a_listener(wires: tuple[Wire, Wire]) -> None:
    asked = [
        Case(f"listener.name.plaintext.{name}", value, resource)
        for name, row in OF_A_LISTENER.items()
        for value in row
        for resource in (OWN, ALL)
    ]
    assert differing(wires, asked) == []


@pytest.mark.java
def test_what_is_not_dynamic_is_refused_by_both(wires: tuple[Wire, Wire]) -> None:
    known = [
        name for name, it in BROKER_SETTINGS.items() if not (it.dynamic or it.internal or name in UNKNOWN_TO_KAFKA)
    ]
    asked = [Case(name, "1", resource) for name in known for resource in (OWN, ALL)]
    assert differing(wires, asked) == []


@pytest.mark.java
def test_listeners_are_fixed_here(wires: tuple[Wire, Wire]) -> None:
    """What cannot be parsed is refused by both; Kafka would open and close listeners, and Ottla refuses it."""
    wrong = [Case(name, value) for name in LISTENERS for value in ("nonsense", "", ",", "PLAINTEXT://127.0.0.1:70000")]
    assert {*codes(wires[0], wrong), *codes(wires[1], wrong)} == {INVALID_REQUEST}
    right = [Case("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT")]
    assert [codes(wire, right) for wire in wires] == [[NONE], [INVALID_REQUEST]]
