"""One runtime for every coordinator: it replays an internal topic's partition into state, and changes it by records only.

The contract, whatever the state is (groups, transactions, share groups):

- A partition's state exists from `start_loading` (this node became leader) to `unload` (it no longer is). Until the replay
  has ended every operation answers CoordinatorLoadInProgressError.
- State changes in `replay` alone, from records that are committed: first by the replay of the log, then by each write, in
  log order. So memory never runs ahead of what a restart would bring back, and what is answered is stored.
- Writes that arrive while an append is under way gather and leave as one batch: group commit without a timer.

Kafka's counterpart is org.apache.kafka.coordinator.common.runtime.CoordinatorRuntime; it applies records at once and
rolls back when an append fails, where this one applies them when the append is committed.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

import trio

from ottla.kproto.records import ProducerIdentity, build_batch, iter_batches, iter_records
from ottla.server.coordinator.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    NotCoordinatorError,
)
from ottla.server.coordinator.log import CoordinatorLog

logger = logging.getLogger(__name__)

MAX_BATCH_RECORDS: Final = 10_000
MAX_QUEUED_WRITES: Final = 50_000
