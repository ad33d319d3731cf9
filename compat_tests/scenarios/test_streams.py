"""Kafka Streams with exactly_once_v2: its word count counts every word once, whatever happens to the broker."""

from __future__ import annotations

import random
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from compat_tests.brokers.process import BrokerProcess
from compat_tests.clients.base import BEGINNING, Record
from compat_tests.clients.confluent import Confluent
from compat_tests.java import java_program

WORD_COUNT = Path(__file__).resolve().parents[1] / "java" / "WordCount.java"
WORDS = ("alder", "ash", "beech", "birch", "elm", "hazel", "larch", "oak", "pine", "yew")
LINES_A_ROUND = 200
ROUNDS = 3
TIMEOUT_S = 120.0


@contextmanager
def word_count(bootstrap: str, folder: Path, *settings: str) -> Iterator[subprocess.Popen[str]]:
    """The application, running; killed at the end unless it has ended by then."""
    command = java_program(WORD_COUNT, bootstrap, "words", "in", "out", str(folder), *settings)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "running\n"
            yield process
        finally:
            process.kill()


@pytest.mark.slow
@pytest.mark.java
def test_word_count_counts_each_word_once_through_kills_of_the_broker(
    own_broker: BrokerProcess, tmp_path: Path
) -> None:
    reference, chance = Confluent(own_broker.bootstrap), random.Random(1)
    reference.create_topic("in", partitions=2)
    reference.create_topic("out")
    words: Counter[str] = Counter()
    with word_count(own_broker.bootstrap, tmp_path / "state"):
        out = reference.consumer("out", BEGINNING, isolation="read_committed")
        with closing(out), closing(reference.producer(idempotent=True)) as producer:
            seen: list[Record] = []
            for _ in range(ROUNDS):
                lines = [" ".join(chance.choices(WORDS, k=5)) for _ in range(LINES_A_ROUND)]
                producer.send("in", [Record(line.encode(), partition=n % 2) for n, line in enumerate(lines)])
                words.update(word for line in lines for word in line.split())
                seen += out.take(1)  # in the midst of counting
                own_broker.kill()
                own_broker.start()
            seen += out.take(words.total() - len(seen), TIMEOUT_S)
            seen += out.take(1, 1.0)
    counts = defaultdict(list)
    for record in seen:
        counts[(record.key or b"").decode()].append(int(record.value or b""))
    assert counts == {word: list(range(1, count + 1)) for word, count in words.items()}
