"""Open transactions over a restart of the broker: byte by byte, beside Apache Kafka."""

from __future__ import annotations

import time
from contextlib import closing

from compat_tests.brokers.process import BrokerProcess
from compat_tests.wire.transaction_wire import PATIENCE_S, name, new_peers
from compat_tests.wire.wire import Wire
from ottla.kproto.messages.data import list_offsets as lo

LATEST, EARLIEST, AFTER_ALL = -1, -2, 2**62
SETTLING = ("LEADER_NOT_AVAILABLE", "NOT_LEADER_OR_FOLLOWER", "UNKNOWN_TOPIC_OR_PARTITION", "OFFSET_NOT_AVAILABLE")


def offset(wire: Wire, topic: str, timestamp: int, *, isolation_level: int) -> tuple[str, int]:
    partition = lo.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    asked = lo.ListOffsetsTopic(name=topic, partitions=[partition])
    request = lo.ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=[asked])
    deadline = time.monotonic() + PATIENCE_S
    while True:
        (answer,) = wire.call(request, 7).topics[0].partitions
        if name(answer.error_code) not in SETTLING or time.monotonic() > deadline:
            return name(answer.error_code), answer.offset
        time.sleep(0.05)


def test_the_end_for_readers_of_committed_records_while_a_transaction_is_open(own_broker: BrokerProcess) -> None:
    with closing(Wire(own_broker.bootstrap)) as wire:
        peer = new_peers(wire, 1)()
        for sequence in range(2):
            assert peer.produce(version=12, sequence=sequence) == "NONE"
        topic = peer.topic
        assert offset(wire, topic, LATEST, isolation_level=1) == ("NONE", 0)
    own_broker.stop()
    own_broker.start()
    with closing(Wire(own_broker.bootstrap)) as wire:
        assert offset(wire, topic, LATEST, isolation_level=0) == ("NONE", 2)
        assert offset(wire, topic, LATEST, isolation_level=1) == ("NONE", 0)
        assert offset(wire, topic, EARLIEST, isolation_level=1) == ("NONE", 0)
        assert offset(wire, topic, AFTER_ALL, isolation_level=1) == ("NONE", -1)
        assert offset(wire, topic, 1, isolation_level=1) == ("NONE", -1)
