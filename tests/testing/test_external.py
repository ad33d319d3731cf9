"""The same tests against a Kafka that runs elsewhere: here, a broker that the plugin knows nothing of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.client.security import Security, from_properties
from ottla.testing import Broker, BrokerError, client_configs
from ottla.testing.external import ExternalBroker


@pytest.fixture
def broker() -> Iterator[Broker]:
    """In a process of its own: when a test ends, pytester forgets the modules that this one has loaded meanwhile."""
    with Broker(process=True) as broker:
        yield broker


TESTS = """
import pytest
from confluent_kafka import Producer


def test_records(ottla_broker):
    assert ottla_broker.topics() == {"theirs": 1}
    producer = Producer({"bootstrap.servers": ottla_broker.bootstrap})
    producer.produce("mine", b"x")
    assert producer.flush(30) == 0
    assert [record.text for record in ottla_broker.wait_for("mine")] == ["x"]


def test_a_reset(ottla_broker):
    assert ottla_broker.topics() == {"theirs": 1}
    ottla_broker.create_topic("mine")


@pytest.mark.ottla(topics={"given": 2})
def test_topics(ottla_broker):
    assert ottla_broker.topics() == {"given": 2, "theirs": 1}


def test_faults(ottla_broker):
    ottla_broker.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER")


def test_the_clock(ottla_broker):
    ottla_broker.clock.advance(1)


@pytest.mark.ottla(config={"message.max.bytes": 1000})
def test_settings(ottla_broker):
    raise AssertionError


def test_nodes(ottla_cluster):
    raise AssertionError
"""


def test_the_same_tests_run_against_another_kafka(pytester: pytest.Pytester, broker: Broker) -> None:
    broker.create_topic("theirs")
    pytester.makepyfile(TESTS)
    result = pytester.runpytest_subprocess("--ottla-bootstrap", broker.bootstrap, "-rs", "-p", "no:xdist")
    result.assert_outcomes(passed=3, skipped=4)
    result.stdout.fnmatch_lines(
        [
            f"*`faults` needs a broker of Ottla's own, and this run uses {broker.bootstrap}*",
            "*the test needs a broker with settings, users or a process of its own, and this run uses*",
        ]
    )
    assert broker.topics() == {"theirs": 1}


def test_a_test_that_fails_is_reported(pytester: pytest.Pytester, broker: Broker) -> None:
    pytester.makepyfile("def test_it(ottla_broker): assert not ottla_broker.topics()")
    broker.create_topic("theirs")
    result = pytester.runpytest_inprocess(f"--ottla-bootstrap={broker.bootstrap}")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*topic theirs: 1 partitions, 0 offsets"])


def test_the_environment_names_it_too(
    pytester: pytest.Pytester, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTTLA_TEST_BOOTSTRAP", broker.bootstrap)
    pytester.makepyfile("def test_it(ottla_broker): ottla_broker.produce('mine', 1)")
    pytester.runpytest_subprocess("-p", "no:xdist").assert_outcomes(passed=1)
    assert broker.topics() == {}


def test_tests_that_share_one_do_not_run_in_parallel(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(ottla_broker): pass")
    result = pytester.runpytest_subprocess("--ottla-bootstrap", "127.0.0.1:1", "-n", "2")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*tests that share one Kafka cannot run in parallel*"])


def test_groups_that_were_made_are_removed(broker: Broker) -> None:
    commit(broker, "theirs")
    with ExternalBroker(broker.bootstrap) as external:
        commit(broker, "mine")
        assert sorted(external.groups()) == ["mine", "theirs"]
        external.reset()
        assert sorted(external.groups()) == ["theirs"]
        external.reset()


def commit(broker: Broker, group: str) -> None:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    broker.produce("t", 1)
    consumer.commit(offsets=[TopicPartition("t", 0, 1)], asynchronous=False)
    consumer.close()


@pytest.mark.parametrize("address", ["host:port", ""])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(BrokerError, match="--ottla-bootstrap"):
        ExternalBroker(address)


def test_nobody_there() -> None:
    with pytest.raises(BrokerError, match=r"127\.0\.0\.1:1"), ExternalBroker("127.0.0.1:1"):
        raise AssertionError


SECURE_TESTS = """
from confluent_kafka import Producer


def test_records(ottla_broker):
    producer = Producer(ottla_broker.client_config())
    producer.produce("mine", b"x")
    assert producer.flush(30) == 0
    assert [record.text for record in ottla_broker.wait_for("mine")] == ["x"]


def test_the_user_of_this_run(ottla_broker):
    assert ottla_broker.java_config("ann", "PLAIN")["sasl.mechanism"] == "SCRAM-SHA-256"


