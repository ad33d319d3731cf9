"""Which partition of an internal topic keeps the state of a key."""

from functools import lru_cache


@lru_cache(maxsize=8192)
def coordinator_partition(key: str, partition_count: int) -> int:
    """Java's `String.hashCode` without its sign bit, modulo the partitions.

    Kafka takes the absolute value, which is another one for hashes below zero. Here it stays as it is: what is stored
    under a name would not be found any more.
    """
    hashed = 0
    units = key.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        hashed = (31 * hashed + (high << 8 | low)) & 0xFFFFFFFF
    return (hashed & 0x7FFFFFFF) % partition_count
