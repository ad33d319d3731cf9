"""The JVM that runs Kafka's tools, one after the other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from compat_tests import java
from compat_tests.java.tools import JavaTools


@pytest.fixture(scope="session")
def jvm() -> Iterator[JavaTools]:
    if reason := java.missing():
        pytest.skip(reason)
    tools = JavaTools()
    yield tools
    tools.close()
