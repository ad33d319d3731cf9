"""The parts of the differential tests that need no broker: references, normalising, comparing, shrinking, files."""

from __future__ import annotations

import dataclasses
import itertools
import json
import random
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from compat_tests.differential.areas import AREAS, written
from compat_tests.differential.areas.topics import BAD_NAMES
from compat_tests.differential.batches import described_batches
from compat_tests.differential.clean_up import clean_up
from compat_tests.differential.compare import Difference, compared, death
from compat_tests.differential.declared import Declaration, Declared
from compat_tests.differential.history import History, Step
from compat_tests.differential.normalise import Normaliser
from compat_tests.differential.planted_faults import FAULTS, owner_of
from compat_tests.differential.playing.connection import CLOSED, Outcome
from compat_tests.differential.playing.nodes import NODES
from compat_tests.differential.playing.routes import Routes, first_partition
from compat_tests.differential.playing.settling import internal_topics_made
from compat_tests.differential.run import Run
from compat_tests.differential.shrink import shrunk
from compat_tests.differential.spread import AREAS as SPREAD_AREAS
from compat_tests.differential.spread import OF_ONE_NODE, spread, started_again
from compat_tests.differential.stray import strayed
from compat_tests.differential.values import Values
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.frames import build_request_frame
from ottla.kproto.internal_records.consumer_protocol import ConsumerProtocolSubscription, parse_consumer_protocol
from ottla.kproto.messages import request_class
from ottla.kproto.messages.data.fetch import FetchRequest
from ottla.kproto.messages.data.produce import ProduceRequest
from ottla.kproto.messages.groups.heartbeat import HeartbeatRequest
from ottla.kproto.messages.groups.offset_commit import OffsetCommitRequest

PREFIX = "dabcd-000001-"
NOW_MS = 1_700_000_000_000


class Played:
    """A broker's answers, as a player has them."""

    def __init__(self, *answers: Any) -> None:
        self.now_ms = NOW_MS
        self.new_epoch = 0
        self.outcomes = {
            number: each if isinstance(each, Outcome) else Outcome("answered", each)
            for number, each in enumerate(answers)
        }


def differences(api: str, kafka: Any, ottla: Any, **fields: Any) -> list[tuple[str, Any, Any]]:
    step = Step(id=0, api=api, fields=fields)
    found = compared((step,), Played(kafka), Played(ottla), PREFIX)  # type: ignore[arg-type]
    return [(each.path, each.kafka, each.ottla) for each in found]


# References


def test_a_reference_is_what_the_broker_answered_or_the_value_beside_it() -> None:
    values = Values(PREFIX)
    values.answers[3] = {"results": [{"producer_id": 7, "topic_id": None}]}
    reference = {"$ref": [3, "results.0.producer_id"], "else": -1}
    assert values.resolved(reference) == 7
    assert values.resolved(reference | {"plus": 2}) == 9
    assert values.resolved({"$ref": [3, "results.1.producer_id"], "else": -1}) == -1
    assert values.resolved({"$ref": [3, "results.0.topic_id"], "else": "~t"}) == f"{PREFIX}t"
    assert values.resolved({"$ref": [4, "member_id"], "else": "~m"}) == f"{PREFIX}m"


def test_fields_that_a_version_has_not_are_left_out_and_unknown_ones_refused() -> None:
    values = Values(PREFIX)
    fields = {"group_id": "~g", "generation_id": 1, "member_id": "m", "group_instance_id": "i"}
    assert values.message(HeartbeatRequest, fields, 2).group_instance_id is None
    assert values.message(HeartbeatRequest, fields, 3).group_instance_id == "i"
    with pytest.raises(LookupError, match="no field group"):
        values.message(HeartbeatRequest, {"group": "~g"}, 3)


