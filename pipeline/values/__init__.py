"""Decoding record values into columns: raw, JSON; and Avro, Protobuf and JSON by the schemas they were written by.

A decoder adds two columns to a batch of records: `data`, a struct of the value's fields, and `reason`, why the value
could not be decoded, which is null where it could. What has a reason goes to the dead letters, with all its bytes.
Schemas evolve by one rule (`evolution`): new fields become new nullable columns; a field that changes its type breaks.
"""
