"""The dead-letter queue of a share group (KIP-1191), and what contradicts what its members were given and have said."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from ottla.simulation.cluster.clients.admin import make_topic
from ottla.simulation.cluster.clients.consumer import Consumer
from ottla.simulation.cluster.histories.deliveries import ACCEPT, REJECT

if TYPE_CHECKING:
    from ottla.kproto.records import Record
    from ottla.simulation.cluster.clients.client import Client
    from ottla.simulation.cluster.histories.attempts import Partition
    from ottla.simulation.cluster.histories.client_environment import ClientEnvironment
    from ottla.simulation.cluster.histories.deliveries import Deliveries

_Logs = Mapping["Partition", Mapping[int, bytes]]

__all__ = ["GIVEN_UP", "DeadLetters", "LetterReader", "Queue", "queue_of"]

GIVEN_UP: Final = "and not in its dead-letter queue"
"""What a leader says in its log of records whose letters it could not write, however often it tried."""

_REJECTED: Final = "Offset rejected by client."
_PREFIX: Final = "__dlq.errors."
_LOOKS_EVERY_S: Final = 0.2


class Queue(NamedTuple):
    """How a group's dead-letter queue is set up."""

    topic: str
    partitions: int
    """Of the topic; 0 if it is made by the first letter."""
    copies: bool
    """Whether letters have the keys and values of the records that they are about."""

    @property
    def settings(self) -> dict[str, str]:
        """Those of the group."""
        return {
            "errors.deadletterqueue.topic.name": self.topic,
            "errors.deadletterqueue.copy.record.enable": str(self.copies).lower(),
        }

    async def make(self, client: Client) -> None:
        """Make the topic, unless that is left to the first letter."""
        if self.partitions:
            configs = {"errors.deadletterqueue.group.enable": "true"}
            await make_topic(client, self.topic, self.partitions, configs)


def queue_of(seed: int, group: str) -> Queue | None:
    """The queue that a group has in a seed: three seeds of four have one."""
    rng = Random(f"dead letters {seed}")
    if rng.random() < 0.25:
        return None
    return Queue(f"dlq.{group}", rng.choice((0, 1, 2)), rng.random() < 0.5)


class Letter(NamedTuple):
    """A dead letter: where the record was that it is about, and what is said of it."""

    partition: Partition
    offset: int
    delivery_count: int
    message: str
    value: bytes | None

    def __str__(self) -> str:
        topic, index = self.partition
        return f"the letter about {topic}-{index} offset {self.offset} (delivery {self.delivery_count}: {self.message})"


