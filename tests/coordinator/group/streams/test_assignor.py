"""The sticky assignor of streams groups: each task once active, standbys elsewhere, balance, nothing moved in vain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from hypothesis import given
from hypothesis import strategies as st

from ottla.coordinator.group.streams.assignor import (
    NO_TASKS,
    StreamsMemberSpec,
    SubtopologySpec,
    Task,
    Tasks,
    TaskSet,
    sticky_assignor,
)

Assignment = Mapping[str, TaskSet]

SUBTOPOLOGIES = st.dictionaries(
    st.sampled_from("012"), st.builds(SubtopologySpec, st.integers(1, 9), st.booleans()), min_size=1
)


@st.composite
def members(draw: st.DrawFn) -> list[StreamsMemberSpec]:
    processes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    return [
        StreamsMemberSpec(f"{process}-{number}", f"p{process}")
        for process, count in enumerate(processes)
        for number in range(count)
    ]


def each(tasks: Tasks) -> Iterable[Task]:
    return ((name, index) for name, indexes in tasks.items() for index in indexes)


def again(specs: Iterable[StreamsMemberSpec], assigned: Assignment) -> list[StreamsMemberSpec]:
    return [spec._replace(current=assigned.get(spec.member_id, NO_TASKS)) for spec in specs]


def check(
    specs: list[StreamsMemberSpec], subtopologies: Mapping[str, SubtopologySpec], standbys: int, assigned: Assignment
) -> None:
    """What holds of every assignment."""
    process_of = {spec.member_id: spec.process_id for spec in specs}
    assert assigned.keys() == process_of.keys()
    tasks = {(name, index) for name, spec in subtopologies.items() for index in range(spec.task_count)}
    active = Counter(task for given in assigned.values() for task in each(given.active))
    assert active == Counter(tasks)
    copies = Counter(
        (task, process_of[member_id])
        for member_id, given in assigned.items()
        for role in (given.active, given.standby)
        for task in each(role)
    )
    assert set(copies.values()) <= {1}
    wanted = min(standbys, len(set(process_of.values())) - 1)
    found = Counter(task for given in assigned.values() for task in each(given.standby))
    assert found == Counter({task: wanted for task in tasks if subtopologies[task[0]].is_stateful and wanted})
    assert not any(given.warmup for given in assigned.values())


@given(members(), SUBTOPOLOGIES, st.integers(0, 3))
def test_every_task_has_one_active_member_and_its_standbys_elsewhere(
    specs: list[StreamsMemberSpec], subtopologies: dict[str, SubtopologySpec], standbys: int
) -> None:
    assigned = sticky_assignor(specs, subtopologies, standbys)
    check(specs, subtopologies, standbys, assigned)
    counts = Counter({spec.process_id: 0 for spec in specs})
    sizes = Counter(spec.process_id for spec in specs)
    for spec in specs:
        counts[spec.process_id] += sum(1 for _ in each(assigned[spec.member_id].active))
    # A process that has more for each of its members than another one would not have been given the last of it.
    loads = [(counts[process] - 1) / size for process, size in sizes.items() if counts[process]]
    assert max(loads, default=0) <= min(counts[process] / size for process, size in sizes.items())
    for process, size in sizes.items():
        mine = [sum(1 for _ in each(assigned[s.member_id].active)) for s in specs if s.process_id == process]
        assert max(mine) - min(mine) <= 1, (process, size)


@given(members(), SUBTOPOLOGIES, st.integers(0, 2))
def test_what_fits_stays(
    specs: list[StreamsMemberSpec], subtopologies: dict[str, SubtopologySpec], standbys: int
) -> None:
    first = sticky_assignor(specs, subtopologies, standbys)
    second = sticky_assignor(again(specs, first), subtopologies, standbys)
    assert {member: given.active for member, given in second.items()} == {
        member: given.active for member, given in first.items()
    }


@given(members(), SUBTOPOLOGIES, st.integers(0, 2), st.data())
def test_only_what_has_to_moves_when_members_come_and_go(
    specs: list[StreamsMemberSpec], subtopologies: dict[str, SubtopologySpec], standbys: int, data: st.DataObject
) -> None:
    assigned = sticky_assignor(specs, subtopologies, standbys)
    left = data.draw(st.lists(st.sampled_from(specs), unique_by=lambda spec: spec.member_id, min_size=1))
    new = data.draw(st.lists(st.sampled_from(["n1", "n2", "n3"]), unique=True))
    now = again([*left, *(StreamsMemberSpec(member, member) for member in new)], assigned)
    after = sticky_assignor(now, subtopologies, standbys)
    check(now, subtopologies, standbys, after)
    total = sum(spec.task_count for spec in subtopologies.values())
    quota = -(-total // len(now))
    for spec in left:
        before = set(each(assigned[spec.member_id].active))
        kept = before & set(each(after[spec.member_id].active))
        # Members keep what they have up to their share, which falls to what is left when others have more.
        assert len(kept) >= min(len(before), total // len(now)) or len(kept) == quota


def test_a_standby_takes_over() -> None:
    specs = [StreamsMemberSpec(name, name) for name in "abc"]
    subtopologies = {"0": SubtopologySpec(6, is_stateful=True)}
    first = sticky_assignor(specs, subtopologies, 1)
    left = again(specs[1:], first)
    after = sticky_assignor(left, subtopologies, 1)
    lost = set(each(first["a"].active))
    warm = {member: set(each(first[member].standby)) for member in "bc"}
    for member in "bc":
        taken = set(each(after[member].active)) - set(each(first[member].active))
        assert taken <= lost
    assert any(set(each(after[member].active)) & lost & warm[member] for member in "bc")


def test_nobody_is_given_nothing() -> None:
    assert sticky_assignor([], {"0": SubtopologySpec(3, is_stateful=True)}, 1) == {}
    assert sticky_assignor([StreamsMemberSpec("a", "a")], {}, 1) == {"a": NO_TASKS}


def test_standbys_go_where_most_state_is() -> None:
    """A new standby is the member that reports the greatest offset; an existing one stays."""
    subtopologies = {"0": SubtopologySpec(1, is_stateful=True)}
    active = TaskSet(active={"0": frozenset({0})})
    specs = [
        StreamsMemberSpec("a", "a", active),
        StreamsMemberSpec("b", "b", offsets={("0", 0): 5}),
        StreamsMemberSpec("c", "c", offsets={("0", 0): 900}),
        StreamsMemberSpec("d", "d", offsets={("9", 9): 9999}),
    ]
    assigned = sticky_assignor(specs, subtopologies, 1)
    assert [name for name, tasks in assigned.items() if tasks.standby] == ["c"]
    specs[1] = specs[1]._replace(current=TaskSet(standby={"0": frozenset({0})}))
    assigned = sticky_assignor(specs, subtopologies, 1)
    assert [name for name, tasks in assigned.items() if tasks.standby] == ["b"]
    # The active member is gone: the one with most state takes its place.
    assigned = sticky_assignor(specs[2:], subtopologies, 0)
    assert [name for name, tasks in assigned.items() if tasks.active] == ["c"]
