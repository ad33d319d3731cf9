"""Table jobs on a real Spark cluster: a master and two workers, code that is shipped, and a worker that is killed.

    make test-cluster    or    python -m compat_tests.spark.endurance.cluster --spark .cache/spark-4.1 [--rows 40000]

The folder is a virtual environment with that PySpark and what Ottla needs, but without Ottla: the job and its
executors have it from the archive that `spark-submit` ships. One job keeps a Parquet table, an Iceberg table and an
Iceberg table by key while records come in; in the middle of it one of the workers is ended with kill -9, with its
executor. Then a second run brings the tables up to date, and every row is compared with what was sent. A stream copies
the topic into another by `format("ottla")`, which is compared with it. At the end a client of Spark Connect reads the
topic, with the archive as its artifact.

The exit code is 0 only if all of that holds.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pyarrow.dataset as ds
from confluent_kafka import Producer

from compat_tests.brokers.ottla_broker import OttlaBroker
from compat_tests.clients.confluent import Confluent
from compat_tests.spark.endurance.kill_loop import PARTITIONS
from compat_tests.spark.endurance.sink_kill_loop import committed
from compat_tests.spark.endurance.sink_kill_loop import faults as differences
from compat_tests.spark.session import ROOT
from ottla.pipeline.interpreter import quick_interpreter
from ottla.pipeline.tables.iceberg.catalogue import open_catalogue

TOPIC: Final = "numbers"
COPIES: Final = "copies"
KEYS: Final = 500
# Only for what hangs: they are far beyond what a busy machine needs.
START_TIMEOUT_S: Final = 1200.0
JOB_TIMEOUT_S: Final = 3600.0

# Everything here lives for a minute: to compile it well takes longer than to run it.
JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.executor.memory": "512m",
    "spark.driver.extraJavaOptions": JAVA,
    "spark.executor.extraJavaOptions": JAVA,
    "spark.sql.shuffle.partitions": "2",
    # A worker that is killed is noticed at once. One that only is slow should not be taken for dead.
    "spark.network.timeout": "20m",
    "spark.executor.heartbeatInterval": "1m",
    "spark.python.authenticate.socketTimeout": "10m",
}

JOB: Final = """
bootstrap = "{bootstrap}"
checkpoint = "{folder}/checkpoints"

[iceberg]
warehouse = "{folder}/lake"

[[tables]]
name = "parquet"
topic = "{topic}"
path = "{folder}/parquet"
format = "parquet"
schema = "n BIGINT"
max_offsets_per_batch = {batch}

[[tables]]
name = "iceberg"
topic = "{topic}"
path = "kept.all"
format = "iceberg"
schema = "n BIGINT"
max_offsets_per_batch = {batch}

[[tables]]
name = "by_key"
topic = "{topic}"
path = "kept.by_key"
format = "iceberg"
schema = "n BIGINT"
mode = "upsert"
key = "k"
max_offsets_per_batch = {batch}
"""

# What `spark-submit` runs: the job's code comes with the archive.
PROGRAM: Final = """
import sys
from ottla.pipeline.tables.runner import main
sys.exit(main(sys.argv[1:]))
"""

COPY: Final = """
import sys
from pyspark.sql import SparkSession
from ottla.pipeline.source import OttlaDataSource
bootstrap, source, target, checkpoint = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
spark.dataSource.register(OttlaDataSource)
rows = spark.readStream.format("ottla").option("kafka.bootstrap.servers", bootstrap).option("subscribe", source)
written = rows.option("startingOffsets", "earliest").load().select("key", "value").writeStream.format("ottla")
written = written.option("kafka.bootstrap.servers", bootstrap).option("topic", target)
written.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
"""

CONNECT: Final = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
spark.addArtifacts(sys.argv[2], pyfile=True)
from ottla.pipeline.source import OttlaDataSource
spark.dataSource.register(OttlaDataSource)
rows = spark.read.format("ottla").option("kafka.bootstrap.servers", sys.argv[3]).option("subscribe", sys.argv[4]).load()
print("rows:", rows.selectExpr("CAST(value AS STRING) AS v").where("v LIKE '{%'").count())
"""


