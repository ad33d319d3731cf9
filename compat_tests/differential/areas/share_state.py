"""The delivery state of share partitions, as brokers ask its coordinator for it (KIP-932): epochs old and new, batches
that overlap, meet and go backwards, and states that are not there.
"""

from __future__ import annotations

from typing import Any

from compat_tests.differential.draft import Draft

_STEPS = 40
_UNKNOWN = {"$uuid": "00000000-0000-0000-0000-00000000dead"}


class _State:
    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.group = draft.group()
        self.topic = draft.create_topic(partitions=2)
        self.state_epoch = 0
        self.leader_epoch = 0

    def _ask(self, api: str, *partitions: dict[str, Any]) -> None:
        draft = self.draft
        topic_id = draft.odd(draft.topic_id(self.topic), _UNKNOWN, chance=0.04)
        topics = [{"topic_id": topic_id, "partitions": list(partitions)}]
        fields = {
            "group_id": draft.odd(self.group, "", "~other", chance=0.04),
            "topics": draft.odd(topics, [], chance=0.02),
        }
        draft.ask(api, fields)

    @property
    def _partition(self) -> dict[str, Any]:
        return {"partition": self.draft.odd(self.draft.pick((0, 0, 0, 1)), 9, -1, chance=0.04)}

    def _epoch(self, name: str) -> int:
        known = int(getattr(self, name))
        if self.draft.chance(0.1):
            setattr(self, name, known + 1)
        return self.draft.odd(known, known - 1, known + 1, -1, chance=0.15)

    def initialize(self) -> None:
        draft = self.draft
        self.state_epoch += draft.pick((0, 1))
        state = {"state_epoch": self._epoch("state_epoch"), "start_offset": draft.odd(0, 5, -1, chance=0.3)}
        self._ask("INITIALIZE_SHARE_GROUP_STATE", self._partition | state)

    def read(self) -> None:
        self._ask("READ_SHARE_GROUP_STATE", self._partition | {"leader_epoch": self._epoch("leader_epoch")})

    def summary(self) -> None:
        self._ask("READ_SHARE_GROUP_STATE_SUMMARY", self._partition | {"leader_epoch": self._epoch("leader_epoch")})

    def write(self) -> None:
        draft = self.draft
        state = {
            "state_epoch": self._epoch("state_epoch"),
            "leader_epoch": self._epoch("leader_epoch"),
            "start_offset": draft.odd(-1, 0, 3, 6, 10, chance=0.5),
            "delivery_complete_count": draft.odd(0, -1, 3, -2, chance=0.3),
            "state_batches": [self._batch() for _ in range(draft.pick((0, 1, 1, 2, 3)))],
        }
        self._ask("WRITE_SHARE_GROUP_STATE", self._partition | state)

    def _batch(self) -> dict[str, Any]:
        draft = self.draft
        first = draft.random.randrange(14)
        return {
            "first_offset": first,
            "last_offset": first + draft.random.randrange(5),
            "delivery_state": draft.odd(draft.pick((0, 2, 4)), 1, 3, 5, -1, chance=0.05),
            "delivery_count": draft.odd(draft.pick((1, 2)), 0, -1, 5, chance=0.1),
        }

    def delete(self) -> None:
        self._ask("DELETE_SHARE_GROUP_STATE", self._partition)


def write(draft: Draft) -> None:
    state = _State(draft)
    if draft.chance(0.8):
        state.initialize()
    actions = (state.initialize, state.read, state.summary, state.write, state.delete)
    while len(draft) < _STEPS:
        draft.random.choices(actions, (1, 4, 2, 8, 0.7))[0]()
