"""This node's place in its cluster: registered, and alive as long as it renews its session.

A session is a lease of the metadata store. While it lasts, the broker is not fenced: it is given partitions and
clients are sent to it. Kafka's counterparts are BrokerLifecycleManager and the heartbeats of ClusterControlManager.

- A broker that is frozen for longer than `broker.session.timeout.ms` is fenced, and registers again when it resumes, in
  the same process.
- Whether a broker may serve does not depend on its session: leader epochs protect what is acknowledged. If the metadata
  store cannot be reached, the broker carries on, and renews its session as soon as it can. Only committed offsets are
  read more carefully when it may have ended (`replica/confirmation.py`).
- A node is known by its data folder. The process that holds the folder's lock takes over the session of the process
  before it, which must be dead; a node with another folder under the same id has to wait until that session ends, and
  is refused if it does not. Should a copy of the folder be used elsewhere, the process that was there first ends.
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Final

import trio

from ottla.metadata import keys
from ottla.metadata.errors import DuplicateBrokerIdError
from ottla.metastore.errors import ConflictError, LeaseExpiredError, StoreUnavailableError
from ottla.metastore.store import NO_LEASE

if TYPE_CHECKING:
    from ottla.metadata.controller import Controller
    from ottla.metadata.image import BrokerImage, MetadataDelta
    from ottla.metastore.store import MetadataStore

logger = logging.getLogger(__name__)

_LOOK_AGAIN_SECONDS: Final = 0.25
_LEAVE_SECONDS: Final = 1.0


class Membership:
    """The session of one node. `run` begins it, renews it until `leave`, and begins another one when it was lost.

    A node that stops without `leave` is considered dead after `session_timeout_ms`.
    """

    def __init__(
        self,
        store: MetadataStore,
        controller: Controller,
        *,
        directory_id: str,
        session_timeout_ms: int,
        heartbeat_interval_ms: int,
    ) -> None:
        self._store = store
        self._controller = controller
        self._node_id = controller.node_id
        self._directory_id = directory_id
        self._session_timeout_ms = session_timeout_ms
        self._heartbeat_interval_ms = heartbeat_interval_ms
        self._incarnation = ""
        self._lease = NO_LEASE
        # When the session was begun or renewed last, at the latest.
        self._renewed = -math.inf
        self._fenced = trio.Event()
        self._life = trio.CancelScope()
        self._is_cut_off = False

    @property
    def lease(self) -> int:
        """The lease of the present session, for keys that must not outlive it; NO_LEASE if there is none."""
        return self._lease

    @property
    def may_have_ended(self) -> bool:
        """Whether the session may be over by now: then others may have been elected in this broker's place."""
        return trio.current_time() - self._renewed >= self._session_timeout_ms / 1000

    async def claim_id(self) -> None:
        """Make sure that no other node is alive under this id, and wait until the session of a dead one has ended.

        Must be called before anything is done in the name of the id. Raises DuplicateBrokerIdError.
        """
        deadline = trio.current_time() + (self._session_timeout_ms + self._heartbeat_interval_ms) / 1000
        is_told = is_over = False
        while not is_over:
            is_over = trio.current_time() > deadline  # the last look comes after it
            entry = await self._store.get(keys.alive(self._node_id))
            if entry is None or keys.decode_session(entry.value).directory_id == self._directory_id:
                return
            if not is_told:
                text = "node %d is registered with another folder: waiting for its session to end"
                logger.warning(text, self._node_id, extra={"node_id": self._node_id})
                is_told = True
            await trio.sleep(_LOOK_AGAIN_SECONDS)
        raise DuplicateBrokerIdError(
            f"Another node {self._node_id} of this cluster is running{await self._address()}: "
            "give this one a node.id of its own, or stop the other."
        )

    async def _address(self) -> str:
        entry = await self._store.get(keys.broker(self._node_id))
        endpoints = () if entry is None else keys.decode_broker(entry.key, entry.value, entry.mod_revision).endpoints
        return f" at {endpoints[0].host}:{endpoints[0].port}" if endpoints else ""

    async def run(self, broker: BrokerImage, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Register the broker, report that as started, and keep it alive until `leave`.

        Raises DuplicateBrokerIdError if another node has taken the id, perhaps while this one was frozen.
        """
        with self._life:
            self._incarnation = broker.incarnation
            while True:
                try:
                    await self._register(broker, is_new=True)
                    break
                except LeaseExpiredError:
                    # The store was slow, or this process stood still: once more, with another lease.
                    logger.warning("the session of this broker had ended before it was registered")
            task_status.started()
            await self._keep_alive(broker)

    async def _keep_alive(self, broker: BrokerImage) -> None:
        while True:
            with trio.move_on_after(self._heartbeat_interval_ms / 1000):
                await self._fenced.wait()
            try:
                if self._fenced.is_set():
                    await self._register_anew(broker)
                else:
                    began = trio.current_time()
                    await self._store.keep_alive(self._lease)
                    self._renewed = began
            except LeaseExpiredError:
                self._fenced.set()
            except ConflictError:
                # What ended the session has not been heard of here yet, perhaps.
                await self._pause()
            except StoreUnavailableError as error:
                self._log_cut_off(error)
                await self._pause()
            else:
                self._log_back()

    async def _pause(self) -> None:
        await trio.sleep(min(self._heartbeat_interval_ms / 1000, 1))

    async def leave(self) -> None:
        """Give up the session: this node stops, and the others need not wait for the session to end.

        If the store cannot be reached within a second, they have to wait.
        """
        self._life.cancel()
        if self._lease != NO_LEASE:
            with trio.move_on_after(_LEAVE_SECONDS):
                try:
                    await self._store.revoke_lease(self._lease)
                except StoreUnavailableError as error:
                    logger.warning("the session could not be given up: %s", error, extra={"error": str(error)})

    async def follow(self, delta: MetadataDelta) -> None:
        """Note a change of the metadata: somebody may have fenced this broker."""
        if self._lease != NO_LEASE and self._node_id in delta.changed_brokers:
            session = delta.after.sessions.get(self._node_id)
            if session is None or session.incarnation != self._incarnation:
                self._fenced.set()

    async def _register(self, broker: BrokerImage, *, is_new: bool) -> None:
        began = trio.current_time()
        self._lease = await self._store.grant_lease(self._session_timeout_ms)
        await self._controller.register_broker(broker, self._lease, is_new=is_new)
        self._renewed = began
        self._fenced = trio.Event()

    async def _register_anew(self, broker: BrokerImage) -> None:
        await self._store.revoke_lease(self._lease)
        await self._register(broker, is_new=False)
        text = "the session of this broker had ended: it is registered again"
        logger.warning(text, extra={"node_id": self._node_id})

    def _log_cut_off(self, error: StoreUnavailableError) -> None:
        if not self._is_cut_off:
            self._is_cut_off = True
            text = "the metadata store cannot be reached; until it can, what is known is served: %s"
            logger.warning(text, error, extra={"error": str(error)})

    def _log_back(self) -> None:
        if self._is_cut_off:
            self._is_cut_off = False
            logger.info("the metadata store can be reached again")
