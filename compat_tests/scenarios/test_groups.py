"""Consumer groups: members that join, leave, crash and come back, and what was committed.

Every member is a process (`compat_tests.groups`). Where a scenario counts what was read, each value must come at least
once: that is what a group promises.
"""

from __future__ import annotations

import itertools
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest
from _pytest.mark.structures import ParameterSet

from compat_tests.brokers.process import BrokerProcess
from compat_tests.clients.base import Record
from compat_tests.clients.confluent import Confluent
from compat_tests.groups.group import Group

PARTITIONS = 6
PAUSE_S = 0.05


def _also(name: str, *, always: bool = False) -> ParameterSet:
    """A client that needs a program; unless `always`, its scenario runs with `-m groups` only."""
    own = [getattr(pytest.mark, name.replace("-", "_"))]
    return pytest.param(name, marks=own if always else [*own, pytest.mark.groups])


JAVA = pytest.param("java", marks=pytest.mark.java)
# What comes and goes under load takes long: here not every client has its turn in every run.
UNDER_LOAD_CLASSIC = pytest.mark.parametrize(
    "member_client",
    [
        pytest.param("kafka-python", marks=pytest.mark.groups),
        "aiokafka",
        "confluent-kafka",
        _also("java"),
        _also("kafkajs", always=True),
        _also("franz-go", always=True),
    ],
)
UNDER_LOAD_COOPERATIVE = pytest.mark.parametrize(
    "member_client",
    ["kafka-python", pytest.param("confluent-kafka", marks=pytest.mark.groups), _also("java"), _also("franz-go")],
)
UNDER_LOAD_KIP_848 = pytest.mark.parametrize("member_client", ["confluent-kafka", _also("java"), _also("franz-go")])
CLASSIC_AND_GO = pytest.mark.parametrize(
    "member_client", ["kafka-python", "aiokafka", "confluent-kafka", JAVA, _also("franz-go")]
)
CLASSIC_AND_OTHERS = pytest.mark.parametrize(
    "member_client", ["kafka-python", "aiokafka", "confluent-kafka", JAVA, _also("kafkajs"), _also("franz-go")]
)
COOPERATIVE = pytest.mark.parametrize("member_client", ["kafka-python", "confluent-kafka", JAVA, _also("franz-go")])

NewTopic = Callable[..., str]


@pytest.fixture
def group(broker: BrokerProcess, member_client: str) -> Iterator[Group]:
    with closing(Group(broker.bootstrap, f"group-{uuid.uuid4()}", member_client)) as group:
        yield group


@pytest.fixture
def shared_topic(new_topic: NewTopic) -> str:
    return new_topic(partitions=PARTITIONS)


class Load:
    """Numbered values, some hundred a second over all partitions; `sent` holds the acknowledged ones.

    Members join, leave and crash between them. More would only keep the cores from the members' start.
    """

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.sent: list[str] = []
        self._client = Confluent(bootstrap)
        self._topic = topic
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        numbers = itertools.count()
        with closing(self._client.producer(idempotent=True)) as producer:
            while not self._stopping.wait(PAUSE_S):
                values = [str(next(numbers)) for _ in range(30)]
                records = [Record(value.encode(), partition=int(value) % PARTITIONS) for value in values]
                producer.send(self._topic, records)
                self.sent += values

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()


@contextmanager
def load(broker: BrokerProcess, topic: str) -> Iterator[Load]:
    running = Load(broker.bootstrap, topic)
    try:
        yield running
    finally:
        running.stop()


def send(reference: Confluent, topic: str, first: int, count: int) -> list[str]:
    values = [str(number) for number in range(first, first + count)]
    with closing(reference.producer()) as producer:
        producer.send(topic, [Record(v.encode(), partition=int(v) % PARTITIONS) for v in values])
    return values


def committed(reference: Confluent, group: Group, topic: str) -> int:
    """The sum of the committed offsets: how many records the group is done with."""
    return sum(reference.committed(group.group_id, topic, partition) or 0 for partition in range(PARTITIONS))


def run_through_join_leave_and_crash(group: Group, broker: BrokerProcess, topic: str, *options: str) -> None:
    everything = [(topic, PARTITIONS)]
    with load(broker, topic) as running:
        first, second = group.join(topic, *options), group.join(topic, *options)
        group.await_balance([first, second], everything)
        third = group.join(topic, *options)
        group.await_balance([first, second, third], everything)
        second.leave()
        group.await_balance([first, third], everything)
        third.crash()
        group.await_balance([first], everything)
    group.await_values(running.sent)
    first.leave()
    assert committed(Confluent(broker.bootstrap), group, topic) == len(running.sent)


@UNDER_LOAD_CLASSIC
def test_members_join_leave_and_crash_under_load(group: Group, broker: BrokerProcess, shared_topic: str) -> None:
    run_through_join_leave_and_crash(group, broker, shared_topic)


@UNDER_LOAD_COOPERATIVE
def test_cooperative_members_join_leave_and_crash_under_load(
    group: Group, broker: BrokerProcess, shared_topic: str
) -> None:
    run_through_join_leave_and_crash(group, broker, shared_topic, "--strategy", "cooperative-sticky")


@UNDER_LOAD_KIP_848
def test_members_of_the_new_protocol_join_leave_and_crash_under_load(
    group: Group, broker: BrokerProcess, shared_topic: str
) -> None:
    run_through_join_leave_and_crash(group, broker, shared_topic, "--protocol", "consumer")