def test_a_leader_epoch_that_is_only_kept_is_the_same_for_both_brokers() -> None:
    """Others count from that of a new topic, which is the broker's own."""
    fields = {"topics": [{"partitions": [{"committed_leader_epoch": 0}]}]}
    changed = [strayed(random.Random(seed), OffsetCommitRequest, fields, 9)[0] for seed in range(400)]
    told = {str(each["topics"][0]["partitions"][0]["committed_leader_epoch"]) for each in changed if _is_whole(each)}
    assert {"0", "1", "-1"} <= told
    assert not any("$epoch" in each for each in told)


def test_the_epoch_of_what_was_fetched_last_counts_from_that_of_a_new_topic() -> None:
    fields = {"topics": [{"partitions": [{"last_fetched_epoch": -1}]}]}
    changed = [strayed(random.Random(seed), FetchRequest, fields, 12)[0] for seed in range(2_000)]
    told = [each["topics"][0]["partitions"][0]["last_fetched_epoch"] for each in changed if _is_whole(each)]
    assert {"$epoch": 1} in told
    assert 1 not in told


def _is_whole(fields: dict[str, Any]) -> bool:
    return bool(fields["topics"] and fields["topics"][0]["partitions"])


def test_a_string_that_is_not_utf_8_is_put_into_the_frame() -> None:
    values = Values(PREFIX)
    message = values.message(HeartbeatRequest, {"group_id": {"$raw": "ff61fe"}, "member_id": {"$raw": "c328"}}, 0)
    frame = values.patched(build_request_frame(message, 0, 1, "wire"))
    assert b"\x00\x03\xff\x61\xfe" in frame
    assert b"\x00\x02\xc3\x28" in frame


def test_batches_and_subscriptions_are_built_with_this_plays_names() -> None:
    values = Values(PREFIX)
    values.answers[0] = {"producer_id": 41}
    spec = {"values": ["~one", None], "producer_id": {"$ref": [0, "producer_id"], "else": 5}, "epoch": 0, "sequence": 0}
    partition = {"index": 0, "records": {"$batches": [spec]}}
    message = values.message(ProduceRequest, {"topic_data": [{"name": "~t", "partition_data": [partition]}]}, 9)
    (batch,) = described_batches(message.topic_data[0].partition_data[0].records)
    assert batch["producer_id"] == 41
    assert [record[3] for record in batch["rows"]] == [f"{PREFIX}one".encode(), None]
    data = values.resolved({"$subscription": {"version": 1, "as": 9, "topics": ["~t"]}})
    assert data[:2] == b"\0\x09"
    assert parse_consumer_protocol(ConsumerProtocolSubscription, b"\0\1" + data[2:]).topics == [f"{PREFIX}t"]


# What is waited for


def test_internal_topics_that_a_heartbeat_found_missing_are_waited_for_by_name() -> None:
    def told(detail: str, code: int = 3) -> list[str]:
        return internal_topics_made({"status": [{"status_code": code, "status_detail": detail}]})

    assert told("Internal topics are missing: a-changelog, b-repartition") == ["a-changelog", "b-repartition"]
    assert told("Internal topics are missing: a-changelog; Creation failed: a-changelog (no room).") == []
    assert told("Source topics ~t0 are missing.", 1) == []
    assert internal_topics_made({"status": None}) == []
    assert internal_topics_made(None) == []


# Normalising and comparing


def test_ids_are_named_in_the_order_in_which_they_appear() -> None:
    normaliser = Normaliser(PREFIX, NOW_MS)
    one, other = uuid4(), uuid4()

    def asked(api: str, **answer: Any) -> Any:
        return normaliser.answer(Step(id=0, api=api), answer)

    assert asked("JOIN_GROUP", member_id=f"wire-{one}", leader=f"{PREFIX}i-{other}") == {
        "member_id": "wire-member 1",
        "leader": "~i-member 2",
    }
    assert asked("JOIN_GROUP", member_id=f"wire-{other}") == {"member_id": "wire-member 2"}
    assert asked("INIT_PRODUCER_ID", producer_id=1000) == {"producer_id": "producer 1"}
    assert asked("INIT_PRODUCER_ID", producer_id=-1) == {"producer_id": -1}
    assert asked("METADATA", topic_id=one) == {"topic_id": "topic 1"}
    assert asked("METADATA", topic_id=UUID(int=0)) == {"topic_id": "none"}


