"""Whether a node serves what it should, and if not, why: for `/readyz` and `ottla_ready`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.server.broker import Broker


def degradations(broker: Broker) -> list[str]:
    """Problems of a node that serves: unreadable records, failed background work. Taking it out of service would not
    help.
    """
    given_up = broker.supervisor.given_up()
    failed = [f"the task {name} failed, and the log says where: {reason}" for name, reason in given_up.items()]
    return [*failed, *(place.message for place in broker.log_manager.context.damage)]


def unready_reasons(broker: Broker) -> list[str]:
    """Reasons why some requests cannot be answered yet, each as a sentence; empty if there are none."""
    reasons = []
    if not broker.is_serving:
        reasons.append("the node is starting or stopping")
    for name, coordinator in (("group", broker.group_coordinator), ("transaction", broker.transaction_coordinator)):
        loading, failed = coordinator.runtime.loading(), len(coordinator.runtime.failed)
        if loading:
            reasons.append(f"the {name} coordinator is loading {loading} partitions")
        if failed:
            reasons.append(f"the {name} coordinator could not load {failed} partitions")
    offline = sum(store.error is not None for store in broker.log_manager.stores())
    if offline:
        reasons.append(f"{offline} stores are offline")
    if broker.log_manager.context.space.is_full:
        reasons.append("the disk is full: records are served, but none are accepted")
    for name, reason in broker.supervisor.failing().items():
        reasons.append(f"the task {name} fails and is begun again: {reason}")
    if broker.replica_manager.offline_partitions:
        reasons.append(f"{broker.replica_manager.offline_partitions} partitions could not be opened")
    return reasons
