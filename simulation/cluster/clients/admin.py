"""Who administers the cluster: moves partitions between machines, and makes and deletes topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

import trio

from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.configs.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.kproto.messages.topics.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.kproto.messages.topics.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.kproto.messages.topics.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.metadata.image import ResourceType
from ottla.simulation.cluster.clients.client import Client

if TYPE_CHECKING:
    from ottla.simulation.cluster.histories.attempts import Partition
    from ottla.simulation.cluster.histories.client_environment import ClientEnvironment

__all__ = ["Administrator", "configure_group", "make_topic"]


async def make_topic(
    client: Client, name: str, partitions: int, configs: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Make a topic with up to three replicas; ask until it is there."""
    copies = min(len(client.world.addresses), 3)
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=copies,
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in configs.items()],
    )
    while True:
        answer = await client.any_node(CreateTopicsRequest(topics=[topic], timeout_ms=5_000))
        code = ErrorCode(answer.topics[0].error_code)
        if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            return
        client.note(f"cannot make {name} yet: {code.name}")
        await trio.sleep(0.3)


async def configure_group(client: Client, group: str, settings: Mapping[str, str]) -> None:
    """Set a group's own settings; ask until they are set."""
    configs = [AlterableConfig(name=name, config_operation=0, value=value) for name, value in settings.items()]
    resource = AlterConfigsResource(resource_type=ResourceType.GROUP, resource_name=group, configs=configs)
    while True:
        answer = await client.any_node(IncrementalAlterConfigsRequest(resources=[resource]))
        code = ErrorCode(answer.responses[0].error_code)
        if code is ErrorCode.NONE:
            return
        client.note(f"cannot configure {group} yet: {code.name}")
        await trio.sleep(0.3)


class Administrator(Client):
    """Does one thing after the other, and leaves no topic behind. `unlucky` is the node that may lose power."""

    def __init__(
        self, world: ClientEnvironment, name: str, partitions: Sequence[Partition], unlucky: int | None = None
    ) -> None:
        super().__init__(world, name)
        self._partitions = partitions
        self._unlucky = unlucky
        self._pause_s = world.rng.choice((0.5, 2.0))

    async def work(self) -> None:
        while not self.world.is_ending:
            await trio.sleep(self.rng.uniform(0, 2 * self._pause_s))
            if self.rng.random() < 0.6:
                await self._move()
            else:
                await self._make_and_delete()

    async def _move(self) -> None:
        """Give a partition other replicas, or the same in another order.

        Like Kafka, Ottla takes replicas away as soon as one of those that stay is in sync. If that were only the
        unlucky one, what it loses with its power would be lost for good: where it stays, all stay.
        """
        topic, index = self.rng.choice(self._partitions)
        machines = list(self.world.addresses)
        replicas = self.rng.sample(machines, min(len(machines), self.rng.choice((2, 3, 3))))
        if self._unlucky in replicas:
            others = [machine for machine in machines if machine != self._unlucky]
            is_for_all = len(others) < 2 or self.rng.random() < 0.5
            replicas = self.rng.sample(machines if is_for_all else others, len(machines) if is_for_all else 2)
        moved = ReassignablePartition(partition_index=index, replicas=replicas)
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=5_000, topics=[ReassignableTopic(name=topic, partitions=[moved])]
        )
        answer = await self.any_node(request)
        codes = [answer.error_code, *(part.error_code for each in answer.responses for part in each.partitions)]
        self.note(f"moves {topic}-{index} to {replicas}: {', '.join(ErrorCode(code).name for code in codes)}")

    async def _make_and_delete(self) -> None:
        name = f"temporary{self.rng.randint(0, 1)}"
        await make_topic(self, name, 2)
        self.note(f"has made {name}")
        await trio.sleep(self.rng.choice((0.0, 0.0, 1.0)))
        while True:
            request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], topic_names=[name], timeout_ms=5_000)
            code = ErrorCode((await self.any_node(request)).responses[0].error_code)
            if code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                break
            self.note(f"cannot delete {name} yet: {code.name}")
            await trio.sleep(0.3)
        self.note(f"has deleted {name}")
