"""Makes the archive of classes that the JVMs of the tests start from (class data sharing): `make jars` runs it.

A JVM finds, reads and verifies some thousands of classes before it does anything. Out of an archive it maps them into
memory: a client or a tool starts with half of the work, and Apache Kafka with three fifths.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack, closing
from pathlib import Path
from tempfile import TemporaryDirectory

from compat_tests.brokers.apache_kafka import ApacheKafka
from compat_tests.clients.base import Record, Start
from compat_tests.clients.java_client import JavaClient, JavaDriver
from compat_tests.java import CLASSES, JARS, QUICK, archive, missing
from compat_tests.java.tools import JavaTools

TOOLS = (
    ("TopicCommand", "--describe"),
    ("consumer.group.ConsumerGroupCommand", "--list"),
    ("TransactionsCommand", "list"),
)


def live(folder: Path) -> None:
    """A short life of a broker, of clients and of tools, in which they load what they need."""
    with ExitStack() as stack:
        kafka = stack.enter_context(ApacheKafka(folder, jvm_options=QUICK))
        client = JavaClient(kafka.bootstrap, stack.enter_context(closing(JavaDriver())))
        tools = stack.enter_context(closing(JavaTools()))
        client.create_topic("t")
        with closing(client.producer()) as producer:
            producer.send("t", [Record(b"x")])
        with closing(client.consumer("t", Start("earliest"))) as consumer:
            consumer.take(1)
        for tool, *words in TOOLS:
            tools.run(tool, "--bootstrap-server", kafka.bootstrap, *words)


def loaded(lists: Path) -> list[str]:
    """The lines of the JVMs' lists of classes, each once and in their order."""
    files = sorted(lists.glob("*.classes"))
    return list(dict.fromkeys(line for file in files for line in file.read_text().splitlines()))


def main() -> int:
    """Make the archive, unless it is there for this JVM and these jars. Without it all goes on, and takes longer."""
    target = archive(JARS)
    if missing() is not None or target.exists():
        return 0
    CLASSES.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=CLASSES) as made:
        folder = Path(made)
        os.environ["JAVA_TOOL_OPTIONS"] = f"-XX:DumpLoadedClassList={folder}/%p.classes"
        live(folder / "kafka")
        del os.environ["JAVA_TOOL_OPTIONS"]
        classes = folder / "classes"
        classes.write_text("\n".join(loaded(folder)) + "\n")
        done = subprocess.run(
            [
                "java",
                "-Xshare:dump",
                f"-XX:SharedClassListFile={classes}",
                f"-XX:SharedArchiveFile={folder}/archive",
                "-cp",
                f"{JARS}/*",
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 0:
            (folder / "archive").rename(target)
        else:
            print(f"the JVM has made no archive of classes:\n{done.stdout}{done.stderr}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
