"""A tiered topic as its leader tells of it."""

from __future__ import annotations

import time

from compat_tests.wire.wire import Wire, WireConnection
from ottla.kproto.messages.data.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

EARLIEST, EARLIEST_LOCAL = -2, -4
DEADLINE_S = 120.0


class RemoteTopic:
    """Asks the leader of the topic's partitions, over a connection to it."""

    def __init__(self, wire: Wire | WireConnection, topic: str) -> None:
        self._wire = wire
        self._topic = topic

    def offset(self, spec: int, partition: int = 0) -> int:
        """The offset that ListOffsets finds; -1 while there is none."""
        asked = ListOffsetsPartition(partition_index=partition, timestamp=spec)
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=self._topic, partitions=[asked])])
        offset: int = self._wire.call(request, 11).topics[0].partitions[0].offset
        return offset

    def wait_until_remote(self, above: int, partition: int = 0) -> None:
        """Until the records up to this offset are in the object store only."""
        deadline = time.monotonic() + DEADLINE_S
        while (start := self.offset(EARLIEST_LOCAL, partition)) <= above:
            assert time.monotonic() < deadline, start
            time.sleep(0.02)