@pytest.mark.parametrize(
    ("member_client", "strategy"),
    [
        ("confluent-kafka", "cooperative-sticky"),
        pytest.param("confluent-kafka", "range", marks=pytest.mark.groups),
        pytest.param("java", "cooperative-sticky", marks=[pytest.mark.groups, pytest.mark.java]),
        pytest.param("java", "range", marks=[pytest.mark.groups, pytest.mark.java]),
        pytest.param("franz-go", "cooperative-sticky", marks=[pytest.mark.groups, pytest.mark.franz_go]),
    ],
)
def test_a_group_moves_to_the_new_protocol_and_back_while_it_works(
    group: Group, broker: BrokerProcess, shared_topic: str, strategy: str
) -> None:
    everything = [(shared_topic, PARTITIONS)]
    classic = ("--strategy", strategy)
    with load(broker, shared_topic) as running:
        first = group.join(shared_topic, *classic)
        group.await_balance([first], everything)
        second = group.join(shared_topic, "--protocol", "consumer")
        group.await_balance([first, second], everything)
        third = group.join(shared_topic, *classic)
        group.await_balance([first, second, third], everything)
        second.leave()
        group.await_balance([first, third], everything)
        third.crash()
        group.await_balance([first], everything)
    group.await_values(running.sent)
    first.leave()
    assert committed(Confluent(broker.bootstrap), group, shared_topic) == len(running.sent)


@COOPERATIVE
def test_a_cooperative_member_keeps_what_it_need_not_give(group: Group, shared_topic: str) -> None:
    options = ("--strategy", "cooperative-sticky")
    first = group.join(shared_topic, *options)
    group.await_balance([first], [(shared_topic, PARTITIONS)])
    second = group.join(shared_topic, *options)
    group.await_balance([first, second], [(shared_topic, PARTITIONS)])

    # From all to half at once, never to none: nothing was given up and taken back.
    assert first.assignments == 2
    assert len(first.assigned) == len(second.assigned) == PARTITIONS // 2


@CLASSIC_AND_GO
def test_a_static_member_comes_back_to_its_partitions(group: Group, reference: Confluent, shared_topic: str) -> None:
    options = ("--session-timeout-ms", "30000", "--instance-id")
    first, second = group.join(shared_topic, *options, "one"), group.join(shared_topic, *options, "two")
    group.await_balance([first, second], [(shared_topic, PARTITIONS)])
    before, changes = second.assigned, first.assignments

    second.crash()
    again = group.join(shared_topic, *options, "two")
    group.await_balance([first, again], [(shared_topic, PARTITIONS)])
    group_values = send(reference, shared_topic, 0, 60)
    group.await_values(group_values)

    assert again.assigned == before
    assert first.assignments == changes


@pytest.mark.nodes(client="confluent-kafka")
@CLASSIC_AND_OTHERS
@pytest.mark.parametrize("commit", ["sync", "async"])
def test_a_group_goes_on_from_what_it_committed(
    group: Group, reference: Confluent, shared_topic: str, commit: str
) -> None:
    first = group.join(shared_topic, "--commit", commit)
    group.await_balance([first], [(shared_topic, PARTITIONS)])
    group.await_values(send(reference, shared_topic, 0, 600))
    first.leave()
    assert committed(reference, group, shared_topic) == 600

    second = group.join(shared_topic, "--commit", commit)
    group.await_balance([second], [(shared_topic, PARTITIONS)])
    later = send(reference, shared_topic, 600, 60)
    group.await_values(later)
    assert {value for _, _, _, value in second.rows} == set(later)


@pytest.mark.parametrize("member_client", [_also("kafkajs", always=True), _also("franz-go", always=True)])
def test_a_member_seeks_back(group: Group, reference: Confluent, shared_topic: str) -> None:
    values = send(reference, shared_topic, 0, 60)
    first = group.join(shared_topic)
    group.await_values(values)
    first.leave()
    assert committed(reference, group, shared_topic) == 60

    second = group.join(shared_topic, "--seek-to", "4")
    wanted = {value for value in values if int(value) // PARTITIONS >= 4}
    group.wait_until(lambda: {value for *_, value in second.rows} >= wanted, "what follows the place is read again")
    assert {value for *_, value in second.rows} == wanted


@CLASSIC_AND_GO
def test_a_pattern_takes_in_topics_that_come_later(group: Group, reference: Confluent) -> None:
    prefix = f"pattern-{uuid.uuid4()}"
    reference.create_topic(f"{prefix}-a", partitions=2)
    reference.create_topic(f"other-{prefix}", partitions=2)
    member = group.join(f"^{prefix}-.*")
    group.await_balance([member], [(f"{prefix}-a", 2)])

    reference.create_topic(f"{prefix}-b", partitions=3)
    group.await_balance([member], [(f"{prefix}-a", 2), (f"{prefix}-b", 3)])


@CLASSIC_AND_GO
def test_a_group_takes_in_new_partitions(group: Group, reference: Confluent, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    first, second = group.join(topic), group.join(topic)
    group.await_balance([first, second], [(topic, 2)])

    reference.add_partitions(topic, 5)
    group.await_balance([first, second], [(topic, 5)])
