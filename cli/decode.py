"""`ottla decode`: show bytes of the Kafka protocol as messages."""

from ottla.kproto.decode import configure, run

__all__ = ["configure", "run"]
