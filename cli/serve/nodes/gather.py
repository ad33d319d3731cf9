"""Merges the metrics pages of several nodes into one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping


def merge(pages: Mapping[int, str]) -> Iterator[str]:
    """The lines of all pages: each family in one place, and the label `node` first in each sample.

    `pages` are by node id, in Prometheus' text format: every sample comes after the `# TYPE` of its family.
    """
    heads: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    for node_id, page in pages.items():
        family = ""
        for line in page.splitlines():
            if line.startswith("#"):
                family = line.split(" ", 3)[2]
                known = heads.setdefault(family, [])
                if line not in known:
                    known.append(line)
            elif line:
                samples.setdefault(family, []).append(_labelled(line, node_id))
    for family, head in heads.items():
        yield from head
        yield from samples.get(family, ())


def _labelled(sample: str, node_id: int) -> str:
    """A sample's name ends at the first brace or blank."""
    end = min(position for position in (sample.find("{"), sample.find(" ")) if position >= 0)
    if sample[end] == "{":
        return f'{sample[:end]}{{node="{node_id}",{sample[end + 1 :]}'
    return f'{sample[:end]}{{node="{node_id}"}}{sample[end:]}'
