"""`ottla top`: rates and sizes of topics, lag of groups, memory and connections, redrawn until Ctrl-C."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from functools import partial
from typing import Any, Final

from ottla.cli import options
from ottla.cli.cluster.top_sample import Sample, take
from ottla.cli.connection import connected, security
from ottla.cli.http_page import read_page
from ottla.client.client import Client

_ENTER: Final = "\x1b[?1049h\x1b[?25l"
_LEAVE: Final = "\x1b[?25h\x1b[?1049l"
_HOME: Final = "\x1b[H\x1b[J"
# The heading, blank lines, and the two tables' heads.
_LINES_AROUND: Final = 7
_FEWEST_LINES: Final = 3


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--interval", type=options.seconds, default=2.0, metavar="SECONDS", help="default: 2")
    parser.add_argument(
        "--metrics",
        metavar="HOST:PORT",
        help="address of --http of a broker or proxy, for memory and connections",
    )
    parser.add_argument("--internal", action="store_true", help="internal topics, too")
    parser.add_argument("--once", action="store_true", help="print once, after one interval, and end")
    options.add_json(parser)
    options.add_bootstrap(parser)


def run(arguments: argparse.Namespace) -> int:
    with connected(arguments) as client:
        before = _take(client, arguments)
        if arguments.once or arguments.json or not sys.stdout.isatty():
            time.sleep(arguments.interval)
            rates = compare(before, _take(client, arguments))
            print(json.dumps(rates, indent=2) if arguments.json else "\n".join(lines(rates)))
            return 0
        _redraw(client, arguments, before)
    return 0


def _redraw(client: Client, arguments: argparse.Namespace, before: Sample) -> None:
    print(_ENTER, end="", flush=True)
    try:
        while True:
            time.sleep(arguments.interval)
            after = _take(client, arguments)
            width, height = shutil.get_terminal_size()
            shown = lines(compare(before, after), max(height - _LINES_AROUND, _FEWEST_LINES))
            print(_HOME + "\n".join(line[:width] for line in shown), end="", flush=True)
            before = after
    except KeyboardInterrupt:
        pass
    finally:
        print(_LEAVE, end="", flush=True)


def _take(client: Client, arguments: argparse.Namespace) -> Sample:
    read = None
    if arguments.metrics is not None:
        read = partial(read_page, arguments.metrics, "/metrics", security(arguments.command_config))
    return take(client, arguments.timeout, read, internal=arguments.internal)


def compare(before: Sample, after: Sample) -> dict[str, Any]:
    """Rates between two samples, per second."""
    seconds = max(after.seconds - before.seconds, 1e-3)
    topics: dict[str, dict[str, float]] = {}
    for partition, end in after.ends.items():
        topic = topics.setdefault(partition.topic, {"partitions": 0, "records_per_second": 0.0, "end_offsets": 0})
        topic["partitions"] += 1
        topic["end_offsets"] += end
        topic["records_per_second"] += max(end - before.ends.get(partition, end), 0) / seconds
    for name, topic in topics.items():
        size = after.sizes.get(name, 0)
        topic["size_bytes"] = size
        topic["bytes_per_second"] = max(size - before.sizes.get(name, size), 0) / seconds
    groups = {
        group: {
            "state": after.states[group],
            "lag": lag,
            "lag_per_second": (lag - before.lags.get(group, lag)) / seconds,
        }
        for group, lag in after.lags.items()
    }
    filters = {
        name: {
            f"{what}_per_second": max(counts.get(what, 0) - before.filters.get(name, counts).get(what, 0), 0) / seconds
            for what in ("calls", "seconds", "refusals")
        }
        for name, counts in after.filters.items()
    }
    return {
        "seconds": round(seconds, 3),
        "broker": _metric_rates(before.metrics, after.metrics, seconds),
        "nodes": _nodes(before, after, seconds),
        "topics": topics,
        "groups": groups,
        "filters": filters,
    }


def _metric_rates(before: dict[str, float], after: dict[str, float], seconds: float) -> dict[str, float]:
    rates: dict[str, float] = {name: after[name] for name in ("memory_bytes", "connections") if name in after}
    for name in ("cpu_seconds", "bytes_in", "bytes_out"):
        if name in after and name in before:
            rates[f"{name}_per_second"] = (after[name] - before[name]) / seconds
    return rates


def _nodes(before: Sample, after: Sample, seconds: float) -> dict[int, dict[str, float]]:
    """Figures of each node's partitions; writes to a partition count for its present leader."""
    nodes: dict[int, dict[str, float]] = {}
    for node_id, node in after.nodes.items():
        led = [partition for partition, leader in after.leaders.items() if leader == node_id]
        written = sum(
            max(after.ends[each] - before.ends.get(each, after.ends[each]), 0) for each in led if each in after.ends
        )
        former = before.nodes.get(node_id)
        nodes[node_id] = {
            "leads": len(led),
            "records_per_second": written / seconds,
            "size_bytes": node.size_bytes,
            "groups": node.groups,
            **_metric_rates({} if former is None else former.metrics, node.metrics, seconds),
        }
    return nodes


