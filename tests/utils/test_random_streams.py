import copy
import itertools
import math

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.special import ndtri

from sklearn_dpgen.domains import Box
from sklearn_dpgen.ledger._base import PrivateEstimator
from sklearn_dpgen.utils._random import (
    NoiseSource,
    noise_source,
    split_random_state,
    torch_generator,
)

N_DRAWS = 40_000
reproducibly = settings(deadline=None, max_examples=40, derandomize=True)


class ConstantWords(NoiseSource):
    """A source whose 64 random bits are one word for ever."""

    def __init__(self, word):
        super().__init__()
        self.word = word

    def _words(self, count):
        return np.full(count, self.word, dtype=np.uint64)


class NaiveSource(ConstantWords):
    """All 53 bits and a half step, which float64 cannot hold."""

    def _uniform(self, size):
        words = self._words(int(np.prod(size)))
        return ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53


def in_open_interval(kind):
    lowest, highest = (kind(word).uniform(1)[0] for word in (0, 2**64 - 1))
    return 0 < lowest < highest < 1 and lowest == 1 - highest


def test_uniforms_stay_inside_the_open_interval():
    assert in_open_interval(ConstantWords)
    assert not in_open_interval(NaiveSource)
    for word in (0, 2**64 - 1):
        source = ConstantWords(word)
        assert np.isfinite(source.normal(3)).all()
        assert np.isfinite(source.laplace(3)).all()
        for high in (1, 3, 7, 10**6, 2**31):
            assert source.integers(high, 1)[0] == (high - 1 if word else 0)


def test_normal_and_uniform_are_symmetric():
    words = np.random.default_rng(0).integers(2**64, size=50, dtype=np.uint64)
    for word in words:
        low, high = (ConstantWords(w).uniform(1)[0] for w in (word, ~word))
        assert low == 1 - high
        assert ndtri(low) == pytest.approx(-ndtri(high), rel=1e-9)


def quantile_z_scores(draws, law):
    """Deviations of the empirical distribution at deciles and tails, in standard deviations."""
    p = np.array([1e-3, 0.01, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.99, 1 - 1e-3])
    shares = (draws[:, None] <= law.ppf(p)).mean(axis=0)
    return (shares - p) / np.sqrt(p * (1 - p) / len(draws))


@pytest.mark.parametrize(
    ("draw", "law"),
    [
        (NoiseSource.uniform, stats.uniform),
        (NoiseSource.normal, stats.norm),
        (NoiseSource.laplace, stats.laplace),
    ],
)
def test_draws_follow_their_law(draw, law):
    draws = draw(noise_source(0, "law"), N_DRAWS)
    assert abs(quantile_z_scores(draws, law)).max() < 5
    # Negative twin: a tenth more spread, or a tenth of a standard deviation aside.
    center, spread = law.mean(), law.std()
    assert abs(quantile_z_scores(center + 1.1 * (draws - center), law)).max() > 5
    assert abs(quantile_z_scores(draws + 0.1 * spread, law)).max() > 5
    for k in (1, 2):
        moments = np.array([law.moment(k), law.moment(2 * k)])
        error = np.mean(draws**k) - moments[0]
        assert abs(error) < 5 * math.sqrt((moments[1] - moments[0] ** 2) / N_DRAWS)


def test_successive_draws_are_independent():
    source = noise_source(1)
    draws = np.array([source.normal(N_DRAWS) for _ in range(4)] + [source.laplace(N_DRAWS)])
    correlations = np.corrcoef(np.concatenate([draws, abs(draws)]))
    correlations -= np.eye(len(correlations))
    # A symmetric variable and its size are uncorrelated, so no entry is exempt.
    assert abs(correlations).max() < 5 / math.sqrt(N_DRAWS)


def test_integers_are_uniform():
    counts = np.bincount(noise_source(2).integers(5, N_DRAWS), minlength=5)
    assert len(counts) == 5
    assert abs(counts / N_DRAWS - 0.2).max() < 5 * math.sqrt(0.16 / N_DRAWS)


class Uneven(NoiseSource):
    """Distinct indices, the first of them likelier than the last."""

    def choice(self, n, size):
        return np.sort(np.argsort(self.uniform(n) + np.arange(n) / n)[:size])


class Chunked(NoiseSource):
    """Every index is as likely as any other, but neighbours come together."""

    def choice(self, n, size):
        return np.sort((self.integers(n, 1) + np.arange(size)) % n)


