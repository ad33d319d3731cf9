"""A dictionary whose versions share what did not change."""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, Mapping, ValuesView
from itertools import chain
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

_SHARDS = 128


class PersistentMap(Mapping[K, V], Generic[K, V]):
    """An immutable mapping; `set` and `remove` return a new version.

    A change copies one shard of 128 and the tuple of shards, so 100,000 topics cost about 800 copied
    pointers for each change, and a lookup costs two dictionary steps. `shard_of` maps a key to any
    integer and must not depend on the process (no `hash()` of a string), so that iteration order is the
    same in every run.
    """

    __slots__ = ("_shard_of", "_size", "shards")

    def __init__(self, shard_of: Callable[[K], int]) -> None:
        self._shard_of = shard_of
        #: Never changed, as other versions have them, too.
        self.shards: tuple[dict[K, V], ...] = ({},) * _SHARDS
        self._size = 0

    def __getitem__(self, key: K) -> V:
        return self.shards[self._shard_of(key) % _SHARDS][key]

    def get(self, key: K, default: V | None = None, /) -> V | None:  # type: ignore[override]
        # Mapping's own goes through an exception for each absent key. Its default may be of any type, this one's not.
        if not self._size:
            return default
        return self.shards[self._shard_of(key) % _SHARDS].get(key, default)

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[K]:
        for shard in self.shards:
            yield from shard

    # Mapping's own look every key up, which takes twenty times as long.

    def values(self) -> ValuesView[V]:
        return _Values(self)

    def items(self) -> ItemsView[K, V]:
        return _Items(self)

    def set(self, key: K, value: V) -> PersistentMap[K, V]:
        """Return a version in which `key` has `value`."""
        return self.update({key: value})

    def remove(self, key: K) -> PersistentMap[K, V]:
        """Return a version without `key`, which may be absent."""
        return self.update({}, (key,))

    def update(self, changed: Mapping[K, V], removed: tuple[K, ...] = ()) -> PersistentMap[K, V]:
        """Return a version with all of the changes; every shard concerned is copied once."""
        copies: dict[int, dict[K, V]] = {}
        for key in removed:
            self._shard_for_write(key, copies).pop(key, None)
        for key, value in changed.items():
            self._shard_for_write(key, copies)[key] = value
        version: PersistentMap[K, V] = PersistentMap(self._shard_of)
        shards = list(self.shards)
        size = self._size
        for index, shard in copies.items():
            size += len(shard) - len(shards[index])
            shards[index] = shard
        version.shards = tuple(shards)
        version._size = size
        return version

    def _shard_for_write(self, key: K, copies: dict[int, dict[K, V]]) -> dict[K, V]:
        index = self._shard_of(key) % _SHARDS
        shard = copies.get(index)
        if shard is None:
            shard = copies[index] = dict(self.shards[index])
        return shard


class _Values(ValuesView[V]):
    """The values, shard by shard."""

    __slots__ = ()
    _mapping: PersistentMap[object, V]

    def __iter__(self) -> Iterator[V]:
        return chain.from_iterable(shard.values() for shard in self._mapping.shards)


class _Items(ItemsView[K, V]):
    """The pairs, shard by shard."""

    __slots__ = ()
    _mapping: PersistentMap[K, V]

    def __iter__(self) -> Iterator[tuple[K, V]]:
        return chain.from_iterable(shard.items() for shard in self._mapping.shards)
