"""What is found in the reads of a member of Java's group, of which each has one thing wrong."""

from __future__ import annotations

from typing import Any

from compat_tests.jepsen.java import TOPIC, wrong_reads

# Offset 3 is a marker, or was never used.
_FOUND = {(TOPIC, 0): {0: b"1.0", 1: b"1.1", 2: b"1.2", 4: b"1.4", 5: b"1.5"}}


def owns(*indexes: int, kind: str = "partitions_assigned") -> dict[str, Any]:
    return {"name": kind, "partitions": [{"topic": TOPIC, "partition": index} for index in indexes]}


def reads(first: int, last: int, count: int, index: int = 0) -> dict[str, Any]:
    read = {"topic": TOPIC, "partition": index, "count": count, "minOffset": first, "maxOffset": last}
    return {"name": "records_consumed", "count": count, "partitions": [read]}


def found(*told: dict[str, Any]) -> list[str]:
    return wrong_reads("it", told, _FOUND)


def test_what_is_right() -> None:
    assert found({"name": "startup_complete"}, owns(0), reads(0, 2, 3), reads(4, 5, 2)) == []


def test_what_was_read_before_comes_again_with_another_assignment() -> None:
    assert found(owns(0), reads(0, 4, 4), owns(0, kind="partitions_revoked"), owns(0), reads(2, 5, 3)) == []


def test_records_that_were_left_out_between_two_reads() -> None:
    assert found(owns(0), reads(0, 1, 2), reads(4, 5, 2)) == ["it goes on at 4 of partition 0, and was at 2"]


def test_records_that_were_left_out_in_a_read() -> None:
    assert found(owns(0), reads(0, 4, 3)) == ["it has read 3 records of partition 0 from 0 to 4"]


def test_a_partition_that_it_does_not_own() -> None:
    told = [owns(0), owns(0, kind="partitions_revoked"), reads(0, 2, 3)]
    assert found(*told) == ["it reads partition 0, which it does not own"]