def inclusion_z_scores(source, n, size, n_draws):
    """How often each index, and each pair, is drawn, in standard deviations."""
    drawn = np.zeros((n_draws, n))
    for row in drawn:
        picks = source.choice(n, size)
        assert len(picks) == size
        row[picks] = 1
    counts = drawn.T @ drawn
    rate = np.full((n, n), size / n * (size - 1) / (n - 1))
    np.fill_diagonal(rate, size / n)
    return (counts - n_draws * rate) / np.sqrt(n_draws * rate * (1 - rate))


# Keys for a large share of few records, rejection for a small share of many.
@pytest.mark.slow
@pytest.mark.parametrize(("n", "size"), [(2, 1), (7, 3), (12, 11), (40, 4), (60, 7)])
def test_every_index_and_every_pair_is_equally_likely(n, size):
    n_draws = 6000
    with np.errstate(invalid="ignore", divide="ignore"):
        z = inclusion_z_scores(noise_source(5), n, size, n_draws)
        assert abs(z[np.isfinite(z)]).max() < 5
        z = inclusion_z_scores(Chunked(0), n, size, n_draws)
        assert abs(np.diag(z)).max() < 5
        if 1 < size < n - 1:
            assert abs(z).max() > 5
        z = inclusion_z_scores(Uneven(1), n, size, n_draws)
        assert abs(z[np.isfinite(z)]).max() > 5


@reproducibly
@given(st.data(), st.integers(0, 300))
def test_a_choice_is_of_distinct_indices(data, n):
    size = data.draw(st.integers(0, n))
    for seed in (None, 0):
        picks = NoiseSource(seed).choice(n, size)
        assert picks.dtype == np.int64
        assert len(picks) == size
        assert len(set(picks)) == size
        assert set(picks) <= set(range(n))


class Unchecked(NoiseSource):
    """The first distinct values, and whatever is drawn to replace the others."""

    def choice(self, n, size):
        drawn = self.integers(n, size)
        drawn = drawn[np.sort(np.unique(drawn, return_index=True)[1])]
        return np.append(drawn, self.integers(n, size - len(drawn)))


# As many as are just drawn one after another, and one more, which are drawn by keys.
@pytest.mark.parametrize("size", [37, 38])
def test_many_choices_are_of_distinct_indices(size):
    def are_distinct(source):
        return all(len(set(source.choice(300, size))) == size for _ in range(500))

    assert are_distinct(noise_source(4))
    assert not are_distinct(Unchecked(0))


@pytest.mark.slow
@pytest.mark.parametrize(("n", "size"), [(12, 5), (60, 7)])
def test_a_choice_comes_in_random_order(n, size):
    def z_scores(source):
        picks = np.array([source.choice(n, size) for _ in range(4000)])
        rises = (picks[:, :-1] < picks[:, 1:]).mean(axis=0)
        return abs(rises - 0.5) / (0.5 / np.sqrt(len(picks)))

    class Sorted(NoiseSource):
        def choice(self, n, size):
            return np.sort(super().choice(n, size))

    assert z_scores(noise_source(3)).max() < 5
    assert z_scores(Sorted(0)).min() > 5


def test_a_choice_takes_few_draws_of_many_records():
    class Counting(NoiseSource):
        drawn = 0

        def uniform(self, size):
            self.drawn += size
            return super().uniform(size)

    source = Counting(0)
    assert len(source.choice(10**6, 1000)) == 1000
    assert source.drawn < 1100
    source.choice(10, 10)
    assert source.drawn < 1100
    for size in (-1, 11):
        with pytest.raises(ValueError, match="between 0 and n = 10"):
            source.choice(10, size)


def choice_p_value(rows, n):
    """Return the p-value of the chi-square test that all sequences of distinct indices are equal.

    0 where a row holds an index twice.
    """
    size = rows.shape[1]
    if (np.diff(np.sort(rows, axis=1), axis=1) == 0).any():
        return 0.0
    counts = np.unique(rows @ n ** np.arange(size), return_counts=True)[1]
    counts = np.append(counts, np.zeros(math.perm(n, size) - len(counts)))
    return stats.chisquare(counts).pvalue


def sorted_rows(source, n, size, count):
    return np.sort(source.choices(n, size, count), axis=1)


def with_replacement(source, n, size, count):
    return source.integers(n, (count, size))


def shifted_when_equal(source, n, size, count):
    """Distinct, but a repeated index is replaced by the next one."""
    rows = source.integers(n, (count, size))
    for j in range(1, size):
        for _ in range(size):
            taken = (rows[:, :j] == rows[:, j : j + 1]).any(axis=1)
            rows[taken, j] = (rows[taken, j] + 1) % n
    return rows


