"""`ottla acl` and Kafka's own kafka-acls on one broker: each sees what the other has done."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests.brokers.process import HOST
from compat_tests.java.tools import JavaTools
from compat_tests.security.test_security import SecureOttla, run_ottla
from ottla.settings.sources import STANDARD_AUTHORIZER

JAAS = 'PlainLoginModule required user_admin="admin-p" user_bob="bob-p";'


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureOttla]:
    """It has an administrator, and bob who may do nothing."""
    settings = {
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:admin",
    }
    with SecureOttla(tmp_path_factory.mktemp("acls"), f"SASL_PLAINTEXT://{HOST}:0", settings) as process:
        yield process


def connecting(broker: SecureOttla, user: str) -> list[str]:
    """The options by which a tool connects as a user."""
    path = broker.folder / f"{user}.properties"
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config="
        f'org.apache.kafka.common.security.plain.PlainLoginModule required username="{user}" password="{user}-p";\n'
    )
    return ["--command-config", str(path)]


def ottla(broker: SecureOttla, user: str, *words: str) -> str:
    return run_ottla(*words, "-b", broker.bootstrap, *connecting(broker, user))


def refused(broker: SecureOttla, user: str, *words: str) -> str:
    """What a command that must fail says."""
    program = str(Path(sys.executable).parent / "ottla")
    command = [program, *words, "-b", broker.bootstrap, *connecting(broker, user)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    return done.stdout + done.stderr


def test_ottla_acl(broker: SecureOttla) -> None:
    assert "CLUSTER_AUTHORIZATION_FAILED" in refused(broker, "bob", "acl", "list")
    assert "TOPIC_AUTHORIZATION_FAILED" in refused(broker, "bob", "topic", "create", "orders")
    ottla(broker, "admin", "acl", "add", "bob", "create", "topic:orders", "topic:logs-*")
    ottla(broker, "admin", "acl", "add", "User:*", "read", "group:*", "--host", "10.0.0.1", "--deny")
    ottla(broker, "bob", "topic", "create", "orders")
    assert ottla(broker, "admin", "acl", "list").splitlines() == [
        "PRINCIPAL  PERMISSION  OPERATION  RESOURCE      HOST",
        "User:bob   allow       create     topic:logs-*  *",
        "User:bob   allow       create     topic:orders  *",
        "User:*     deny        read       group:*       10.0.0.1",
    ]
    explained = ottla(broker, "admin", "acl", "explain", "bob", "create", "topic:logs-7")
    assert explained == "allowed: ALLOW User:bob CREATE on TOPIC logs-*\n"
    explained = ottla(broker, "admin", "acl", "explain", "admin", "delete", "topic:orders")
    assert explained == "allowed: it is a super user (super.users)\n"
    assert refused(broker, "admin", "acl", "explain", "bob", "delete", "topic:orders").startswith("denied: there are")
    assert "say which entries" in refused(broker, "admin", "acl", "delete")
    assert ottla(broker, "admin", "acl", "delete", "--principal", "bob") == "2 deleted\n"
    assert ottla(broker, "admin", "acl", "delete", "--all") == "1 deleted\n"
    assert "there is no such entry" in refused(broker, "admin", "acl", "delete", "--all")


@pytest.mark.security
@pytest.mark.java
def test_kafka_acls(broker: SecureOttla) -> None:
    tools = JavaTools()
    common = ["--bootstrap-server", broker.bootstrap, *connecting(broker, "admin")]
    try:
        added = tools.run("AclCommand", *common, "--add", "--allow-principal", "User:bob", "--producer", "--topic", "t")
        assert added.code == 0, added.err
        assert ottla(broker, "admin", "acl", "list", "topic:t").splitlines()[1:] == [
            "User:bob   allow       write      topic:t   *",
            "User:bob   allow       create     topic:t   *",
            "User:bob   allow       describe   topic:t   *",
        ]
        listed = tools.run("AclCommand", *common, "--list", "--topic", "t")
        assert "(principal=User:bob, host=*, operation=WRITE, permissionType=ALLOW)" in listed.out
        removed = tools.run(
            "AclCommand", *common, "--remove", "--allow-principal", "User:bob", "--producer", "--topic", "t", "--force"
        )
        assert removed.code == 0, removed.err
        assert ottla(broker, "admin", "acl", "list").splitlines()[1:] == []
    finally:
        tools.close()
