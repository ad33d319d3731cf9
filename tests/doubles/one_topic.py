"""The ids of topics, in tests that know of one topic only."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID


class OneTopic(NamedTuple):
    """Every name is this topic's."""

    id: UUID

    def topic_id(self, name: str) -> UUID:
        return self.id

    def topic_id_of(self, topic: str, partition: int) -> UUID:
        return self.id
