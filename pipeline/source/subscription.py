"""Which partitions are read: topics by name, by pattern, or partitions by number."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from ottla.pipeline.client import TopicPartition
from ottla.pipeline.errors import OptionError
from ottla.pipeline.options.texts import is_int, json_object

__all__ = ["Subscription", "subscription_of"]


class Subscription(NamedTuple):
    """Which partitions are read; exactly one of the three is set."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    assigned: tuple[TopicPartition, ...] = ()

    def includes(self, topic: str) -> bool:
        """Say whether a topic of that name can be in the subscription."""
        if self.pattern:
            return re.fullmatch(self.pattern, topic) is not None
        return topic in self.topics or any(part.topic == topic for part in self.assigned)

    def __str__(self) -> str:
        return ", ".join(self.topics) or self.pattern or ", ".join(map(str, self.assigned))


def subscription_of(given: Mapping[str, str]) -> Subscription:
    """The one of subscribe, subscribePattern and assign that is given; OptionError otherwise."""
    chosen = [name for name in ("subscribe", "subscribePattern", "assign") if name.lower() in given]
    if len(chosen) != 1:
        what = " and ".join(chosen) or "none of them"
        raise OptionError(f"One of subscribe, subscribePattern and assign says what is read, but there is {what}.")
    name = chosen[0]
    text = given[name.lower()]
    if name == "subscribe":
        topics = tuple(dict.fromkeys(filter(None, (topic.strip() for topic in text.split(",")))))
        if not topics:
            raise OptionError("Option subscribe is empty: write one topic, or several separated by commas.")
        return Subscription(topics=topics)
    if name == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise OptionError(f"Option subscribePattern is not a regular expression: {error}.") from None
        if not text:
            raise OptionError("Option subscribePattern is empty: write a regular expression.")
        return Subscription(pattern=text)
    assigned = []
    example = '{"topic":[0,1]}'
    for topic, numbers in json_object(name, text, example).items():
        if not isinstance(numbers, list) or not all(is_int(number) and number >= 0 for number in numbers):
            raise OptionError(f"Option {name} has {topic!r}: {numbers!r}; write {example}.")
        assigned += [TopicPartition(topic, number) for number in numbers]
    if not assigned:
        raise OptionError(f"Option {name} names no partition: write {example}.")
    return Subscription(assigned=tuple(dict.fromkeys(assigned)))
