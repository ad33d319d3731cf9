"""Protobuf by a descriptor set: the types of a file that `protoc --include_imports --descriptor_set_out` has written.

Stands on `protobuf`, which the extra `ottla[protobuf]` brings; its parser bounds how deeply messages nest.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import trio

from ottla.schemas.framing import HEADER_SIZE_BYTES, split_indexes

MAX_SET_BYTES: Final = 16 * 1_048_576
_LOOK_AGAIN_SECONDS: Final = 30.0
_INLINE_BYTES: Final = 512
"""Messages up to this size are decoded on the loop."""


class _Loaded(NamedTuple):
    """A descriptor set as it was read: its types, or why there are none."""

    pool: Any
    problem: str
    version: tuple[int, int]


class Descriptors:
    """The types of the file that is configured, read anew when it has changed."""

    def __init__(self, path: Callable[[], str | None]) -> None:
        self._path = path
        self._loaded: _Loaded | None = None
        self._look_again_at = 0.0

    async def decode(self, data: bytes, type_name: str) -> tuple[Any, str]:
        """A message as what JSON can say, by Protobuf's own rules for it; or why not."""
        now = trio.current_time()
        if self._loaded is not None and now < self._look_again_at and len(data) <= _INLINE_BYTES:
            return self._decode(data, type_name, now)
        return await trio.to_thread.run_sync(self._decode, data, type_name, now, abandon_on_cancel=True)

    def _decode(self, data: bytes, type_name: str, now: float) -> tuple[Any, str]:
        loaded = self._types(now)
        if loaded.problem:
            return None, loaded.problem
        from google.protobuf import json_format, message, message_factory

        try:
            descriptor = loaded.pool.FindMessageTypeByName(type_name)
        except KeyError:
            return None, f"the descriptor set has no type {type_name}"
        try:
            found = message_factory.GetMessageClass(descriptor).FromString(_body(data))
            return json_format.MessageToDict(found, preserving_proto_field_name=True, descriptor_pool=loaded.pool), ""
        except (message.DecodeError, json_format.Error, ValueError, TypeError, RecursionError):
            return None, f"not Protobuf of type {type_name}"

    def _types(self, now: float) -> _Loaded:
        if self._loaded is None or now >= self._look_again_at:
            self._look_again_at = now + _LOOK_AGAIN_SECONDS
            path = self._path()
            try:
                version = _version(path) if path is not None else (0, 0)
            except OSError as error:
                self._loaded = _Loaded(None, f"the descriptor set cannot be read: {error.strerror}", (0, 0))
            else:
                if self._loaded is None or self._loaded.problem or version != self._loaded.version:
                    self._loaded = _load(path, version)
        return self._loaded


def _version(path: str) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_mtime_ns, status.st_size


def _load(path: str | None, version: tuple[int, int]) -> _Loaded:
    if path is None:
        return _Loaded(None, "ottla.console.protobuf.descriptor.set names no file", version)
    if version[1] > MAX_SET_BYTES:
        return _Loaded(None, f"a descriptor set may have {MAX_SET_BYTES:,} bytes", version)
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message
    except ModuleNotFoundError:
        return _Loaded(None, "Protobuf needs more: pip install 'ottla[protobuf]'", version)
    try:
        with open(path, "rb") as file:
            files = descriptor_pb2.FileDescriptorSet.FromString(file.read(MAX_SET_BYTES)).file
        pool = descriptor_pool.DescriptorPool()
        for each in files:
            pool.AddSerializedFile(each.SerializeToString())
    except OSError as error:
        return _Loaded(None, f"the descriptor set cannot be read: {error.strerror}", version)
    except (message.DecodeError, TypeError, ValueError):
        return _Loaded(None, "the file is not a descriptor set that protoc wrote with --include_imports", version)
    return _Loaded(pool, "", version)


def _body(data: bytes) -> bytes:
    """The message, without what Confluent's serializers write before it. Raises ValueError."""
    # No message begins with a zero: it would be a field of that number.
    if data[:1] != b"\0":
        return data
    body = data[HEADER_SIZE_BYTES:]
    _, start = split_indexes(body)
    return body[start:]
