"""Tables of Apache Iceberg, by PyIceberg: no archive, and the same on every version of Spark.

The executors write data files (`workers`), the driver commits them: one snapshot a batch, which carries the batch's
number (`table`). `catalogue` finds the tables, `expiry` takes away what no snapshot needs any more, and `sink` has
Spark do all that.
"""
