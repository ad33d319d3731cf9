"""What is told of a query that failed."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException

from ottla.pipeline.errors import DataLossError
from ottla.pipeline.tables.config import TableConfig
from ottla.pipeline.tables.errors import JobError
from ottla.pipeline.tables.failures import passes, sentence

TABLE = TableConfig("orders", "lake/orders", name="orders")
QUERY = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted\n"
DELTA = """[DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES] Found invalid character(s) among ' ,;{}()\\n\\t=' in the columns.
Invalid column names: a b.
Please use other characters and try again.

JVM stacktrace:
org.apache.spark.sql.delta.DeltaAnalysisException: [DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES] Found
\tat org.apache.spark.sql.delta.DeltaErrorsBase.invalidColumnName(DeltaErrors.scala:1)
"""


class DeltaError(AnalysisException):
    """As pyspark raises what Delta threw: it looks the text up among Spark's own conditions, where Delta's are not."""

    def __init__(self, text: str) -> None:
        super().__init__("")
        self._text = text

    def __str__(self) -> str:
        return self._text

    def getMessage(self) -> str:  # noqa: N802 - pyspark's name
        raise RuntimeError("Cannot find main error class 'DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES'")


def test_an_error_whose_own_text_raises() -> None:
    told = sentence(TABLE, DeltaError(DELTA))
    assert isinstance(told, JobError)
    assert str(told) == (
        "Table 'orders' failed: [DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES] Found invalid character(s) among "
        r"' ,;{}()\n\t=' in the columns. Invalid column names: a b. Please use other characters and try again."
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"{QUERY}ottla.pipeline.errors.DecodingError: Partition a-0 cannot be.\n  at x.y(Z.scala)", "Partition a-0"),
        (f"{QUERY}java.io.IOException: No space left\n=== Streaming Query ===\nPlan: …", "java.io.IOException: No "),
        ("", "no reason was given"),
    ],
)
def test_the_line_that_says_why(text: str, words: str) -> None:
    assert str(sentence(TABLE, RuntimeError(text))).startswith(f"Table 'orders' failed: {words}")


def test_lost_records_are_data_loss() -> None:
    told = sentence(TABLE, RuntimeError("Partition orders-0: DataLossError, offset 5"))
    assert isinstance(told, DataLossError)
    assert "on_data_loss" in str(told)


@pytest.mark.parametrize(
    ("said", "may_pass"),
    [
        ("ottla.pipeline.errors.BrokerUnavailableError: No broker answers at 127.0.0.1:1.", True),
        ("pyiceberg.exceptions.CommitFailedException: Requirement failed", True),
        ("requests.exceptions.ConnectionError: ('Connection aborted.', RemoteDisconnected('closed'))", True),
        ("requests.exceptions.ReadTimeout: HTTPConnectionPool(host='127.0.0.1', port=1): Read timed out.", True),
        ("requests.exceptions.InvalidURL: Failed to parse", False),
        ("pyiceberg.exceptions.ForbiddenError: You may not", False),
    ],
)
def test_what_another_start_may_get_past(said: str, may_pass: bool) -> None:
    trace = f'Traceback (most recent call last):\n  File "sink.py", line 1, in commit\n{said}\n'
    assert passes(JobError(QUERY + trace)) is may_pass
