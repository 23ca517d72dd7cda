"""The tables of doc/estimators.rst: what each private estimator takes and has, tried on small data.

``python -m tests.estimator_table --write`` puts them into the page; it needs all optional packages.
"""

import csv
import inspect
import io
import re
import sys
import tempfile
import textwrap
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import sklearn
from sklearn.base import clone, is_regressor
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression

import sklearn_dpgen
from sklearn_dpgen.deconvolution import DeconvolutionEM, EntropicDeconvGAN
from sklearn_dpgen.domains import OneHot
from sklearn_dpgen.ledger import PrivacyLedger
from sklearn_dpgen.ledger._base import PrivateEstimator
from sklearn_dpgen.mechanisms import (
    GaussianMechanism,
    JointRandomizedResponse,
    LaplaceMechanism,
    RandomizedResponse,
    TabularMechanism,
)
from sklearn_dpgen.model_selection import PrivateSearchCV
from sklearn_dpgen.nn import Training
from sklearn_dpgen.predictors import BarycenterRegressor
from sklearn_dpgen.smoothed import NoisyRelease
from sklearn_dpgen.tables import LocalTableSampler, SyntheticDataRegressor
from sklearn_dpgen.utils._validation import StrOptions

# The contract's cases, from wherever this runs.
_CONTRACT = str(Path(__file__).parent / "ledger")
if _CONTRACT not in sys.path:
    sys.path.append(_CONTRACT)

import contract_cases as contract  # noqa: E402

ROOT = Path(sklearn_dpgen.__file__).parent
DOC = ROOT.parent / "doc"
PAGE = DOC / "estimators.rst"
YES, ALWAYS, NO = "yes", "always", "–"
FRAME, SIDE = contract.FRAME, contract.SIDE
SIZES = tuple(np.bincount(SIDE))
COMMAND = "python -m tests.estimator_table --write"


def public_objects():
    """Yield the module and the value of everything that a public module exports."""
    for path in sorted(ROOT.iterdir()):
        if path.name.startswith("_") or not (path.suffix == ".py" or path.is_dir()):
            continue
        module = import_module(f"sklearn_dpgen.{path.stem}")
        for name in getattr(module, "__all__", ()):
            yield path.stem, getattr(module, name)


def private_classes():
    """Return the public estimators and mechanisms that give a guarantee, each with its module."""
    return {
        value: module
        for module, value in public_objects()
        if inspect.isclass(value)
        and issubclass(value, PrivateEstimator)
        and not inspect.isabstract(value)
    }


def parameters(cls):
    return inspect.signature(cls).parameters


@dataclass(frozen=True)
class Trial:
    """One estimator, and how it is given a small table.

    Parameters
    ----------
    estimator : PrivateEstimator
    sizes : dict
        What its plan is given.
    fits : tuple of callable
        From the estimator and a function that gives a table its kind: they read records. One that
        works is enough.
    """

    estimator: PrivateEstimator
    sizes: dict
    fits: tuple[Callable, ...]


def _by(*rest, **more):
    """Return a fit on all columns, with targets, and with more that is known of each record."""
    return lambda estimator, kind: estimator.fit(kind(FRAME), *rest, **more)


def _without(target, **more):
    """Return a fit on the other columns, with one as the target."""

    def fit(estimator, kind):
        rest = FRAME.drop(columns=target)
        return estimator.fit(kind(rest), FRAME[target].to_numpy(), **more)

    return fit


def _transforms(table):
    def fit(estimator, kind):
        estimator.fit()
        if len(estimator.transform(kind(table))) != len(table):
            raise ValueError("Not each record was released once.")
        return estimator

    return fit


def _learns(estimator, kind):
    """Fit to answers; to records where the estimator privatizes them."""
    if getattr(estimator, "privatize", False):
        return estimator.fit(kind(FRAME))
    mechanism = clone(estimator.mechanism).fit(FRAME).set_output(transform="pandas")
    return estimator.fit(kind(mechanism.transform(FRAME)))


def _of_persons(estimator, kind):
    return estimator.fit(kind(FRAME.assign(who=contract.PERSON)))


