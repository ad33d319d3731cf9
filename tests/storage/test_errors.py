"""The storage errors: one family, each documented, the informative ones with their facts."""

from __future__ import annotations

import inspect

from ottla.storage import errors


def test_every_error_is_a_storage_error_that_says_when_it_is_raised() -> None:
    classes = [cls for _, cls in inspect.getmembers(errors, inspect.isclass) if cls.__module__ == errors.__name__]
    assert len(classes) > 10
    for cls in classes:
        assert issubclass(cls, errors.StorageError)
        assert cls.__doc__


def test_an_offset_out_of_range_carries_the_range() -> None:
    error = errors.OffsetOutOfRangeError(5, 10, 20)
    assert (error.offset, error.log_start_offset, error.end_offset) == (5, 10, 20)
    assert "5" in str(error)
    assert "[10, 20]" in str(error)


def test_an_unexpected_append_offset_carries_both_offsets() -> None:
    error = errors.UnexpectedAppendOffsetError(7, 9)
    assert (error.base_offset, error.expected_offset) == (7, 9)
