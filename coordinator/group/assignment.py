"""Assignments of members of consumer and share groups."""

from collections.abc import Mapping
from typing import Final
from uuid import UUID

Assignment = Mapping[UUID, frozenset[int]]
"""Partitions by topic id. A topic without partitions is left out."""

EMPTY_ASSIGNMENT: Final[Assignment] = {}
