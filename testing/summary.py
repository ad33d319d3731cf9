"""What a broker or a cluster holds, in a few lines: for the report of a failed test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.testing.errors import BrokerError
from ottla.testing.external import ExternalBroker

if TYPE_CHECKING:
    from ottla.testing.broker import Broker
    from ottla.testing.cluster import Cluster
    from ottla.testing.faults.plan import Fault
    from ottla.testing.record import Record

_MAX_TOPICS: Final = 20
_LAST_RECORDS: Final = 3
_MAX_CHARACTERS: Final = 100


def summary(broker: Broker | Cluster | ExternalBroker) -> str:
    """Its topics with their last records, its groups with their lag, and faults that never struck; or why all this is
    unknown.
    """
    if not broker.is_running:
        return "the broker was stopped"
    try:
        lines = [f"{broker.bootstrap}"]
        topics = list(broker.topics().items())
        for name, partitions in topics[:_MAX_TOPICS]:
            records, offsets = broker.last_records(name, _LAST_RECORDS)
            lines.append(f"topic {name}: {partitions} partitions, {offsets} offsets")
            lines += [f"    {_line(record)}" for record in records]
        if len(topics) > _MAX_TOPICS:
            lines.append(f"and {len(topics) - _MAX_TOPICS} more topics")
        for group in broker.groups().values():
            lag = sum(group.lag.values())
            lines.append(f"group {group.name}: {group.state}, {len(group.members)} members, {lag} records behind")
        # What another Kafka lacks skips the test that asks for it.
        if not isinstance(broker, ExternalBroker) and (faults := getattr(broker, "faults", None)):
            lines += [f"fault that never struck: {_fault(fault)}" for fault in faults.unstruck]
    except BrokerError as error:
        return f"the broker does not answer: {error}"
    return "\n".join(lines)


def _fault(fault: Fault) -> str:
    what = fault.kind.value.replace("_", " ")
    error = f" with {fault.error_code.name}" if fault.error_code else ""
    api = "any request" if fault.api is None else fault.api.kafka_name
    where = "" if fault.topic is None else f" of {fault.topic}"
    return f"{what} {api}{where}{error}{'' if fault.partition is None else f', partition {fault.partition}'}"


def _line(record: Record) -> str:
    text = f"{record.partition}:{record.offset} key={_short(record.key)} value={_short(record.value)}"
    return text if not record.headers else f"{text} headers={len(record.headers)}"


def _short(data: bytes | None) -> str:
    text = "None" if data is None else repr(data)[1:]
    return text if len(text) <= _MAX_CHARACTERS else text[:_MAX_CHARACTERS] + "…"
