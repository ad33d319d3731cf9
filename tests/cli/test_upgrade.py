"""What older releases have written is opened: golden/ has a data folder of each format, stopped in order and killed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

GOLDEN = Path(__file__).with_name("golden")

# The folders get older than what is kept by default.
FOREVER = ("offsets.retention.minutes=2147483647", "transactional.id.expiration.ms=2147483647")


@pytest.mark.parametrize("folder", sorted(path.name for path in GOLDEN.iterdir()))
def test_a_folder_of_an_older_release_opens(broker: Any, broker_class: type[Any], tmp_path: Path, folder: str) -> None:
    data_dir = tmp_path / folder
    shutil.copytree(GOLDEN / folder, data_dir)
    assert broker.run("fsck", "--data-dir", str(data_dir), check=False).returncode in (0, 3)
    upgraded = broker_class(data_dir, *(word for setting in FOREVER for word in ("--set", setting)))

    def output(*arguments: str) -> str:
        return str(upgraded.run(*arguments).stdout.decode())

    for partition in range(3):
        lines = output("consume", "plain", "-p", str(partition), "-f", "%o %k=%s %h %T\n").splitlines()
        numbers = range(partition, 300, 3)
        assert lines == [f"{o} key {n}=value {n} n={n} {n + 1}" for o, n in enumerate(numbers)]
    compacted = dict(line.split("=") for line in output("consume", "compacted", "-f", "%k=%s\n").splitlines())
    assert compacted == {f"key {n % 10}": f"value {n}" for n in range(290, 300)}
    assert output("consume", "transactions", "--read-committed") == "kept\n"
    (described,) = json.loads(output("group", "describe", "readers", "--json"))
    assert [(it["topic"], it["partition"], it["offset"]) for it in described["offsets"]] == [("plain", 0, 42)]
    (transaction,) = json.loads(output("transaction", "list", "--json"))
    assert (transaction["transactional_id"], transaction["state"]) == ("golden", "CompleteAbort")
    configs = {it["name"]: it["value"] for it in json.loads(output("config", "get", "topic", "plain", "--json"))}
    assert configs == {"retention.ms": "-1", "max.message.bytes": "2000000"}
    assert "1048576" in output("quota", "list")

    upgraded.run("produce", "plain", "-p", "0", stdin=b"new\n")
    assert output("consume", "plain", "-p", "0", "-o", "-1", "-f", "%o %s\n") == "100 new\n"
    assert upgraded.stop() == 0
    assert broker.run("fsck", "--data-dir", str(data_dir)).returncode == 0
