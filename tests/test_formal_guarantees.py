"""The "Formal guarantee" in the notes of each docstring has one form, and says what reports say."""

import inspect
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from estimator_table import (
    DOC,
    FRAME,
    SIZES,
    contract,
    parameters,
    plans,
    private_classes,
    public_objects,
)

from sklearn_dpgen.accounting._wording import public_texts
from sklearn_dpgen.ledger._base import PrivateEstimator
from sklearn_dpgen.smoothed import private_sliced_wasserstein, smoothed_sliced_wasserstein

FIELDS = [
    "Promise",
    "Neighbours",
    "Public",
    "Bounded by",
    "Noise",
    "Priced by",
    "Not covered",
    "Proof",
]
CLASSES = list(private_classes())
LOCAL = "local model: "

# Tiny fits warn of their noise, and of what they lack.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@dataclass(frozen=True)
class Facts:
    """What the code says of a guarantee.

    Parameters
    ----------
    relations : frozenset of str
        Neighbours of all plans, but for those with a ``unit``.
    follows : frozenset of str
        Parameters that hold the estimators whose neighbours these are.
    public : frozenset of str
        What any plan takes to be public, but for what an estimator within does.
    is_local, is_sampled, has_noise, has_unit, rests_on_what_was_before : bool
        Whether records are privatized one by one; secret batches are drawn without replacement;
        there are the parameters ``noise`` with "certified", and ``unit``; a report says that what
        was fitted on the same records before is not paid for.
    not_covered : tuple of str
        Words that the field has to hold.
    """

    relations: frozenset
    follows: frozenset
    public: frozenset
    is_local: bool
    is_sampled: bool
    has_noise: bool
    has_unit: bool
    rests_on_what_was_before: bool
    not_covered: tuple


def private_functions():
    return [
        value
        for _, value in public_objects()
        if inspect.isfunction(value) and {"epsilon", "ledger"} <= set(parameters(value))
    ]


def reports_of(thing):
    """Return pairs of an estimator and its report; a function has None for an estimator."""
    if inspect.isclass(thing):
        return plans(thing)
    assert thing in (private_sliced_wasserstein, smoothed_sliced_wasserstein)
    result = thing(FRAME, FRAME, epsilon=2.0, delta=1e-4, domain=contract.BOX)
    return [(None, result.privacy)]


_EARLIER = {"earlier_fits", "earlier_embeddings", "candidates_and_embedding"}


@cache
def facts_of(thing):
    relations, public, reports, follows = set(), set(), [], set()
    for estimator, report in reports_of(thing):
        reports.append(report)
        stated = zip(report.public, public_texts(report), strict=True)
        public.update(text for fact, text in stated if fact != "n_samples")
        inner = inner_report(estimator)
        if inner is not None:
            name, inner = inner
            if inner.neighbouring == report.neighbouring:
                follows.add(name)
                public.difference_update(public_texts(inner))
                continue
        if report.unit is None or "unit" not in parameters(thing):
            relations.add(report.neighbouring.removeprefix(LOCAL))
    noise = parameters(thing).get("noise")
    caveats = [caveat for report in reports for caveat in report.caveats]
    return Facts(
        relations=frozenset(relations),
        follows=frozenset(follows),
        public=frozenset(public),
        is_local=all(report.is_local for report in reports),
        is_sampled=any(report.batches for report in reports),
        has_noise=noise is not None,
        has_unit="unit" in parameters(thing),
        rests_on_what_was_before=any(caveat in _EARLIER for caveat in caveats),
        not_covered=_not_covered(thing),
    )


def _not_covered(thing):
    """Return words for what no code of the project can see, by the parameters of the thing."""
    given = set(parameters(thing))
    words = ["errors"] if {"ledger", "privatize"} & given else []
    # Of learners that privatize nothing it is harmless.
    words += ["random_state"] if "random_state" in given and words else []
    return tuple(words)


def inner_report(estimator):
    """Return the name and the plan of the private estimator that another one fits."""
    for name in ("sampler", "estimator"):
        inner = getattr(estimator, name, None)
        if isinstance(inner, PrivateEstimator):
            wanted = inspect.signature(inner.plan).parameters
            sizes = {"n_features": 2, "group_sizes": SIZES} if "group_sizes" in wanted else {}
            return name, inner.plan(len(FRAME), **sizes)
    return None


@cache
def vocabulary():
    """Return the neighbours of all estimators."""
    return frozenset().union(*(facts_of(cls).relations for cls in CLASSES))


def section(doc):
    """Return the fields that begin the notes, as pairs, and whether other notes follow."""
    found = re.search(
        r"^Notes\n-{5}\n\*\*Formal guarantee\*\*\n\n((?:[: ].*\n)+)"
        r"(?:\n|\Z)(?:(?!\S.*\n-+\n)(\S))?",
        inspect.cleandoc(doc) + "\n",
        flags=re.M,
    )
    if found is None:
        return [], False
    parts = re.split(r"^:([^:\n]+): ", found[1], flags=re.M)
    texts = [" ".join(text.split()) for text in parts[2::2]]
    return list(zip(parts[1::2], texts, strict=True)), found[2] is not None