def test_a_user_who_may_less(ottla_broker):
    ottla_broker.client_config("guest")
"""


@pytest.mark.parametrize("by_variable", [False, True], ids=["by option", "by variable"])
def test_another_kafka_that_asks_for_a_login(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, by_variable: bool
) -> None:
    pytest.importorskip("cryptography")
    with Broker(users={"ann": 'won"d\\er'}, tls=True, process=True) as broker:
        config = _written(pytester.path, broker.java_config("ann", "SCRAM-SHA-256"))
        pytester.makepyfile(SECURE_TESTS)
        options = ["--ottla-command-config", str(config)]
        if by_variable:
            monkeypatch.setenv("OTTLA_TEST_COMMAND_CONFIG", str(config))
            options = []
        result = pytester.runpytest_subprocess("--ottla-bootstrap", broker.bootstrap, *options, "-rs", "-p", "no:xdist")
        result.assert_outcomes(passed=2, skipped=1)
        result.stdout.fnmatch_lines(["*needs the user 'guest', and this run connects to * as 'ann'*"])
        assert broker.topics() == {}


def _written(folder: Path, properties: dict[str, str]) -> Path:
    """As properties files have it: a backslash and a line's end are escaped."""
    path = folder / "client.properties"
    lines = (
        f"{name}={value.replace(chr(92), 2 * chr(92)).replace(chr(10), chr(92) + 'n')}\n"
        for name, value in properties.items()
    )
    path.write_text("".join(lines))
    return path


def test_a_login_that_is_refused_is_told(tmp_path: Path) -> None:
    with Broker(users={"ann": "secret"}, process=True) as broker:
        config = _written(tmp_path, broker.client_config() | {"sasl.password": "wrong"})
        with pytest.raises(BrokerError, match="authentication"), ExternalBroker(broker.bootstrap, config):
            raise AssertionError


def test_a_login_without_a_kafka(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess("--ottla-command-config", "client.properties")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*of --ottla-bootstrap: give both*"])


@pytest.mark.parametrize(
    ("text", "reason"), [(None, "cannot be read"), ("security.protocol=SASL_PLAINTEXT\n", "GSSAPI")]
)
def test_a_file_that_says_nothing_of_use(tmp_path: Path, text: str | None, reason: str) -> None:
    path = tmp_path / "client.properties"
    if text is not None:
        path.write_text(text)
    with pytest.raises(BrokerError, match=f"--ottla-command-config: .*{reason}"):
        ExternalBroker("127.0.0.1:1", path)


PEM = "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n"


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"security.protocol": "SSL"},
        {"security.protocol": "SSL", "ssl.ca.pem": PEM, "ssl.endpoint.identification.algorithm": "none"},
        {"security.protocol": "SSL", "ssl.key.pem": PEM, "ssl.certificate.pem": PEM, "ssl.key.password": "secret"},
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "ann",
            "sasl.password": 'won"d\\er',
        },
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": "file:///run/a%20token",
        },
    ],
)
def test_what_is_given_is_handed_on_by_both_kinds_of_names(properties: dict[str, str]) -> None:
    given = from_properties(properties)
    assert _as_read(client_configs.librdkafka_config("h:1", given)) == _without_margins(given)
    assert _as_read(client_configs.java_config("h:1", given)) == _without_margins(given)


def test_a_delegation_token_stays_one_in_java() -> None:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    jaas = f'{module} required username="id" password="hmac" tokenauth="true";'
    given = from_properties(
        {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": jaas}
    )
    assert from_properties(client_configs.java_config("h:1", given)) == given


def _as_read(config: dict[str, object]) -> Security:
    return _without_margins(from_properties({name: str(value) for name, value in config.items()}))


def _without_margins(security: Security) -> Security:
    """A key and its chain once each, however often the settings repeat them."""
    tls = security.tls
    if tls is None or tls.key_and_chain is None:
        return security
    return security._replace(tls=tls._replace(key_and_chain="".join(sorted(set(tls.key_and_chain.split("\n"))))))


def test_a_schema_registry_of_a_run_is_emptied_and_removed(broker: Broker) -> None:
    with ExternalBroker(broker.bootstrap) as external:
        for _ in range(2):
            assert external.schemas.register("orders-value", '"string"') == 1
            external.reset()
            assert external.schemas.subjects() == []
    assert broker.topics() == {}


def test_what_is_left_is_removed_at_the_end(broker: Broker) -> None:
    with ExternalBroker(broker.bootstrap) as external:
        external.create_topic("mine")
    assert broker.topics() == {}
