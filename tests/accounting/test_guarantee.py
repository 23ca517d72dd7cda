"""Guarantees are data: each enumeration is rendered, and no code reads the rendered text."""

import ast
from pathlib import Path

import pytest

import sklearn_dpgen
from sklearn_dpgen.accounting import (
    Bound,
    BoundKind,
    Caveat,
    Event,
    Guarantee,
    Public,
    Released,
    _wording,
)
from sklearn_dpgen.accounting._guarantee import Protected, Shared, common_guarantee

ROOT = Path(sklearn_dpgen.__file__).parent

# What _wording makes sentences of, by attribute and by function.
_TEXTS = {"neighbouring", "title"}
_METHODS = {"replace", "startswith", "endswith", "removeprefix", "removesuffix", "split", "find"}
_METHODS |= {"partition", "index", "count"}


def is_rendered(node):
    """Return whether an expression is, or begins with, a rendered text of a guarantee."""
    while isinstance(node, ast.Subscript):
        node = node.value
    if isinstance(node, ast.Attribute):
        return node.attr in _TEXTS
    if isinstance(node, ast.Call):
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        return name in _wording.__all__ or name in ("to_text", "to_rows")
    return False


def string_tests(source):
    """Return the lines that test or edit what a guarantee is rendered as, or compare sentences."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in _METHODS and is_rendered(node.func.value):
                found.append(node.lineno)
        elif isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            facts = any(getattr(side, "attr", "") in ("public", "caveats") for side in sides)
            sentence = any(
                isinstance(side, ast.Constant) and " " in str(side.value) for side in sides
            )
            if any(map(is_rendered, sides)) or (facts and sentence):
                found.append(node.lineno)
    return found


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_no_code_reads_rendered_text(path):
    if path.name != "_wording.py":
        assert not string_tests(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "source",
    [
        "report.neighbouring.replace('record', 'person')",
        "'replace' in report.neighbouring",
        "relation_text(report).startswith('add')",
        "report.title.split(':')[1]",
        "report.to_text().find('rate')",
        "'sizes of the groups' in claim.public",
        "a.neighbouring == b.neighbouring",
    ],
)
def test_string_tests_are_found(source):
    assert string_tests(source)


def test_data_may_be_compared():
    for source in (
        "Public.SOURCE in claim.public",
        "report.neighbours == 'replace_one'",
        "a.relation == b.relation",
        "replace(report, title=1)",
        "print(report.neighbouring)",
    ):
        assert not string_tests(source)


def make(**fields):
    return Guarantee(**{"name": "Fit", "events": (), "epsilon": 1.0, "delta": 0.0, **fields})


@pytest.mark.parametrize("unit", [None, "who"])
def test_each_member_is_rendered(unit):
    everything = make(
        unit=unit,
        events=[Event(what, 3, 5) for what in Released],
        public=[*Public, "schema"],
        bounds=[Bound(kind, 2.0) for kind in BoundKind],
        caveats=list(Caveat),
        max_rows=7,
        max_records=1000,
    )
    texts = [
        _wording.events_text(everything),
        _wording.bounds_text(everything),
        *_wording.public_texts(everything),
        *_wording.caveat_texts(everything),
    ]
    assert not any("{" in text or "None" in text for text in texts)
    assert len(_wording.public_texts(everything)) == len(Public) + 1
    assert len(_wording.caveat_texts(everything)) == len(Caveat)
    for protected in Protected:
        for neighbours in ("replace_one", "add_or_remove"):
            guarantee = make(protected=protected, neighbours=neighbours, unit=unit)
            assert "{" not in _wording.relation_text(guarantee)
            is_person = "person" in _wording.relation_text(guarantee)
            assert is_person == (unit is not None or guarantee.is_local)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "replace one record; the number of records is public"),
        ({"unit": "who"}, "replace one person; the number of persons is public"),
        (
            {"protected": "record_and_label"},
            "replace one record and its label; the number of records is public",
        ),
        (
            {"shared": ["class"]},
            "replace one record by another of the same class; the sizes of the classes are public",
        ),
        (
            {"shared": ["group"]},
            "replace one record by another of the same group; sizes of the groups are public",
        ),
        (
            {"shared": ["label", "group"], "unit": "who"},
            "replace one person by another of the same group and with the same label; sizes of "
            "the groups by label are public",
        ),
        (
            {"neighbours": "add_or_remove"},
            "add or remove one record of at least two; the number of records is not public",
        ),
        (
            {"unit": "who", "max_rows": 3},
            "replace one person with all rows, which count for at most 3; the number of persons "
            "is public, that of rows is not",
        ),
        (
            {"protected": "target_record"},
            "replace one target record; the numbers of source and target records are public",
        ),
        ({"protected": "own_record"}, "local model: any two values of one person's record"),
    ],
)
def test_relations_in_words(fields, text):
    assert _wording.relation_text(make(**fields)) == text


def test_persons_take_the_place_of_records():
    report = make(caveats=["floating_point"])
    persons = report.for_persons("who")
    assert (persons.unit, persons.max_rows) == ("who", None)
    assert persons.caveats == ("floating_point", "persons_count_once")
    rows = report.for_persons("who", max_rows=4)
    assert (rows.max_rows, rows.caveats[-1]) == (4, "rows_count")
    # Three relations, of which no two are equal.
    assert len({report.relation, persons.relation, rows.relation}) == 3
    assert "4/m" in _wording.caveat_texts(rows)[-1]


def test_a_caveat_that_states_a_number_has_it():
    for caveat in ("rows_count", "most_records"):
        with pytest.raises(ValueError, match=caveat):
            make(caveats=[caveat])
    rows = make(unit="who", max_rows=3, caveats=["rows_count"])
    few, fewer = (make(unit="who", max_records=n, caveats=["most_records"]) for n in (900, 500))
    whole = common_guarantee([rows, few, fewer])
    assert (whole["max_rows"], whole["max_records"]) == (3, 500)
    assert (common_guarantee([make()])["max_rows"], common_guarantee([make()])["max_records"]) == (
        None,
        None,
    )


def test_what_holds_for_any_replacement_holds_within_strata():
    whole, narrow = make(), make(shared=["group"])
    assert common_guarantee([whole, narrow])["shared"] == ("group",)
    assert common_guarantee([whole, make(protected="record_and_label")])["shared"] == ()
    for others in (
        [narrow, make(shared=["class"])],
        [whole, make(neighbours="add_or_remove")],
        [narrow, make(protected="target_record")],
    ):
        with pytest.raises(ValueError, match="no common guarantee"):
            common_guarantee(others)


@pytest.mark.parametrize(
    ("make_one", "words"),
    [
        (lambda: Event("some counts"), "some counts"),
        (lambda: Event("some counts"), "Released must be one of .*'votes'"),
        (lambda: Event("votes", 0), "times"),
        (lambda: Bound("large"), "large"),
        (lambda: Bound("task_clip", -1.0), "task_clip"),
        (lambda: make(shared=["street"]), "street"),
        (lambda: make(protected="house"), "house"),
    ],
)
def test_unknown_members_are_refused(make_one, words):
    with pytest.raises(ValueError, match=words):
        make_one()


def test_what_holds_for_rows_does_not_hold_for_persons():
    row, person, other = make(), make(unit="who"), make(unit="where")
    for others in ([row, person], [person, row], [person, other]):
        with pytest.raises(ValueError, match="no common guarantee.*who"):
            common_guarantee(others)


@pytest.mark.parametrize("neighbours", ["replace_one", "add_or_remove"])
def test_what_the_rows_of_a_person_count_for_is_no_other_relation(neighbours):
    once, rows = (make(unit="who", neighbours=neighbours, max_rows=n) for n in (None, 3))
    assert common_guarantee([once, rows]) == {
        "neighbours": neighbours,
        "protected": "record",
        "shared": (),
        "max_rows": 3,
        "max_records": None,
    }


def test_shared_is_a_set():
    assert make(shared=["label", "group"]) == make(shared=["group", "label"])
    assert Shared.GROUP in make(shared=["group"]).shared
