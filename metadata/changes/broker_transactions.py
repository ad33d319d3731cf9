"""Transactions about brokers: registration, sessions and the controller.

Kafka's counterpart is org.apache.kafka.controller.ClusterControlManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.metadata import keys
from ottla.metadata.changes.partition_changes import leave
from ottla.metadata.changes.partition_transactions import changes_of_all
from ottla.metadata.errors import BrokerIdNotRegisteredError, DuplicateBrokerIdError, InvalidRequestError
from ottla.metadata.image import NO_LEADER, BrokerImage, MetadataImage
from ottla.metastore.errors import StoreUnavailableError
from ottla.metastore.store import Compare, Delete, Operation, Put

if TYPE_CHECKING:
    from ottla.metadata.changes.partition_changes import PartitionUpdate
    from ottla.metadata.changes.partition_transactions import PartitionKey
    from ottla.metadata.changes.transactions import Plan, Planner, RevisionOf


def registration(broker: BrokerImage, lease: int, *, is_new: bool) -> Planner[None]:
    """See `Controller.register_broker`."""
    known, session = keys.broker(broker.node_id), keys.alive(broker.node_id)

    async def plan(image: MetadataImage, revision_of: RevisionOf) -> Plan[None]:
        other = image.sessions.get(broker.node_id)
        is_former = other is not None and is_new and other.directory_id == broker.directory_id
        if other is not None and other.incarnation != broker.incarnation and not is_former:
            raise DuplicateBrokerIdError(f"Another process runs as node {broker.node_id}; this one has to stop.")
        if revision_of(keys.MOVED):
            raise StoreUnavailableError("The metadata of this cluster has moved to another store.")
        compares = [Compare(session, revision_of(session)), Compare(keys.MOVED, 0)]
        operations = [Put(known, keys.encode_broker(broker))]
        if not broker.fenced:
            operations.append(Put(session, keys.encode_session(broker), lease))
            if image.controller_id in (NO_LEADER, broker.node_id):
                compares.append(Compare(keys.CONTROLLER, revision_of(keys.CONTROLLER)))
                operations.append(Put(keys.CONTROLLER, keys.encode(broker.node_id), lease))
        return compares, operations, None

    return plan


def renewal(node_id: int) -> Planner[None]:
    """See `Controller.renew_registration`."""
    key = keys.broker(node_id)

    async def plan(image: MetadataImage, revision_of: RevisionOf) -> Plan[None]:
        broker = image.brokers.get(node_id)
        if broker is None:
            return [], [], None
        return [Compare(key, revision_of(key))], [Put(key, keys.encode_broker(broker))], None

    return plan


def fencing(broker: BrokerImage) -> Planner[None]:
    """See `Controller.fence_broker`."""
    session = keys.alive(broker.node_id)

    async def plan(image: MetadataImage, revision_of: RevisionOf) -> Plan[None]:
        known = image.brokers.get(broker.node_id)
        if known is None or known.fenced or known.epoch != broker.epoch:
            return [], [], None
        compares = [Compare(session, revision_of(session))]
        operations: list[Operation] = [Delete(session)]
        if image.controller_id == broker.node_id:
            compares.append(Compare(keys.CONTROLLER, revision_of(keys.CONTROLLER)))
            operations.append(Delete(keys.CONTROLLER))
        return compares, operations, None

    return plan


def controllership(node_id: int, lease: int) -> Planner[None]:
    """See `Controller.become_controller`."""

    async def plan(image: MetadataImage, revision_of: RevisionOf) -> Plan[None]:
        if image.controller_id != NO_LEADER:
            return [], [], None
        return [Compare(keys.CONTROLLER, 0)], [Put(keys.CONTROLLER, keys.encode(node_id), lease)], None

    return plan


def unregistration(node_id: int, own_id: int) -> Planner[dict[PartitionKey, PartitionUpdate]]:
    """Forget a broker; or, as long as there are any, answer with the changes by which it leaves its in-sync sets."""

    async def plan(image: MetadataImage, revision_of: RevisionOf) -> Plan[dict[PartitionKey, PartitionUpdate]]:
        broker = image.brokers.get(node_id)
        if broker is None:
            raise BrokerIdNotRegisteredError(f"Broker ID {node_id} is not currently registered")
        if node_id == own_id or not broker.fenced:
            raise InvalidRequestError(f"Broker {node_id} is running; stop it first.")
        changes = await changes_of_all(image, leave, node_id)
        if changes:
            return [], [], changes
        # It joins no set without being registered again, which the comparison finds.
        key = keys.broker(node_id)
        return [Compare(key, revision_of(key)), Compare(keys.alive(node_id), 0)], [Delete(key)], {}

    return plan
