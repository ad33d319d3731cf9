"""A schema registry beside a broker, with Confluent's HTTP interface and its records in the topic `_schemas`.

It is a client of the broker, and nothing but that topic persists. `node` mounts it in a node, `standalone` runs it
before any Kafka.
"""
