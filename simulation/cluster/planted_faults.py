"""Faults that are planted in a cluster: `ottla simulate cluster --planted`."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

import trio

from ottla.coordinator import replica_log
from ottla.coordinator.group.shard.offset_cache import OffsetCache
from ottla.coordinator.group.shard.shard import GroupShard
from ottla.coordinator.share.cluster import ClusterPersister
from ottla.coordinator.share.state import DeliveryState
from ottla.coordinator.transaction import coordinator, decisions
from ottla.coordinator.transaction.markers import ReplicaMarkers
from ottla.metadata.changes import partition_changes
from ottla.metadata.controller import Controller
from ottla.replica import manager
from ottla.replica.append import AppendOperation
from ottla.replica.fetch import FetchOperation
from ottla.replica.fetch_session import FetchSessionCache
from ottla.replica.follower import FollowerProgress
from ottla.replica.following.log_follower import LogFollower
from ottla.replica.isr_change import IsrChange
from ottla.replica.manager import ReplicaManager
from ottla.replica.partition import Isolation, Partition
from ottla.replica.remote import expiry
from ottla.runtime.memory_budget import MemoryBudget
from ottla.runtime.purgatory import Purgatory
from ottla.server import main as server_main
from ottla.server.cluster import elections
from ottla.server.cluster.membership import Membership
from ottla.server.network.connection import Connection
from ottla.server.share import in_flight
from ottla.server.share.in_flight import InFlight
from ottla.server.share.partition import SharePartition
from ottla.server.share.records import Run
from ottla.simulation.harness.planted import PlantedFault
from ottla.storage.disk.fd_cache import FdCache
from ottla.storage.log.log_state import LogState
from ottla.storage.log_manager import LogManager
from ottla.storage.node_dir import NodeDir
from ottla.storage.state import producer_state
from ottla.storage.state.producer_entry import ProducerEntry
from ottla.storage.store.file_store import FileStore
from ottla.storage.store.tail_cache import TailCache
from ottla.tiers import border
from ottla.tiers.errors import ObjectStoreUnavailableError
from ottla.tiers.manifest import Manifest
from ottla.tiers.manifest_file import ManifestFile

__all__ = ["FAULTS"]


def _settle_alone(self: Any, result: Any) -> bool:
    acks, self._required_acks = self._required_acks, 1
    try:
        return bool(_settle(self, result))
    finally:
        self._required_acks = acks


def _advance_alone(self: Any, now_ms: int = 0) -> bool:
    del now_ms
    return bool(self.is_leader and self.log.advance_high_watermark(self.log.flushed_end_offset))


async def _nothing(*_: Any, **__: Any) -> None:
    return None


async def _wait_for_ever(*_: Any) -> None:
    await trio.sleep_forever()


async def _no_markers(self: Any, *_: Any, **__: Any) -> dict[Any, Any]:
    del self
    return {}


def _enough_in_sync(self: Any) -> None:
    self.is_under_min_isr = False


def _join_at_once(self: Any, replica: int) -> bool:
    return replica in self._followers and replica not in self.isr


def _put_at_once(self: Any, producer_id: int, group_id: str, key: bytes, raw: Any) -> None:
    del producer_id
    self.put(group_id, key, raw)


def _eligible_do_not_count(self: Any) -> None:
    change = self._isr_change
    joining = () if change is None else tuple(it for it in change.joining if it not in self.isr)
    self._maximal_isr = self.isr + joining


def _joining_do_not_count(self: Any) -> None:
    self._maximal_isr = self.isr


def _elect_anybody(state: Any, live: Any, **options: Any) -> Any:
    return _follow_live(state, live, **{**options, "unclean": True})


def _plan_to_the_end(self: Any, request: Any, *, is_first: bool) -> Any:
    params, isolation = self._params, self._params.isolation
    params.isolation = Isolation.LOG_END if isolation is Isolation.HIGH_WATERMARK else isolation
    try:
        return _plan(self, request, is_first=is_first)
    finally:
        params.isolation = isolation


def _change_in_any_epoch(self: Any, state: Any) -> Any:
    self._leader_epoch = state.leader_epoch
    self._node_id = state.leader
    return _change_isr(self, state)


def _fetch_from_the_end(self: Any, offset: int, start: int, leader_end: int, now_ms: int, epoch: int = -1) -> bool:
    return bool(_record_fetch(self, max(offset, leader_end), start, leader_end, now_ms, epoch))


def _begin_without_limit(self: Any, start_offset: int, state: Any) -> None:
    self._follow_config = lambda: None
    _begin_share(self, start_offset, state)
    self._in_flight.max_delivery_count = 1_000


def _open_and_forget(self: Any) -> None:
    _open_node(self)
    lost_power, self.lost_power = self.lost_power, False
    try:
        self._note()
    except BaseException:
        self._unlock()
        raise
    finally:
        self.lost_power = lost_power


def _write_and_hope(self: Any, pieces: Any) -> None:
    try:
        _write(self, pieces)
    except OSError as error:
        if error.errno != errno.EIO:
            raise


def _load_without_dead(self: Any, start_offset: int, stored: Any = (), **options: Any) -> None:
    _load(self, start_offset, [_archived(batch) for batch in stored], **options)


async def _store_archived(self: Any, batches: Any) -> None:
    await _store(self, [_archived(batch) for batch in batches])


def _archived(batch: Any) -> Any:
    is_dead = batch.delivery_state == DeliveryState.ARCHIVING
    return batch._replace(delivery_state=int(DeliveryState.ARCHIVED)) if is_dead else batch


def _expire_what_is_not_copied(parts: Any, config: Any, manifest: Any, *, local_start: int, **options: Any) -> int:
    del manifest
    everything = Manifest.of_all(UUID(int=0), 0, 0, options["high_watermark"])
    return int(_local_start(parts, config, everything, local_start=local_start, **options))


async def _change_and_hope(self: Any, edit: Any) -> Any:
    present = self.manifest
    try:
        return await _change_manifest(self, edit)
    except ObjectStoreUnavailableError:
        self.manifest = edit(present)
        return self.manifest


def _write_what_was_accepted(self: Any, transition: Any, run: Any, state: Any) -> None:
    _begin_change(self, transition, run, state)
    if state is DeliveryState.ACKNOWLEDGED and run.delivery_count >= self.max_delivery_count:
        run.state = self._archived()


_ANYBODYS: Final = (DeliveryState.AVAILABLE, DeliveryState.ACQUIRED)
_GIVEN_BACK_TO_NOBODY: Final = {**in_flight._STATES, in_flight.RELEASE: DeliveryState.ARCHIVED}
_begin_share: Final[Callable[..., Any]] = SharePartition._begin
_plan: Final[Callable[..., Any]] = FetchOperation._plan
_settle: Final[Callable[..., Any]] = AppendOperation._settle
_load: Final[Callable[..., Any]] = InFlight.__init__
_begin_change: Final[Callable[..., Any]] = InFlight._begin
_store: Final[Callable[..., Any]] = SharePartition._store
_follow_live: Final[Callable[..., Any]] = partition_changes.follow_live
_change_isr: Final[Callable[..., Any]] = IsrChange.__call__
_open_node: Final[Callable[..., Any]] = NodeDir.open
_record_fetch: Final[Callable[..., Any]] = FollowerProgress.record_fetch
_write: Final[Callable[..., Any]] = FileStore.write
_local_start: Final[Callable[..., Any]] = border.local_retained_start
_change_manifest: Final[Callable[..., Any]] = ManifestFile._change

FAULTS: Final[tuple[PlantedFault, ...]] = (
    PlantedFault("acknowledged before the other replicas have it", ((AppendOperation, "_settle", _settle_alone),)),
    PlantedFault("acknowledged before it is flushed", ((AppendOperation, "_settle", lambda self, result: True),)),
    PlantedFault(
        "the high watermark does not wait for the slowest member",
        ((Partition, "advance_high_watermark", _advance_alone),),
    ),
    PlantedFault(
        "a follower is taken to have what it was sent", ((FollowerProgress, "record_fetch", _fetch_from_the_end),)
    ),
    PlantedFault("a follower cuts nothing off", ((LogFollower, "_truncate", _nothing),)),
    PlantedFault("where logs part is not told", ((Partition, "diverging_epoch", lambda self, offset, epoch: None),)),
    PlantedFault(
        "min.insync.replicas is forgotten, and who is eligible does not count",
        ((Partition, "_count_isr", _enough_in_sync), (Partition, "_count_maximal_isr", _eligible_do_not_count)),
    ),
    PlantedFault("a follower joins without having caught up", ((Partition, "may_join", _join_at_once),)),
    PlantedFault("who is about to join does not count", ((Partition, "_count_maximal_isr", _joining_do_not_count),)),
    PlantedFault(
        "a replica that is not in sync is elected",
        tuple((module, "follow_live", _elect_anybody) for module in (partition_changes, elections)),
    ),
    PlantedFault("in-sync sets are changed by former leaders", ((IsrChange, "__call__", _change_in_any_epoch),)),
    PlantedFault("who lost power stays in sync", ((server_main, "leave_after_loss", _nothing),)),
    PlantedFault("a start that ends early forgets that power was lost", ((NodeDir, "open", _open_and_forget),)),
    PlantedFault("a write that failed is taken for written", ((FileStore, "write", _write_and_hope),)),
    PlantedFault("a session that has ended is not begun anew", ((Membership, "_register_anew", _wait_for_ever),)),
    PlantedFault("readers see what is not committed", ((FetchOperation, "_plan", _plan_to_the_end),)),
    PlantedFault(
        "a batch that is sent again is not known", ((ProducerEntry, "find_duplicate", lambda self, header: None),)
    ),
    PlantedFault(
        "readers of committed records see open transactions",
        ((LogState, "last_stable_offset", property(lambda self: self.high_watermark)),),
    ),
    PlantedFault("aborted transactions are not named", ((manager, "aborted_transactions", lambda result: ()),)),
    PlantedFault(
        "a fence is forgotten",
        (
            (producer_state, "check_producer_epoch", lambda entry, header: None),
            *((module, "require_owner", lambda current, producer: None) for module in (coordinator, decisions)),
        ),
    ),
    PlantedFault("no markers are written", ((ReplicaMarkers, "write", _no_markers),)),
    PlantedFault("coordinators do not wait for the other replicas", ((replica_log, "ACKS_ALL", 1),)),
    PlantedFault("a group's coordinator forgets what it reads", ((GroupShard, "replay", lambda self, *_: None),)),
    PlantedFault("offsets of a transaction are committed at once", ((OffsetCache, "put_pending", _put_at_once),)),
    PlantedFault("what becomes of shared records is not stored", ((ClusterPersister, "write", _nothing),)),
    PlantedFault(
        "shared records that are held are given to others",
        ((Run, "is_available", property(lambda self: self.state in _ANYBODYS and self.before is None)),),
    ),
    PlantedFault(
        "shared records that are given back are given to nobody", ((in_flight, "_STATES", _GIVEN_BACK_TO_NOBODY),)
    ),
    PlantedFault("shared records are delivered for ever", ((SharePartition, "_begin", _begin_without_limit),)),
    PlantedFault("dead letters are archived before they are written", ((SharePartition, "_store", _store_archived),)),
    PlantedFault("the next leader forgets dead letters", ((InFlight, "__init__", _load_without_dead),)),
    PlantedFault("dead letters are about accepted records, too", ((InFlight, "_begin", _write_what_was_accepted),)),
    PlantedFault("a node is not forgotten when that is asked for", ((Controller, "unregister_broker", _nothing),)),
    PlantedFault("who stops hands nothing over", ((server_main, "hand_over_partitions", _nothing),)),
    PlantedFault("what was moved away stays on the disk", ((LogManager, "delete_logs", _nothing),)),
    PlantedFault("memory of requests is not given back", ((MemoryBudget, "refund", lambda self, size_bytes: None),)),
    PlantedFault("more requests of a connection are begun than may be", ((Connection, "_wait_in_flight", _nothing),)),
    PlantedFault("the tail cache lets go of nothing", ((TailCache, "evict", lambda self: False),)),
    PlantedFault("files of sealed segments stay open", ((FdCache, "_evict", lambda self, limit: None),)),
    PlantedFault("fetch sessions make no room", ((FetchSessionCache, "_remove", lambda self, session_id: None),)),
    PlantedFault(
        "an operation that is over stays in its purgatory", ((Purgatory, "leave", lambda self, watched, waiter: None),)
    ),
    PlantedFault("a stop waits for replicas that are gone", ((ReplicaManager, "lose_followers", lambda self: None),)),
    PlantedFault(
        "what is not copied goes from the disk", ((expiry, "local_retained_start", _expire_what_is_not_copied),)
    ),
    PlantedFault("a manifest without an answer is taken for written", ((ManifestFile, "_change", _change_and_hope),)),
)
