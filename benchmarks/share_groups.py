"""`python -m benchmarks.share_groups`: records through a share group of ten members, and idle groups, beside Kafka.

    python -m benchmarks.share_groups [--pairs 3] [--records 500000] [--groups 1000] [--broker ottla|kafka|both]

Ten members of one share group (`kafka-share-consumer-perf-test --threads 10`) read a topic of ten partitions that was
filled before, each record once, and accept what they were given. Then there are idle groups: each had a member, whose
partitions were set up, and which has left. Every run starts a fresh broker on an empty folder; the brokers alternate.
It prints the table of the medians.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from typing import Any, Final

from benchmarks.measuring import java_tools
from benchmarks.measuring.brokers import fresh
from benchmarks.measuring.process_cost import cost
from benchmarks.reporting import tables
from benchmarks.reporting.results import Result
from benchmarks.workloads import Figures, create_topic
from compat_tests.brokers.process import BrokerProcess
from compat_tests.wire.wire import Wire
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.configs.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.kproto.messages.groups.find_coordinator import FindCoordinatorRequest
from ottla.kproto.messages.share.share_group_heartbeat import ShareGroupHeartbeatRequest

PARTITIONS: Final = 10
MEMBERS: Final = 10
RECORD_BYTES: Final = 100
IDLE_S: Final = 20.0
TOGETHER: Final = 100
"""Groups that wait together: with all of them their sessions might end meanwhile."""
PATIENCE_S: Final = 120.0
_GROUP_RESOURCE: Final = 32
_NOT_READY: Final = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
}


def delivery(broker: BrokerProcess, records: int) -> Figures:
    """How many records a second ten members get, and the broker's CPU for each."""
    topic, group = "shared", "readers"
    create_topic(broker, topic, PARTITIONS)
    java_tools.produce(broker.bootstrap, topic, records, RECORD_BYTES, "batch.size=16384", "linger.ms=5")
    with closing(Wire(broker.bootstrap)) as wire:
        begin_early(wire, group)
    before = cost(broker.pid).cpu_s
    found = java_tools.consume_shared(broker.bootstrap, topic, group, records, MEMBERS)
    return {**found, "cpu_us_per_record": (cost(broker.pid).cpu_s - before) / records * 1e6}


def idle(broker: BrokerProcess, groups: int) -> Figures:
    """The broker's CPU while share groups are there that nobody uses, in percent of a core."""
    create_topic(broker, "idle", 1)
    with closing(Wire(broker.bootstrap)) as wire:
        names = [f"idle-{number}" for number in range(groups)]
        for start in range(0, groups, TOGETHER):
            join_and_leave(wire, names[start : start + TOGETHER], "idle")
        time.sleep(2.0)  # What the last of them left to be done is done.
        before, began = cost(broker.pid).cpu_s, time.perf_counter()
        time.sleep(IDLE_S)
        used = cost(broker.pid).cpu_s - before
    return {"cpu_percent": used / (time.perf_counter() - began) * 100}


def begin_early(wire: Wire, group: str) -> None:
    """Let a group begin with the first record."""
    config = AlterableConfig(name="share.auto.offset.reset", config_operation=0, value="earliest")
    resource = AlterConfigsResource(resource_type=_GROUP_RESOURCE, resource_name=group, configs=[config])
    wire.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)


def join_and_leave(wire: Wire, groups: Sequence[str], topic: str) -> None:
    """A member comes to each group, stays until it has the topic's partition, and leaves.

    They wait together: between two assignments of one group lies a second (`group.share.assignment.interval.ms`).
    """
    wire.call(FindCoordinatorRequest(coordinator_keys=[groups[0]]), 6)
    deadline = time.monotonic() + PATIENCE_S
    waiting = {group: beat(wire, group, 0, subscribed_topic_names=[topic]) for group in groups}
    while waiting:
        for group, answer in list(waiting.items()):
            if answer.assignment is not None and answer.assignment.topic_partitions:
                beat(wire, group, -1)
                del waiting[group]
            elif time.monotonic() > deadline:
                raise TimeoutError(f"{group} is given nothing")
            else:
                waiting[group] = beat(wire, group, answer.member_epoch, subscribed_topic_names=[topic])
        time.sleep(0.1)


def beat(wire: Wire, group: str, epoch: int, **fields: Any) -> Any:
    """A heartbeat, once the group's coordinator is ready."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        request = ShareGroupHeartbeatRequest(
            group_id=group, member_id="AAAAAAAAAAAAAAAAAAAAAQ", member_epoch=epoch, **fields
        )
        answer = wire.call(request, 1)
        if answer.error_code not in _NOT_READY or time.monotonic() > deadline:
            break
        time.sleep(0.05)
    if answer.error_code:
        raise RuntimeError(f"{ErrorCode.of(answer.error_code).name}: {answer.error_message}")
    return answer


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.share_groups", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--pairs", type=int, default=3, help="runs against each broker")
    parser.add_argument("--records", type=int, default=500_000)
    parser.add_argument("--groups", type=int, default=1_000)
    parser.add_argument("--broker", choices=("ottla", "kafka", "both"), default="both")
    arguments = parser.parse_args()
    workloads: dict[str, Callable[[BrokerProcess], Figures]] = {
        f"{MEMBERS} members of a share group": partial(delivery, records=arguments.records),
        f"{arguments.groups:,} idle share groups": partial(idle, groups=arguments.groups),
    }
    kinds = ("ottla", "kafka") if arguments.broker == "both" else (arguments.broker,)
    results = {name: Result(arguments.pairs, {kind: [] for kind in kinds}) for name in workloads}
    for pair in range(arguments.pairs):
        for kind in kinds if pair % 2 == 0 else reversed(kinds):
            with fresh(kind) as broker:
                for name, workload in workloads.items():
                    results[name].runs[kind].append(workload(broker))
                    print(f"{name}, {kind}: {results[name].runs[kind][-1]}", file=sys.stderr, flush=True)
    if "ottla" in kinds:
        print(tables.by_figure(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
