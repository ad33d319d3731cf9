"""The node in a thread: a call that comes as the loop ends is answered, not forgotten."""

from __future__ import annotations

import threading

import pytest
import trio

from ottla.testing.clock import AdjustableClock
from ottla.testing.errors import BrokerError
from ottla.testing.faults.plan import FaultPlan
from ottla.testing.nodes.node_thread import NodeThread
from ottla.testing.requests import Requests

PATIENCE_S = 120.0


def test_a_call_between_the_end_of_the_nursery_and_of_the_loop_is_refused() -> None:
    node = NodeThread(
        {"listeners": "PLAINTEXT://127.0.0.1:0"},
        disk=None,
        metadata_store=None,
        clock=AdjustableClock(),
        faults=FaultPlan(),
        requests=Requests(),
    )
    said: list[str] = []

    def call() -> None:
        try:
            node.call(trio.lowlevel.checkpoint)
        except BrokerError as error:
            said.append(str(error))

    caller = threading.Thread(target=call, daemon=True)

    async def call_at_the_end() -> None:
        try:
            await trio.sleep_forever()
        finally:  # System tasks are cancelled when the nursery has ended, and the loop waits for them.
            with trio.CancelScope(shield=True):
                caller.start()
                await trio.to_thread.run_sync(caller.join, PATIENCE_S)

    async def begin() -> None:
        trio.lowlevel.spawn_system_task(call_at_the_end)

    node._start_thread()
    node.call(begin)
    node.close()
    assert said == ["the broker has ended"]
    with pytest.raises(BrokerError, match="is not running"):
        node.call(trio.lowlevel.checkpoint)
