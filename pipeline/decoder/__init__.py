"""Record batches to Arrow, without a Python object per record.

numpy finds where records, keys, values and headers lie in the bytes of a fetch or of a segment file, for many batches
at once; Arrow gathers them from there. `ottla.kproto.records` reads the same bytes record by record: the tests hold
that both find the same.
"""

from ottla.pipeline.decoder.decoder import RecordDecoder
from ottla.pipeline.decoder.schema import COLUMNS, arrow_schema, spark_schema

__all__ = ["COLUMNS", "RecordDecoder", "arrow_schema", "spark_schema"]