def faults(doc, facts):
    """Return what is wrong with the section of a docstring, in words."""
    pairs, _ = section(doc)
    if [name for name, _ in pairs] != FIELDS:
        found = [name for name, _ in pairs]
        return [f"Formal guarantee must have the fields {FIELDS}, got {found}"]
    found, texts = [], {name: text.replace("``", "") for name, text in pairs}
    found += [f"{name} is no sentence" for name, text in texts.items() if not text.endswith(".")]
    trust = "Local" if facts.is_local else "Central"
    if texts["Promise"].split()[0] != trust or "differential privacy" not in texts["Promise"]:
        found.append(f"Promise is not of {trust} differential privacy")
    found += neighbour_faults(texts["Neighbours"], facts)
    missing = [name for name in facts.public if name.lower() not in texts["Public"].lower()]
    found += [f"Public lacks {name!r}" for name in missing]
    found += [
        f"Public has {word!r}"
        for word in ("the records", "counts", "values of the records", "losses", "batches")
        if re.search(rf"\b{word}\b", re.sub("(order|index) of the records", "", texts["Public"]))
    ]
    if facts.has_unit and not facts.follows and "numbers of persons" not in texts["Public"]:
        found.append("Public does not say that with unit numbers are of persons")
    found += [
        f"Not covered lacks {word!r}"
        for word in facts.not_covered
        if word not in texts["Not covered"]
    ]
    if ('noise="certified"' in texts["Noise"]) != facts.has_noise or (
        "certified" in doc_of(texts, but="Noise") and not facts.has_noise
    ):
        found.append("Noise says certified where it is not, or does not where it is")
    if ("without replacement" in texts["Priced by"]) != facts.is_sampled:
        found.append("Priced by says sampling where there is none, or does not where there is")
    if facts.rests_on_what_was_before and not re.search(
        r"was fitted on the (same|target) records before", texts["Not covered"], flags=re.I
    ):
        found.append("Not covered lacks what was fitted on the records before")
    return found


def doc_of(texts, but):
    return " ".join(text for name, text in texts.items() if name != but)


def neighbour_faults(text, facts):
    said = text.lower()
    found = [f"Neighbours lacks {r!r}" for r in facts.relations if r.lower() not in said]
    strangers = vocabulary() - facts.relations
    found += [f"Neighbours has {r!r}" for r in strangers if r.lower() in said]
    named = set(re.findall(r"those of (\w+)", said)) | set(re.findall(r" and (\w+estimator)", said))
    if not facts.follows <= named or (named and not facts.follows):
        found.append(f"Neighbours are those of {sorted(facts.follows)}, not of {sorted(named)}")
    if not facts.follows and not facts.relations:
        found.append("nothing to compare with")
    if ("With unit:" in text) != facts.has_unit:
        found.append("Neighbours names unit where there is none, or does not where there is")
    return found


@pytest.mark.parametrize("thing", [*CLASSES, *private_functions()], ids=lambda t: t.__name__)
def test_the_section_says_what_the_code_says(thing):
    assert not faults(thing.__doc__, facts_of(thing))


def test_the_classes_and_functions_are_found():
    names = {cls.__name__ for cls in CLASSES}
    assert {"TableSampler", "LaplaceMechanism", "PrivateSearchCV"} <= names
    assert len(names) >= 25
    assert "Mechanism" not in names
    assert private_functions() == [private_sliced_wasserstein, smoothed_sliced_wasserstein]
    # Whatever else states a guarantee is private too.
    for name, value in public_objects():
        if inspect.isclass(value) and re.search(r"^privacy_ :", value.__doc__ or "", flags=re.M):
            assert value in CLASSES or inspect.isabstract(value), name


@pytest.mark.parametrize(
    "name", ["SyntheticDataClassifier", "BarycenterClassifier", "PrivateSearchCV"]
)
def test_what_follows_another_estimator_is_tried_with_two_relations(name):
    (cls,) = (cls for cls in CLASSES if cls.__name__ == name)
    inner = [(inner_report(estimator), report) for estimator, report in plans(cls)]
    followed = {report.neighbouring for found, report in inner if found is not None}
    assert len(followed) > 1


@pytest.mark.skipif(not DOC.exists(), reason="needs a checkout, not a wheel")
@pytest.mark.parametrize("thing", [*CLASSES, *private_functions()], ids=lambda t: t.__name__)
def test_proofs_are_where_they_are_said_to_be(thing):
    proof = dict(section(thing.__doc__)[0]).get("Proof")
    assert proof is not None, "Formal guarantee must have a Proof"
    assert not missing_pages(proof)
    assert not missing_classes(thing.__doc__)
    assert "Notes" not in proof or section(thing.__doc__)[1]


