"""Records that are drawn under conditions."""

import numpy as np
import pandas as pd
import pytest
from condition_tables import DAY, ENCODER, SCHEMA, between, every_closed, few
from numpy.testing import assert_array_equal
from scipy.stats import chisquare
from sklearn.base import BaseEstimator

from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.schema import Categorical, Numeric, Schema
from sklearn_dpgen.schema._binned import Binned
from sklearn_dpgen.tables import _conditional_sampling
from sklearn_dpgen.tables._conditional_sampling import (
    ConditionalSamplerMixin,
    read_conditions,
)
from sklearn_dpgen.tables._distributions import ProductMixture
from sklearn_dpgen.utils._random import split_random_state


class Fixed(ConditionalSamplerMixin, BaseEstimator):
    """A sampler of some law."""

    def __init__(self, encoder, n_rows=200):
        self.encoder, self.n_rows, rng = encoder, n_rows, np.random.default_rng(0)
        widths = [part.stop - part.start for part in encoder.domain_.slices]
        rows = np.hstack([rng.dirichlet(np.full(width, 0.4), size=n_rows) for width in widths])
        shares = np.full(n_rows, 1 / n_rows)
        self.encoder_, self.law_ = encoder, ProductMixture(encoder.domain_, shares, rows)

    def fit(self):
        return self


SAMPLER = Fixed(ENCODER)
PAIR = TabularEncoder(
    Schema({"n": Numeric(0, 9, integer=True), "job": Categorical(["a", "b", "c"])}),
    n_bins={"n": [0, 1, 4, 9]},
).fit()


def pair_counts(sampler, conditions, n=20_000):
    drawn = sampler.sample(n, conditions=conditions, random_state=0)
    table = np.zeros((10, 3))
    np.add.at(table, (drawn["n"], drawn["job"].map({"a": 0, "b": 1, "c": 2})), 1)
    return table


def pair_law(law, wanted):
    """The exact law of (n, job) given that n is among those wanted."""
    bins, sizes = np.repeat([0, 1, 2], [1, 3, 6]), np.repeat([1, 3, 6], [1, 3, 6])
    numbers = law.probabilities[:, bins] / sizes * np.isin(np.arange(10), wanted)
    table = np.einsum("r,ra,rb->ab", law.shares, numbers, law.probabilities[:, 3:])
    return table / table.sum()


@every_closed
def test_the_law_of_records_in_an_interval(monkeypatch, closed):
    sampler, interval = Fixed(PAIR, n_rows=30), between(1, 5, closed)
    wanted = [value for value in range(10) if value in interval]
    expected = 20_000 * pair_law(sampler.law_, wanted)
    kept = expected > 0
    counts = pair_counts(sampler, {"n": [interval]})
    assert counts[~kept].sum() == 0
    assert chisquare(counts[kept], expected[kept]).pvalue > 1e-3
    # The rows count by their probabilities.
    size = sampler.effective_size({"n": interval})
    bins, sizes = np.repeat([0, 1, 2], [1, 3, 6]), np.repeat([1, 3, 6], [1, 3, 6])
    weights = (sampler.law_.probabilities[:, bins] / sizes)[:, wanted].sum(axis=1)
    assert size == pytest.approx(weights.sum() ** 2 / (weights**2).sum())
    # Bins that count whole are seen.
    split = Binned.split_places
    whole = lambda *args: (*split(*args)[:3], np.ones(len(split(*args)[0])))  # noqa: E731
    monkeypatch.setattr(Binned, "split_places", whole)
    wrong = pair_counts(sampler, {"n": interval})
    assert chisquare(wrong[kept], expected[kept]).pvalue < 1e-6


def test_an_interval_and_its_values_are_the_same_where_bins_are_single():
    ages = TabularEncoder(
        Schema({"n": SCHEMA["age"], "job": SCHEMA["job"]}), n_bins={"n": 200}
    ).fit()
    sampler = Fixed(ages)
    values = {"n": list(range(4, 25))}
    size = sampler.effective_size({"n": between(3, 24, "right")})
    assert size == pytest.approx(sampler.effective_size(values))
    assert sampler.effective_size({"n": between(-np.inf, np.inf)}) == pytest.approx(200)


def test_numbers_are_uniform_in_the_part_of_their_bin():
    conditions = {"pay": between(0.2, 0.45), "day": between(DAY, pd.Timestamp.max)}
    drawn = SAMPLER.sample(20_000, conditions=conditions, random_state=0)
    assert drawn["day"].between(DAY, pd.Timestamp("2020-12-31")).all()
    pay = drawn["pay"].to_numpy()
    law = SAMPLER._restricted(read_conditions(ENCODER, conditions))
    below = (law.shares * law.probabilities[:, ENCODER.blocks_["pay"].start]).sum()
    first = np.histogram(pay, bins=np.linspace(0.2, 0.25, 6))[0]
    second = np.histogram(pay, bins=np.linspace(0.25, 0.45, 21))[0]
    assert first.sum() + second.sum() == 20_000
    expected = np.repeat([below / 5, (1 - below) / 20], [5, 20])
    assert chisquare([*first, *second], 20_000 * expected).pvalue > 1e-3