_GROUPS = {"sensitive_features": SIDE}
_FITS = {
    "_alone": (_by(),),
    "_with_labels": (_by(SIDE),),
    "_fair": (_by(SIDE, **_GROUPS),),
    "_fair_codes": (_by(**_GROUPS),),
    "_fair_numbers": (_by(SIDE.astype(float), **_GROUPS),),
    "_panel": (_of_persons,),
    "_panel_of_one_row": (_of_persons,),
    "_adapted": (_by(np.where(SIDE, -1, np.arange(len(SIDE)) % 2)),),
    "_synthetic": (_without("b"), _by()),
    "_barycenter": (_without("b", **_GROUPS), _by(**_GROUPS)),
}
_LAPLACE = LaplaceMechanism(5.0, domain=contract.BOX)
_ANSWERS = JointRandomizedResponse(4.0, schema=contract.SCHEMA)
_NUMBERS = SyntheticDataRegressor(
    clone(contract.TARGET).set_params(target="a"), LinearRegression(), n_samples=200, n_draws=1
)
_ALIKE = BarycenterRegressor(
    clone(_NUMBERS).set_params(sampler__epsilon=1.0, sampler__delta=1e-5),
    y_domain=(0, 1),
    groups=[0, 1],
    **contract.BUDGET,
)
_SEARCH = PrivateSearchCV(contract.LEARNER, {"n_draws": [1, 2]}, n_runs=2, **contract.BUDGET)
_GAN = EntropicDeconvGAN(
    _LAPLACE, training=Training(max_iter=2, hidden_layer_sizes=(4,), device="cpu")
)
_OTHERS = [
    (_NUMBERS, _without("a"), _by()),
    (_ALIKE, _without("a", **_GROUPS), _by(**_GROUPS)),
    (_SEARCH, _without("b"), _by()),
    (_LAPLACE, _transforms(FRAME)),
    (GaussianMechanism(2.0, domain=contract.BOX), _transforms(FRAME)),
    (
        RandomizedResponse(2.0, domain=OneHot(2)),
        _transforms(FRAME.assign(a=SIDE.astype(float), b=1.0 - SIDE)),
    ),
    (TabularMechanism(2.0, schema=contract.SCHEMA), _transforms(FRAME)),
    (_ANSWERS, _transforms(FRAME)),
    (DeconvolutionEM(_LAPLACE, n_points=30, max_iter=3), _learns),
    (_GAN, _learns),
    (LocalTableSampler(_ANSWERS, population_size=20, max_iter=5, device="cpu"), _learns),
]


@cache
def trials():
    """Return a trial of each public class: the first of the contract's cases, or one from here."""
    found, public = {}, private_classes()
    # A case may come before its class is public.
    for case in (case for case in contract.CASES.values() if type(case.estimator) in public):
        one = _quick(case.estimator)
        trial = Trial(one, case.sizes(SIZES), _FITS[case.fit.__name__])
        found.setdefault(type(one), trial)
    sizes = {"n_samples": len(FRAME)}
    return found | {type(one): Trial(_quick(one), sizes, tuple(fits)) for one, *fits in _OTHERS}


def _quick(estimator):
    """Return an estimator that has less to compute than with its defaults."""
    changes = {}
    for path, value in estimator.get_params().items():
        name = path.rpartition("__")[2]
        if name == "n_bins":
            changes[path] = 4
        elif name == "estimator" and value is None:
            changes[path] = LogisticRegression()
    return clone(estimator).set_params(**changes)


@cache
def plans(cls):
    """Return the plans of an estimator, each with the estimator that it is of.

    They are of all settings that change who is protected, from what, and what is public.

    Returns
    -------
    list of (estimator, PrivacyReport)
    """
    cases = [(c.estimator, c.sizes(SIZES)) for c in contract.CASES.values()]
    cases = [(estimator, sizes) for estimator, sizes in cases if type(estimator) is cls]
    if not cases:
        cases = [(trials()[cls].estimator, trials()[cls].sizes)]
    found = []
    for estimator, sizes in cases:
        for changes, given in _settings(estimator, sizes):
            changed = clone(estimator).set_params(**changes)
            wanted = inspect.signature(changed.plan).parameters
            given = {name: value for name, value in given.items() if name in wanted}
            found.append((changed, changed.plan(**given)))
    return found