def missing_pages(proof):
    """Return the references of a text that name no page and no label."""
    pages = {path.stem: path.read_text(encoding="utf-8") for path in Path(DOC).glob("*.rst")}
    labels = set(re.findall(r"^\.\. _([\w-]+):$", "\n".join(pages.values()), flags=re.M))
    found = re.findall(r":(doc|ref):`/?([\w-]+)`", proof)
    return [name for kind, name in found if name not in (pages if kind == "doc" else labels)]


def missing_classes(doc):
    """Return the classes that a section names and that are not there."""
    texts = " ".join(text for _, text in section(doc)[0])
    public = {f"sklearn_dpgen.{module}.{value.__name__}" for module, value in named_objects()}
    return sorted(set(re.findall(r":class:`~?([\w.]+)`", texts)) - public)


def named_objects():
    return [pair for pair in public_objects() if hasattr(pair[1], "__name__")]


BROKEN = [
    ("LaplaceMechanism", r":Public: (.*\n)+?(?= +:Bounded)", "", "fields"),
    ("LaplaceMechanism", r":Noise:", ":Public:", "fields"),
    ("LaplaceMechanism", r":Proof:", ":More: Yes.\n    :Proof:", "fields"),
    ("LaplaceMechanism", r"\*\*Formal guarantee", "**Guarantee", "fields"),
    ("LaplaceMechanism", r"Notes\n    -----\n", "Remarks\n    -------\n", "fields"),
    ("LaplaceMechanism", "Local ε", "Central ε", "Promise"),
    ("TableSampler", r"Central \(", "Local (", "Promise"),
    ("TableSampler", "Replace one record; ", "Replace one person; ", "Neighbours lacks"),
    (
        "TableSampler",
        r"With\s+``neighbours=\"add_or_remove\"``: add or remove",
        'With ``neighbours="add_or_remove"``: add',
        "Neighbours lacks 'add",
    ),
    (
        "MomentSampler",
        "With ``unit``",
        "Add or remove one record of at least two; the number of records is not public. "
        "With ``unit``",
        "Neighbours has 'add",
    ),
    (
        "DPSlicedWassersteinFairEncoder",
        r"Replace one record by another of the same group; sizes of the groups are",
        "Replace one record; the number of records is",
        "Neighbours lacks 'replace one record by another of the same group",
    ),
    ("SyntheticDataClassifier", "Those of ``sampler``", "Those of ``estimator``", "those of"),
    ("MomentSampler", r"With\s+``unit``: a person", "A person", "unit"),
    ("LaplaceMechanism", "Any two values", "With ``unit``: any two values", "unit"),
    ("MomentSampler", r"numbers\s+of\s+persons", "numbers of records", "Public does not say"),
    ("LaplaceMechanism", ":Public: ", ":Public: exact counts; ", "Public has 'counts'"),
    ("LaplaceMechanism", ":Public: ", ":Public: the records; ", "Public has 'the records'"),
    ("LaplaceMechanism", r"errors of\s+``transform``;\s+", "", "Not covered lacks 'errors'"),
    ("MomentSampler", r"a\s+``random_state``", "a seed", "Not covered lacks 'random_state'"),
    ("MomentSampler", r"the\s+class\s+sizes where", "sizes where", "Public lacks 'class sizes'"),
    ("LaplaceMechanism", r"or with\s+``noise=\"certified\"``\s+exact", "", "certified"),
    (
        "MomentSampler",
        r"Gaussian, by",
        'Certified with ``noise="certified"``, Gaussian, by',
        "certified",
    ),
    ("MomentSampler", "no sampling", "under sampling without replacement", "sampling"),
    ("DPSlicedWassersteinGenerator", r"under sampling without\s+replacement", "", "sampling"),
    (
        "MomentSampler",
        r"What was fitted on the\s+same\s+records before",
        "Nothing before",
        "before",
    ),
]


@pytest.mark.parametrize(("name", "old", "new", "fault"), BROKEN)
def test_a_docstring_that_is_wrong_is_found(name, old, new, fault):
    (cls,) = (cls for cls in CLASSES if cls.__name__ == name)
    doc = "\n    " + inspect.getdoc(cls).replace("\n", "\n    ")
    broken, n = re.subn(old, new, doc, count=1)
    assert n == 1
    assert not faults(doc, facts_of(cls))
    assert any(fault in found for found in faults(broken, facts_of(cls)))


def test_a_docstring_of_another_estimator_is_found():
    for cls, other in zip(CLASSES, CLASSES[5:] + CLASSES[:5], strict=True):
        if facts_of(cls) != facts_of(other):
            assert faults(other.__doc__, facts_of(cls)), (cls, other)


def test_a_proof_that_is_nowhere_is_found():
    (cls,) = (cls for cls in CLASSES if cls.__name__ == "MomentSampler")
    assert missing_classes(cls.__doc__.replace("ClassSumMechanism", "NoSuchMechanism")) == [
        "sklearn_dpgen.mechanisms.NoSuchMechanism"
    ]
    assert missing_pages(":ref:`sensitivity`; :doc:`/smoothed`.") == []
    assert missing_pages(":ref:`no-such-label`; :doc:`/no_such_page`.") == [
        "no-such-label",
        "no_such_page",
    ]
