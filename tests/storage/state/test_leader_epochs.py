"""Leader epochs: KIP-101's answers, and random histories against a log that is a plain list of epochs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ottla.storage.errors import CorruptLogError
from ottla.storage.state.leader_epochs import EpochEntry, LeaderEpochs


def epochs_of(*entries: tuple[int, int]) -> LeaderEpochs:
    epochs = LeaderEpochs()
    for epoch, start_offset in entries:
        epochs.assign(epoch, start_offset)
    return epochs


class TestEndOffsets:
    @pytest.mark.parametrize(
        ("asked", "answer"),
        [
            (-1, (-1, -1)),
            (0, (0, 5)),  # before all known epochs: nothing of it is here
            (2, (2, 10)),
            (3, (2, 10)),  # unknown in between: the largest below it
            (4, (4, 20)),
            (6, (4, 20)),
            (7, (7, 33)),  # the latest ends at the log's end
            (8, (-1, -1)),
        ],
    )
    def test_as_kip_101_and_279_ask(self, asked: int, answer: tuple[int, int]) -> None:
        assert epochs_of((2, 5), (4, 10), (7, 20)).end_offset_for(asked, 33) == answer

    def test_an_empty_log_knows_none(self) -> None:
        epochs = LeaderEpochs()
        assert epochs.end_offset_for(0, 10) == (-1, -1)
        assert (epochs.latest_epoch, epochs.earliest, epochs.epoch_for_offset(3)) == (-1, None, -1)


class TestAssign:
    def test_the_same_epoch_begins_once(self) -> None:
        epochs = LeaderEpochs()
        assert epochs.assign(1, 5)
        assert not epochs.assign(1, 9)
        assert epochs.assign(2, 9)
        assert list(epochs) == [EpochEntry(1, 5), EpochEntry(2, 9)]

    def test_what_contradicts_is_dropped(self) -> None:
        epochs = epochs_of((1, 5), (3, 9), (5, 12))
        epochs.assign(2, 10)
        assert list(epochs) == [EpochEntry(1, 5), EpochEntry(2, 10)]
        epochs.assign(4, 5)
        assert list(epochs) == [EpochEntry(4, 5)]

    def test_nonsense_is_refused(self) -> None:
        with pytest.raises(ValueError, match="not possible"):
            LeaderEpochs().assign(-1, 0)
        with pytest.raises(ValueError, match="not possible"):
            LeaderEpochs().assign(0, -1)


class TestBytes:
    def test_damage_is_noticed(self) -> None:
        content = epochs_of((1, 5), (3, 9)).to_bytes()
        for damaged in (b"", content[:-1], content + b"\0", content[:4] + content[16:] + content[4:16]):
            with pytest.raises(CorruptLogError):
                LeaderEpochs.from_bytes(damaged)


class EpochMachine(RuleBasedStateMachine):
    """The model is the epoch of every offset between log start and log end."""

    def __init__(self) -> None:
        super().__init__()
        self.epochs = LeaderEpochs()
        self.log_start = 0
        self.offsets: list[int] = []

    @property
    def log_end(self) -> int:
        return self.log_start + len(self.offsets)

    @rule(bump=st.integers(0, 2), count=st.integers(1, 5))
    def append(self, bump: int, count: int) -> None:
        epoch = max(self.epochs.latest_epoch, 0) + bump
        self.epochs.assign(epoch, self.log_end)
        self.offsets += [epoch] * count

    @rule(data=st.data())
    def truncate_end(self, data: st.DataObject) -> None:
        end_offset = data.draw(st.integers(self.log_start, self.log_end))
        self.epochs.truncate_from_end(end_offset)
        del self.offsets[end_offset - self.log_start :]

    @rule(data=st.data())
    def truncate_start(self, data: st.DataObject) -> None:
        if self.offsets:
            start_offset = data.draw(st.integers(self.log_start, self.log_end - 1))
            self.epochs.truncate_from_start(start_offset)
            del self.offsets[: start_offset - self.log_start]
            self.log_start = start_offset

    @rule()
    def restart(self) -> None:
        content = self.epochs.to_bytes()
        self.epochs = LeaderEpochs.from_bytes(content)
        assert self.epochs.to_bytes() == content

    @invariant()
    def the_entries_are_the_changes_of_epoch(self) -> None:
        expected = [
            EpochEntry(epoch, self.log_start + index)
            for index, epoch in enumerate(self.offsets)
            if index == 0 or self.offsets[index - 1] != epoch
        ]
        assert list(self.epochs) == expected
        assert len(self.epochs) == len(expected)
        assert self.epochs.earliest == (expected[0] if expected else None)

    @invariant()
    def every_offset_has_its_epoch(self) -> None:
        for index, epoch in enumerate(self.offsets):
            assert self.epochs.epoch_for_offset(self.log_start + index) == epoch
        assert self.epochs.latest_epoch == (self.offsets[-1] if self.offsets else -1)

    @invariant()
    def end_offsets_are_where_larger_epochs_begin(self) -> None:
        for asked in range(max(self.offsets, default=0) + 2):
            not_above = [epoch for epoch in self.offsets if epoch <= asked]
            if not self.offsets or asked > self.offsets[-1]:
                expected = (-1, -1)
            else:
                expected = (not_above[-1] if not_above else asked, self.log_start + len(not_above))
            assert self.epochs.end_offset_for(asked, self.log_end) == expected


TestEpochModel = EpochMachine.TestCase


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    try:
        epochs = LeaderEpochs.from_bytes(content)
    except CorruptLogError:
        return
    assert epochs.to_bytes() == content