# Rejection of rows for the first two, row by row for the others.
@pytest.mark.slow
@pytest.mark.parametrize(("n", "size"), [(4, 2), (10, 3), (4, 3), (5, 4)])
def test_choices_have_the_law_of_a_choice(n, size):
    count = 20_000

    def one_by_one(source, n, size, count):
        return np.array([source.choice(n, size) for _ in range(count)])

    for draw in (NoiseSource.choices, one_by_one):
        assert choice_p_value(draw(noise_source(6), n, size, count), n) > 1e-5
    for broken in (sorted_rows, with_replacement, shifted_when_equal):
        assert choice_p_value(broken(noise_source(6), n, size, count), n) < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize(("n", "size"), [(4, 2), (3, 2)])
def test_rows_of_choices_are_independent(n, size):
    def p_value(draw):
        rows = np.concatenate([draw(noise_source(7, i)) for i in range(100)])
        codes = np.unique(rows @ n ** np.arange(size), return_inverse=True)[1]
        n_codes = math.perm(n, size)
        pairs = np.zeros((n_codes, n_codes))
        # Pairs that do not overlap.
        np.add.at(pairs, (codes[0::2], codes[1::2]), 1)
        return stats.chisquare(pairs.ravel()).pvalue

    assert p_value(lambda source: source.choices(n, size, 200)) > 1e-5
    assert p_value(lambda source: source.choices(n, size, 100).repeat(2, axis=0)) < 1e-9


@reproducibly
@given(st.data(), st.integers(1, 60), st.integers(1, 8))
def test_choices_are_rows_of_distinct_indices(data, n, count):
    size = data.draw(st.integers(0, n))
    for seed in (None, 0):
        rows = NoiseSource(seed).choices(n, size, count)
        assert rows.shape == (count, size)
        assert rows.dtype == np.int64
        assert all(len(set(row)) == size and set(row) <= set(range(n)) for row in rows.tolist())


def test_choices_take_few_draws_and_check_their_size():
    class Counting(NoiseSource):
        drawn = 0

        def uniform(self, size):
            self.drawn += math.prod(size)
            return super().uniform(size)

    source = Counting(0)
    assert source.choices(10**4, 100, 500).shape == (500, 100)
    # At the largest size that is drawn by whole rows, some 0.6 of them hold no index twice.
    assert source.drawn < 2 * 100 * 500
    for size in (-1, 11):
        with pytest.raises(ValueError, match="between 0 and n = 10"):
            source.choices(10, size, 2)


@reproducibly
@given(st.one_of(st.integers(0, 20), st.lists(st.integers(0, 4), max_size=3).map(tuple)))
def test_shapes(size):
    expected = np.empty(size).shape
    for seed in (None, 0):
        source = NoiseSource(seed)
        for draws in (source.uniform(size), source.normal(size), source.laplace(size)):
            assert draws.shape == expected
            assert draws.dtype == np.float64
        integers = source.integers(3, size)
        assert integers.shape == expected
        assert integers.dtype == np.int64


def test_system_entropy_never_repeats():
    assert not np.intersect1d(noise_source().uniform(100), noise_source().uniform(100)).size
    assert "operating system entropy" in noise_source().description
    assert "void" in noise_source(0).description


def test_a_seeded_source_depends_on_all_that_is_bound():
    records, table = np.arange(6.0), pd.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]})
    bound = [
        (),
        ("a",),
        ("b",),
        ("a", "b"),
        ("ab",),
        ("", "ab"),
        ("a", ""),
        (1,),
        (1.0,),
        ("1",),
        (None,),
        (True,),
        (records,),
        (records[::-1],),
        (records.reshape(2, 3),),
        (records.astype(np.float32),),
        (records.astype("datetime64[s]"),),
        (records.astype(object),),
        (np.empty((0, 2)),),
        (np.empty((2, 0)),),
        (table,),
        (table.assign(a=[1.0, 3.0]),),
        ({"a": Box(0, 1, n_features=2)},),
        ({"a": Box(0, 2, n_features=2)},),
    ]
    draws = [noise_source(0, *parts).uniform(8) for parts in bound]
    draws += [noise_source(1).uniform(8), noise_source(2**32 - 1).uniform(8)]
    assert len(np.unique(np.concatenate(draws))) == 8 * len(draws)
    for parts, expected in zip(bound, draws, strict=False):
        # A clone is bound as the original is.
        np.testing.assert_array_equal(
            noise_source(0).bind(*copy.deepcopy(parts)).uniform(8), expected
        )