def test_the_id_of_a_topic_is_called_after_its_name_whatever_was_told_before() -> None:
    created = Step(id=1, api="CREATE_TOPICS", fields={"topics": [{"name": "~t"}]})
    told_more, told_less = Normaliser(PREFIX, NOW_MS), Normaliser(PREFIX, NOW_MS)
    told_more.answer(Step(id=0, api="METADATA", fields={"topics": [{}]}), {"topics": [], "topic_id": uuid4()})
    told_more.answer(created, {"topics": [{"name": f"{PREFIX}t", "topic_id": UUID(int=0), "error_code": 3}]})
    for number in (1, 2):
        for normaliser in (told_more, told_less):
            answer = normaliser.answer(created, {"topics": [{"name": f"{PREFIX}t", "topic_id": uuid4()}]})
            assert answer == {"topics": [{"name": "~t", "topic_id": f"topic {number} of ~t"}]}


def test_a_topic_that_one_broker_refuses_differs_in_its_code_alone() -> None:
    made = {"topics": [{"name": f"{PREFIX}t", "topic_id": uuid4(), "error_code": 0}]}
    refused = {"topics": [{"name": f"{PREFIX}t", "topic_id": UUID(int=0), "error_code": 40}]}
    assert differences("CREATE_TOPICS", made, refused) == [("topics[].error_code", 0, 40)]


def test_a_member_that_one_broker_refuses_differs_in_its_code_alone() -> None:
    taken, refused = {"error_code": 0, "member_id": "wire-1"}, {"error_code": -1, "member_id": ""}
    assert differences("JOIN_GROUP", refused, taken) == [("error_code", -1, 0)]


def test_leader_epochs_count_from_that_of_a_new_topic() -> None:
    normaliser = Normaliser(PREFIX, NOW_MS, new_epoch=4)
    step = Step(id=0, api="FETCH")
    assert normaliser.answer(step, {"leader_epoch": 5, "current_leader_epoch": 4}) == {
        "leader_epoch": 1,
        "current_leader_epoch": 0,
    }
    assert normaliser.answer(step, {"leader_epoch": -1, "coordinator_epoch": 4}) == {
        "leader_epoch": -1,
        "coordinator_epoch": 4,
    }
    values = Values(PREFIX)
    assert values.resolved({"$epoch": 1}) == 1
    values.new_epoch = 4
    assert values.resolved({"$epoch": 1}) == 5


def test_time_wording_and_what_belongs_to_the_broker_go_and_nothing_else() -> None:
    kafka = {"throttle_time_ms": 3, "error_message": "no", "start_ms": NOW_MS + 5, "port": 1, "error_code": 4}
    ottla = {"throttle_time_ms": 0, "error_message": "never", "start_ms": NOW_MS - 5, "port": 2, "error_code": 4}
    assert differences("FIND_COORDINATOR", kafka, ottla) == []
    assert differences("FIND_COORDINATOR", kafka, ottla | {"error_code": 5}) == [("error_code", 4, 5)]
    assert differences("FIND_COORDINATOR", kafka, ottla | {"error_message": None}) == [("error_message", "...", None)]
    assert differences("FIND_COORDINATOR", kafka, ottla | {"start_ms": -1}) == [("start_ms", "now", -1)]


def test_a_hash_tables_order_goes_and_the_requests_order_stays() -> None:
    one, other = {"name": f"{PREFIX}a", "error_code": 0}, {"name": f"{PREFIX}b", "error_code": 3}
    assert differences("CREATE_TOPICS", {"topics": [one, other]}, {"topics": [other, one]}) == []
    order = [("topics[]", "in one order", "in another order")]
    asked = {"topics": [{"name": "~a"}, {"name": "~b"}]}
    assert differences("OFFSET_FETCH", {"topics": [one, other]}, {"topics": [other, one]}, **asked) == order
    lacks = differences("CREATE_TOPICS", {"topics": [one, other]}, {"topics": [one]})
    assert lacks == [("topics[]", 'has {"name": a name}', "has nothing more")]


