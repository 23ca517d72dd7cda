"""PrivateMixtureSampler: what a fit lets out of the records, and what it costs."""

import math
import pickle

import numpy as np
import pandas as pd
import pytest
from mixture_tables import (
    FAR,
    JOBS,
    SCHEMA,
    X,
    Y,
    kinds,
    make,
    quick,
    same,
    table,
    train,
)
from numpy.testing import assert_allclose
from scipy.stats import norm

from sklearn_dpgen.ledger import _base
from sklearn_dpgen.tables import _mixture_evolution
from sklearn_dpgen.utils._random import NoiseSource

quick = pytest.fixture(autouse=True)(quick)


@pytest.fixture
def told_by_releases_alone(forced):
    """Return a check that tables with the same releases give the same fit."""

    def check(kind, **options):
        fits = []
        for given in ((X, Y), (table(seed=5)[0], np.repeat(["a", "b"], [50, 10]))):
            forced.clear()
            fits.append(train(make(**options), kind, *given))
        first, second = fits
        drawn = [fit.sample(9, random_state=0) for fit in fits]
        return (
            same(first, second)
            and first.privacy_ == second.privacy_
            and drawn[0].equals(*drawn[1:])
        )

    return check


@kinds
def test_tables_with_equal_releases_give_equal_fits(told_by_releases_alone, monkeypatch, kind):
    assert told_by_releases_alone(kind, n_cells="auto", delta="auto")
    count, exact = _mixture_evolution.marginal_counts, []
    monkeypatch.setattr(
        _mixture_evolution, "marginal_counts", lambda *args: exact.append(count(*args)) or exact[-1]
    )
    assert told_by_releases_alone(kind)
    estimate = _mixture_evolution.estimate_mixture
    monkeypatch.setattr(
        _mixture_evolution,
        "estimate_mixture",
        lambda noisy, *args: estimate(noisy + exact[-1], *args),
    )
    assert not told_by_releases_alone(kind)


@pytest.mark.parametrize(("n_iter", "epsilon", "delta"), [(1, 0.7, 1e-4), (4, 3.0, "auto")])
def test_the_noise_of_all_releases_is_within_the_budget(released, n_iter, epsilon, delta):
    sampler = make(epsilon, n_iter=n_iter, delta=delta).fit(X, Y)
    report, scales = sampler.privacy_, np.array([r.scale for r in released])
    assert_allclose(list(report.noise_scale.values()), scales)
    assert len(scales) == report.n_releases == n_iter + 2
    precisions = scales**-2.0
    assert_allclose(precisions / precisions.sum(), [0.1, *[0.2 / n_iter] * n_iter, 0.7])
    assert report.delta == (0.1 / 60 if delta == "auto" else delta)
    assert report.sensitivity == pytest.approx(math.sqrt(2))
    # Balle and Wang, "Improving the Gaussian mechanism", 2018, theorem 8.
    mu = math.sqrt(2 * precisions.sum())
    tails = norm.cdf([mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu])
    assert tails[0] - math.exp(epsilon) * tails[1] == pytest.approx(report.delta, rel=1e-6)
    assert sampler.noise_multiplier_ == pytest.approx(1 / mu)


@kinds
def test_every_record_is_counted_once(released, kind):
    frame = X.assign(age=X["age"] * 3 - 20)  # some lie outside of the bounds
    train(make(5.0, n_cells=3), kind, frame)
    expected = []
    for rows in [Y != ""] if kind == "none" else [Y == "a", Y == "b"]:
        part, days = frame[rows], (frame["day"][rows] - pd.Timestamp("2020-01-01")).dt.days
        expected += [*np.histogram(part["age"].clip(0, 100), [0, 26, 51, 76, 101])[0]]
        expected += [*np.histogram(part["pay"].dropna(), 4, (0, 10))[0], part["pay"].isna().sum()]
        expected += [(part["job"] == job).sum() for job in JOBS]
        expected += [(part["level"] == level).sum() for level in (1, 2, 3)]
        expected += [*np.histogram(days, [0, 92, 183, 275, 366])[0]]
    first, *votes, last = [r.value for r in released]
    assert_allclose(first * math.sqrt(5), expected, atol=1e-9)
    assert [(counts.sum(), (counts % 1).any()) for counts in votes] == [(60, False)] * 2
    cells = last.reshape(-1, 3, 19)
    assert_allclose(cells.sum(axis=1).ravel(), first, atol=1e-9)
    # Within a cell every column counts the same records.
    sums = np.add.reduceat(cells, [0, 4, 9, 12, 15], axis=2)
    assert_allclose(sums, np.repeat(sums[..., :1], 5, axis=2), atol=1e-9)


