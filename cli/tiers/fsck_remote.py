"""`ottla fsck --remote`: whether all that the manifests in an object store name is there, and is what was uploaded."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from ottla.cli import CommandError, options
from ottla.cli.tiers.place import Place, asking, find_wanted, missing_topic, open_place, settings

if TYPE_CHECKING:
    from ottla.tiers.check import CheckedPartition, CheckedTopic, Damage
    from ottla.tiers.names import TopicNames

EXIT_SOUND = 0
EXIT_DAMAGED = 4


class _Report:
    """What was looked at, and what was found."""

    def __init__(self) -> None:
        self.topics = self.partitions = self.segments = self.size_bytes = 0
        self.findings: list[dict[str, Any]] = []

    @property
    def errors(self) -> int:
        return sum(finding["severity"] == "error" for finding in self.findings)

    @property
    def exit_code(self) -> int:
        return EXIT_DAMAGED if self.errors else EXIT_SOUND

    def add(self, names: TopicNames, checked: CheckedTopic) -> None:
        self.topics += 1
        self.partitions += len(checked.partitions)
        self.segments += sum(partition.segments for partition in checked.partitions)
        self.size_bytes += sum(partition.size_bytes for partition in checked.partitions)
        topic = {"cluster_id": names.cluster_id, "topic": names.topic, "topic_id": str(names.topic_id)}
        self.findings += [{"severity": "error"} | topic | _as_json(damage) for damage in checked.damage]
        for name in checked.strangers:
            message = f"{name} is no manifest: nothing of the topic is swept"
            self.findings.append({"severity": "note"} | topic | {"message": message})


def run(arguments: argparse.Namespace) -> int:
    """Check the objects of a cluster, or of some topics, and print what was found."""
    place = open_place(settings(arguments.config, arguments.remote_url))
    report = asking(place, _check, place, arguments)
    if arguments.json:
        counts = {"topics": report.topics, "partitions": report.partitions, "segments": report.segments}
        found = {"bytes": report.size_bytes, "findings": report.findings, "exit_code": report.exit_code}
        print(json.dumps({"url": place.url} | counts | found))
        return report.exit_code
    for finding in report.findings:
        print(_line(finding))
    verdict = options.counted(report.errors, "finding") if report.errors else "sound"
    nouns = (("topic", report.topics), ("partition", report.partitions), ("segment", report.segments))
    looked_at = ", ".join(options.counted(number, noun) for noun, number in nouns)
    print(f"{looked_at}, {report.size_bytes} bytes in {place.url}: {verdict}")
    return report.exit_code


async def _check(place: Place, arguments: argparse.Namespace) -> _Report:
    from ottla.tiers.check import check_topic

    topics = await find_wanted(place, arguments.cluster_id, arguments.topic)
    missing = missing_topic(arguments.topic, topics)
    if missing is not None or not topics:
        what = "any topic" if missing is None else f"the topic {missing}"
        raise CommandError(f"{place.url} has no objects of {what}: is it what ottla.remote.url says?")
    report = _Report()
    progress = options.Progress("checked")

    def checked(partition: CheckedPartition) -> None:
        progress.add(partition.records, partition.size_bytes)

    try:
        for names in topics:
            report.add(names, await check_topic(place.store, names, reads_all=arguments.read_all, checked=checked))
    finally:
        progress.finish()
    return report


def _as_json(damage: Damage) -> dict[str, Any]:
    offsets = {} if damage.first_offset < 0 else damage._asdict()
    return {"partition": damage.partition} | {
        "first_offset": offsets.get("first_offset"),
        "last_offset": offsets.get("last_offset"),
        "message": damage.text,
    }


def _line(finding: dict[str, Any]) -> str:
    if "partition" not in finding:
        return f"{finding['severity']}: {finding['message']}"
    first, last = finding["first_offset"], finding["last_offset"]
    offsets = "" if first is None else f", offsets {first} to {last}"
    return f"{finding['severity']}: {finding['topic']}-{finding['partition']}{offsets}: {finding['message']}"