def test_all_conditions_at_once():
    conditions = {
        "age": [between(30, np.inf, "neither"), 3],
        "pay": [None, between(0.5, 2)],
        "job": "nurse",
        "level": [between(2, 3), 4],
        "day": between(DAY, DAY + pd.Timedelta(40, "D"), "left"),
    }
    drawn = SAMPLER.sample(2000, conditions=conditions, random_state=0)
    assert ((drawn["age"] > 30) | (drawn["age"] == 3)).all()
    assert (drawn["pay"].isna() | (drawn["pay"] >= 0.5)).all()
    assert set(drawn["job"]) == {"nurse"}
    assert set(drawn["level"]) == {2.5, 4.0}
    assert drawn["day"].between(DAY, DAY + pd.Timedelta(39, "D")).all()
    assert drawn["day"].nunique() == 40
    assert drawn.dtypes.equals(SAMPLER.sample().dtypes)
    again = SAMPLER.sample(2000, conditions=conditions, random_state=0)
    assert drawn.equals(again)


def reference(sampler, n, values, seed):
    """Records of single values as they are drawn without intervals: (codes, values) by column."""
    rng = np.random.default_rng(split_random_state(seed, 1)[0])
    law, names = sampler.law_, list(sampler.encoder_.columns_)
    for name, (codes, _) in values.items():
        part = sampler.encoder_.blocks_[name]
        wanted = np.isin(np.arange(part.stop - part.start), codes).astype(float)
        law = law.restricted({names.index(name): wanted})
    rows = law.sample(n, rng)
    frame = sampler.encoder_.decode_codes(rows, rng=rng)
    for name, (codes, given) in values.items():
        drawn = rows[:, names.index(name)]
        order = np.argsort(codes, kind="stable")
        first, stop = (np.searchsorted(np.sort(codes), drawn, side=s) for s in ("left", "right"))
        place = order[first + np.floor(rng.uniform(size=n) * (stop - first)).astype(int)]
        frame[name] = pd.Series(given).astype(frame[name].dtype).iloc[place].array
    return frame


@few
def test_without_intervals_draws_are_as_before():
    assert SAMPLER.sample(3000, random_state=1).equals(reference(SAMPLER, 3000, {}, 1))
    values = {
        "age": (np.array([0, 0, 1, 0]), [3, 4, 30, 5]),
        "pay": (np.array([1, 4]), [0.3, None]),
        "job": (np.array([1]), ["nurse"]),
    }
    conditions = {name: given for name, (_, given) in values.items()}
    drawn = SAMPLER.sample(3000, conditions=conditions, random_state=1)
    pd.testing.assert_frame_equal(drawn, reference(SAMPLER, 3000, values, 1), rtol=0, atol=0)
    intervals = conditions | {"age": between(3, 5)}
    assert not drawn.equals(SAMPLER.sample(3000, conditions=intervals, random_state=1))


def test_few_rows_are_warned_of(recwarn):
    wide, narrow = {"age": between(0, 60)}, {"age": [between(3, 4), 99]}
    SAMPLER.sample(5)
    SAMPLER.sample(5, conditions=wide)
    Fixed(ENCODER, n_rows=3).sample(5, conditions={})
    assert Fixed(ENCODER, n_rows=3).effective_size(narrow) < 10
    assert len(recwarn) == 0
    sampler = Fixed(ENCODER, n_rows=12)
    size = sampler.effective_size(narrow | {"job": "nurse"})
    assert size < 10
    message = rf"Conditions on \['age', 'job'\] have an effective size of {size:.1f} rows"
    with pytest.warns(UserWarning, match=message) as caught:
        sampler.sample(5, conditions=narrow | {"job": "nurse"})
    assert caught[0].filename == __file__


def test_an_interval_without_probability():
    sampler = Fixed(PAIR)
    rows = sampler.law_.probabilities.copy()
    rows[:, :3] = [0.0, 1.0, 0.0]
    sampler.law_ = ProductMixture(sampler.law_.domain, sampler.law_.shares, rows)
    assert set(sampler.sample(50, conditions={"n": between(3, 9)})["n"]) == {3}
    with pytest.raises(ValueError, match=r"\['n'\] are impossible"):
        sampler.sample(5, conditions={"n": between(4, 9)})
    # One number of a continuum: none of the records has it.
    pay = Fixed(ENCODER)
    with pytest.raises(ValueError, match="'pay'"):
        pay.sample(5, conditions={"pay": between(0.3, 0.3)})


@few
def test_blocks_of_draws(monkeypatch):
    monkeypatch.setattr(_conditional_sampling, "_BLOCK", 40 * len(ENCODER.columns_))
    drawn = SAMPLER.sample(101, conditions={"age": [between(3, 60), 99]}, random_state=0)
    assert_array_equal(drawn.index, range(101))
    assert (drawn["age"].between(3, 60) | (drawn["age"] == 99)).all()
