"""Arrow columns to the bytes of record batches, without a Python object per record: the way back of the decoder."""

from ottla.pipeline.encoder.partitioner import partitions_for_keys
from ottla.pipeline.encoder.records import Columns, binary, content, encode, encode_headers, lengths
from ottla.pipeline.encoder.varints import Ints

__all__ = ["Columns", "Ints", "binary", "content", "encode", "encode_headers", "lengths", "partitions_for_keys"]