def lines(rates: dict[str, Any], most: int | None = None) -> list[str]:
    """The busiest topics and the groups with the most lag come first; at most `most` lines in both together."""
    topics = sorted(rates["topics"].items(), key=lambda it: (-it[1]["records_per_second"], it[0]))
    groups = sorted(rates["groups"].items(), key=lambda it: (-it[1]["lag"], it[0]))
    if most is not None:
        most -= len(rates["filters"]) + 2 if rates["filters"] else 0
        most -= len(rates["nodes"]) + 2 if len(rates["nodes"]) > 1 else 0
        most = max(most, _FEWEST_LINES)
        of_groups = min(len(groups), max(most // 2, most - len(topics)))
        topics, groups = topics[: most - of_groups], groups[:of_groups]
    return [
        _heading(rates),
        *_node_lines(rates["nodes"]),
        "",
        *options.table(
            ("TOPIC", "PARTITIONS", "RECORDS/S", "GROWTH/S", "SIZE", "RECORDS EVER"),
            (
                (
                    name,
                    it["partitions"],
                    f"{it['records_per_second']:,.0f}",
                    options.human_size(it["bytes_per_second"]),
                    options.human_size(it["size_bytes"]),
                    f"{it['end_offsets']:,}",
                )
                for name, it in topics
            ),
        ),
        "",
        *options.table(
            ("GROUP", "STATE", "LAG", "LAG/S"),
            ((name, it["state"], f"{it['lag']:,}", f"{it['lag_per_second']:+,.0f}") for name, it in groups),
        ),
        *_filters(rates["filters"]),
    ]


def _node_lines(nodes: dict[int, dict[str, float]]) -> list[str]:
    """A line for each node, if there are several; with what only metrics tell, if there are any."""
    if len(nodes) < 2:
        return []
    rows = (
        (
            node_id,
            f"{it['leads']:.0f}",
            f"{it['records_per_second']:,.0f}",
            options.human_size(it["size_bytes"]),
            f"{it['groups']:.0f}",
            f"{it['cpu_seconds_per_second']:.0%}" if "cpu_seconds_per_second" in it else "-",
            options.human_size(it["memory_bytes"]) if "memory_bytes" in it else "-",
            f"{it['connections']:.0f}" if "connections" in it else "-",
        )
        for node_id, it in sorted(nodes.items())
    )
    head = ("NODE", "LEADS", "RECORDS/S", "SIZE", "GROUPS", "CPU", "MEMORY", "CONNECTIONS")
    return ["", *options.table(head, rows)]


def _filters(filters: dict[str, dict[str, float]]) -> list[str]:
    """The lines about a proxy's filters, the most expensive first."""
    if not filters:
        return []
    costliest = sorted(filters.items(), key=lambda it: (-it[1]["seconds_per_second"], it[0]))
    rows = (
        (
            name,
            f"{it['calls_per_second']:,.0f}",
            f"{1000 * it['seconds_per_second'] / it['calls_per_second']:.2f} ms" if it["calls_per_second"] else "",
            f"{it['seconds_per_second']:.1%}",
            f"{it['refusals_per_second']:,.0f}",
        )
        for name, it in costliest
    )
    return ["", *options.table(("FILTER", "MESSAGES/S", "EACH", "TIME", "REFUSED/S"), rows)]


def _heading(rates: dict[str, Any]) -> str:
    total = sum(it["records_per_second"] for it in rates["topics"].values())
    parts = [f"{time.strftime('%H:%M:%S')}  {total:,.0f} records/s"]
    broker = rates["broker"]
    if "bytes_in_per_second" in broker:
        parts.append(f"in {options.human_size(broker['bytes_in_per_second'])}/s")
        parts.append(f"out {options.human_size(broker['bytes_out_per_second'])}/s")
    if "cpu_seconds_per_second" in broker:
        parts.append(f"cpu {broker['cpu_seconds_per_second']:.0%}")
    if "memory_bytes" in broker:
        parts.append(f"memory {options.human_size(broker['memory_bytes'])}")
        parts.append(f"{broker['connections']:.0f} connections")
    return "   ".join(parts)