class DeadLetters:
    """The account of one group's queue.

    As in Kafka, a record that is rejected or was delivered as often as it may be has one letter at least. A leader that
    is lost before it has stored that it wrote a letter is followed by one that writes it again. A leader that gives up
    says so in its log. A leader that does not know yet that another one leads may write of a record that was accepted
    there, if it has delivered that record itself for the last time.
    """

    def __init__(self, world: ClientEnvironment, deliveries: Deliveries, queue: Queue) -> None:
        self._world = world
        self._deliveries = deliveries
        self.queue = queue
        self._letters: defaultdict[tuple[Partition, int], list[Letter]] = defaultdict(list)
        #: Of how many records of a partition the letters could not be written.
        self._given_up: Counter[Partition] = Counter()

    def give_up(self, partition: Partition, records: int) -> None:
        """A leader has said that it could not write the letters of so many records."""
        self._given_up[partition] += records

    def read(self, place: Partition, record: Record, partitions: int) -> None:
        """A letter was found in one of so many partitions of the queue."""
        said = {name.removeprefix(_PREFIX): (value or b"").decode() for name, value in record.headers}
        partition = (said["topic"], int(said["partition"]))
        letter = Letter(partition, int(said["offset"]), int(said["delivery.count"]), said["message"], record.value)
        group = self._deliveries.group
        self._world.check(said["group"] == group, f"{letter} is in the queue of {group}, and of {said['group']}")
        self._world.check(place[1] == partition[1] % partitions, f"{letter} is in partition {place[1]} of {partitions}")
        self._letters[partition, letter.offset].append(letter)

    def unwritten(self, visible: _Logs) -> list[str]:
        """The records that nobody has accepted, or somebody has rejected, and that have no letter."""
        found: list[str] = []
        for partition, records in visible.items():
            missing = [
                f"{partition[0]}-{partition[1]} offset {offset}"
                for offset in sorted(records)
                if self._is_dead(partition, offset) and (partition, offset) not in self._letters
            ]
            found += missing if len(missing) > self._given_up[partition] else []
        return found

    def _is_dead(self, partition: Partition, offset: int) -> bool:
        said = self._deliveries.certainly(partition, offset)
        return said == REJECT if said is not None else not self._deliveries.may_be(ACCEPT, partition, offset)

    def check(self, visible: _Logs, everything: _Logs) -> None:
        """Each record that is to have a letter has one; each letter has a reason, and is about a visible record."""
        check = self._world.check
        unwritten = self.unwritten(visible)
        check(not unwritten, f"there are no letters about {'; '.join(unwritten[:3])}, and nothing is wrong")
        for (partition, offset), letters in self._letters.items():
            check(partition in visible, f"{letters[0]} is about none of the group's partitions")
            value = visible.get(partition, {}).get(offset)
            is_hidden = value is None and offset in everything.get(partition, {})
            check(not is_hidden, f"{letters[0]} is about a record whose transaction was aborted")
            for letter in letters:
                self._check_reason(letter)
                copies = (None, value) if self.queue.copies else (None,)
                check(letter.value in copies, f"{letter} has {letter.value!r} in it, and the record is {value!r}")
        duplicates = sum(len(letters) - 1 for letters in self._letters.values())
        self._world.note(f"{len(self._letters)} records have dead letters, and there are {duplicates} more letters")

    def _check_reason(self, letter: Letter) -> None:
        deliveries, place = self._deliveries, (letter.partition, letter.offset)
        is_rejected = deliveries.may_be(REJECT, *place) and deliveries.certainly(*place) != ACCEPT
        if letter.message == _REJECTED:
            self._world.check(is_rejected, f"{letter} is there, and the record was not rejected")
            return
        # After a restart nobody knows that a record was rejected when it was delivered for the last time.
        is_last = letter.delivery_count >= deliveries.limit
        self._world.check(
            is_last and (is_rejected or deliveries.may_be_exhausted(*place)),
            f"{letter} is there, and the record was not delivered {deliveries.limit} times without being accepted",
        )


class LetterReader(Consumer):
    """Reads the queue, which may not be there yet, until `finish` was called and it has come to the end."""

    def __init__(self, world: ClientEnvironment, letters: DeadLetters) -> None:
        super().__init__(world, "gravedigger", [], is_committed=False)
        self._letters = letters
        self._is_finishing = False

    @property
    def is_done(self) -> bool:
        is_at_end = all(self.positions[each] >= self.ends.get(each, 1 << 62) for each in self.positions)
        return self._is_finishing and is_at_end

    def finish(self) -> None:
        """Nothing is written any more: read what is there, as answers say from now on."""
        self._is_finishing = True
        self.ends.clear()

    async def work(self) -> None:
        topic = self._letters.queue.topic
        while topic not in self._topic_ids and not self._is_finishing:
            await self.refresh(topic)
            await trio.sleep(_LOOKS_EVERY_S)
        for partition in [each for each in self._leader_epochs if each[0] == topic]:
            self.positions[partition] = 0
            self.records[partition] = {}
        await super().work()

    def _found(self, partition: Partition, record: Record) -> None:
        if record.offset not in self.records[partition]:
            self.records[partition][record.offset] = record.value or b""
            self._letters.read(partition, record, len(self.positions))
