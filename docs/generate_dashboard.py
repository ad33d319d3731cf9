"""Writes the Grafana dashboard, docs/grafana/ottla.json: `python docs/generate_dashboard.py`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DASHBOARD = Path(__file__).parent / "grafana" / "ottla.json"

_LATENCY = (
    "histogram_quantile(0.99, sum by (le, {by}) "
    "(rate(ottla_request_duration_seconds_bucket{{{match}}}[$__rate_interval])))"
)
_ON = 'instance=~"$instance"'


def _rate(metric: str, by: str = "", extra: str = "") -> str:
    selector = f"{metric}{{{_ON}{extra}}}[$__rate_interval]"
    return f"sum by ({by}) (rate({selector}))" if by else f"sum(rate({selector}))"


#: Rows of panels: title, unit, and each line's expression and legend.
_ROWS: tuple[tuple[str, tuple[tuple[str, str, tuple[tuple[str, str], ...]], ...]], ...] = (
    (
        "Overview",
        (
            ("Ready", "bool_yes_no", ((f"min(ottla_ready{{{_ON}}})", ""),)),
            ("Brokers", "short", (("max(kafka_brokers)", ""),)),
            ("Topics", "short", ((f"max(ottla_topics{{{_ON}}})", ""),)),
            ("Connections", "short", ((f"sum(ottla_connections{{{_ON}}})", ""),)),
            ("Offline partitions", "short", ((f"sum(ottla_offline_partitions{{{_ON}}})", ""),)),
            ("Free disk", "decbytes", ((f"min(ottla_disk_free_bytes{{{_ON}}})", ""),)),
        ),
    ),
    (
        "Throughput",
        (
            ("Bytes in by topic", "Bps", ((_rate("ottla_topic_bytes_in_total", "topic"), "{{topic}}"),)),
            ("Bytes out by topic", "Bps", ((_rate("ottla_topic_bytes_out_total", "topic"), "{{topic}}"),)),
            ("Records in by topic", "cps", ((_rate("ottla_topic_messages_in_total", "topic"), "{{topic}}"),)),
            ("Requests by API", "reqps", ((_rate("ottla_requests_total", "api"), "{{api}}"),)),
            ("Errors", "cps", ((_rate("ottla_request_errors_total", "api, error"), "{{api}}: {{error}}"),)),
            (
                "Throttled and refused",
                "cps",
                (
                    (_rate("ottla_throttled_requests_total", "quota"), "{{quota}}"),
                    (_rate("ottla_connections_refused_total", "reason"), "{{reason}}"),
                ),
            ),
        ),
    ),
    (
        "Latency",
        (
            (
                "99th percentile by API",
                "s",
                ((_LATENCY.format(by="api", match=f'{_ON},phase="total"'), "{{api}}"),),
            ),
            (
                "Produce: 99th percentile by phase",
                "s",
                ((_LATENCY.format(by="phase", match=f'{_ON},api="produce"'), "{{phase}}"),),
            ),
            (
                "Fetch: 99th percentile by phase",
                "s",
                ((_LATENCY.format(by="phase", match=f'{_ON},api="fetch"'), "{{phase}}"),),
            ),
        ),
    ),
    (
        "Consumer groups",
        (
            ("Lag by group", "short", (("sum by (consumergroup) (kafka_consumergroup_lag_sum)", "{{consumergroup}}"),)),
            (
                "Committed a second",
                "cps",
                (
                    (
                        "sum by (consumergroup) (rate(kafka_consumergroup_current_offset_sum[$__rate_interval]))",
                        "{{consumergroup}}",
                    ),
                ),
            ),
            ("Members", "short", (("sum by (consumergroup) (kafka_consumergroup_members)", "{{consumergroup}}"),)),
        ),
    ),
    (
        "Loop and memory",
        (
            (
                "How late the loop is (99th percentile)",
                "s",
                (
                    (
                        f"histogram_quantile(0.99, sum by (le) (rate(ottla_loop_lag_seconds_bucket{{{_ON}}}"
                        "[$__rate_interval])))",
                        "lag",
                    ),
                    (f"max(ottla_loop_longest_hold_seconds{{{_ON}}})", "longest hold"),
                ),
            ),
            ("CPU", "percentunit", ((_rate("process_cpu_seconds_total", "instance"), "{{instance}}"),)),
            (
                "Memory",
                "decbytes",
                (
                    (f"sum(process_resident_memory_bytes{{{_ON}}})", "process"),
                    (f"sum by (budget) (ottla_memory_budget_used_bytes{{{_ON}}})", "{{budget}}"),
                    (f"sum(ottla_tail_cache_bytes{{{_ON}}})", "tail cache"),
                    (f"sum(ottla_buffer_pool_retained_bytes{{{_ON}}})", "free buffers"),
                ),
            ),
            (
                "Waiting operations",
                "short",
                ((f"sum by (purgatory) (ottla_purgatory_operations{{{_ON}}})", "{{purgatory}}"),),
            ),
        ),
    ),
    (
        "Storage",
        (
            (
                "Written",
                "Bps",
                ((_rate("ottla_written_bytes_total"), "blocks"), (_rate("ottla_append_bytes_total"), "batches")),
            ),
            (
                "Writing a block",
                "s",
                tuple(
                    (
                        f"histogram_quantile({share}, sum by (le) (rate(ottla_block_write_seconds_bucket{{{_ON}}}"
                        "[$__rate_interval])))",
                        name,
                    )
                    for share, name in ((0.5, "median"), (0.99, "99th percentile"))
                ),
            ),
            ("Reads", "cps", ((_rate("ottla_reads_total", "source"), "from {{source}}"),)),
            (
                "Data",
                "decbytes",
                (
                    (f"sum(ottla_data_bytes{{{_ON}}})", "on disk"),
                    (f"sum(ottla_unsynced_bytes{{{_ON}}})", "not synced"),
                    (f"sum(ottla_memstore_bytes{{{_ON}}})", "not written"),
                ),
            ),
            (
                "Files",
                "short",
                (
                    (f"sum(process_open_fds{{{_ON}}})", "open descriptors"),
                    (f"sum(ottla_segments{{{_ON}}})", "segments"),
                ),
            ),
        ),
    ),
)

_SOURCE = {"type": "prometheus", "uid": "${DS_PROMETHEUS}"}
_WIDTH = 24


def dashboard() -> dict[str, Any]:
    """The dashboard in Grafana's JSON, for its import page."""
    instance = {
        "name": "instance",
        "label": "broker",
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": "label_values(ottla_ready, instance)", "refId": "instance"},
        "includeAll": True,
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
        "refresh": 2,
    }
    return {
        "__inputs": [
            {
                "name": "DS_PROMETHEUS",
                "label": "Prometheus",
                "description": "",
                "type": "datasource",
                "pluginId": "prometheus",
                "pluginName": "Prometheus",
            }
        ],
        "__requires": [
            {"type": "grafana", "id": "grafana", "name": "Grafana", "version": "10.0.0"},
            {"type": "datasource", "id": "prometheus", "name": "Prometheus", "version": "1.0.0"},
        ],
        "uid": "ottla",
        "title": "Ottla",
        "tags": ["ottla", "kafka"],
        "timezone": "browser",
        "schemaVersion": 38,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "templating": {"list": [instance]},
        "panels": list(_panels()),
    }


