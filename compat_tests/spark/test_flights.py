"""The worked example on real data, on a part of it; `make example-flights` takes all."""

from __future__ import annotations

import csv
import json
from collections import Counter
from itertools import islice
from pathlib import Path
from xml.etree import ElementTree

import pytest
from pyspark.sql import SparkSession

from compat_tests.brokers.process import BrokerProcess
from compat_tests.endurance.flights import flights
from examples.flights.delays import data_folder, run

ROWS = 30_000


@pytest.mark.slow
def test_delays_by_carrier_and_hour(spark: SparkSession, own_broker: BrokerProcess, tmp_path: Path) -> None:
    rows = list(islice(flights(), ROWS))
    table = run(spark, own_broker.bootstrap, tmp_path, rows).collect()

    west = {row["faa"] for row in csv.DictReader((data_folder() / "airports.csv").open()) if float(row["lon"]) < -100}
    rainy = {
        (row["origin"], row["time_hour"])
        for row in csv.DictReader((data_folder() / "weather.csv").open())
        if row["precip"] not in ("NA", "") and float(row["precip"]) > 0
    }
    expected: dict[tuple[str, int], Counter[str]] = {}
    for carrier, text in rows:
        flight = json.loads(text)
        counts = expected.setdefault((carrier, int(flight["hour"])), Counter())
        counts["flights"] += 1
        counts["in_rain"] += (flight["origin"], flight["time_hour"]) in rainy
        counts["to_the_west"] += flight["dest"] in west
        if flight["dep_delay"] not in ("NA", ""):
            counts["departed"] += 1
            counts["delay_minutes"] += int(flight["dep_delay"])

    names = ("flights", "departed", "in_rain", "to_the_west")
    assert {(row.carrier, row.hour): [row[name] for name in names] for row in table} == {
        place: [counts[name] for name in names] for place, counts in expected.items()
    }
    assert {(row.carrier, row.hour): row.delay_minutes or 0 for row in table} == {
        place: counts["delay_minutes"] for place, counts in expected.items()
    }
    assert sum(row.flights for row in table) == ROWS
    picture = ElementTree.parse(tmp_path / "delays.svg").getroot()
    assert len(picture.findall(".//{*}title")) == len(table)
