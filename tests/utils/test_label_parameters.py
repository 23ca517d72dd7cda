"""Declared classes and proportions: what is refused, and when."""

from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.utils._labels import (
    LabelSamplerMixin,
    check_classes,
    check_labels,
    check_proportions,
)


class Sampler(LabelSamplerMixin, BaseEstimator):
    """Without a parameter ``labels``: they are private."""

    def __init__(self, classes=None, label_proportions=None):
        self.classes = classes
        self.label_proportions = label_proportions


class Choosing(Sampler):
    def __init__(self, labels="public", classes=None, label_proportions=None):
        super().__init__(classes, label_proportions)
        self.labels = labels


class Unreadable:
    """Labels that nobody may look at."""

    def __getattr__(self, name):
        raise PermissionError

    __len__ = __iter__ = __array__ = __getattr__


@pytest.mark.parametrize("sampler", [Sampler(), Choosing("private")], ids=["always", "chosen"])
def test_private_labels_need_classes_before_one_is_read(sampler):
    for check in (sampler._check_label_parameters, lambda y: sampler._encode_labels(y, 3)):
        with pytest.raises(ValueError, match="Private labels need classes"):
            check(Unreadable())
    assert not hasattr(sampler, "classes_")
    # Without labels there is nothing to declare.
    assert sampler._encode_labels(None, 3).tolist() == [0, 0, 0]
    sampler = sampler.set_params(classes=["b", "a"])
    assert sampler._encode_labels(["a", "b", "b"], 3).tolist() == [0, 1, 1]


def test_labels_have_no_default_protection():
    checks = {
        "y": lambda s: s._check_label_parameters(Unreadable()),
        "fit": lambda s: s._encode_labels(Unreadable(), 3),
        "plan": lambda s: s._planned_classes(3, [1, 2]),
    }
    said = "labels must be 'public' or 'private' when labels are given"
    for check in checks.values():
        with pytest.raises(PublicValueError, match=said):
            check(Choosing(None))
    for call in (lambda s: s._check_label_parameters(None), lambda s: s._planned_classes(3, None)):
        with pytest.raises(PublicValueError, match=said):
            call(Choosing(None, classes=["a", "b"]))
        call(Choosing(None))
    # Without labels there is nothing to protect, and a choice is as good as any.
    assert Choosing(None)._encode_labels(None, 3).tolist() == [0, 0, 0]
    assert Choosing("public")._planned_classes(3, [1, 2])[0] == 2


def shows_a_lone_label(sampler):
    """Whether what a fit publishes tells that one record has a label of its own."""
    common = ["a", "b"] * 20
    found = []
    for y in (common, [*common[:-1], "rare"]):
        try:
            sampler._encode_labels(y, 40)
            found.append(sampler.classes_.tolist())
        except ValueError as error:
            found.append(str(error))
    return found[0] != found[1]


def test_a_lone_private_label_is_not_published():
    assert not shows_a_lone_label(Sampler())
    assert not shows_a_lone_label(Choosing("private"))
    # Public ones are read from y, and so would be private ones without the check.
    assert shows_a_lone_label(Choosing("public"))


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        (3, "must be a list of labels, got a int"),
        ("ab", "must be a list of labels, got a str"),
        (b"ab", "must be a list of labels, got a bytes"),
        ({"a": 1, "b": 2}, "must be a list of labels, got a dict"),
        ({"a"}, "must be a list of labels, got a set"),
        (frozenset("a"), "must be a list of labels, got a frozenset"),
        (np.array("a"), "must be a list of labels, got a ndarray"),
        ([["a", "b"]], "nested"),
        ([["a"], ["b", "c"]], "nested"),
        ([("a",), ("b",)], "nested"),
        ([{"a"}, {"b"}], "nested"),
        (np.array([["a"], ["b"]]), "nested"),
        (pd.DataFrame({"a": [1, 2], "b": [3, 4]}), "nested"),
        (["a", None], "missing"),
        ([1.0, np.nan], "missing"),
        ([pd.NaT, 1], "missing"),
        ([0, np.inf], "infinite"),
        (["a", 1], "not of one type"),
        ([0.5, 1.5], "Unknown label type"),
        (["a", "a", "b"], "distinct"),
        (["a"], "at least two, got 1 class"),
        ([], "at least two, got 0 class"),
    ],
    ids=str,
)
def test_classes_that_cannot_be(classes, message):
    with pytest.raises(ValueError, match=message):
        check_classes(classes)
    with pytest.raises(ValueError, match=message):
        Choosing("public", classes)._check_label_parameters(Unreadable())


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        (0.5, "one share a class"),
        ("ab", "list of numbers, got a str"),
        ({"a": 0.5, "b": 0.5}, "list of numbers, got a dict"),
        ({0.4, 0.6}, "list of numbers, got a set"),
        (["a", "b"], "list of numbers"),
        ([0.5, 0.5j], "list of numbers"),
        ([[0.5, 0.5]], "one share a class, 2; its shape is"),
        ([[0.5], [0.5, 0.1]], "list of numbers"),
        ([1.0], "one share a class, 2; its shape is"),
        ([0.2, 0.3, 0.5], "one share a class, 2; its shape is"),
        ([], "one share a class, 2; its shape is"),
        ([np.nan, 1.0], "sum to 1"),
        ([None, 1.0], "sum to 1"),
        ([np.inf, 0.0], "sum to 1"),
        ([0.5, 0.6], "sum to 1"),
        ([-0.5, 1.5], "non-negative"),
    ],
    ids=str,
)
def test_proportions_that_cannot_be(shares, message):
    with pytest.raises(ValueError, match=message):
        check_proportions(shares, 2)
    with pytest.raises(ValueError, match=message):
        Choosing("private", ["a", "b"], shares)._check_label_parameters(Unreadable())


def test_proportions_of_classes_that_occur():
    assert check_proportions([0.5, 0.25, 0.25]).tolist() == [0.5, 0.25, 0.25]
    sampler = Choosing("public", None, [0.5, 0.25, 0.25])
    sampler._check_label_parameters(Unreadable())
    with pytest.raises(ValueError, match="one share a class, 2"):
        sampler._encode_labels(["a", "b"], 2)


def searched(y, classes, n_samples):
    """As labels were looked up once: all of one dtype, which any of them can decide."""
    return np.searchsorted(classes, np.asarray(y))


def test_no_label_changes_another_one():
    large, classes = 2**53 + 1, np.array([2**53, 2**53 + 1])
    for codes, is_broken in ((check_labels, False), (searched, True)):
        beside = [codes([large, other], classes, 2)[0] for other in (2**53, float(2**53))]
        assert bool(beside[0] != beside[1]) is is_broken
    # A number is no text, beside a text either.
    with pytest.raises(ValueError, match="not among the classes"):
        check_labels(["1", 2], np.array(["1", "2"]), 2)
    assert searched(["1", 2], np.array(["1", "2"]), 2).tolist() == [0, 1]


@pytest.mark.parametrize("label", [[1], {}, Decimal("sNaN"), None, np.nan, "x", b"1"])
def test_what_is_no_class_is_refused(label):
    with pytest.raises(ValueError, match="not among the classes"):
        check_labels([1, label], np.array([1, 2]), 2)
