"""Clients that say who they are: each with each mechanism, let in and refused in words that help."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests.brokers.ottla_broker import OttlaBroker
from compat_tests.brokers.process import HOST
from compat_tests.java.tools import JavaTools
from compat_tests.security import secure_clients
from compat_tests.security.secure_clients import CLIENTS, VALUE, RefusedError

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_admin="admin-secret";'

MARKS = {
    "kcat": [pytest.mark.kcat],
    "franz-go": [pytest.mark.security, pytest.mark.franz_go],
    "sarama": [pytest.mark.security],
}

_numbers = itertools.count(1)


class SecureOttla(OttlaBroker):
    """`ottla serve` with the listeners that the settings name; clients are told of the first."""

    def __init__(self, folder: Path, listeners: str, settings: dict[str, str]) -> None:
        super().__init__(folder, overrides=settings | {"listeners": listeners})

    def command(self) -> list[str]:
        command = super().command()
        at = command.index("--listen")
        return command[:at] + command[at + 2 :]


@pytest.fixture(scope="module")
def sasl_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureOttla]:
    """It knows alice, whose password is wonder."""
    settings = {
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
    }
    with SecureOttla(tmp_path_factory.mktemp("sasl"), f"SASL_PLAINTEXT://{HOST}:0", settings) as broker:
        admin = broker.folder / "admin.properties"
        admin.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=admin\nsasl.password=admin-secret\n"
        )
        command = ["user", "add", "alice", "-b", broker.bootstrap, "--command-config", str(admin)]
        run_ottla(*command, typed="wonder\n")
        yield broker


def run_ottla(*words: str, typed: str = "") -> str:
    import subprocess
    import sys

    program = str(Path(sys.executable).parent / "ottla")
    done = subprocess.run([program, *words], input=typed, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def properties(mechanism: str, password: str = "wonder") -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": password,
    }


@pytest.fixture(params=[pytest.param(name, marks=MARKS.get(name, ())) for name in CLIENTS])
def client(request: pytest.FixtureRequest) -> Iterator[str]:
    name = str(request.param)
    if reason := secure_clients.missing(name):
        pytest.skip(reason)
    yield name
    gc.collect()  # Here, where the warnings of what the clients left open are expected.


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_client_is_let_in(sasl_broker: SecureOttla, client: str, mechanism: str) -> None:
    if client == "kcat" and mechanism != "PLAIN":
        pytest.skip("librdkafka before 2.6.1 repeats its nonce, which Kafka 4 refuses as well (CVE-2024-56128)")
    topic = f"t{next(_numbers)}"
    assert CLIENTS[client](sasl_broker.bootstrap, topic, properties(mechanism)) == VALUE


@pytest.mark.security
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_a_client_with_a_wrong_password_says_so(
    sasl_broker: SecureOttla, client: str, mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(RefusedError) as refused:
        CLIENTS[client](sasl_broker.bootstrap, "refused", properties(mechanism, "wrong"))
    # kafka-python and aiokafka say it in their log, and raise that no broker can be reached.
    assert "authentication fail" in f"{refused.value} {caplog.text}".lower()


@pytest.mark.security
@pytest.mark.java
def test_java(sasl_broker: SecureOttla, tmp_path: Path) -> None:
    tools = JavaTools()
    try:
        for mechanism in MECHANISMS:
            topic = f"t{next(_numbers)}"
            known = properties(mechanism)
            assert secure_clients.java(tools, tmp_path, sasl_broker.bootstrap, topic, known) == VALUE
        with pytest.raises(RefusedError, match="SaslAuthenticationException"):
            secure_clients.java(tools, tmp_path, sasl_broker.bootstrap, "refused", properties("PLAIN", "wrong"))
    finally:
        tools.close()
