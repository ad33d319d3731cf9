"""Decoding record values into columns: raw, JSON; and Avro, Protobuf and JSON by the schemas they were written with.

A decoder adds two columns to a batch of records: `data`, a struct of the value's fields, and `reason`, why the value
could not be decoded, which is null if it could. A record with a reason goes to the dead letters, with all its bytes.
Schemas evolve by one rule (`evolution`): new fields become new nullable columns, and no column changes its type.
"""
