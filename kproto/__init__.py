"""Kafka's wire protocol, sans-IO: bytes to messages and back, without sockets, clocks or files.

- `ottla.kproto.messages`: every request and response, one module for each API key, one class for all versions
- `ottla.kproto.codec`: parse and build them
- `ottla.kproto.headers`, `ottla.kproto.framing`: what surrounds them on a connection
- `ottla.kproto.records`: record batches
- `ottla.kproto.api_keys`, `ottla.kproto.errors`: keys with their versions, exceptions and error codes

Importing the package loads none of these; each loads what it needs when it is first used.
"""
