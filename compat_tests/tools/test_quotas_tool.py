"""kafka-configs for users, clients and addresses: quotas and SCRAM credentials, as the tool prints them for Kafka."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest

from compat_tests.brokers.process import BrokerProcess
from compat_tests.java.tools import Done, JavaTools

pytestmark = pytest.mark.java

Tool = Callable[..., Done]


@pytest.fixture
def tool(broker: BrokerProcess, jvm: JavaTools) -> Tool:
    """Runs kafka-configs, however it ends."""
    return lambda *arguments: jvm.run("ConfigCommand", "--bootstrap-server", broker.bootstrap, *arguments)


def well(done: Done) -> str:
    assert done.code == 0, done.out + done.err
    return done.out.strip()


@pytest.fixture
def name() -> str:
    return f"n{uuid.uuid4().hex[:8]}"


def test_a_users_quotas_and_credentials(tool: Tool, name: str) -> None:
    of_user = ("--entity-type", "users", "--entity-name", name)
    for config in (
        "producer_byte_rate=1024,request_percentage=55.5",
        "SCRAM-SHA-256=[iterations=8192,password=secret]",
    ):
        assert well(tool("--alter", *of_user, "--add-config", config)) == f"Completed updating config for user {name}."
    quotas, credentials = well(tool("--describe", *of_user)).splitlines()
    assert quotas.startswith(f"Quota configs for user-principal '{name}' are ")
    assert set(quotas.partition(" are ")[2].split(", ")) == {"producer_byte_rate=1024.0", "request_percentage=55.5"}
    assert credentials == f"SCRAM credential configs for user-principal '{name}' are SCRAM-SHA-256=iterations=8192"

    for names in ("producer_byte_rate,request_percentage", "SCRAM-SHA-256"):
        well(tool("--alter", *of_user, "--delete-config", names))
    assert well(tool("--describe", *of_user)) == ""


def test_the_quotas_of_a_users_client_and_of_all_clients(tool: Tool, name: str) -> None:
    pair = ("--entity-type", "users", "--entity-name", name, "--entity-type", "clients", "--entity-name", "app")
    well(tool("--alter", *pair, "--add-config", "consumer_byte_rate=2048"))
    expected = f"Quota configs for user-principal '{name}', client-id 'app' are consumer_byte_rate=2048.0"
    assert well(tool("--describe", *pair)) == expected
    well(tool("--alter", *pair, "--delete-config", "consumer_byte_rate"))

    defaults = ("--entity-type", "clients", "--entity-default")
    well(tool("--alter", *defaults, "--add-config", "controller_mutation_rate=1000"))
    expected = "Quota configs for the default client-id are controller_mutation_rate=1000.0"
    assert well(tool("--describe", *defaults)) == expected
    well(tool("--alter", *defaults, "--delete-config", "controller_mutation_rate"))
    assert well(tool("--describe", *defaults)) == ""


def test_an_addresss_quota(tool: Tool) -> None:
    of_address = ("--entity-type", "ips", "--entity-name", "198.51.100.7")
    well(tool("--alter", *of_address, "--add-config", "connection_creation_rate=10"))
    assert (
        well(tool("--describe", *of_address)) == "Quota configs for ip '198.51.100.7' are connection_creation_rate=10.0"
    )
    well(tool("--alter", *of_address, "--delete-config", "connection_creation_rate"))


def test_what_the_broker_refuses(tool: Tool, name: str) -> None:
    of_user = ("--entity-type", "users", "--entity-name", name)
    done = tool("--alter", *of_user, "--add-config", "producer_byte_rate=0")
    assert done.code != 0
    assert "Quota producer_byte_rate must be greater than 0" in done.out + done.err
    done = tool("--alter", *of_user, "--add-config", "SCRAM-SHA-512=[iterations=20000,password=secret]")
    assert done.code != 0
    assert "Too many iterations" in done.out + done.err
