"""Hierarchies of labels: what is declared, its groups, and labels from files."""

import copy
import json
import pickle

import numpy as np
import pytest
from declared_columns import reproducibly
from hypothesis import given
from hypothesis import strategies as st

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.schema import Categorical, Numeric, RelationalSchema, Schema, Table

CODES = ["A01.1", "B20.0", "A01", "A15.2", "B20.1", "C9"]
PATHS = {
    "ant": ["animals", "insects"],
    "oak": ["plants"],
    "bee": ["animals", "insects", "flying"],
    "cow": ["animals", "mammals"],
    "rock": [],
    "fly": ["animals", "insects", "flying"],
    "insects": ["plants", "insects"],
}


def shared(column, paths):
    """Return for each depth whether each pair of categories is in one group, by the declaration."""
    for depth in range(1, 1 + max(map(len, paths.values()))):
        names = [tuple(paths[label]) for label in column.labels]
        same = [[len(a) >= depth and a[:depth] == b[:depth] for b in names] for a in names]
        yield np.array(same) | np.eye(len(names), dtype=bool)


def check_groups(column, paths):
    """Check the groups of a column against the pairs that share one."""
    expected = []
    for same in shared(column, paths):
        is_new = not expected or (same != expected[-1]).any()
        if is_new and not same.all() and same.sum() > len(same):
            expected.append(same)
    assert len(column.groups) == len(expected)
    for groups, same in zip(column.groups, expected, strict=True):
        found = groups[: len(column.labels)]
        np.testing.assert_array_equal(found[:, None] == found, same)
        # Groups are contiguous and in order, and null has one of its own, the last.
        assert len(groups) == column.n_categories
        assert set(np.diff(groups, prepend=-1)) <= {0, 1}
        assert groups[0] == 0
        if column.nullable:
            assert (groups == groups[-1]).sum() == 1


@pytest.mark.parametrize("nullable", [False, True])
def test_groups_by_prefixes(nullable):
    column = Categorical(CODES, hierarchy=[1, 3], nullable=nullable)
    assert column.categories == ("A01.1", "A01", "A15.2", "B20.0", "B20.1", "C9")
    check_groups(column, {code: [code[:1], code[:3]] for code in CODES})
    null = [3] * nullable, [4] * nullable
    assert [groups.tolist() for groups in column.groups] == [
        [0, 0, 0, 1, 1, 2, *null[0]],
        [0, 0, 1, 2, 2, 3, *null[1]],
    ]


@pytest.mark.parametrize("nullable", [False, True])
def test_groups_by_names(nullable):
    column = Categorical([*PATHS], hierarchy=PATHS, nullable=nullable)
    check_groups(column, PATHS)
    # A group is named within the groups above it, and a label is no group.
    assert column.labels == ("ant", "bee", "fly", "cow", "oak", "insects", "rock")
    assert column == Categorical([*PATHS], hierarchy=list(PATHS.values()), nullable=nullable)
    numbers = Categorical([3, 1, 2], hierarchy={1: ["odd"], 2: ["even"], 3: ["odd"]})
    assert numbers.labels == (3, 1, 2)
    check_groups(numbers, {1: ["odd"], 2: ["even"], 3: ["odd"]})


@reproducibly
@given(st.lists(st.text("ab", max_size=4), min_size=1, max_size=30, unique=True), st.data())
def test_any_groups(labels, data):
    lengths = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3, unique=True))
    column = Categorical(labels, hierarchy=sorted(lengths))
    assert sorted(column.labels) == sorted(labels)
    check_groups(column, {v: [v[:n] for n in sorted(lengths)] for v in labels})
    names = st.lists(st.sampled_from("xyz"), max_size=3)
    paths = {label: data.draw(names) for label in labels}
    if any(paths.values()):
        check_groups(Categorical(labels, hierarchy=paths), paths)


def test_groups_that_do_not_nest_would_be_seen():
    column = Categorical(CODES, hierarchy=[1, 3])
    paths = {code: [code[:1], code[:3]] for code in CODES}
    for wrong in (column.groups[::-1], [column.groups[0] * 0, column.groups[1]]):
        broken = copy.copy(column)
        vars(broken)["groups"] = tuple(wrong)
        with pytest.raises(AssertionError):
            check_groups(broken, paths)


def test_levels_that_tell_nothing_are_left_out():
    assert Categorical(["a1", "a2"], hierarchy=[1]).groups == ()
    assert Categorical(["a1", "b2"], hierarchy=[1]).groups == ()
    assert len(Categorical(["a1", "a2", "b2"], hierarchy=[1, 2]).groups) == 1
    assert Categorical(["a", "b"]).groups == ()


