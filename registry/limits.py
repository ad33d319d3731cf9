"""Limits for one request, and for the content of the registry."""

from __future__ import annotations

from typing import Final

#: A record of `_schemas` has to fit into a batch of the default `message.max.bytes`, 1,048,588 bytes.
MAX_RECORD_BYTES: Final = 1_000_000
#: JSON may write each byte of a schema as `\\u00xx`; more than twice as much is not a schema that could be stored.
MAX_BODY_BYTES: Final = 2 * MAX_RECORD_BYTES
#: References of one schema, and of all schemas that it leads to.
MAX_REFERENCES: Final = 200
#: The sum of their sizes.
MAX_REFERENCED_BYTES: Final = 4_000_000
MAX_SUBJECT_LENGTH: Final = 1_000
#: Versions of all subjects, deleted ones included.
MAX_VERSIONS: Final = 1_000_000
#: Highest id that clients can read: it is a signed 32-bit integer on the wire.
MAX_ID: Final = 2**31 - 1
#: Steps of one compatibility check: unions and `oneOf` are compared member by member.
MAX_COMPARISONS: Final = 200_000
#: Messages in one answer.
MAX_MESSAGES: Final = 100
MAX_LISTED: Final = 100_000
