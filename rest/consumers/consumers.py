"""All consumers of a REST proxy: found by group and name, limited in number, and ended when they are idle."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, NamedTuple
from uuid import uuid4

import trio

from ottla.rest.cluster import Cluster
from ottla.rest.consumers.consumer import Consumer, Settings
from ottla.rest.errors import RestError, consumer_exists, consumer_not_found
from ottla.rest.limits import MAX_CONSUMERS, MAX_CONSUMERS_OF_USER, MAX_IDLE_SECONDS
from ottla.rest.work import Work

logger = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 1.0


class _Owned(NamedTuple):
    consumer: Consumer
    #: The principal that has created it; others do not find it.
    user: str


class Consumers:
    """Owns them: they end with `run`."""

    def __init__(self, cluster: Cluster, new_cluster: Callable[[], Cluster], work: Work) -> None:
        """`new_cluster` makes one whose connections a consumer holds up."""
        self._cluster = cluster
        self._new_cluster = new_cluster
        self._work = work
        self._owned: dict[tuple[str, str], _Owned] = {}
        self._nursery: trio.Nursery | None = None
        self._is_ending = False

    async def run(self) -> None:
        """Keep them until cancelled, each until it is deleted or nobody has asked it for a while."""
        async with trio.open_nursery() as self._nursery:
            try:
                while True:
                    await trio.sleep(_LOOK_SECONDS)
                    for key, owned in list(self._owned.items()):
                        if owned.consumer.idle_seconds > MAX_IDLE_SECONDS:
                            del self._owned[key]
                            logger.info("the consumer %s of group %s was not asked for long and ends", key[1], key[0])
                            self._nursery.start_soon(owned.consumer.end)
            finally:
                self._nursery = None

    async def create(self, group_id: str, name: str | None, user: str, settings: Settings) -> str:
        """Make one; returns its name. RestError 40902 if there is one, 429 if there are too many."""
        instance = name or f"rest-consumer-{uuid4()}"
        if (group_id, instance) in self._owned:
            raise consumer_exists()
        if sum(owned.user == user for owned in self._owned.values()) >= MAX_CONSUMERS_OF_USER:
            raise RestError(429, f"A user may have {MAX_CONSUMERS_OF_USER} consumers: delete those that are not needed")
        if self._is_ending:
            raise RestError(503, "The REST proxy stops", {"retry-after": "1"})
        if len(self._owned) >= MAX_CONSUMERS or self._nursery is None:
            raise RestError(429, f"There may be {MAX_CONSUMERS} consumers at a time")
        consumer = Consumer(self._cluster, self._new_cluster(), self._work, group_id, settings)
        self._owned[group_id, instance] = _Owned(consumer, user)
        await self._nursery.start(self._live, consumer, (group_id, instance))
        return instance

    def find(self, group_id: str, instance: str, user: str) -> Consumer:
        """One of this user. RestError 40403."""
        owned = self._owned.get((group_id, instance))
        if owned is None or owned.user != user:
            raise consumer_not_found()
        return owned.consumer

    async def delete(self, group_id: str, instance: str, user: str) -> None:
        """End one. RestError 40403."""
        consumer = self.find(group_id, instance, user)
        del self._owned[group_id, instance]
        await consumer.end()

    async def end_all(self) -> None:
        """End all, each of which leaves its group, and make no more: the proxy stops. It takes some seconds at most."""
        self._is_ending = True
        owned, self._owned = list(self._owned.values()), {}
        async with trio.open_nursery() as nursery:
            for it in owned:
                nursery.start_soon(it.consumer.end)

    def abandon_all(self) -> None:
        """End all at once, without leaving their groups."""
        owned, self._owned = list(self._owned.values()), {}
        for it in owned:
            it.consumer.abandon()

    async def _live(
        self, consumer: Consumer, key: tuple[str, str], task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        try:
            await consumer.run(task_status)
        except Exception:
            logger.exception("the consumer %s of group %s has failed and ends", key[1], key[0])
        finally:
            owned = self._owned.get(key)
            if owned is not None and owned.consumer is consumer:
                del self._owned[key]
