"""Keys that OpenSSL reads by a name, though they are in memory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ottla.client.tls import as_file


@pytest.mark.parametrize("has_memory_files", [True, False], ids=["in memory", "without such files"])
def test_it_is_read_twice_and_gone_afterwards(has_memory_files: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not has_memory_files:
        monkeypatch.delattr(os, "memfd_create", raising=False)
    elif not hasattr(os, "memfd_create"):
        pytest.skip("this system has no files in memory")
    with as_file(b"key") as name:
        assert Path(name).read_bytes() == Path(name).read_bytes() == b"key"
        assert Path(name).stat().st_mode & 0o077 == 0 or name.startswith("/proc/")
    assert not Path(name).exists()