VALUES, CODES, TABLE = np.arange(4.0), np.array([0, 1, 1, 0]), np.full((2, 2), 0.5)
DRAWS = [
    [("add", VALUES, scale, kind) for scale in (1.0, 2.0) for kind in ("gaussian", "laplace")],
    [("add", VALUES + shift, 1.0, "gaussian") for shift in (0.0, 1e-9)],
    [("largest", np.zeros(50) + shift, scale, 5) for shift in (0, 1) for scale in (1.0, 2.0)],
    [("respond", np.tile(codes, 20), TABLE, 1.0) for codes in (CODES, 1 - CODES)],
    [("covers", np.tile(CODES, 20) + m, np.ones(80, int), 0.1) for m in (1, 2)],
    [("choice", n, 5) for n in (10_000, 10_001)],
    [("choices", n, 5, 2) for n in (10_000, 10_001)],
    [("integers", high, 5) for high in (10_000, 10_001)],
]


def drawn(source, call):
    name, *arguments = call
    result = getattr(source, name)(*arguments)
    if name == "add":
        return (result - arguments[0]) / arguments[1]
    return result if np.ndim(arguments[0]) else result / arguments[0]


def are_independent(draws):
    """Whether no two arrays share any draws, but for those by chance."""
    pairs = itertools.combinations(draws, 2)
    return not any(np.isclose(a, b, rtol=0, atol=2e-3).mean() > 0.8 for a, b in pairs)


@pytest.mark.parametrize("calls", DRAWS, ids=lambda calls: calls[0][0])
def test_a_draw_depends_on_its_input_its_scale_and_its_history(calls, monkeypatch):
    def draws():
        return [drawn(noise_source(3, "records"), call) for call in calls]

    assert are_independent(draws())
    for first, second in zip(draws(), draws(), strict=True):
        np.testing.assert_array_equal(first, second)
    source = noise_source(3)
    assert are_independent([drawn(source, calls[0]) for _ in range(3)])
    # Negative twins: what a call is given is ignored, or what came before it.
    monkeypatch.setattr(NoiseSource, "bind", lambda self, *parts: self)
    assert not are_independent(draws())
    assert not are_independent([drawn(source, calls[0]) for _ in range(3)])


def differs_everywhere(source):
    """Whether a source is another one for every change of one entry of long records."""
    records = np.random.default_rng(0).normal(size=(5000, 2))
    draws = [source(records).uniform(4)]
    for row in (0, 99, 100, 101, 2500, 4999):
        changed = records.copy()
        changed[row, -1] += 1e-9
        draws.append(source(changed).uniform(4))
    return len(np.unique(draws)) == 4 * len(draws)


class Fitted(PrivateEstimator):
    def __init__(self, epsilon=1.0, device="cpu", verbose=0, random_state=3):
        self.epsilon = epsilon
        self.device = device
        self.verbose = verbose
        self.random_state = random_state

    def plan(self, n_samples):
        raise NotImplementedError


def test_the_source_of_a_fit_depends_on_every_record():
    def fitted(records):
        return Fitted()._noise_source(3, records)

    assert differs_everywhere(fitted)
    # Negative twins: a hash of the first records, or of each second one.
    assert not differs_everywhere(lambda records: fitted(records[:100]))
    assert not differs_everywhere(lambda records: fitted(records[::2]))


def test_the_source_of_a_fit_depends_on_parameters_that_change_a_release():
    def draws(**parameters):
        return Fitted(**parameters)._noise_source(3).uniform(4).tolist()

    assert draws() == draws(verbose=1) == draws(device="auto") == draws(random_state=4)
    assert draws() != draws(epsilon=2.0)


def test_no_global_state_is_read_or_written():
    numpy_stream = np.random.mtrand._rand

    def state():
        _, keys, position, *_ = numpy_stream.get_state()
        return keys.tolist(), position, torch.get_rng_state().tolist()

    before = state()
    first = noise_source(3).normal(4)
    noise_source().laplace(4)
    split_random_state(5, 3)
    torch_generator(7)
    assert state() == before
    numpy_stream.random_sample(3)
    torch.rand(3)
    assert state() != before
    np.testing.assert_array_equal(noise_source(3).normal(4), first)


def test_split_random_state():
    assert split_random_state(None, 3) == [None] * 3
    seeds = split_random_state(0, 4)
    assert seeds == split_random_state(0, 4)
    assert seeds == split_random_state(np.int64(0), 4)
    assert len({*seeds, *split_random_state(1, 4)}) == 8
    assert all(0 <= seed < 2**32 for seed in seeds)
    # The prefix does not depend on how many streams are asked for.
    assert split_random_state(0, 2) == seeds[:2]
    rng = np.random.RandomState(0)
    assert split_random_state(rng, 2) != split_random_state(rng, 2)
    with pytest.raises(ValueError, match="seed"):
        split_random_state("seed", 1)


def test_torch_generator():
    def draws(seed):
        return torch.rand(4, generator=torch_generator(seed)).tolist()

    assert draws(3) == draws(3) != draws(4)
    assert draws(None) != draws(None)