def largest_change(forced, kind):
    """Return the largest l2 change of any release by one record, and by its label."""
    largest = 0.0
    for trial in range(4):
        frame, y = X.copy(), Y.copy()
        frame.loc[trial] = FAR
        frame = frame.astype(X.dtypes)
        if kind == "private" and trial % 2:
            y[trial] = "a" if y[trial] == "b" else "b"
        seen = []
        for given in ((X, Y), (frame, y)):
            forced.clear()
            train(make(n_cells=3, random_state=trial), kind, *given)
            seen.append(list(forced))
        if [*map(len, seen[0])] != [*map(len, seen[1])]:
            return math.inf
        largest = max(largest, *map(np.linalg.norm, map(np.subtract, *seen)))
    return largest


@kinds
def test_a_record_changes_a_release_by_the_root_of_two(forced, monkeypatch, kind):
    assert largest_change(forced, kind) == pytest.approx(math.sqrt(2))
    votes, count, project = (
        getattr(_mixture_evolution, name)
        for name in ("nearest_neighbor_votes", "marginal_counts", "project_simplex")
    )
    exact = []

    def keep(*args, **options):
        exact.append(votes(*args, **options))
        return exact[-1]

    def leak(shares):
        return np.roll(project(shares), exact[-1] @ np.arange(len(exact[-1])))

    for broken in (
        {"marginal_counts": lambda *args: count(*args) * math.sqrt(5)},
        {"nearest_neighbor_votes": lambda *args, **options: 2 * votes(*args, **options)},
        # Votes without noise choose the next candidates, and the cells.
        {"nearest_neighbor_votes": keep, "project_simplex": leak},
    ):
        with monkeypatch.context() as patch:
            for name, function in broken.items():
                patch.setattr(_mixture_evolution, name, function)
            assert largest_change(forced, kind) > 1.2 * math.sqrt(2)


def noise_of(released, sampler, kind="none", frame=X):
    """Return the noise of each release, in units of what the report states."""
    released.clear()
    stated = train(sampler, kind, frame).privacy_.noise_scale.values()
    return [(r.out - r.value) / scale for r, scale in zip(released, stated, strict=True)]


def test_the_noise_is_normal_and_of_the_stated_scale(released, monkeypatch):
    def is_standard():
        sampler = make(bins=90, n_cells=4, n_iter=1, random_state=None)
        noise = np.concatenate(noise_of(released, sampler))
        pairs = (noise[:-1] * noise[1:]).mean()
        moments = [noise.mean(), ((noise**2).mean() - 1) / math.sqrt(2), pairs]
        return np.abs(moments).max() * math.sqrt(noise.size) < 6

    class Halved(NoiseSource):
        def normal(self, size):
            return super().normal(size) / 2

    class Repeated(NoiseSource):
        def normal(self, size):
            return np.full(size, super().normal(1))

    assert is_standard()
    for broken in (Halved, Repeated):
        monkeypatch.setattr(_base, "noise_source", lambda *a, b=broken, **k: b())
        assert not is_standard()


def test_the_report_names_what_is_public():
    plain, named = make().fit(X).privacy_, make().fit(X, Y).privacy_
    assert plain.public == ("n_samples", "names of the columns", "schema", "bins")
    assert "label" not in plain.neighbouring
    assert "and its label" in named.neighbouring
    assert "classes" in named.public
    given = make(label_proportions=[0.5, 0.5]).fit(X, Y).privacy_
    assert {"classes", "label_proportions"} <= set(given.public)
    assert "seed" in plain.noise_source
    assert make(random_state=None).fit(X).privacy_.noise_source == "operating system entropy"
    assert (make(np.inf).fit(X).privacy_.delta, plain.delta) == (0, 1e-5)


def test_no_record_is_kept():
    def size(sampler):
        return len(pickle.dumps(sampler))

    few, many = (make().fit(*given) for given in ((X, Y), table(600)))
    assert abs(size(few) - size(many)) < 60
    few.kept_, many.kept_ = X, table(600)[0]
    assert abs(size(few) - size(many)) > 60


def reveals(error):
    text = ""
    while error is not None:
        text, error = text + str(error), error.__cause__ or error.__context__
    return "secret" in text or "271828" in text


@pytest.mark.parametrize(
    ("column", "value"),
    [("job", "secret"), ("job", None), ("age", np.nan), ("age", "secret"), ("level", 271828)]
    + [("day", "secret"), ("day", pd.NaT), ("y", "secret"), ("y", np.nan), ("y", 271828.5)],
)
def test_errors_show_no_value(column, value):
    frame = X.assign(y=Y).astype(object)
    frame.loc[4, column] = value
    with pytest.raises((ValueError, TypeError), match=column) as raised:
        make(classes=["a", "b"]).fit(frame[list(SCHEMA)], frame["y"])
    assert not reveals(raised.value)
    assert reveals(ValueError("secret"))
