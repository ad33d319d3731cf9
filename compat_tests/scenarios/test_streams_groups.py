"""Kafka Streams with its own group protocol (KIP-1071) and exactly_once_v2: two instances, rebalances, and kills.

The word count counts every word once, however the tasks are assigned.
"""

from __future__ import annotations

import random
import subprocess
import time
from collections import Counter, defaultdict
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from compat_tests.brokers.process import BrokerProcess
from compat_tests.clients.base import BEGINNING, Record
from compat_tests.clients.confluent import Confluent
from compat_tests.java import java, missing
from compat_tests.scenarios.test_streams import TIMEOUT_S, WORDS, word_count
from compat_tests.wire.groups.test_wire_streams import configure
from compat_tests.wire.wire import Wire
from ottla.kproto.messages.groups.streams_group_describe import StreamsGroupDescribeRequest

LINES_A_ROUND = 100
GROUP = "words"
PROTOCOL = "group.protocol=streams"


def tool(broker: BrokerProcess, *arguments: str) -> str:
    """What kafka-streams-groups prints."""
    main_class = "org.apache.kafka.tools.streams.StreamsGroupCommand"
    command = java(main_class, "--bootstrap-server", broker.bootstrap)
    return subprocess.run([*command, *arguments], capture_output=True, text=True, check=False, timeout=200).stdout


def await_group(broker: BrokerProcess, state: str, members: int) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    with closing(Wire(broker.bootstrap)) as wire:
        while True:
            (group,) = wire.call(StreamsGroupDescribeRequest(group_ids=[GROUP]), 0).groups
            if group.group_state == state and len(group.members) == members:
                return
            assert time.monotonic() < deadline, group
            time.sleep(0.2)


@pytest.mark.slow
@pytest.mark.java
@pytest.mark.groups
@pytest.mark.timeout(900)
def test_each_word_is_counted_once_over_rebalances_restarts_and_kills(
    own_broker: BrokerProcess, tmp_path: Path
) -> None:
    reference, chance = Confluent(own_broker.bootstrap), random.Random(2)
    reference.create_topic("in", partitions=4)
    reference.create_topic("out")
    words: Counter[str] = Counter()
    seen: list[Record] = []

    def count_lines() -> None:
        """Send lines, and go on in the midst of counting."""
        lines = [" ".join(chance.choices(WORDS, k=5)) for _ in range(LINES_A_ROUND)]
        with closing(reference.producer(idempotent=True)) as producer:
            producer.send("in", [Record(line.encode(), partition=n % 4) for n, line in enumerate(lines)])
        words.update(word for line in lines for word in line.split())
        seen.extend(out.take(1, TIMEOUT_S))

    with ExitStack() as running:
        first = running.enter_context(word_count(own_broker.bootstrap, tmp_path / "a", PROTOCOL))
        out = running.enter_context(closing(reference.consumer("out", BEGINNING, isolation="read_committed")))
        count_lines()
        with word_count(own_broker.bootstrap, tmp_path / "b", PROTOCOL):
            await_group(own_broker, "Stable", 2)
            count_lines()
        # The second one was killed: its tasks come back when its session has ended.
        count_lines()
        await_group(own_broker, "Stable", 1)
        running.enter_context(word_count(own_broker.bootstrap, tmp_path / "b", PROTOCOL))
        await_group(own_broker, "Stable", 2)
        count_lines()
        own_broker.kill()
        own_broker.start()
        count_lines()
        await_group(own_broker, "Stable", 2)
        assert first.stdin is not None
        first.stdin.close()  # It ends in order, and leaves the group.
        assert first.wait() == 0
        await_group(own_broker, "Stable", 1)
        count_lines()
        seen.extend(out.take(words.total() - len(seen), TIMEOUT_S))
        seen.extend(out.take(1, 1.0))
        assert GROUP in tool(own_broker, "--list")
        described = tool(own_broker, "--describe", "--group", GROUP, "--members", "--verbose")
        assert "ACTIVE: 0:[0,1,2,3]; 1:[0,1,2,3];" in described
    counts = defaultdict(list)
    for record in seen:
        counts[(record.key or b"").decode()].append(int(record.value or b""))
    assert counts == {word: list(range(1, count + 1)) for word, count in words.items()}
    await_group(own_broker, "Empty", 0)
    again = ("--reset-offsets", "--group", GROUP, "--all-input-topics", "--to-earliest", "--execute")
    assert "in " in tool(own_broker, *again)
    assert "successful" in tool(own_broker, "--delete", "--group", GROUP)
    assert GROUP not in tool(own_broker, "--list")


def described(broker: BrokerProcess) -> Any:
    """The group, with the description of its topology."""
    with closing(Wire(broker.bootstrap)) as wire:
        request = StreamsGroupDescribeRequest(group_ids=[GROUP], include_topology_description=True)
        return wire.call(request, 1).groups[0]


@pytest.mark.slow
@pytest.mark.java
@pytest.mark.groups
@pytest.mark.timeout(900)
def test_a_static_member_comes_back_without_a_rebalance(own_broker: BrokerProcess, tmp_path: Path) -> None:
    if reason := missing():
        pytest.skip(reason)
    reference = Confluent(own_broker.bootstrap)
    reference.create_topic("in", partitions=2)
    reference.create_topic("out")
    with closing(Wire(own_broker.bootstrap)) as wire:
        # However long the application takes to start again.
        configure(wire, GROUP, streams_session_timeout_ms="60000")
    settings = (PROTOCOL, "group.instance.id=one")
    seen: list[Record] = []

    def count(words: str) -> None:
        with closing(reference.producer(idempotent=True)) as producer:
            producer.send("in", [Record(words.encode(), partition=index) for index in range(2)])
        seen.extend(out.take(2 * len(words.split()), TIMEOUT_S))

    def stop(application: subprocess.Popen[str]) -> None:
        assert application.stdin is not None
        application.stdin.close()
        assert application.wait() == 0

    with closing(reference.consumer("out", BEGINNING, isolation="read_committed")) as out:
        with word_count(own_broker.bootstrap, tmp_path / "a", *settings) as application:
            count("alder ash")
            await_group(own_broker, "Stable", 1)
            deadline = time.monotonic() + TIMEOUT_S
            # Apache Kafka keeps no descriptions without a plugin.
            while (group := described(own_broker)).topology_description_status != 3 and own_broker.name == "ottla":
                assert time.monotonic() < deadline, group
                time.sleep(0.2)
            (member,) = group.members
            assert str(member.instance_id).startswith("one")
            stop(application)
        away = described(own_broker)
        assert [(each.member_id, each.member_epoch) for each in away.members] == [(member.member_id, -2)]
        with word_count(own_broker.bootstrap, tmp_path / "a", *settings) as application:
            count("ash elm")
            back = described(own_broker)
            assert [(each.instance_id, each.member_epoch) for each in back.members] == [
                (member.instance_id, group.group_epoch)
            ]
            assert (back.group_state, back.group_epoch) == ("Stable", group.group_epoch)
            if own_broker.name == "ottla":
                drawn = tool(own_broker, "--describe", "--group", GROUP, "--topology")
                assert "KSTREAM-SOURCE-0000000000" in drawn
            stop(application)
    counts = defaultdict(list)
    for record in seen:
        counts[(record.key or b"").decode()].append(int(record.value or b""))
    assert counts == {"alder": [1, 2], "ash": [1, 2, 3, 4], "elm": [1, 2]}
