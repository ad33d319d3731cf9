"""A history while an area writes it: everything random comes from the seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from compat_tests.differential.history import History, Step
from compat_tests.differential.stray import strayed
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.messages import request_class

T = TypeVar("T")


@dataclass(frozen=True)
class Asked:
    """A request of the draft, whose answer later requests refer to."""

    id: int

    def ref(self, path: str, otherwise: Any = None, plus: int | None = None) -> dict[str, Any]:
        """A value for a field: what stands at that path of the answer, `otherwise` if there is no answer."""
        reference = {"$ref": [self.id, path], "else": otherwise}
        return reference if plus is None else reference | {"plus": plus}


class Draft:
    def __init__(self, area: str, seed: int) -> None:
        self.random = random.Random(f"{area} {seed}")
        self.area = area
        self.seed = seed
        #: How often a request leaves what its area knows to be plausible; many histories never do.
        self.strays = self.random.choice((0.0, 0.0, 0.05, 0.15))
        self.topics: list[str] = []
        self.groups: list[str] = []
        self.transactional_ids: list[str] = []
        self._steps: list[Step] = []

    @property
    def history(self) -> History:
        names = (tuple(self.topics), tuple(self.groups), tuple(self.transactional_ids))
        return History(self.area, self.seed, tuple(self._steps), *names)

    def __len__(self) -> int:
        return len(self._steps)

    # What is random

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def pick(self, choices: Sequence[T]) -> T:
        return self.random.choice(choices)

    def odd(self, plausible: T, *strange: Any, chance: float = 0.1) -> T:
        """The plausible value most of the time."""
        return self.pick(strange) if self.chance(chance) else plausible

    def version(self, api: str, lowest: int = 0) -> int:
        """The newest half of the time."""
        valid = ApiKey[api].valid_versions
        if self.chance(0.5):
            return valid.highest
        return self.random.randint(max(valid.lowest, lowest), valid.highest)

    # Names: those that are there at the end are described then

    def topic(self, name: str | None = None) -> str:
        return _new(self.topics, name or f"~t{len(self.topics)}")

    def group(self, name: str | None = None) -> str:
        return _new(self.groups, name or f"~g{len(self.groups)}")

    def transactional_id(self, name: str | None = None) -> str:
        return _new(self.transactional_ids, name or f"~x{len(self.transactional_ids)}")

    # Steps

    def ask(
        self,
        api: str,
        fields: dict[str, Any],
        version: int | None = None,
        *,
        on: str = "a",
        strays: bool = True,
        **options: Any,
    ) -> Asked:
        """`options` are those of a step: `may_wait`, `client_id`. Without `strays` it is sent as it is."""
        version = self.version(api) if version is None else version
        if strays and self.chance(self.strays):
            fields, version, more = strayed(self.random, request_class(ApiKey[api]), fields, version)
            options |= more
        step = Step(id=len(self._steps), connection=on, api=api, version=version, fields=fields, **options)
        self._steps.append(step)
        return Asked(step.id)

    def receive(self, on: str) -> None:
        self._steps.append(Step(id=len(self._steps), connection=on, receive=True))

    def close(self, on: str) -> None:
        self._steps.append(Step(id=len(self._steps), connection=on, close=True))

    def wait(self, milliseconds: int, what: str) -> None:
        self._steps.append(Step(id=len(self._steps), wait_ms=milliseconds, wait_for=what))

    def await_end(self, transactional_id: str, milliseconds: int) -> None:
        """Of what times out, whatever the pace at which the history is played."""
        what = f"the transaction of {transactional_id} to end"
        step = Step(id=len(self._steps), wait_ms=milliseconds, wait_for=what, until_ended=transactional_id)
        self._steps.append(step)

    def create_topic(self, name: str | None = None, partitions: int = 1, **configs: str) -> str:
        """As nobody strays in: most histories stand on it."""
        name = self.topic(name)
        topic = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": 1,
            "configs": [{"name": key, "value": value} for key, value in configs.items()],
        }
        fields = {"topics": [topic], "timeout_ms": 10_000}
        self._steps.append(Step(id=len(self._steps), api="CREATE_TOPICS", version=7, fields=fields))
        return name

    def topic_id(self, name: str) -> dict[str, Any]:
        """The id of a topic that `create_topic` made, as a value for a field."""
        for step in self._steps:
            if step.api == "CREATE_TOPICS" and step.fields["topics"][0]["name"] == name:
                return Asked(step.id).ref("topics.0.topic_id", {"$uuid": "00000000-0000-0000-0000-00000000dead"})
        return {"$uuid": "00000000-0000-0000-0000-00000000dead"}


def _new(names: list[str], name: str) -> str:
    if name not in names:
        names.append(name)
    return name
