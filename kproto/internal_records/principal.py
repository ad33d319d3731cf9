"""The principal of a request that one broker forwards to another, as Kafka's default principal builder
writes it.

It is preceded by an int16 version.
"""

from ottla.kproto.schema import Message, boolean, string


class DefaultPrincipalData(Message, versions="0", flexible="0+"):
    type: str = string("0+")
    name: str = string("0+")
    token_authenticated: bool = boolean("0+")