def test_what_is_said_of_an_element_does_not_decide_its_place() -> None:
    def topics(code: int) -> dict[str, Any]:
        names = [{"error_code": code, "name": f"{PREFIX}b"}, {"error_code": 17, "name": f"{PREFIX}a"}]
        return {"topics": names}

    assert differences("METADATA", topics(3), topics(0), topics=[{"name": "~a"}]) == [("topics[].error_code", 3, 0)]
    assert differences("METADATA", topics(3), topics(42), topics=[{"name": "~a"}]) == [("topics[].error_code", 3, 42)]


def test_what_other_histories_left_is_not_listed() -> None:
    others = {"groups": [{"group_id": "dabcd-000002-g"}, {"group_id": f"{PREFIX}g"}]}
    assert differences("LIST_GROUPS", others, {"groups": [{"group_id": f"{PREFIX}g"}]}) == []


def test_offsets_that_other_histories_gave_a_group_of_all_are_not_compared() -> None:
    def fetched(group: str, offset: int) -> dict[str, Any]:
        topics = [{"name": f"{PREFIX}t", "partitions": [{"partition_index": 0, "committed_offset": offset}]}]
        return {"groups": [{"group_id": group, "topics": topics}], "topics": []}

    def differ(group: str) -> bool:
        return bool(differences("OFFSET_FETCH", fetched(group, 1), fetched(group, 2)))

    assert differ(f"{PREFIX}g")
    assert not differ("")


@pytest.mark.parametrize("name", ["kafka-cluster", "*"])
def test_rules_that_other_histories_gave_a_resource_of_all_are_not_listed(name: str) -> None:
    own, others = ({"principal": f"User:{prefix}bob", "host": "*"} for prefix in (PREFIX, "dabcd-000002-"))
    resources = [[{"resource_name": name, "acls": acls}] for acls in ([own], [others, own])]
    assert differences("DESCRIBE_ACLS", {"resources": resources[0]}, {"resources": resources[1]}) == []
    lacks = differences("DESCRIBE_ACLS", {"resources": resources[0]}, {"resources": []})
    assert lacks == [("resources[]", f'has {{"resource_name": "{name}"}}', "has nothing more")]


def test_rules_of_a_resource_of_its_own_are_all_listed() -> None:
    acls = [{"principal": "User:*", "host": "*"}, {"principal": f"User:{PREFIX}bob", "host": "*"}]
    resources = [[{"resource_name": f"{PREFIX}res", "acls": each}] for each in (acls, acls[1:])]
    found = differences("DESCRIBE_ACLS", {"resources": resources[0]}, {"resources": resources[1]})
    assert found == [("resources[].acls[]", "has {}", "has nothing more")]


def test_whether_the_connection_lives_is_compared() -> None:
    (found,) = differences("HEARTBEAT", {"error_code": 25}, Outcome(CLOSED))
    assert found == ("", "answered 25", "closed")


def test_a_key_does_not_depend_on_names_and_offsets_but_on_codes() -> None:
    step = Step(id=0, api="OFFSET_FETCH")

    def key(path: str, kafka: Any, ottla: Any) -> tuple[str, str, str, str]:
        return Difference(step, path, kafka, ottla).key

    assert key("offset", 5, 8) == key("offset", 9, 1)
    assert key("offset", 5, -1) != key("offset", 5, 1)
    assert key("error_code", 5, 8) != key("error_code", 5, 9)
    assert key("name", "~a", "~b") == key("name", "~c", "~d")
    assert key("id", "member 1", "") == key("id", "member 2", "")
    assert key("id", "topic 1 of ~t0", "none") == key("id", "topic 2 of ~t1", "none")


def test_a_death_is_told_by_the_last_error_of_the_log() -> None:
    found = death("ottla", "  | File x\n    | AssertionError: no votes\n    +-----")
    assert (found.kafka, found.ottla) == ("lives", "ended: AssertionError: no votes")