def test_files_are_lossless():
    for hierarchy in ([1, 3], {code: [code[0]] for code in CODES}):
        schema = Schema({"code": Categorical(CODES, hierarchy=hierarchy, nullable=True)})
        for copied in (
            Schema.from_dict(schema.to_dict()),
            Schema.from_json(schema.to_json()),
            Schema.from_yaml(schema.to_yaml()),
            pickle.loads(pickle.dumps(schema)),
        ):
            assert repr(copied) == repr(schema)
            assert hash(copied) == hash(schema)
    assert Categorical(CODES, hierarchy=[1]) != Categorical(CODES)


@pytest.mark.parametrize(
    "hierarchy",
    [[], [0, 1], [3, 1], [1, 1], [True], [1.0], "A", 1, {"A01": ["A"]}, [["A"]], [[1]] * 6]
    + [["A"] * 6, [1, "A"], {1, 3}],
)
def test_other_hierarchies_are_refused(hierarchy):
    with pytest.raises(PublicValueError, match="^hierarchy must") as error:
        Categorical(CODES, hierarchy=hierarchy)
    assert "A01" not in str(error.value)
    with pytest.raises(PublicValueError, match="map labels to groups"):
        Categorical([1, 2], hierarchy=[1])


# Labels from files.

YAML = "code: {type: categorical, categories_from: codes.txt, hierarchy: [1, 3]}"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "inner").mkdir()
    text = "\ufeff" + "\r\n".join(CODES[:3]) + "\n\n  " + "\n".join(CODES[3:]) + "\n"
    (tmp_path / "inner" / "codes.txt").write_bytes(text.encode())
    return tmp_path / "inner"


def test_labels_of_a_file(folder):
    column = Categorical(CODES, hierarchy=[1, 3])
    schema = Schema.from_yaml(YAML, folder=folder)
    assert schema == Schema({"code": column})
    declaration = {"code": {"type": "categorical", "categories_from": "inner/codes.txt"}}
    assert Schema.from_dict(declaration, folder=folder.parent)["code"].labels == tuple(CODES)
    # What is written has the labels, and needs no file.
    assert Schema.from_yaml(schema.to_yaml()) == schema
    days = {"type": "numeric", "low": 0, "high": 9}
    code = {"type": "categorical", "categories_from": "codes.txt", "hierarchy": [1, 3]}
    tables = json.dumps({"tables": {"stays": {"columns": {"code": code, "days": days}}}})
    stays = Table(Schema({"code": column, "days": Numeric(0, 9)}))
    for read in (RelationalSchema.from_json, RelationalSchema.from_yaml):
        assert read(tables, folder=folder) == RelationalSchema({"stays": stays})


@pytest.mark.parametrize(
    ("path", "fault"),
    [
        ("../secret.txt", "in the folder of the schema"),
        ("/etc/hostname", "in the folder of the schema"),
        ("link.txt", "in the folder of the schema"),
        ("none.txt", "an existing file"),
        (".", "an existing file"),
        ("bytes.txt", "a text file in UTF-8"),
        ("", "the path of a text file"),
        (3, "the path of a text file"),
    ],
)
def test_other_files_are_refused(folder, path, fault):
    secret = folder.parent / "secret.txt"
    secret.write_text("secret\n")
    (folder / "link.txt").symlink_to(secret)
    (folder / "bytes.txt").write_bytes(b"secret\xff\n")
    declaration = {"code": {"type": "categorical", "categories_from": path}}
    with pytest.raises(PublicValueError, match=f"'code': categories_from must be {fault}") as error:
        Schema.from_dict(declaration, folder=folder)
    assert "secret\n" not in str(error.value)


def test_errors_do_not_quote_a_file(folder):
    (folder / "codes.txt").write_text("secret\nsecret\n")
    with pytest.raises(PublicValueError, match="distinct") as error:
        Schema.from_yaml(YAML, folder=folder)
    assert "secret" not in str(error.value)
    (folder / "codes.txt").write_text("\n")
    with pytest.raises(PublicValueError, match="at least one"):
        Schema.from_yaml(YAML, folder=folder)


def test_files_need_a_folder(folder):
    with pytest.raises(PublicValueError, match="pass the folder"):
        Schema.from_yaml(YAML)
    both = {"type": "categorical", "categories": ["a"], "categories_from": "codes.txt"}
    with pytest.raises(PublicValueError, match="beside categories"):
        Schema.from_dict({"code": both}, folder=folder)
    number = {"type": "numeric", "low": 0, "high": 1, "categories_from": "codes.txt"}
    with pytest.raises(PublicValueError, match="unknown"):
        Schema.from_dict({"code": number}, folder=folder)
