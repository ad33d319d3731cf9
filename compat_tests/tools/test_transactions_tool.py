"""kafka-transactions, every verb. What is expected is what the tool prints for Apache Kafka (`--broker=both`)."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import closing

import pytest

from compat_tests.brokers.process import BrokerProcess
from compat_tests.clients.base import BEGINNING, BrokerError, Record
from compat_tests.clients.confluent import Confluent
from compat_tests.java.tools import Done, JavaTools

pytestmark = pytest.mark.java

Tool = Callable[..., Done]


@pytest.fixture
def tool(broker: BrokerProcess, jvm: JavaTools) -> Tool:
    """Runs kafka-transactions; it must end well."""

    def run(*arguments: str) -> Done:
        done = jvm.run("TransactionsCommand", "--bootstrap-server", broker.bootstrap, *arguments)
        assert done.code == 0, done.out + done.err
        return done

    return run


@pytest.fixture
def transactional_id() -> str:
    return f"tool-{uuid.uuid4().hex[:8]}"


def table(done: Done) -> list[dict[str, str]]:
    """The rows below the heading, by column; columns are separated by tabs."""
    head, *rows = [[cell.strip() for cell in line.split("\t")] for line in done.out.splitlines() if line.strip()]
    return [dict(zip(head, row, strict=False)) for row in rows]


def test_the_tool_follows_and_ends_a_transaction(
    tool: Tool, reference: Confluent, topic: str, transactional_id: str
) -> None:
    with closing(reference.transactional(transactional_id)) as producer:
        producer.begin()
        producer.send(topic, [Record(b"a"), Record(b"b")])

        (listed,) = [row for row in table(tool("list")) if row["TransactionalId"] == transactional_id]
        assert listed["Coordinator"] in ("1", "2", "3")
        assert listed["TransactionState"] == "Ongoing"
        (described,) = table(tool("describe", "--transactional-id", transactional_id))
        assert described["ProducerId"] == listed["ProducerId"]
        assert (described["ProducerEpoch"], described["TransactionState"]) == ("0", "Ongoing")
        assert (described["TransactionTimeoutMs"], described["TopicPartitions"]) == ("60000", f"{topic}-0")
        assert int(described["TransactionDurationMs"]) >= 0
        (known,) = table(tool("describe-producers", "--topic", topic, "--partition", "0"))
        assert (known["ProducerId"], known["ProducerEpoch"]) == (listed["ProducerId"], "0")
        assert (known["CurrentTransactionStartOffset"], known["LastSequence"]) == ("0", "1")
        # It is open for a legitimate time: nothing hangs.
        assert table(tool("find-hanging", "--broker-id", "1", "--max-transaction-timeout", "15")) == []

        tool("forceTerminateTransaction", "--transactionalId", transactional_id)
        (described,) = table(tool("describe", "--transactional-id", transactional_id))
        assert described["TransactionState"] != "Ongoing"
        with pytest.raises(BrokerError):
            producer.commit()


@pytest.mark.parametrize("by", ["start offset", "producer"])
def test_the_tool_aborts_where_a_transaction_hangs(
    tool: Tool, reference: Confluent, topic: str, transactional_id: str, by: str
) -> None:
    with closing(reference.transactional(transactional_id)) as producer:
        producer.begin()
        producer.send(topic, [Record(b"hanging")])
        where = ("--topic", topic, "--partition", "0")
        (known,) = table(tool("describe-producers", *where))
        if by == "start offset":
            tool("abort", *where, "--start-offset", "0")
        else:
            epochs = ("--producer-epoch", known["ProducerEpoch"], "--coordinator-epoch", "0")
            tool("abort", *where, "--producer-id", known["ProducerId"], *epochs)
        with closing(reference.producer()) as plain:
            plain.send(topic, [Record(b"after")])
        with closing(reference.consumer(topic, BEGINNING, isolation="read_committed")) as consumer:
            assert [record.value for record in consumer.take(1)] == [b"after"]
        (known,) = table(tool("describe-producers", *where))
        assert known["CurrentTransactionStartOffset"] == "None"
