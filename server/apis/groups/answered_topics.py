"""The order in which OffsetCommit, TxnOffsetCommit and OffsetDelete answer topics (the builders of Kafka's responses).

What the handler refuses by itself comes first, each topic once. What the coordinator answers follows: a topic that is
among the first gets its partitions added there. If nothing was refused, topics that were named twice are answered
twice. A topic that is known, and of which no partition was named, is not answered.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

__all__ = ["AnsweredTopics"]

Key = TypeVar("Key")
Answer = TypeVar("Answer")


class AnsweredTopics(Generic[Key, Answer]):
    """Takes topics and the answers to their partitions in the order of the request, and gives them in Kafka's."""

    __slots__ = ("_key", "_refused", "_taken", "_topics")

    def __init__(self) -> None:
        self._refused: dict[Key, list[Answer]] = {}
        self._topics: list[tuple[Key, list[Answer]]] = []
        self._key: Key
        self._taken: list[Answer]

    def begin(self, key: Key, *, is_unknown: bool) -> None:
        """Begin the partitions of this topic. An unknown topic is answered in any case."""
        self._key, self._taken = key, []
        if is_unknown:
            self._refused.setdefault(key, [])

    def add(self, answer: Answer, *, is_refused: bool) -> None:
        """The answer to a partition, which the handler refuses, or with which the coordinator is asked."""
        if is_refused:
            self._refused.setdefault(self._key, []).append(answer)
            return
        if not self._taken:
            self._topics.append((self._key, self._taken))
        self._taken.append(answer)

    def in_order(self) -> Iterable[tuple[Key, list[Answer]]]:
        """All topics with their partitions; called once."""
        if not self._refused:
            return self._topics
        for key, taken in self._topics:
            self._refused.setdefault(key, []).extend(taken)
        return self._refused.items()
