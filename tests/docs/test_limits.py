"""README, index and compatibility say at a glance what Ottla is not: alike, and as long as it is true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ottla.kproto.api_keys import ApiKey
from ottla.security.authorizer import authorizer_of
from ottla.server.apis.table import ApiTable
from ottla.server.network.endpoints import listener_protocols
from ottla.settings.config import TOPIC_SETTINGS
from ottla.settings.sources import load

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/index.md", "docs/compatibility.md")


def limits(page: str) -> str:
    """The list, without the addresses of its links, which depend on where the page is."""
    found = re.search(r"\*\*What it is not\*\*\n\n((?:[- ] .*\n)+)", (ROOT / page).read_text())
    assert found is not None, f"{page} does not say what Ottla is not"
    return re.sub(r"\]\([^)]*\)", "]", found[1])


@pytest.mark.parametrize("page", PAGES[1:])
def test_the_pages_say_the_same(page: str) -> None:
    assert limits(page) == limits(PAGES[0])


def test_it_is_open_by_default() -> None:
    assert "Open by default" in limits(PAGES[0])
    assert authorizer_of(load()) is None
    assert set(listener_protocols(load()).values()) == {"PLAINTEXT"}


def test_tiered_storage_is_off_by_default() -> None:
    assert "tiered storage" not in limits(PAGES[0]).lower()
    assert TOPIC_SETTINGS["remote.storage.enable"].in_use
    assert load().ottla_remote_url is None


def test_what_is_no_limit_any_more_is_not_told_as_one() -> None:
    served = {api.key for api in ApiTable.default()}
    assert {ApiKey.SHARE_FETCH, ApiKey.STREAMS_GROUP_HEARTBEAT} <= served
    assert "group" not in limits(PAGES[0])


def test_records_are_not_synced_by_default() -> None:
    assert "page cache" in limits(PAGES[0])
    assert load().topic_config({}).flush_messages == (1 << 63) - 1


def test_pages_agree_about_the_start() -> None:
    """performance.md has the number; the others say it in words."""
    pages = [ROOT / "README.md", ROOT / "pyproject.toml", *(ROOT / "docs").glob("*.md")]
    said = {
        words.lower()
        for page in pages
        for words in re.findall(r"\b(?:third|quarter|half) of a second|\bhalf a second", page.read_text())
        if page.name not in ("operations.md", "performance.md")  # of other things than the start
    }
    assert said == {"third of a second"}
    measured = re.search(
        r"\| to the first answered Metadata request \| (\d+) ms", (ROOT / "docs/performance.md").read_text()
    )
    assert measured is not None
    assert 280 <= int(measured[1]) < 380


def test_every_decision_has_a_number_of_its_own_and_is_listed() -> None:
    decisions = sorted(path.name for path in (ROOT / "docs/decisions").glob("[0-9]*.md"))
    numbers = [name[:4] for name in decisions]
    assert sorted(set(numbers)) == numbers
    listed = re.findall(
        r"^\| (\d{4}) \| .*\]\((.*)\) \|$", (ROOT / "docs/decisions/index.md").read_text(), re.MULTILINE
    )
    assert [name for _, name in listed] == decisions
    assert all(name.startswith(number) for number, name in listed)
