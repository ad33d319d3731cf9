"""An honest client in a process of its own: one produce and one Metadata after the other, each timed.

`python -m tests.attack.honest PORT` prints "ready", works until its standard input ends, then prints what it saw as
JSON.
"""

from __future__ import annotations

import json
import select
import sys
import time

from ottla.client.connection import BrokerConnection
from ottla.kproto.messages.data.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.kproto.messages.topics.metadata import MetadataRequest, MetadataRequestTopic
from ottla.kproto.records import Record, build_batch

TOPIC = "honest"
TIMEOUT_SECONDS = 60
_PAUSE_SECONDS = 0.005


def main() -> None:
    port = int(sys.argv[1])
    connection = BrokerConnection("127.0.0.1", port, TIMEOUT_SECONDS)
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])
    batch = build_batch([Record(timestamp_ms=int(time.time() * 1000), key=b"k", value=bytes(1_000))])
    data = TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=0, records=batch)])
    produce = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data])
    taken_ms: dict[str, list[float]] = {"metadata": [], "produce": []}
    error = ""
    print("ready", flush=True)
    try:
        while not select.select([sys.stdin], [], [], 0)[0]:
            began = time.perf_counter()
            connection.call(asked, at_most=12)
            asked_at = time.perf_counter()
            answer = connection.call(produce, at_most=12)
            taken_ms["metadata"].append((asked_at - began) * 1000)
            taken_ms["produce"].append((time.perf_counter() - asked_at) * 1000)
            code = answer.responses[0].partition_responses[0].error_code
            if code:
                error = f"a produce was answered by error {code}"
            time.sleep(_PAUSE_SECONDS)
    except Exception as failure:  # noqa: BLE001 - it is told
        error = repr(failure)
    print(json.dumps({"error": error, **taken_ms}))


if __name__ == "__main__":
    main()
