"""Which programs would let more tests run here. `make test` ends with `python -m tests.programs`."""

from __future__ import annotations

import os
import shutil
from typing import Final, NamedTuple

#: Debian has some of them where only root's path leads.
_PATH: Final = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


class Program(NamedTuple):
    """A program that tests need and that nobody must have. `package` is Debian's."""

    name: str
    package: str
    tests: str


PROGRAMS: Final = (
    Program("etcd", "etcd-server", "metadata in etcd, clusters of several machines"),
    Program("kcat", "kcat", "kcat as a client"),
    Program("java", "openjdk-17-jdk-headless", "Java's clients, Kafka's tools, Spark, Apache Kafka as the oracle"),
    Program("mvn", "maven", "the jars for the tests with Java"),
    Program("node", "nodejs", "kafkajs as a client"),
    Program("npm", "npm", "what the tests with kafkajs need"),
    Program("go", "golang-go", "franz-go and Sarama as clients"),
    Program("openssl", "openssl", "etcd over TLS"),
    Program("krb5kdc", "krb5-kdc", "logins by Kerberos"),
    Program("kadmin.local", "krb5-admin-server", "logins by Kerberos"),
    Program("promtool", "prometheus", "the alert rules for Prometheus"),
)


def report(missing: list[Program]) -> list[str]:
    """What to say of the programs that are missing, a line each; nothing if none is."""
    if not missing:
        return []
    lines = [f"  {program.name}: {program.tests}" for program in missing]
    install = " ".join(program.package for program in missing)
    return ["More tests run where these programs are installed:", *lines, f"On Debian: apt-get install {install}"]


def main() -> None:
    for line in report([program for program in PROGRAMS if shutil.which(program.name, path=_PATH) is None]):
        print(line)


if __name__ == "__main__":
    main()
