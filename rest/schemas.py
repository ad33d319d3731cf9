"""The schemas that keys and values are encoded by."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from ottla.rest.access import Caller, Right
from ottla.rest.errors import RestError, invalid_schema
from ottla.rest.values import Encode, Format, schema_encoder
from ottla.schemas.codec import Codec
from ottla.schemas.errors import SchemaError


class SchemaGiven(NamedTuple):
    """How a request says which schema it is: by its id, or by its text, which is then registered."""

    schema_id: int | None = None
    text: str | None = None


class SchemaStore(Protocol):
    """Knows schemas. Its verbs raise RestError."""

    async def codec(self, schema_id: int) -> Codec | None:
        """The codec of an id; None if there is no such schema. Raises SchemaError."""

    async def subjects(self, schema_id: int) -> frozenset[str]:
        """The subjects that have it."""

    async def register(self, subject: str, kind: str, text: str) -> int:
        """The id of a schema in a subject; the schema is registered if it is not there."""


class Encoder(NamedTuple):
    """The encoding of a request's keys or values, and its schema."""

    encode: Encode
    schema_id: int | None


async def encoder_by_schema(
    store: SchemaStore, caller: Caller, subject: str, form: Format, given: SchemaGiven
) -> Encoder:
    """The encoder of one request. Registering needs Write on the subject, and an id needs Read on a subject that has
    it, as at the registry. Raises RestError.
    """
    kind = form.schema_kind
    assert kind is not None, "it has a schema"
    if given.text is not None:
        caller.require(Right.WRITE, f"subject:{subject}")
        schema_id = await store.register(subject, kind, given.text)
    else:
        assert given.schema_id is not None, "one of both is given"
        schema_id = given.schema_id
        found = await store.subjects(schema_id)
        if found and not any(caller.may(Right.READ, f"subject:{name}") for name in found):
            caller.require(Right.READ, f"subject:{min(found)}")
    try:
        codec = await store.codec(schema_id)
    except SchemaError as error:
        raise invalid_schema(error) from None
    if codec is None:
        raise RestError(40403, f"Schema {schema_id} not found")
    if codec.kind != kind:
        raise invalid_schema(f"schema {schema_id} is of the type {codec.kind}, and {kind} is asked for")
    return Encoder(schema_encoder(codec, schema_id), schema_id)