class Cluster:
    """A master and its workers, as processes of their own."""

    def __init__(self, environment: Path, folder: Path) -> None:
        found = list(environment.glob("lib/python*/site-packages/pyspark"))
        assert len(found) == 1, f"{environment} is no virtual environment with one PySpark"
        self.home = found[0]
        self._python = environment / "bin" / "python"
        # Spark gives the process that plans a stream ten seconds, which no setting makes longer.
        self._quick_python = quick_interpreter(self._python)
        self._folder = folder
        self._workers: list[subprocess.Popen[bytes]] = []
        self._logs = 0

    @property
    def variables(self) -> dict[str, str]:
        """The environment of all that runs here. Nothing in it leads to the repository."""
        kept = {name: text for name, text in os.environ.items() if not name.startswith(("PYTHON", "SPARK", "PYSPARK"))}
        path = f"{self._python.parent}{os.pathsep}{os.environ['PATH']}"
        return kept | {
            "PATH": path,
            "SPARK_HOME": str(self.home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_NO_DAEMONIZE": "1",
            "SPARK_DAEMON_JAVA_OPTS": f"{JAVA} -Dspark.network.timeout=20m -Dspark.worker.timeout=1200",
            "SPARK_AUTH_SOCKET_TIMEOUT": "600",
            "PYSPARK_PYTHON": self._quick_python,
            "PYSPARK_DRIVER_PYTHON": str(self._python),
        }

    @contextmanager
    def running(self) -> Iterator[str]:
        """The master's address, with two workers."""
        master, url = self._start(
            "org.apache.spark.deploy.master.Master",
            ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"],
            r"Starting Spark master at (spark://\S+)",
        )
        try:
            for _ in range(2):
                self.add_worker(url)
            yield url
        finally:
            for process in (*self._workers, master):
                end(process)

    def add_worker(self, url: str) -> None:
        words = ["--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--webui-port", "0"]
        folder = self._folder / f"worker-{self._logs}"
        worker, _ = self._start(
            "org.apache.spark.deploy.worker.Worker",
            [*words, "--work-dir", str(folder), url],
            r"(Successfully registered with master)",
        )
        self._workers.append(worker)

    def kill_worker(self) -> None:
        """kill -9 of the first worker and of its executors: a machine that is gone."""
        end(self._workers.pop(0))

    def submit(self, url: str, words: list[str], log: Path, **variables: str) -> subprocess.Popen[bytes]:
        settings = [f"--conf={name}={value}" for name, value in SETTINGS.items()]
        command = [str(self.home / "bin" / "spark-submit"), f"--master={url}", *settings, *words]
        return self._spawn(command, log, **variables)

    def _start(self, name: str, words: list[str], said: str) -> tuple[subprocess.Popen[bytes], str]:
        self._logs += 1
        log = self._folder / f"daemon-{self._logs}.log"
        process = self._spawn([str(self.home / "bin" / "spark-class"), name, *words], log)
        return process, await_said(process, log, said)

    def _spawn(self, command: list[str], log: Path, **variables: str) -> subprocess.Popen[bytes]:
        with log.open("wb") as out:
            return subprocess.Popen(
                command,
                env=self.variables | variables,
                cwd=self._folder,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @contextmanager
    def connect_server(self, url: str, port: int) -> Iterator[str]:
        """A server of Spark Connect on the cluster."""
        log = self._folder / "connect.log"
        server = self.submit(
            url,
            [
                "--class=org.apache.spark.sql.connect.service.SparkConnectServer",
                f"--conf=spark.connect.grpc.binding.port={port}",
                "--conf=spark.connect.grpc.binding.address=127.0.0.1",
                "spark-internal",
            ],
            log,
        )
        try:
            await_said(server, log, r"(Spark Connect server started)")
            yield f"sc://127.0.0.1:{port}"
        finally:
            end(server)


def await_said(process: subprocess.Popen[bytes], log: Path, pattern: str) -> str:
    """Waits until a process has said it; what the pattern's group is."""
    found: list[str] = []

    def has_said() -> bool:
        found.extend(re.findall(pattern, log.read_text(errors="replace")))
        return bool(found)

    await_that(has_said, process, log)
    return found[0]


def await_that(holds: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while not holds():
        if process.poll() is not None or time.monotonic() > deadline:
            said = log.read_text(errors="replace")[-3000:]
            raise ChildProcessError(f"process {process.pid} did not come so far:\n{said}")
        time.sleep(0.2)


def end(process: subprocess.Popen[bytes]) -> None:
    """kill -9 of a process with all that it started."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def free_port() -> int:
    import socket

    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port: int = held.getsockname()[1]
        return port


def build_archive(folder: Path) -> Path:
    """The wheel's package as Spark ships code: its own name must end in .zip, and Python wants entries for folders."""
    subprocess.run(
        [sys.executable, "-m", "pip", "-q", "wheel", "--no-deps", "--no-build-isolation", "-w", str(folder), str(ROOT)],
        check=True,
    )
    (wheel,) = folder.glob("ottla-*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(folder / "shipped")
    return Path(shutil.make_archive(str(folder / "ottla"), "zip", folder / "shipped", "ottla"))


def produce(bootstrap: str, numbers: range, latest: dict[str, int | None]) -> None:
    """Numbered records, by key; each seventh takes its key's row away again."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for number in numbers:
        key = f"key-{number % KEYS}"
        is_tombstone = number % 7 == 3
        producer.produce(TOPIC, key=key, value=None if is_tombstone else b'{"n": %d}' % number)
        latest[key] = None if is_tombstone else number
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0


def faults(folder: Path, rows: int, latest: dict[str, int | None]) -> list[str]:
    """What is not as it was sent, row by row."""
    wrong = []
    expected = Counter(number for number in range(rows) if number % 7 != 3)
    parquet = ds.dataset(folder / "parquet", format="parquet", exclude_invalid_files=True, ignore_prefixes=["_", "."])
    catalogue = open_catalogue({"warehouse": str(folder / "lake")})
    held = {
        "parquet": Counter(parquet.to_table(columns=["n"]).column("n").to_pylist()),
        "iceberg": Counter(catalogue.load_table("kept.all").scan().to_arrow().column("n").to_pylist()),
    }
    for name, numbers in held.items():
        if numbers != expected:
            missing, more = expected - numbers, numbers - expected
            wrong.append(f"{name}: {missing.total()} rows missing, {more.total()} that should not be there")
    by_key = catalogue.load_table("kept.by_key").scan().to_arrow().to_pylist()
    kept = {key: number for key, number in latest.items() if number is not None}
    if len(by_key) != len(kept) or {row["k"]: row["n"] for row in by_key} != kept:
        wrong.append(f"by_key: {len(by_key)} rows, not what was sent last for each of {len(kept)} keys")
    catalogue.close()
    return wrong


def copy(cluster: Cluster, url: str, folder: Path, broker: OttlaBroker, words: list[str]) -> list[str]:
    """Copy the topic by a stream; what is in the copy otherwise."""
    Confluent(broker.bootstrap).create_topic(COPIES, partitions=PARTITIONS)
    (folder / "copy_topic.py").write_text(COPY)
    log = folder / "copy.log"
    # Where a stream is planned, code that Spark ships is not found.
    archive = str(folder / "ottla.zip")
    words = [*words, broker.bootstrap, TOPIC, COPIES, str(folder / "checkpoints" / COPIES)]
    job = cluster.submit(url, words, log, PYTHONPATH=archive)
    try:
        code = job.wait(JOB_TIMEOUT_S)
    finally:
        end(job)
    if code != 0:
        return [f"the copy ended with exit code {code}:\n{log.read_text(errors='replace')[-3000:]}"]
    source, target = committed(broker, TOPIC), committed(broker, COPIES)
    print(f"copied by a stream: {target.total()} records", flush=True)
    return [f"copy: {line}" for line in differences(source, target)]


def run(environment: Path, folder: Path, rows: int) -> list[str]:
    archive = build_archive(folder)
    cluster = Cluster(environment, folder)
    latest: dict[str, int | None] = {}
    with ExitStack() as stack:
        broker = stack.enter_context(OttlaBroker(folder / "broker"))
        Confluent(broker.bootstrap).create_topic(TOPIC, partitions=PARTITIONS)
        (folder / "job.py").write_text(PROGRAM)
        (folder / "job.toml").write_text(
            JOB.format(bootstrap=broker.bootstrap, folder=folder, topic=TOPIC, batch=max(1, rows // 8))
        )
        url = stack.enter_context(cluster.running())
        print(f"Spark at {url}", flush=True)
        shipped = f"--py-files={archive}"
        submitted = [shipped, "job.py", "job.toml", "--json"]
        produce(broker.bootstrap, range(rows // 2), latest)
        for number in (1, 2):
            log = folder / f"job-{number}.log"
            job = cluster.submit(url, submitted, log)
            try:
                if number == 1:
                    await_said(job, log, r'(?m)^(\{"table")')
                    cluster.kill_worker()
                    print("a worker was killed after the first batch", flush=True)
                    cluster.add_worker(url)
                    produce(broker.bootstrap, range(rows // 2, rows), latest)
                code = job.wait(JOB_TIMEOUT_S)
            finally:
                end(job)
            said = log.read_text(errors="replace")
            print(f"run {number}: exit code {code}, {said.count(chr(10) + chr(123))} batches", flush=True)
            if code != 0:
                return [f"run {number} ended with exit code {code}:\n{said[-3000:]}"]
        wrong = faults(folder, rows, latest)
        wrong += copy(cluster, url, folder, broker, [shipped, "copy_topic.py"])
        with cluster.connect_server(url, free_port()) as address:
            done = subprocess.run(
                [str(environment / "bin" / "python"), "-c", CONNECT, address, str(archive), broker.bootstrap, TOPIC],
                env=cluster.variables | {"PYTHONPATH": str(archive)},
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=START_TIMEOUT_S,
                check=False,
            )
        print(f"Spark Connect: {done.stdout.strip()}", flush=True)
        expected = sum(1 for number in range(rows) if number % 7 != 3)
        if done.stdout.strip() != f"rows: {expected}":
            wrong.append(f"Spark Connect: {done.stdout}{done.stderr[-3000:]}")
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--spark", type=Path, required=True, help="a virtual environment with PySpark")
    parser.add_argument("--rows", type=int, default=40_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="spark-cluster-") as temporary:
        wrong = run(arguments.spark.resolve(), Path(temporary), arguments.rows)
    for line in wrong:
        print(line)
    print("FAILED" if wrong else f"{arguments.rows:,} records: every row once, in each table")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
