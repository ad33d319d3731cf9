"""`ottla consume --group`: continue from a group's committed offsets, and commit what was printed.

The command does not join the group: it reads all partitions, and refuses a group that has members.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from ottla.cli.groups.commit import commit, in_use
from ottla.client.admin.group_state import Coordinator, committed_offsets, find_group
from ottla.client.client import Client
from ottla.client.offsets import TopicPartition

_COMMIT_SECONDS: Final = 5.0


class GroupOffsets:
    """The committed offsets of a group, and further commits. Raises CommandError if the group has members."""

    def __init__(self, client: Client, group_id: str, timeout_seconds: float) -> None:
        self._coordinator = Coordinator(client, timeout_seconds)
        self._group_id = group_id
        group = find_group(self._coordinator, group_id)
        if group is not None and group.members:
            raise in_use(group_id, "has members")
        self.committed = committed_offsets(self._coordinator, group_id)
        self._last_commit = time.monotonic()

    @property
    def is_due(self) -> bool:
        """Whether it is time to commit again."""
        return time.monotonic() - self._last_commit >= _COMMIT_SECONDS

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit where to continue in each partition, unless that is committed already."""
        news = {each: offset for each, offset in offsets.items() if self.committed.get(each) != offset}
        if news:
            commit(self._coordinator, self._group_id, news)
            self.committed.update(news)
        self._last_commit = time.monotonic()