def test_declarations_cover_what_they_name_and_tell_when_nothing_needs_them() -> None:
    declared = Declared(
        [
            Declaration("OFFSET_FETCH", "r", "w", path="groups[].topics[]*", kafka="*", request='"t1"'),
            Declaration("METADATA", "r", "w"),
        ]
    )
    step = Step(id=0, api="OFFSET_FETCH", fields={"topics": ["t1"]})
    assert declared.covers(Difference(step, "groups[].topics[].name", 1, 2))
    assert not declared.covers(Difference(step, "error_code", 1, 2))
    assert not declared.covers(Difference(Step(id=0, api="OFFSET_FETCH"), "groups[].topics[].name", 1, 2))
    assert [each.api for each in declared.unneeded] == ["METADATA"]


def test_what_follows_a_declared_difference_is_not_looked_at() -> None:
    ending = Declaration("PRODUCE", "r", "w", path="error_code", ends=True)
    declared = Declared([ending, Declaration("METADATA", "r", "w")])

    def differ(step: int, api: str, path: str = "error_code") -> Difference:
        return Difference(Step(id=step, api=api), path, 1, 2)

    before, declared_one = differ(1, "FETCH"), differ(2, "METADATA")
    end, of_the_same_step, after = differ(3, "PRODUCE"), differ(3, "PRODUCE", "offset"), differ(4, "FETCH")
    assert declared.undeclared([before, declared_one, end, of_the_same_step, after]) == [before, of_the_same_step]
    assert declared.ends([before, end])
    assert not declared.ends([before, declared_one])


def test_a_declaration_may_need_a_request_that_was_cut() -> None:
    declaration = Declaration(api="HEARTBEAT", reason="", row="", after='"cut_bytes": ')
    cut, whole = Step(id=0, api="HEARTBEAT", cut_bytes=3), Step(id=0, api="HEARTBEAT")
    last = Step(id=1, api="HEARTBEAT")
    assert declaration.covers(Difference(last, "error_code", 0, 122, (cut,)))
    assert not declaration.covers(Difference(last, "error_code", 0, 122, (whole,)))


def test_a_declaration_may_need_requests_in_their_order() -> None:
    declaration = Declaration(api="METADATA", reason="", row="", after=r"^a HEARTBEAT .*-1[\s\S]*^c JOIN_GROUP ")
    left = Step(id=0, api="HEARTBEAT", fields={"member_epoch": -1})
    joined = Step(id=1, connection="c", api="JOIN_GROUP")
    last = Step(id=2, api="METADATA")
    assert declaration.covers(Difference(last, "error_code", 0, 3, (left, joined)))
    assert not declaration.covers(Difference(last, "error_code", 0, 3, (joined, left)))


def test_declarations_hold_for_requests_whose_fields_were_dropped() -> None:
    declared = Declared.load()
    fetched = Step(id=0, api="SHARE_FETCH", fields={"max_wait_ms": 400})
    ranges = ("responses[].partitions[].acquired_records[]", "has {}", "has nothing more")
    assert declared.covers(Difference(fetched, *ranges))
    full = dataclasses.replace(fetched, fields={"batch_size": 500})
    assert not declared.covers(Difference(full, *ranges))
    last = Step(id=1, api="JOIN_GROUP")
    for protocols, is_declared in (([{}, {}], True), ([{"name": "a"}, {"metadata": ""}, {}], True), ([{}], False)):
        joined = Step(id=0, api="JOIN_GROUP", fields={"protocols": protocols})
        assert declared.covers(Difference(last, "", "answered 23", "waiting", (joined,))) is is_declared


def test_each_declared_difference_has_its_row_in_the_documentation() -> None:
    docs = Path(__file__).resolve().parents[2] / "docs"
    pages = [docs / "compatibility.md", *sorted((docs / "decisions").glob("*.md"))]
    text = "\n".join(page.read_text() for page in pages)
    for declaration in Declared.load():
        assert declaration.reason
        assert declaration.row in text, declaration


# Shrinking


