"""A tiered topic as its leader tells of it."""

from __future__ import annotations

import time

from compat_tests.wire.wire import Wire, WireConnection
from ottla.kproto.messages.data.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

EARLIEST, LATEST, EARLIEST_LOCAL, PENDING = -2, -1, -4, -6
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

    def wait_until_only_the_end_is_local(self, partition: int = 0) -> int:
        """Until all that may be copied is, and the disk has the rest only; where that begins."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            start, pending = self.offset(EARLIEST_LOCAL, partition), self.offset(PENDING, partition)
            if 0 < start == pending:
                return start
            assert time.monotonic() < deadline, (start, pending)
            time.sleep(0.02)