def _settings(estimator, sizes):
    """Yield changes of parameters, and what a plan of them is given."""
    names = parameters(type(estimator))
    wanted = inspect.signature(estimator.plan).parameters
    without = {name: value for name, value in sizes.items() if name != "class_sizes"}
    yield {}, sizes
    shares = {"label_proportions": [0.5, 0.5]}
    if "labels" in names:
        yield {"labels": "public"}, without | {"class_sizes": list(SIZES)}
        release = getattr(estimator, "release", None)
        if release is None or release.kind != "projections":
            for more in ({}, shares):
                yield {"labels": "private", "classes": [0, 1]} | more, without
    elif "label_proportions" in names:
        for more in ({}, shares):
            yield {"classes": [0, 1]} | more, sizes
    protects_groups = getattr(estimator, "protect_groups", False) is True
    if "group_sizes" in wanted and "groups" in names and not protects_groups:
        yield {"groups": None}, sizes
        yield {}, {name: value for name, value in sizes.items() if name != "group_sizes"}
    if "protect_groups" in names:
        without_sizes = {name: value for name, value in sizes.items() if name != "group_sizes"}
        yield {"protect_groups": True}, without_sizes
    if "group_sizes" in wanted and "n_classes" in wanted and not protects_groups:
        cells = [[size // 2, size - size // 2] for size in SIZES]
        yield {"penalty": "equalized_odds"}, sizes | {"group_sizes": cells, "n_classes": 2}
    if "n_latents" in wanted:
        yield {}, sizes | {"n_latents": 50}
    for kind in _options(NoisyRelease(), "kind") if "release" in names else ():
        domain = {"domain": contract.BOX} if kind == "moments" else {}
        yield {"release": NoisyRelease(kind)} | domain, sizes
    for private in _options(estimator, "private"):
        yield {"private": private}, sizes | {"n_samples": len(FRAME)}
        yield {"private": private, "alpha": 0.0}, sizes | {"n_samples": len(FRAME)}
    if "n_source" in wanted:
        yield {}, sizes | {"n_samples": 0}
    for neighbours in _options(estimator, "neighbours"):
        yield {"neighbours": neighbours}, {"n_samples": len(FRAME)}
    if "start" in names and estimator._voting.histogram == "gaussian":
        yield {"start": "moments"}, sizes
    if {"start", "second_order_weight"} & set(names):
        yield {"public": np.zeros((3, 2))}, sizes
    if "public_scores" in wanted:
        yield {}, sizes | {"public_scores": True}
    if "privatize" in names:
        yield {"privatize": True}, sizes
    if "index" in names:
        yield {"index": "keep"}, sizes
    if "max_rows" in names:
        yield {"target": "b", "workload": {"a": 2.0}, "constraints": []}, sizes
        yield {"unit": "who", "unit_weights": "rows", "max_rows": 2}, sizes
    for path in estimator.get_params():
        if path.endswith("__neighbours") and not isinstance(estimator, PrivateSearchCV):
            yield {path: "add_or_remove"}, sizes
    if isinstance(estimator, PrivateSearchCV):
        evolution = contract.CASES["evolution"].estimator
        yield {"estimator": clone(evolution).set_params(labels="private", classes=[0, 1])}, sizes
        fair = clone(contract.CASES["fair classifier"].estimator)
        by_group = {"n_features": 2, "group_sizes": SIZES, "n_samples": sum(SIZES)}
        yield {"estimator": fair, "param_distributions": {"alpha": [0.5]}}, by_group
    if "group_estimator" in names:
        learner = DummyRegressor if is_regressor(estimator) else DummyClassifier
        frozen = FrozenEstimator(learner().fit(FRAME[["a"]], SIDE))
        yield {"estimator": frozen}, sizes
        yield {"estimator": frozen, "groups": None}, sizes


def _options(estimator, name):
    """Return the choices of a parameter; none where it is not there."""
    if name not in parameters(type(estimator)):
        return []
    (options,) = (o for o in estimator._parameter_constraints[name] if isinstance(o, StrOptions))
    return sorted(options.options)


# ---- what is tried ----

# Kinds of tables, and the packages that they need.
TRIED = {
    "array": (),
    "frame": ("polars", "pyarrow"),
    "arrow": ("pyarrow",),
    "chunks": (),
    "files": ("pyarrow",),
    "dask": ("dask", "pyarrow"),
}


def _kinds(name, folder):
    """Return the ways in which tables of a kind are made of a data frame; any that works counts."""
    if name == "array":
        return [lambda frame: frame.to_numpy()]
    if name == "frame":
        return [import_module("polars").from_pandas]
    if name == "arrow":
        return [import_module("pyarrow").Table.from_pandas]
    if name == "chunks":
        return [lambda frame: [frame[:50], frame[50:]]]
    if name == "dask":
        split = partial(import_module("dask.dataframe").from_pandas, npartitions=2)
        return [split, lambda frame: split(frame).to_dask_array(lengths=True)]

    def write(frame):
        frame.to_csv(folder / "table.csv", index=False)
        return str(folder / "table.csv")

    return [write]


def takes(trial, name, folder):
    """Return whether an estimator takes a table of a kind; None where a package is not there.

    The page is of scikit-learn 1.7 and later, which selects rows of tables of pyarrow.
    """
    is_old = tuple(map(int, sklearn.__version__.split(".")[:2])) < (1, 7)
    if not all(map(find_spec, TRIED[name])) or (name == "arrow" and is_old):
        return None
    gathered, found = [], set()

    def watched(kind, frame):
        table = kind(frame)
        if name == "dask":
            whole = type(table).compute

            def compute(self, *args, **kwargs):
                gathered.append(len(frame))
                return whole(self, *args, **kwargs)

            patch.setattr(type(table), "compute", compute)
        return table

    choices = product(_declared(trial.estimator), trial.fits, _kinds(name, folder))
    for estimator, fit, kind in choices:
        gathered.clear()
        with pytest.MonkeyPatch.context() as patch:
            try:
                fitted = fit(clone(estimator), partial(watched, kind))
            except Exception:  # of whatever kind: it does not take the table
                continue
        if fitted.privacy_ == estimator.plan(**trial.sizes):
            found.add("memory" if gathered else YES)
        if YES in found:
            return YES
    return "memory" if found else NO


def _declared(estimator):
    """Return an estimator, and it with a schema in the place of a domain if it takes either."""
    yield estimator
    if {"schema", "domain"} <= set(parameters(type(estimator))):
        yield clone(estimator).set_params(domain=None, schema=contract.SCHEMA)


def saves(fitted, folder):
    """Return whether what is saved is loaded as what it was."""
    try:
        fitted.save(folder / "model.safetensors")
    except TypeError:
        return NO
    same = sklearn_dpgen.load(folder / "model.safetensors")
    return YES if type(same) is type(fitted) and same.privacy_ == fitted.privacy_ else NO


def booked(trial, folder):
    """Return a fitted estimator, and what is known before the fit: a plan, and a ledger's word."""
    names = parameters(type(trial.estimator))
    one = clone(trial.estimator)
    if "ledger" not in names:
        return trial.fits[0](one, lambda frame: frame), "plan"
    ledger = PrivacyLedger.create(folder / "a.ledger", dataset="a", epsilon=1e3, delta=1e-2)
    one.set_params(ledger=ledger, **({"privatize": True} if "privatize" in names else {}))
    trial.fits[0](one, lambda frame: frame)
    return one, "plan, ledger" if len(ledger.report().charges) == 1 else "plan"


def relation(cls):
    """Return the neighbours of all plans of rows, or of persons only, in a few words."""
    found = {}
    for estimator, report in plans(cls):
        if any(isinstance(part, PrivateEstimator) for part in vars(estimator).values()):
            found["as within"] = None
        elif report.unit is None or "unit" not in parameters(cls):
            found[_short(report.neighbouring)] = None
    return ", ".join(found)


def _short(text):
    if text.startswith("local model"):
        return "any two values"
    if text.startswith("add or remove"):
        return "added or removed"
    if text.startswith("replace one record and its label"):
        return "with its label"
    if "or one latent" in text:
        return "or a latent"
    if "same label" in text:
        return "same group and label"
    same = re.search(r"of the same (class|group)", text)
    if same:
        return f"same {same[1]}"
    of = re.search(r"replace one (target|source) record|(one source or one target)", text)
    if of:
        return "of both domains" if of[2] else f"of the {of[1]}"
    return "replaced"


def rows():
    """Yield, for each class, its module and what is tried of it, by the titles of the columns."""
    for cls, module in private_classes().items():
        trial = trials()[cls]
        names = parameters(cls)
        with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
            warnings.simplefilter("ignore")
            folder = Path(folder)
            inputs = {name: takes(trial, name, folder) for name in TRIED}
            fitted, before = booked(trial, folder)
            has = {
                "neighbours": relation(cls),
                "persons": YES if "unit" in names else ALWAYS if fitted.privacy_.unit else NO,
                "GPU": YES if {"device", "training"} & names.keys() else NO,
                "certified": YES if "certified" in _noises(trial.estimator) else NO,
                "saved": saves(fitted, folder),
                "before a fit": before,
            }
        yield module, cls, inputs, has


def _noises(estimator):
    if "noise" not in parameters(type(estimator)):
        return ()
    return {
        value
        for constraint in estimator._parameter_constraints["noise"]
        for value in getattr(constraint, "options", ())
    }


@cache
def cells():
    """Return what is tried: by table, class and column, a text; None where it could not be."""
    found = {}
    for module, cls, inputs, has in rows():
        is_local = all(r.is_local for _, r in plans(cls))
        where = "local" if is_local else "central"
        link = f":class:`~sklearn_dpgen.{module}.{cls.__name__}`"
        for table, values in (("takes", inputs), ("has", has)):
            for column, value in values.items():
                if is_local and column in ("neighbours", "persons"):
                    continue
                found[f"{where} {table}", link, column] = value
    return found


# ---- the page ----


def read_page(text):
    """Return the cells of the tables of a page, by table, class and column."""
    found = {}
    for name, block in re.findall(_TABLE, text, flags=re.M | re.S):
        titles, *others = csv.reader(re.findall(r"^   (?!:[\w-]+: )(\S.*)$", block, re.M))
        for link, *values in others:
            found |= {(name, link, c): v for c, v in zip(titles[1:], values, strict=True)}
    return found


_TABLE = r"^\.\. begin ([a-z ]+)\n(.*?)^\.\. end \1$"


def write_page(text, tried):
    """Return a page with its tables made anew."""

    def table(found):
        name = found[1]
        mine = {(link, c): value for (t, link, c), value in tried.items() if t == name}
        links, columns = (list(dict.fromkeys(key[i] for key in mine)) for i in range(2))
        lines = [["estimator", *columns]]
        lines += [[link, *(mine[link, column] for column in columns)] for link in links]
        body = io.StringIO()
        csv.writer(body, lineterminator="\n").writerows(lines)
        head = ".. csv-table::\n   :class: estimator-table\n   :header-rows: 1\n\n"
        return f".. begin {name}\n\n{head}{textwrap.indent(body.getvalue(), '   ')}\n.. end {name}"

    return re.sub(_TABLE, table, text, flags=re.M | re.S)


def differences(text, tried):
    """Return the cells of a page that are not what is tried, as texts."""
    page = read_page(text)
    keys = dict.fromkeys([*page, *tried])
    return [
        f"{key}: {page.get(key)!r} on the page, {tried.get(key, 'nothing')!r} here"
        for key in keys
        if key not in page or key not in tried or tried[key] not in (None, page[key])
    ]


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit(f"usage: {COMMAND}")
    unknown = [key for key, value in cells().items() if value is None]
    if unknown:
        sys.exit(
            f"The packages of these kinds are needed too: {sorted({key[2] for key in unknown})}"
        )
    PAGE.write_text(write_page(PAGE.read_text(encoding="utf-8"), cells()), encoding="utf-8")
