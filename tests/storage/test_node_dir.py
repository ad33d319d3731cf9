"""A folder that a node cannot use: said in a sentence, and nothing is changed."""

from __future__ import annotations

import errno
import os

import pytest

from ottla.storage.disk import RealDisk
from ottla.storage.errors import DataDirUnusableError
from ottla.storage.node_dir import NodeDir


class ReadOnly(RealDisk):
    """A file system that takes no changes."""

    def __init__(self, code: int) -> None:
        super().__init__()
        self._code = code

    def lock(self, path: str) -> int:
        raise OSError(self._code, os.strerror(self._code), path)


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS])
def test_a_folder_that_cannot_be_written_to_is_named(tmp_path: os.PathLike[str], code: int) -> None:
    folder = os.fspath(tmp_path)
    with pytest.raises(DataDirUnusableError, match=f"{folder}/node-1 cannot be written to: {os.strerror(code)}"):
        NodeDir(ReadOnly(code), folder, 1).open()


def test_a_file_in_place_of_the_folder_is_named(tmp_path: os.PathLike[str]) -> None:
    folder = os.fspath(tmp_path)
    with open(os.path.join(folder, "node-1"), "w"):
        pass
    with pytest.raises(DataDirUnusableError, match="cannot be written to: Not a directory"):
        NodeDir(RealDisk(), folder, 1).open()