def _panels() -> Iterator[dict[str, Any]]:
    number = top = 0
    for row, panels in _ROWS:
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": row,
            "collapsed": False,
            "gridPos": {"h": 1, "w": _WIDTH, "x": 0, "y": top},
            "panels": [],
        }
        top += 1
        is_stat = row == "Overview"
        height = 4 if is_stat else 8
        columns = len(panels) if is_stat else min(len(panels), 3)
        width = _WIDTH // columns
        for place, (title, unit, lines) in enumerate(panels):
            number += 1
            position = {"h": height, "w": width, "x": place % columns * width, "y": top + place // columns * height}
            yield _panel(number, title, unit, lines, position, kind="stat" if is_stat else "timeseries")
        top += -(-len(panels) // columns) * height


def _panel(
    number: int, title: str, unit: str, lines: tuple[tuple[str, str], ...], position: dict[str, int], *, kind: str
) -> dict[str, Any]:
    return {
        "id": number,
        "type": kind,
        "title": title,
        "datasource": _SOURCE,
        "gridPos": position,
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "datasource": _SOURCE,
                "expr": expression,
                "legendFormat": legend or "__auto",
            }
            for place, (expression, legend) in enumerate(lines)
        ],
    }


if __name__ == "__main__":
    DASHBOARD.parent.mkdir(exist_ok=True)
    DASHBOARD.write_text(json.dumps(dashboard(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
