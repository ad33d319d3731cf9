"""Ottla in front of any Kafka-compatible cluster: clients connect to it as they would to that cluster.

Nothing here knows the broker. `proxy.py` puts a proxy together, `connection.py` serves a client, `flow.py` is one
direction of that, and `rewriting.py` knows the answers that name brokers.
"""
