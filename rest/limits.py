"""Limits for one request, and for the memory of all of them."""

from __future__ import annotations

from typing import Final

#: The body of a request that is read whole.
MAX_BODY_BYTES: Final = 8 * 1024 * 1024
#: The bodies of all requests that are being worked on.
MAX_HELD_BYTES: Final = 64 * 1024 * 1024
#: Records of one request, or of one part of a stream.
MAX_RECORDS: Final = 10_000
#: The text of one record in a stream.
MAX_RECORD_TEXT_BYTES: Final = 4 * 1024 * 1024
#: Records of one batch; those of a topic that takes less are divided when it refuses them.
MAX_BATCH_BYTES: Final = 900_000
#: Up to this many bytes, work is done on the event loop; beyond, in a worker thread.
SMALL_BYTES: Final = 4 * 1024
#: Objects and arrays inside each other.
MAX_DEPTH: Final = 100
#: How long an answer to a client beyond its quota is held back.
MAX_HELD_BACK_SECONDS: Final = 30.0
THREADS: Final = 2
#: Within this time a body, or a record of a stream that has begun, has to come whole.
MAX_ARRIVAL_SECONDS: Final = 60.0
#: How long a stream may wait for its next record.
MAX_STREAM_PAUSE_SECONDS: Final = 600.0
#: Consumers of all users, and of one.
MAX_CONSUMERS: Final = 500
MAX_CONSUMERS_OF_USER: Final = 100
#: After this time without a request a consumer ends.
MAX_IDLE_SECONDS: Final = 300.0
#: What one answer has of records, and how long it is waited for.
MAX_ANSWER_BYTES: Final = 4 * 1024 * 1024
MAX_WAIT_MS: Final = 30_000
#: Topics or partitions that one request names.
MAX_NAMED: Final = 1_000
