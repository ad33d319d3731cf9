"""Which partition a record goes to."""

from ottla.kproto.partitioner import murmur2, partition_for_key

__all__ = ["murmur2", "partition_for_key"]