class OneDifference:
    """Stands for a pair of brokers whose answers to each request differ in their code."""

    def differences(self, history: History, **_options: Any) -> list[Difference]:
        return [Difference(step, "error_code", -1, 0) for step in history.steps]

    def ended(self) -> None:
        """Both live."""


class LateDifference(OneDifference):
    """One whose answers differ a few times, and then no more."""

    def __init__(self, times: int) -> None:
        self._times = times

    def differences(self, history: History, **options: Any) -> list[Difference]:
        self._times -= 1
        return super().differences(history, **options) if self._times >= 0 else []


@pytest.mark.parametrize(("times", "is_found"), [(1, False), (2, False), (3, True)])
def test_a_difference_is_looked_at_again_twice(*, times: int, is_found: bool) -> None:
    pair: Any = LateDifference(times)
    run = Run(pair, Declared([]), shrinks=False, say=lambda _: None)
    run.play_alone(History("share_groups", 0, (Step(id=0, api="HEARTBEAT"),)))
    assert bool(run.findings) is is_found
    assert bool(run.unconfirmed) is not is_found


def test_a_history_is_not_shrunk_to_what_is_declared() -> None:
    declared = Declared([Declaration("SHARE_FETCH", "r", "w", request="^{}$|zero"), Declaration("HEARTBEAT", "r", "w")])
    pair: Any = OneDifference()
    run = Run(pair, declared, say=lambda _: None)
    steps = [
        Step(id=0, api="HEARTBEAT"),
        Step(id=1, api="SHARE_FETCH", fields={"topics": ["zero"]}),
        Step(id=2, api="SHARE_FETCH", fields={"topics": ["one", "other"]}),
    ]
    run.play_alone(history(*steps))
    (finding,) = run.findings.values()
    assert [step.fields for step in finding.history.steps] == [{"topics": []}]


def history(*steps: Step) -> History:
    return History("offsets", 1, steps, topics=("~t",), groups=("~g",))


def test_steps_and_fields_that_are_not_needed_are_dropped() -> None:
    fields = {"topics": [{"name": "~a"}, {"name": "~b", "partitions": [0, 1, 2]}], "group_id": "~g"}
    steps = [Step(id=number, api="OFFSET_FETCH", fields=fields) for number in range(20)]

    def shows(candidate: History) -> bool:
        asked = {step.id: step.fields for step in candidate.steps}
        topics = asked.get(13, {}).get("topics", [])
        return 5 in asked and any(1 in topic.get("partitions", []) for topic in topics)

    small = shrunk(history(*steps), shows)
    assert [(step.id, step.fields) for step in small.steps] == [(5, {}), (13, {"topics": [{"partitions": [1]}]})]
    assert (small.topics, small.groups) == ((), ())


def test_waits_for_the_end_of_a_transaction_are_not_dropped() -> None:
    wait = Step(id=3, wait_ms=500, wait_for="an end", until_ended="~x")
    steps = [wait if number == 3 else Step(id=number, api="END_TXN") for number in range(8)]
    assert [step.id for step in shrunk(history(*steps), lambda _: True).steps] == [3]


def test_no_more_is_tried_than_allowed() -> None:
    tries = 0

    def shows(_: History) -> bool:
        nonlocal tries
        tries += 1
        return False

    steps = [Step(id=number, api="METADATA") for number in range(20)]
    assert shrunk(history(*steps), shows, most_tries=7).steps == tuple(steps)
    assert tries == 7


# Histories


@pytest.mark.parametrize("area", AREAS)
def test_a_seed_makes_one_history_that_a_file_keeps_and_every_request_of_it_can_be_built(
    area: str, tmp_path: Path
) -> None:
    sent = 0
    for seed in range(20):
        made = written(area, seed)
        assert made == written(area, seed)
        made.save(tmp_path / "history.json")
        assert json.loads(json.dumps(made.to_json())) == History.load(tmp_path / "history.json").to_json()
        values = Values(PREFIX)
        for step in (*made.steps, *clean_up(made)):
            if step.api:
                values.message(request_class(ApiKey[step.api]), step.fields, step.version)
                sent += 1
    assert sent > 200
    assert written(area, 1) != written(area, 2)


