"""Plans without records, persons as the unit of protection, and ledgers."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
from generator_cases import train

from sklearn_dpgen.accounting import ProjectionLaw
from sklearn_dpgen.domains import Ball, Box
from sklearn_dpgen.exceptions import BudgetExceededError
from sklearn_dpgen.ledger import PrivacyLedger
from sklearn_dpgen.ledger._base import PrivateEstimator
from sklearn_dpgen.ledger._unit import Persons
from sklearn_dpgen.mechanisms._sampled import StratifiedGaussianRun
from sklearn_dpgen.mechanisms._sequence import GaussianSequenceRun
from sklearn_dpgen.schema import Numeric, Schema
from sklearn_dpgen.smoothed import (
    NoisyRelease,
    SmoothedSlicedWassersteinAdapter,
    smoothed_sliced_wasserstein,
)
from sklearn_dpgen.smoothed._releases import ClassRecords
from sklearn_dpgen.utils._random import NoiseSource

pytestmark = pytest.mark.filterwarnings("ignore:The noise on the mean")

CASES = [
    (release, kind)
    for release in ("records", "moments", "projections")
    for kind in ("none", "public", "private")
    if (release, kind) != ("projections", "private")
]
RELEASES = ["records", "moments", "projections"]


def sizes_of(kind):
    return {"class_sizes": [16, 24]} if kind == "public" else {}


def adapter_of(release, **options):
    small = {
        "source_iter": 3,
        "training__max_iter": 3,
        "training__hidden_layer_sizes": (4,),
        "feature_dim": 3,
    }
    given = {"domain": partial(Box, -3, 3), "random_state": 0} | small | options
    return SmoothedSlicedWassersteinAdapter(release=NoisyRelease(release)).set_params(**given)


def fit_adapter(adapter, labelled, X=None, rows=None):
    """Fit on a source of 10 records, and a target of 30."""
    domain = np.where(np.arange(40) < 10, 1, -1)
    rows = np.arange(40) if rows is None else rows
    return adapter.fit(labelled.X if X is None else X, (np.arange(40) % 2)[rows], domain[rows])


# Plans.


@pytest.mark.parametrize("seed", [0, None])
@pytest.mark.parametrize(("release", "kind"), CASES)
def test_a_plan_is_the_report_of_the_fit(tiny_generator, labelled, release, kind, seed):
    generator = tiny_generator(release__kind=release, random_state=seed)
    report = train(generator, labelled, kind).privacy_
    assert report == generator.plan(40, 3, **sizes_of(kind))
    assert sum(report.split.values()) == pytest.approx(1)
    assert report.precision
    if kind != "public":
        assert report != generator.plan(41, 3)


@pytest.mark.parametrize("kind", ["none", "private"])
def test_what_a_ledger_books_is_all_that_is_released(tiny_generator, labelled, drawn, kind):
    report = train(tiny_generator(release__batch_size=5), labelled, kind).privacy_
    n_made = sum(1 if batches[0].ndim == 1 else len(batches[0]) for _, batches in drawn)

    def is_all(releases):
        return sum(times for _, times in releases) == n_made

    assert is_all(report.releases)
    if kind == "private":
        (counts,) = (p for p, times in report.releases if times == 1)
        assert 2**0.5 / counts.mu == pytest.approx(report.parts[1].noise_scale)
        # The negative twin: label counts left out.
        assert not is_all(report.parts[0].releases)


@pytest.mark.parametrize("release", RELEASES)
def test_a_plan_of_an_adapter(labelled, release):
    adapter = adapter_of(release)
    report = adapter.plan(30, 3, n_source=10)
    assert report == fit_adapter(adapter, labelled).privacy_
    alone = adapter.plan(0, 3)
    assert (alone.epsilon, alone.n_releases) == (0.0, 0)
    with pytest.warns(UserWarning, match="sample_domain is absent"):
        assert adapter.fit(labelled.X, np.arange(40) % 2).privacy_ == alone
    assert report == adapter_of(release).plan(30, 3)


def test_a_plan_refuses_what_a_fit_refuses(tiny_generator):
    with pytest.raises(ValueError, match="'epsilon' parameter"):
        tiny_generator(epsilon=-1).plan(40, 3)
    with pytest.raises(ValueError, match="batch_size must be at most"):
        tiny_generator(release__batch_size=41).plan(40, 3)
    with pytest.raises(ValueError, match="n_generators must be 1"):
        tiny_generator(release__kind="projections", n_generators=2).plan(40, 3)
    with pytest.raises(ValueError, match="class_sizes must be integers that add up"):
        tiny_generator().plan(40, 3, class_sizes=[16, 23])
    with pytest.raises(ValueError, match="batch_size must be at most"):
        adapter_of("records", release__batch_size=31).plan(30, 3)


def test_a_plan_warns_as_a_fit_does(tiny_generator):
    with pytest.warns(UserWarning, match="All releases together leave noise of"):
        tiny_generator(epsilon=0.1, release__n_epochs=0.5).plan(40, 3)


def test_the_precision_is_that_of_the_mean(tiny_generator):
    report = tiny_generator(release__n_epochs=2.0, release__batch_size=4).plan(40, 3)
    # 20 releases of 4 records, in a box of half width 3.
    noise = report.noise_scale / (3 * 3**0.5) / 80**0.5
    (words,) = (text for name, text in report.precision.items() if name == "mean of the records")
    assert float(words.split()[2]) == pytest.approx(noise, rel=0.06)
    exact = tiny_generator(epsilon=np.inf).plan(40, 3)
    assert exact.precision == {"mean of the records": "exact: there is no noise"}
    assert exact.split == {}


# Persons.


def of_persons(table, n_rows=5):
    """Return rows of 40 persons, of whom the first has more than the others."""
    rows = np.repeat(np.arange(40), np.r_[n_rows, np.arange(39) % 3 + 1])
    rows = np.random.default_rng(2).permutation(rows)
    frame = pd.DataFrame(table.X[rows], columns=["u", "v", "w"])
    frame.insert(2, "who", [f"person {row}" for row in rows])
    return frame, rows


@pytest.mark.parametrize(("release", "kind"), CASES)
def test_persons_are_planned_as_records_are(tiny_generator, labelled, release, kind):
    frame, rows = of_persons(labelled)
    generator = tiny_generator(release__kind=release, unit="who")
    labelled.X, labelled.y = frame, labelled.y[rows]
    report = train(generator, labelled, kind).privacy_
    assert report == generator.plan(40, 3, **sizes_of(kind))
    plain = tiny_generator(release__kind=release).set_params(
        labels=generator.labels, classes=generator.classes
    )
    plain = plain.plan(40, 3, **sizes_of(kind))
    assert (report.unit, report.noise_scale) == ("who", plain.noise_scale)
    assert report.releases == plain.releases
    assert "n_samples" in report.public
    assert generator.n_features_in_ == 3
    assert "who" not in generator.sample(2).columns
    assert generator.score(frame) == generator.score(frame.drop(columns="who"))


@pytest.mark.parametrize("release", RELEASES)
def test_an_adapter_protects_persons_of_the_target(labelled, release):
    frame, rows = of_persons(labelled)
    adapter = fit_adapter(adapter_of(release, unit="who"), labelled, frame, rows)
    assert adapter.privacy_ == adapter.plan(30, 3)
    assert adapter.privacy_.unit == "who"
    np.testing.assert_array_equal(
        adapter.predict(frame), adapter.predict(frame.drop(columns="who"))
    )


@pytest.mark.parametrize("release", ["records", "moments", "projections"])
def test_a_person_is_of_one_public_class(tiny_generator, labelled, release):
    frame, rows = of_persons(labelled)
    y = labelled.y[rows]
    own = np.flatnonzero(rows == 0)
    y[own[0]] = "a" if y[own[1]] == "b" else "b"
    generator = tiny_generator(release__kind=release, unit="who")
    with pytest.raises(ValueError, match="must be of one class") as raised:
        generator.fit(frame, y)
    assert "person 0" not in str(raised.value)
    if release != "projections":
        generator.set_params(labels="private", classes=["a", "b"]).fit(frame, y)


def released_values(fit):
    """Return what goes into each release of a fit."""
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        for run in (StratifiedGaussianRun, GaussianSequenceRun):
            release = run.release

            def watch(self, value, *args, release=release):
                seen.append(value.copy())
                return release(self, value, *args)

            patch.setattr(run, "release", watch)
        # Batches and rows of the others are the same on both sides; no noise, but for its size.
        patch.setattr(NoiseSource, "_uniform", lambda self, size: _fixed(size))
        fit()
    return seen


def _fixed(size):
    count = int(np.prod(size))
    return ((0.5 + np.arange(count) * 0.618033988749895) % 1).reshape(size)


def all_rows_each(self, X, y, seed):
    """A broken variant: every row of a person is a record."""
    return [X.drop(columns="who"), y]


def all_rows_of_members(self, drawn, noise):
    """A broken variant: a batch has all rows of its persons."""
    picked = [who[positions] for who, positions in zip(self.members, drawn, strict=True)]
    return [np.flatnonzero(np.isin(self.persons.codes, who)) for who in picked]


@pytest.mark.parametrize("broken", [False, True])
@pytest.mark.parametrize("release", ["records", "projections"])
def test_a_person_moves_a_release_by_the_diameter(
    tiny_generator, labelled, monkeypatch, release, broken
):
    if broken:
        monkeypatch.setattr(PrivateEstimator, "_one_labelled_row_each", all_rows_each)
        monkeypatch.setattr(ClassRecords, "rows", all_rows_of_members)
    # Other records get other directions, but for here.
    monkeypatch.setattr(ProjectionLaw, "draw", lambda law, noise: np.eye(3))
    frame, rows = of_persons(labelled)
    options = {
        "release__batch_size": 40,
        "release__n_epochs": 1.0,
        "training__max_iter": 1,
        "epsilon": 1e4,
        "delta": 1e-3,
    }
    options |= {
        "domain": Ball(1.0, n_features=3),
        "release__n_projections": 3,
        "release__kind": release,
    }

    def values(table):
        if broken and release == "records":
            # All rows are a batch.
            options["release__batch_size"] = len(table)
        generator = tiny_generator(unit="who", **options)
        return released_values(lambda: generator.fit(table))[0]

    other = frame.copy()
    # As far from each other as the ball allows.
    frame.loc[rows == 0, ["u", "v", "w"]] = [9.0, 0.0, 0.0]
    other.loc[rows == 0, ["u", "v", "w"]] = [-9.0, 0.0, 0.0]
    other.loc[rows == 0, "who"] = "somebody else"
    change = np.linalg.norm(values(frame) - values(other))
    assert change > 0.5
    assert (change <= 2 * (1 + 1e-9)) == (not broken)


def test_rows_are_drawn_anew_for_each_projection():
    codes = np.repeat(np.arange(4), [1, 2, 3, 10])
    records = ClassRecords(
        np.zeros((16, 1)), np.array([0, 1, 0, 1])[codes], 2, is_public=True, persons=Persons(codes)
    )
    assert [who.tolist() for who in records.members] == [[0, 2], [1, 3]]
    noise, counts = NoiseSource(0), np.zeros(16)
    for _ in range(1500):
        first, second = records.rows([np.array([1]), np.array([0, 1])], noise)
        assert (codes[first].tolist(), codes[second].tolist()) == ([2], [1, 3])
        counts[first] += 1
        counts[second] += 1
    expected = np.array([0, 750, 500, 150])[codes]
    np.testing.assert_allclose(counts, expected, atol=5 * 400**0.5)


@pytest.mark.parametrize("broken", [False, True])
@pytest.mark.parametrize("release", ["records", "projections"])
def test_an_adapter_releases_a_row_of_each_person(labelled, monkeypatch, release, broken):
    """Records of a person are alike here, and no others: a release tells whose they are."""
    if broken:
        # As if rows were records: those of the first persons, some of them twice.
        monkeypatch.setattr(
            Persons,
            "draw",
            lambda self, noise, who=None: np.arange(self.n_persons if who is None else len(who)),
        )
    frame, rows = of_persons(labelled)
    options = {
        "release__batch_size": 30,
        "release__n_epochs": 1.0,
        "training__max_iter": 1,
        "unit": "who",
    }
    seen = released_values(
        lambda: fit_adapter(adapter_of(release, **options), labelled, frame, rows)
    )
    (values,) = seen
    assert values.shape == (90,)
    assert (len(np.unique(values.reshape(30, 3).round(9), axis=0)) == 30) == (not broken)


def test_the_column_of_persons_is_not_in_the_schema(tiny_generator):
    schema = Schema({"who": Numeric(0, 1), "u": Numeric(0, 1)})
    generator = tiny_generator(schema=schema, domain=None, unit="who")
    with pytest.raises(ValueError, match="unit='who' is a column of the schema"):
        generator.plan(40)
    with pytest.raises(ValueError, match="unit='who' is a column of the schema"):
        generator.fit(pd.DataFrame({"who": [0.0, 1.0], "u": [0.0, 1.0]}))


# Ledgers.


def ledger_in(folder, epsilon):
    return PrivacyLedger.create(folder / "of.ledger", dataset="t", epsilon=epsilon, delta=1e-2)


def no_draw(self, size):
    raise AssertionError("a draw was made")


def charges_late(self, report):
    """A broken variant: what is refused comes after the training."""
    self.privacy_ = report


@pytest.mark.parametrize("broken", [False, True])
@pytest.mark.parametrize(("release", "kind"), CASES)
def test_a_refused_fit_draws_nothing(
    tiny_generator, labelled, tmp_path, monkeypatch, release, kind, broken
):
    ledger = ledger_in(tmp_path, 0.5)
    generator = tiny_generator(release__kind=release, ledger=ledger)
    monkeypatch.setattr(NoiseSource, "_uniform", no_draw)
    if broken:
        monkeypatch.setattr(PrivateEstimator, "_charge", charges_late)
    with pytest.raises(AssertionError if broken else BudgetExceededError):
        train(generator, labelled, kind)
    assert hasattr(generator, "privacy_") == broken
    assert not hasattr(generator, "generator_")
    assert broken or not hasattr(generator, "label_proportions_")
    assert ledger.spent() == 0


@pytest.mark.parametrize("release", RELEASES)
def test_a_refused_adapter_draws_nothing(labelled, tmp_path, monkeypatch, release):
    ledger = ledger_in(tmp_path, 0.5)
    adapter = adapter_of(release, ledger=str(ledger.path))
    monkeypatch.setattr(NoiseSource, "_uniform", no_draw)
    with pytest.raises(BudgetExceededError):
        fit_adapter(adapter, labelled)
    assert not hasattr(adapter, "privacy_")
    monkeypatch.setattr(PrivateEstimator, "_charge", charges_late)
    with pytest.raises(AssertionError, match="a draw was made"):
        fit_adapter(adapter, labelled)


@pytest.mark.parametrize(("release", "kind"), CASES)
def test_a_fit_is_booked_once(tiny_generator, labelled, tmp_path, release, kind):
    ledger = ledger_in(tmp_path, 5.0)
    generator = train(tiny_generator(release__kind=release, ledger=ledger), labelled, kind)
    (charge,) = ledger.report().charges
    assert charge.report == generator.privacy_
    assert charge.what == "SmoothedSlicedWassersteinGenerator"


def test_a_distance_is_booked_before_it_is_released(tmp_path, monkeypatch):
    ledger, ball = ledger_in(tmp_path, 0.6), Ball(1.0, n_features=2)
    rng = np.random.default_rng(0)
    X, Y = ball.sample(50, rng), ball.sample(60, rng)
    options = {"epsilon": 1.0, "delta": 1e-4, "domain": ball, "ledger": ledger}
    result = smoothed_sliced_wasserstein(X, Y, **options)
    (charge,) = ledger.report().charges
    assert charge.report == result.privacy
    assert result.privacy.split == {"projections": 1.0}
    assert "± " in result.privacy.precision["a projection of a record"]
    # Further public samples are free.
    result.distance_to(Y)
    spent = ledger.spent()
    monkeypatch.setattr(NoiseSource, "_uniform", no_draw)
    with pytest.raises(BudgetExceededError):
        smoothed_sliced_wasserstein(X, Y, **options)
    assert ledger.spent() == spent
    with pytest.raises(AssertionError, match="a draw was made"):
        smoothed_sliced_wasserstein(X, Y, **options | {"ledger": None})
