"""The manifest of a partition: what edits do, what is refused, and that nothing damaged is believed."""

from __future__ import annotations

import sys
from time import perf_counter
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.storage.state.leader_epochs import EpochEntry
from ottla.tiers.errors import (
    CorruptObjectError,
    DivergedManifestError,
    FencedUploadError,
    NotContiguousError,
    OverlappingUploadError,
    UnknownFormatError,
)
from ottla.tiers.manifest import Manifest, RemoteSegment
from ottla.tiers.names import TopicNames, UploadId

TOPIC_ID = UUID(int=3)


def segment(base: int, last: int, *, number: int = 0, epoch: int = 1) -> RemoteSegment:
    upload = UploadId(epoch, UUID(int=number or base + 1))
    return RemoteSegment(upload, base, last, 1000 + last, 5000, 10 * (last - base + 1), 0, 99, 7)


def manifest_of(*ends: int, base: int = 0, epoch: int = 1) -> Manifest:
    found = Manifest(TOPIC_ID, 2)
    for end in ends:
        epochs = [EpochEntry(epoch, base)]
        found = found.with_segment(segment(base, end - 1), epochs, epoch, after=found.epochs.latest_epoch)
        base = end
    return found


def test_what_is_written_is_read_again() -> None:
    manifest = manifest_of(10, 25, 30)
    again = Manifest.from_bytes(manifest.to_bytes(), TOPIC_ID, 2)
    assert list(again) == list(manifest)
    assert list(again.epochs) == [EpochEntry(1, 0)]
    assert (again.log_start_offset, again.end_offset, again.revision, again.leader_epoch) == (0, 30, 3, 1)
    assert again.size_bytes == 300


@pytest.mark.parametrize(("offset", "base"), [(0, 0), (9, 0), (10, 10), (24, 10), (25, 25), (29, 25)])
def test_an_offset_is_found(offset: int, base: int) -> None:
    found = manifest_of(10, 25, 30).find(offset)
    assert found is not None
    assert found.base_offset == base


def test_what_is_not_there_is_not_found() -> None:
    manifest = manifest_of(10, 25, 30).with_log_start(12, 1)
    assert manifest.find(30) is None
    assert manifest.find(11) is None
    assert manifest.find(12) is not None


def test_an_upload_that_is_named_is_named_once() -> None:
    manifest = manifest_of(10, 20)
    assert manifest.with_segment(segment(10, 19), [EpochEntry(1, 10)], 1, after=1) is manifest


def test_two_leaders_cannot_both_upload_the_same_offsets() -> None:
    manifest = manifest_of(10, 20)
    with pytest.raises(OverlappingUploadError):
        manifest.with_segment(segment(10, 19, number=99), [EpochEntry(1, 10)], 1, after=1)
    later = manifest.with_segment(segment(20, 29, epoch=2), [EpochEntry(2, 20)], 2, after=1)
    with pytest.raises(FencedUploadError):
        later.with_segment(segment(30, 39), [EpochEntry(1, 30)], 1, after=2)
    with pytest.raises(FencedUploadError):
        later.with_log_start(5, 1)


def test_nothing_is_left_out() -> None:
    with pytest.raises(NotContiguousError):
        manifest_of(10).with_segment(segment(12, 19), [EpochEntry(1, 12)], 1, after=1)


def test_another_history_is_not_continued() -> None:
    manifest = manifest_of(10, epoch=4)
    with pytest.raises(DivergedManifestError):
        manifest.with_segment(segment(10, 19, epoch=5), [EpochEntry(5, 10)], 5, after=3)
    with pytest.raises(DivergedManifestError):
        manifest.with_segment(segment(10, 19, epoch=5), [EpochEntry(3, 10)], 5, after=-1)
    assert manifest.with_segment(segment(10, 19, epoch=5), [EpochEntry(5, 10)], 5, after=-1).end_offset == 20


def test_the_log_start_takes_whole_segments() -> None:
    manifest = manifest_of(10, 25, 30).with_log_start(12, 1)
    assert [each.base_offset for each in manifest] == [10, 25]
    assert (manifest.log_start_offset, manifest.end_offset) == (12, 30)
    assert list(manifest.epochs) == [EpochEntry(1, 12)]
    assert manifest.with_log_start(12, 1) is manifest
    assert manifest.with_log_start(3, 1) is manifest
    empty = manifest.with_log_start(40, 1)
    assert (len(empty), empty.log_start_offset, empty.end_offset, len(empty.epochs)) == (0, 40, 40, 0)
    assert Manifest.from_bytes(empty.to_bytes(), TOPIC_ID, 2).end_offset == 40
    with pytest.raises(OverlappingUploadError):
        empty.with_segment(segment(30, 45), [EpochEntry(1, 30)], 1, after=1)


def test_the_first_upload_begins_where_the_log_does() -> None:
    manifest = Manifest(TOPIC_ID, 2).with_segment(segment(100, 120), [EpochEntry(3, 100)], 3, after=-1)
    assert (manifest.log_start_offset, manifest.end_offset) == (100, 121)


@given(st.data())
def test_no_damage_is_believed(data: st.DataObject) -> None:
    content = manifest_of(10, 25).to_bytes()
    if data.draw(st.booleans()):
        damaged = content[: data.draw(st.integers(0, len(content) - 1))]
    else:
        place = data.draw(st.integers(0, len(content) * 8 - 1))
        changed = bytearray(content)
        changed[place // 8] ^= 1 << place % 8
        damaged = bytes(changed)
    with pytest.raises((CorruptObjectError, UnknownFormatError)):
        Manifest.from_bytes(damaged, TOPIC_ID, 2)


def test_another_partitions_manifest_is_not_believed() -> None:
    content = manifest_of(10).to_bytes()
    for topic_id, partition in ((TOPIC_ID, 3), (UUID(int=9), 2)):
        with pytest.raises(CorruptObjectError):
            Manifest.from_bytes(content, topic_id, partition)


def test_a_later_format_is_not_guessed_at() -> None:
    from ottla.kproto.records.crc import value

    content = bytearray(manifest_of(10).to_bytes()[:-4])
    content[9] = 2
    with pytest.raises(UnknownFormatError):
        Manifest.from_bytes(bytes(content) + value(content).to_bytes(4, "big"), TOPIC_ID, 2)


def test_a_hundred_thousand_segments_take_eight_megabytes() -> None:
    count = 100_000
    packed = b"".join(
        Manifest(TOPIC_ID, 2).with_segment(segment(base, base, number=1), [], 1, after=-1).to_bytes()[-80:-4]
        for base in range(count)
    )
    manifest = Manifest(TOPIC_ID, 2, 0, packed)
    manifest.end_offset = count
    began = perf_counter()
    again = Manifest.from_bytes(manifest.to_bytes(), TOPIC_ID, 2)
    seconds = perf_counter() - began
    assert len(again) == count
    assert sys.getsizeof(again._segments) < 8_000_000
    found = again.find(77_777)
    assert found is not None
    assert found.base_offset == 77_777
    print(f"100,000 segments read in {seconds:.3f} s")


def test_names_are_parsed() -> None:
    names = TopicNames("c", "trips", TOPIC_ID)
    upload = UploadId(12, UUID(int=77))
    assert names.upload_of(names.part(upload, 3)) == upload
    assert names.upload_of(names.index(upload)) == upload
    assert names.upload_of(names.manifest(3)) is None
    assert names.upload_of(f"{names.segments}{upload}.other") is None
    assert names.upload_of(f"{names.segments}notes") is None
    assert names.partition_of(names.manifest(42)) == 42
    assert names.partition_of(f"{names.manifests}42") is None