def test_a_transaction_that_may_time_out_has_ended_before_anybody_looks() -> None:
    """Otherwise it depends on the pace at which step it has timed out."""
    looked = 0
    for made in (written("transactions", seed) for seed in range(60)):
        if any(step.until_ended for step in made.steps) and len(made.transactional_ids) == 1:
            for before, step in itertools.pairwise(made.steps):
                if step.api in _LOOKS and before.api not in _LOOKS and "~x0" in str(before):
                    assert before.until_ended, (made.seed, before)
                    looked += 1
    assert looked > 10


_LOOKS = (
    "FETCH", "LIST_OFFSETS", "DESCRIBE_TRANSACTIONS", "LIST_TRANSACTIONS", "DESCRIBE_PRODUCERS", "OFFSET_FETCH",
    "WRITE_TXN_MARKERS",
)  # fmt: skip


def test_the_longest_name_of_a_topic_is_just_short_enough() -> None:
    longest, too_long = (name for name in BAD_NAMES if name.startswith("~n"))
    assert [len(name.replace("~", PREFIX)) for name in (longest, too_long)] == [249, 250]


@pytest.mark.parametrize("name", FAULTS)
def test_what_a_planted_fault_replaces_is_there(name: str) -> None:
    owner, attribute = owner_of(FAULTS[name])
    assert callable(getattr(owner, attribute))
    assert FAULTS[name].area in AREAS


# Three nodes


@pytest.mark.parametrize("area", list(SPREAD_AREAS))
def test_a_history_for_three_nodes_is_always_the_same_and_leaves_its_own_steps_in_order(area: str) -> None:
    for seed in range(20):
        history = written(area, seed)
        one, other = spread(history), spread(history)
        assert one == other
        own = [step.id for step in one.steps if step.id < 50_000]
        assert own == [step.id for step in history.steps if step.api not in OF_ONE_NODE]
        created = [topic for step in one.steps if step.api == "CREATE_TOPICS" for topic in step.fields["topics"] or ()]
        assert all(
            topic["assignments"] or min(topic["replication_factor"], topic["num_partitions"]) < 1 for topic in created
        )


def test_a_node_is_killed_and_started_while_no_answer_is_awaited() -> None:
    killed = 0
    for seed in range(40):
        waiting: set[str] = set()
        down: int | None = None
        for step in spread(written("records", seed)).steps:
            if step.kill or step.start:
                assert not waiting
                assert (down is None) is bool(step.kill)
                down = step.kill or None
                killed += 1
            elif step.may_wait:
                waiting.add(step.connection)
            else:
                waiting.discard(step.connection)
        assert down is None
    assert killed


@pytest.mark.parametrize("area", ["classic_groups", "consumer_groups"])
def test_a_node_that_is_killed_does_not_coordinate_the_group_whose_members_are_there(area: str) -> None:
    histories = [spread(written(area, seed)) for seed in range(40)]
    spared = {(step.spares, history.groups[0]) for history in histories for step in history.steps if step.kill}
    assert spared == {("~g0", "~g0")}
    # It is not the same on both brokers, so an election would not be, either.
    kills = {each.seed for each in histories if any(step.kill for step in each.steps)}
    elects = {each.seed for each in histories if any(step.api == "ELECT_LEADERS" for step in each.steps)}
    assert kills
    assert elects
    assert not kills & elects


def test_what_a_part_of_a_history_kills_is_started_again() -> None:
    killed, again = (Step(id=number, kill=node) for number, node in ((0, 1), (2, 3)))
    started = Step(id=1, start=1)
    assert started_again((killed, started)) == ()
    assert [step.start for step in started_again((killed, started, again))] == [3]
    assert [step.start for step in started_again((again, killed))] == [1, 3]


class ThreeNodes:
    """Stands for nodes of which one coordinates every group."""

    def __init__(self) -> None:
        self.live = set(NODES)

    def address(self, node_id: int) -> tuple[str, int]:
        return "127.0.0.1", node_id

    def kill_node(self, node_id: int) -> None:
        self.live.discard(node_id)

    def start_node(self, node_id: int) -> None:
        self.live.add(node_id)


