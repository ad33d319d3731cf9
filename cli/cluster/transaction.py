"""`ottla transaction`: list and describe transactions, and abort one whose producer is gone."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable, Iterator
from typing import Any, Final

from ottla.cli import CommandError, options
from ottla.cli.cluster.open_transactions import producers_of, write_abort_marker
from ottla.cli.connection import connected
from ottla.client.client import Client
from ottla.client.connection import BrokerConnection
from ottla.client.errors import BrokerError
from ottla.kproto.errors import COORDINATOR_NOT_READY, ErrorCode
from ottla.kproto.messages.groups.find_coordinator import FindCoordinatorRequest
from ottla.kproto.messages.transactions.describe_transactions import DescribeTransactionsRequest
from ottla.kproto.messages.transactions.init_producer_id import InitProducerIdRequest
from ottla.kproto.messages.transactions.list_transactions import ListTransactionsRequest

HAS_ACTIONS = True

_TRANSACTION_COORDINATOR: Final = 1
_FIND_ONE: Final = 3  # the last version of FindCoordinator that asks for a single id: every broker has it
_TIMEOUT_OF_FENCING_MS: Final = 60_000
_RETRY_SECONDS: Final = 0.05
_PASSING: Final = COORDINATOR_NOT_READY | {ErrorCode.CONCURRENT_TRANSACTIONS}


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="action")

    listing = actions.add_parser("list", help="list transactional ids and their state")
    listing.add_argument(
        "--state", action="append", default=[], help="only these: Ongoing, Empty, CompleteCommit, … (may be repeated)"
    )
    listing.add_argument(
        "--producer-id", type=options.number, action="append", default=[], help="only these (may be repeated)"
    )
    options.add_json(listing)
    listing.set_defaults(act=_list)

    describe = actions.add_parser("describe", help="show a transaction and the partitions that take part")
    describe.add_argument("transactional_ids", nargs="+", metavar="transactional-id")
    options.add_json(describe)
    describe.set_defaults(act=_describe)

    abort = actions.add_parser(
        "abort", help="abort a transaction and fence its producer, or end one that hangs in a partition"
    )
    what = abort.add_mutually_exclusive_group(required=True)
    what.add_argument("transactional_id", nargs="?", metavar="transactional-id")
    what.add_argument(
        "--partition",
        metavar="TOPIC:PARTITION",
        help="end a hanging transaction in this partition: one that no coordinator knows any more",
    )
    abort.add_argument(
        "--start-offset", type=options.number, help="with --partition: where the hanging transaction begins"
    )
    abort.set_defaults(act=_abort)

    for action in (listing, describe, abort):
        options.add_bootstrap(action)


def run(arguments: argparse.Namespace) -> int:
    with connected(arguments) as client:
        arguments.act(client, arguments)
    return 0


def _list(client: Client, arguments: argparse.Namespace) -> None:
    states = []
    request = ListTransactionsRequest(state_filters=arguments.state, producer_id_filters=arguments.producer_id)
    for node_id, broker in _brokers(client):
        answer = broker.call(request)
        if answer.error_code:
            raise BrokerError(answer.error_code, what=f"broker {node_id}")
        if answer.unknown_state_filters:
            raise CommandError(f"there is no state {', '.join(answer.unknown_state_filters)}")
        states += [(state, node_id) for state in answer.transaction_states]
    states.sort(key=lambda pair: pair[0].transactional_id)
    if arguments.json:
        listed = [
            {
                "transactional_id": state.transactional_id,
                "state": state.transaction_state,
                "producer_id": state.producer_id,
                "coordinator": node_id,
            }
            for state, node_id in states
        ]
        print(json.dumps(listed, indent=2))
        return
    options.print_table(
        ("TRANSACTIONAL ID", "STATE", "PRODUCER", "COORDINATOR"),
        ((s.transactional_id, s.transaction_state, s.producer_id, node_id) for s, node_id in states),
    )


def _describe(client: Client, arguments: argparse.Namespace) -> None:
    described = [
        _state(client, transactional_id, arguments.timeout) for transactional_id in arguments.transactional_ids
    ]
    if arguments.json:
        print(json.dumps([_as_json(state) for state in described], indent=2))
        return
    for state in described:
        print(
            f"{state.transactional_id}  {state.transaction_state}  "
            f"producer {state.producer_id} epoch {state.producer_epoch}  timeout {state.transaction_timeout_ms} ms"
            + (f"  open for {_open_for_ms(state) / 1000:.1f} s" if state.transaction_start_time_ms >= 0 else "")
        )
        options.print_table(
            ("  TOPIC", "PARTITIONS"),
            ((f"  {t.topic}", ",".join(map(str, t.partitions))) for t in state.topics),
        )


def _abort(client: Client, arguments: argparse.Namespace) -> None:
    if arguments.partition is not None:
        _abort_hanging(client, arguments.partition, arguments.start_offset)
        return
    _state(client, arguments.transactional_id, arguments.timeout)  # an unknown id must not be created
    deadline = time.monotonic() + arguments.timeout
    request = InitProducerIdRequest(
        transactional_id=arguments.transactional_id, transaction_timeout_ms=_TIMEOUT_OF_FENCING_MS
    )
    while True:
        # It takes the id over, as a starting producer does: an open transaction is aborted before the answer.
        code = _coordinator(client, arguments.transactional_id).call(request).error_code
        if code not in _PASSING:
            break
        if time.monotonic() > deadline:
            raise CommandError(f"{arguments.transactional_id}: its transaction was not ended in time; try again")
        time.sleep(_RETRY_SECONDS)
    if code:
        raise BrokerError(code, what=f"transactional id {arguments.transactional_id}")


def _abort_hanging(client: Client, place: str, start_offset: int | None) -> None:
    """KIP-664: write the marker that no coordinator will write."""
    topic_name, _, number = place.rpartition(":")
    if not topic_name or not number.isdigit() or start_offset is None:
        raise CommandError("give --partition TOPIC:PARTITION and --start-offset OFFSET")
    index = int(number)
    leaders = {p.partition_index: p.leader_id for p in client.topic(topic_name).partitions}
    if index not in leaders:
        raise CommandError(f"topic {topic_name} has no partition {index}")
    leader = client.broker(leaders[index])
    hanging = [it for it in producers_of(leader, topic_name, index) if it.current_txn_start_offset == start_offset]
    if not hanging:
        raise CommandError(f"no open transaction begins at offset {start_offset} of {place}")
    write_abort_marker(leader, topic_name, index, hanging[0])


def _brokers(client: Client) -> Iterator[tuple[int, BrokerConnection]]:
    for broker in sorted(client.metadata([]).brokers, key=lambda broker: broker.node_id):
        yield broker.node_id, client.broker(broker.node_id)


def _coordinator(client: Client, transactional_id: str) -> BrokerConnection:
    request = FindCoordinatorRequest(key=transactional_id, key_type=_TRANSACTION_COORDINATOR)
    client.metadata([])
    for _ in range(20):
        coordinator = client.call(request, at_most=_FIND_ONE)
        if coordinator.error_code != ErrorCode.COORDINATOR_NOT_AVAILABLE:
            break
        time.sleep(_RETRY_SECONDS)
    if coordinator.error_code:
        raise BrokerError(coordinator.error_code, what=f"transactional id {transactional_id}")
    return client.broker(coordinator.node_id)


def _state(client: Client, transactional_id: str, timeout_seconds: float) -> Any:
    """The transaction, as its coordinator knows it once it has loaded what it coordinates."""
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    deadline = time.monotonic() + timeout_seconds
    while True:
        (state,) = _coordinator(client, transactional_id).call(request).transaction_states
        if state.error_code not in _PASSING or time.monotonic() > deadline:
            break
        time.sleep(_RETRY_SECONDS)
    if state.error_code:
        raise BrokerError(state.error_code, what=f"transactional id {transactional_id}")
    return state


def _open_for_ms(state: Any) -> int:
    return max(0, int(time.time() * 1000) - int(state.transaction_start_time_ms))


def _as_json(state: Any) -> dict[str, Any]:
    topics: Iterable[Any] = state.topics
    return {
        "transactional_id": state.transactional_id,
        "state": state.transaction_state,
        "producer_id": state.producer_id,
        "producer_epoch": state.producer_epoch,
        "timeout_ms": state.transaction_timeout_ms,
        "start_time_ms": state.transaction_start_time_ms,
        "partitions": {topic.topic: sorted(topic.partitions) for topic in topics},
    }
