"""Faults that are planted in Ottla, to see that histories find them.

    python -m compat_tests.differential.planted_faults              the table: after how many histories each is found
    python -m compat_tests.differential.planted_faults NAME serve … Ottla with one of them, as the table runs it

Each takes the place of one function for as long as that process lives. One that is not found is a hole in the areas.
"""

from __future__ import annotations

import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple

from compat_tests.brokers.ottla_broker import OttlaBroker
from compat_tests.differential.areas import AREAS
from compat_tests.differential.declared import Declared
from compat_tests.differential.open import load_open
from compat_tests.differential.playing.pair import OTTLA_ONLY, SETTINGS, Pair
from compat_tests.differential.run import Run
from ottla.cli import main as ottla

MOST_SEEDS: Final = 60


class PlantedFault(NamedTuple):
    """`owner` is a module, or a class in one after a colon, whose `attribute` is replaced by `change` of it."""

    owner: str
    attribute: str
    change: Callable[[Any], Any]
    area: str
    #: The API whose answer tells.
    api: str


def _answering(answer: Any) -> Callable[[Any], Any]:
    """A function in place of the other, that answers always the same."""
    return lambda _: lambda *arguments, **options: answer


_GZIP_WINDOW_BITS: Final = 31
_GROUP: Final = "ottla.coordinator.group"
_TRANSACTION: Final = "ottla.coordinator.transaction"
_PRODUCERS: Final = "ottla.storage.state.producer_state:ProducerStateManager"

FAULTS: Final[dict[str, PlantedFault]] = {
    "a-producer-may-not-name-its-former-identity": PlantedFault(
        f"{_TRANSACTION}.state:Transaction", "knows", _answering(answer=False), "transactions", "INIT_PRODUCER_ID"
    ),
    "whoever-has-the-producer-id-may-end-a-transaction": PlantedFault(
        f"{_TRANSACTION}.decisions", "_require_id", _answering(None), "transactions", "END_TXN"
    ),
    "no-producer-is-known": PlantedFault(
        _PRODUCERS, "active_producers", lambda _: lambda _self: iter(()), "transactions", "DESCRIBE_PRODUCERS"
    ),
    "batches-sent-twice-are-written-twice": PlantedFault(
        "ottla.storage.state.producer_entry:ProducerEntry",
        "find_duplicate",
        _answering(None),
        "transactions",
        "PRODUCE",
    ),
    "an-open-transaction-holds-nothing-back": PlantedFault(
        _PRODUCERS,
        "_find_first_unstable",
        _answering(None),
        "transactions",
        "LIST_OFFSETS",
    ),
    "members-without-a-common-protocol-join": PlantedFault(
        "ottla.coordinator.group.classic.group:ClassicGroup",
        "supports_protocols",
        _answering(answer=True),
        "classic_groups",
        "JOIN_GROUP",
    ),
    "a-consumer-that-subscribes-to-other-topics-is-not-heard": PlantedFault(
        f"{_GROUP}.consumer.plan",
        "_same_topics",
        lambda same: lambda before, after: bool(before.topic_names) or same(before, after),
        "consumer_groups",
        "CONSUMER_GROUP_HEARTBEAT",
    ),
    "a-share-member-that-subscribes-to-other-topics-is-not-heard": PlantedFault(
        f"{_GROUP}.share.protocol",
        "_subscription",
        lambda said: lambda former, beat: said(former, beat) if former is None else former.subscription,
        "share_groups",
        "SHARE_GROUP_HEARTBEAT",
    ),
    "a-subscription-that-cannot-be-read-is-of-no-topic": PlantedFault(
        f"{_GROUP}.classic.group",
        "subscribed_topics",
        lambda read: lambda metadata: read(metadata) or frozenset(),
        "classic_groups",
        "OFFSET_DELETE",
    ),
    "whoever-likes-commits-offsets": PlantedFault(
        f"{_GROUP}.modern.group:ModernGroup",
        "validate_offset_commit",
        _answering(None),
        "consumer_groups",
        "OFFSET_COMMIT",
    ),
    "transactions-do-not-time-out": PlantedFault(
        f"{_TRANSACTION}.upkeep:Upkeep",
        "_is_timed_out",
        _answering(answer=False),
        "transactions",
        "PRODUCE",
    ),
    "a-producer-of-transactions-v2-begins-with-any-sequence": PlantedFault(
        "ottla.storage.state.producer_verification:Verifications",
        "begin",
        lambda begin: lambda *arguments, **options: begin(*arguments, **(options | {"supports_epoch_bump": False})),
        "transactions",
        "PRODUCE",
    ),
    "a-refused-sequence-is-forgotten": PlantedFault(
        "ottla.storage.state.producer_verification:Verifications", "get", _answering(None), "transactions", "PRODUCE"
    ),
    "gzip-ends-with-its-first-member": PlantedFault(
        "ottla.kproto.records.compression",
        "_decompress_gzip",
        lambda _: lambda data, limit_bytes: zlib.decompressobj(_GZIP_WINDOW_BITS).decompress(bytes(data), limit_bytes),
        "records",
        "PRODUCE",
    ),
    "settings-of-topics-are-not-checked": PlantedFault(
        "ottla.metadata.changes.config_changes",
        "check_topic_configs",
        _answering(None),
        "topics",
        "INCREMENTAL_ALTER_CONFIGS",
    ),
}


def owner_of(fault: PlantedFault) -> tuple[Any, str]:
    """What has the attribute that the fault replaces, and the attribute's name."""
    module, _, inner = fault.owner.partition(":")
    owner = import_module(module)
    return (getattr(owner, inner) if inner else owner), fault.attribute


def plant(name: str) -> None:
    """For the rest of this process."""
    owner, attribute = owner_of(FAULTS[name])
    setattr(owner, attribute, FAULTS[name].change(getattr(owner, attribute)))


class PlantedOttla(OttlaBroker):
    """Ottla with a fault, as a process."""

    def __init__(self, folder: Path, fault: str) -> None:
        super().__init__(folder, overrides=SETTINGS | OTTLA_ONLY)
        self._fault = fault

    def command(self) -> list[str]:
        program = "compat_tests.differential.planted_faults"
        return [sys.executable, "-m", program, self._fault, *super().command()[1:]]


def histories_until_found(pair: Pair, fault: PlantedFault) -> int | None:
    """None: it is not found within `MOST_SEEDS`."""
    run = Run(pair, Declared.load(), known=load_open(), shrinks=False, say=lambda _: None)
    for seed in range(MOST_SEEDS):
        run.histories([(fault.area, seed)], workers=1)
        if any(key[0] in (fault.api, "PROCESS") for key in run.findings):
            return seed + 1
    return None


def found() -> Iterator[tuple[str, int | None]]:
    """Each fault beside one Apache Kafka."""
    with Pair() as pair:
        for name, fault in FAULTS.items():
            with tempfile.TemporaryDirectory(prefix="planted-") as folder:
                pair.replace_ottla(PlantedOttla(Path(folder), name))
                yield name, histories_until_found(pair, fault)


def main() -> int:
    if len(sys.argv) > 1:
        plant(sys.argv.pop(1))
        return int(ottla() or 0)
    assert all(fault.area in AREAS for fault in FAULTS.values())
    missed = 0
    for name, after in found():
        missed += after is None
        print(f"{name}\t{'not found' if after is None else after}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
