"""A mapping whose versions share what did not change, as a mapping: what it gives in which order."""

from __future__ import annotations

from ottla.metadata.persistent_map import PersistentMap


def test_values_and_items_come_in_the_order_of_the_keys_and_nothing_is_looked_up() -> None:
    """An image of tens of thousands of topics is gone through several times at a start."""
    asked: list[str] = []

    def shard_of(key: str) -> int:
        asked.append(key)
        return int(key)

    empty: PersistentMap[str, int] = PersistentMap(shard_of)
    found = empty.update({str(number): number * 10 for number in range(1000, 0, -1)})
    asked.clear()
    keys, values, items = list(found), list(found.values()), list(found.items())
    assert not asked
    assert len(found.values()) == len(found.items()) == len(values) == 1000
    assert items == list(zip(keys, values, strict=True))
    assert values == [found[key] for key in keys]
    assert 10 in found.values()
    assert 5 not in found.values()
    assert ("1", 10) in found.items()
    assert ("1", 20) not in found.items()
    assert found == dict(items)
