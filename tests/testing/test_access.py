"""Brokers for tests that ask who is there: users, rights and certificates, and that a reset brings them back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("cryptography")

from confluent_kafka import KafkaError, Producer

from ottla.client.admin.acls import ANY
from ottla.client.client import Client
from ottla.client.errors import AuthenticationError, ClientError
from ottla.client.security import from_properties
from ottla.kproto.messages.access.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.testing import Broker, BrokerError, Cluster

USERS = {"alice": 'won"d\\er', "bob": "builder"}
ACLS = ["alice all topic:orders group:*", "bob read topic:orders", "bob all topic:secret --deny --host 127.0.0.1"]


def connects(broker: Broker | Cluster, properties: dict[str, str]) -> bool:
    """Whether our own client is let in by a user's properties."""
    host, _, port = broker.bootstrap.partition(",")[0].rpartition(":")
    try:
        with Client([(host, int(port))], 10, security=from_properties(properties)) as client:
            client.metadata([])
    except ClientError:
        return False
    return True


def refusal(config: dict[str, Any], topic: str) -> int | None:
    """The error code that a record is refused with; None if it is acknowledged."""
    told: list[KafkaError | None] = []
    producer = Producer({**config, "message.timeout.ms": 5000})
    producer.produce(topic, b"x", on_delivery=lambda error, _: told.append(error))
    producer.flush(30)
    (error,) = told
    return None if error is None else int(error.code())


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(users=USERS, acls=ACLS, tls=True) as broker:
        yield broker


def test_users_may_do_what_their_entries_allow(broker: Broker) -> None:
    broker.create_topic("orders")
    assert refusal(broker.client_config("alice"), "orders") is None
    assert refusal(broker.client_config(), "orders") is None  # the first of them
    assert refusal(broker.client_config("bob"), "orders") == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert len(broker.records("orders")) == 2


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_every_mechanism_by_both_kinds_of_names(broker: Broker, mechanism: str) -> None:
    assert connects(broker, broker.client_config("alice", mechanism))
    assert connects(broker, broker.java_config("alice", mechanism))
    assert not connects(broker, broker.client_config("alice", mechanism) | {"sasl.password": "wonder"})


def test_only_who_trusts_the_authority_connects(broker: Broker) -> None:
    properties = broker.client_config("alice")
    assert properties.pop("ssl.ca.pem") == broker.certificate_authority
    host, port = "127.0.0.1", broker.port
    with (
        pytest.raises(AuthenticationError, match="not trusted"),
        Client([(host, port)], 10, security=from_properties(properties)) as client,
    ):
        client.metadata([])
    assert broker.ssl_context() is not None


def test_a_reset_brings_back_users_and_rights(broker: Broker) -> None:
    broker.reset()
    everything = DeleteAclsFilter(
        resource_type_filter=ANY,
        pattern_type_filter=ANY,
        operation=ANY,
        permission_type=ANY,
        resource_name_filter=None,
        principal_filter=None,
        host_filter=None,
    )
    with broker._client() as client:
        (result,) = client.call(DeleteAclsRequest(filters=[everything])).filter_results
        assert len(result.matching_acls) == 4
    broker.create_topic("orders")
    assert refusal(broker.client_config("alice"), "orders") == KafkaError.TOPIC_AUTHORIZATION_FAILED
    broker.reset()
    broker.create_topic("orders")
    assert refusal(broker.client_config("alice"), "orders") is None


def test_a_restart_keeps_them() -> None:
    with Broker(users=USERS) as broker:
        assert not connects(broker, {})
        broker.restart()
        assert connects(broker, broker.client_config("bob"))
        broker.produce("t", "x")  # there is no authorizer
        assert len(broker.records("t")) == 1


def test_encryption_alone_asks_for_no_user() -> None:
    with Broker(tls=True) as broker:
        assert broker.client_config().keys() == {"bootstrap.servers", "security.protocol", "ssl.ca.pem"}
        assert connects(broker, broker.client_config())
        assert refusal(broker.client_config(), "t") is None


def test_an_open_broker_says_so() -> None:
    with Broker() as broker:
        assert broker.client_config() == {"bootstrap.servers": broker.bootstrap, "security.protocol": "PLAINTEXT"}
        assert broker.certificate_authority is None
        assert broker.ssl_context() is None


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"acls": ["alice read topic:t"]}, "give users as well"),
        ({"users": USERS, "acls": ["alice reads topic:t"]}, "'reads' is not an operation"),
        ({"users": USERS, "acls": ["alice read"]}, "is not an entry"),
        ({"users": USERS, "acls": ["alice read t"]}, "is not a resource"),
        ({"users": USERS, "config": {"listeners": "PLAINTEXT://127.0.0.1:0"}}, "either the setting listeners"),
    ],
)
def test_what_makes_no_sense_is_a_sentence(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BrokerError, match=sentence):
        Broker(**arguments)


def test_an_unknown_user_is_named(broker: Broker) -> None:
    with pytest.raises(BrokerError, match="no user 'carol': there are alice, bob"):
        broker.client_config("carol")