@pytest.mark.parametrize(("asked", "killed"), [(1, 1), (2, 3), (3, 3)])
def test_the_next_node_is_killed_in_the_place_of_the_coordinator(
    monkeypatch: pytest.MonkeyPatch, asked: int, killed: int
) -> None:
    nodes = ThreeNodes()
    routes = Routes(nodes, Values(PREFIX))
    monkeypatch.setattr(routes, "_coordinator", lambda _kind, _group: nodes.address(2))
    monkeypatch.setattr(routes, "_until", lambda _is_so: None)
    assert routes.kill(asked, spares="~g") == nodes.address(killed)
    assert set(NODES) - nodes.live == {killed}
    for _ in range(2):
        routes.start(asked)
        assert nodes.live == set(NODES)


@pytest.mark.parametrize(
    ("api", "fields", "asked"),
    [
        ("PRODUCE", {"topic_data": [{"name": "~t", "partition_data": [{"index": 3}]}]}, (f"{PREFIX}t", 3)),
        ("FETCH", {"topics": [{"topic": "~t", "partitions": [{"partition": 1}]}]}, (f"{PREFIX}t", 1)),
        ("LIST_OFFSETS", {"topics": [{"name": "~t", "partitions": [{"partition_index": 0}]}]}, (f"{PREFIX}t", 0)),
        ("DESCRIBE_PRODUCERS", {"topics": [{"name": "~t", "partition_indexes": [2]}]}, (f"{PREFIX}t", 2)),
        ("FETCH", {"topics": []}, (None, -1)),
    ],
)
def test_a_request_goes_to_the_leader_of_the_first_partition_that_it_names(
    api: str, fields: dict[str, Any], asked: tuple[Any, int]
) -> None:
    request = Values(PREFIX).message(request_class(ApiKey[api]), fields, 4 if api != "DESCRIBE_PRODUCERS" else 0)
    assert first_partition(request) == asked


def test_of_several_nodes_it_does_not_matter_which_one_it_is() -> None:
    kafka = {"leader_id": 1, "replica_nodes": [1, 2], "isr_nodes": [1], "leader_epoch": 4}
    ottla = {"leader_id": 3, "replica_nodes": [3, 1], "isr_nodes": [3], "leader_epoch": 9}
    step = Step(id=0, api="METADATA")
    nodes = [Normaliser(PREFIX, NOW_MS, of_nodes=True).answer(step, each) for each in (kafka, ottla)]
    assert nodes[0] == nodes[1]
    lacking = Normaliser(PREFIX, NOW_MS, of_nodes=True).answer(step, ottla | {"isr_nodes": [], "leader_id": -1})
    assert lacking["isr_nodes"] != nodes[0]["isr_nodes"]
    assert lacking["leader_id"] == -1


def test_the_epoch_at_which_logs_part_counts_from_that_of_a_new_topic() -> None:
    normaliser = Normaliser(PREFIX, NOW_MS, new_epoch=2)
    answer = {"diverging_epoch": {"epoch": 2, "end_offset": 5}}
    assert normaliser.answer(Step(id=0, api="FETCH"), answer) == {"diverging_epoch": {"epoch": 0, "end_offset": 5}}


def test_what_a_client_has_said_of_an_epoch_is_not_counted_from_another() -> None:
    normaliser = Normaliser(PREFIX, NOW_MS, new_epoch=2)
    assert normaliser.answer(Step(id=0, api="OFFSET_FETCH"), {"committed_leader_epoch": 5}) == {
        "committed_leader_epoch": 5
    }


def test_an_epoch_that_a_broker_tells_the_share_coordinator_is_compared_as_it_is() -> None:
    normaliser = Normaliser(PREFIX, NOW_MS, new_epoch=2)
    answer = {"leader_epoch": 3, "state_epoch": 1}
    assert normaliser.answer(Step(id=0, api="READ_SHARE_GROUP_STATE_SUMMARY"), answer) == answer
