"""TableSampler: the law of the noise, and that no two releases share it."""

import math

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sampler_tables import (
    AUTO,
    WIDE_HIGH,
    afford,
    counted,
    hasten,
    listen,
    make,
    replaced,
    table,
    wide,
)

from sklearn_dpgen.utils._random import NoiseSource, noise_source

X, WIDE_X = table(), wide()
hasten = pytest.fixture(autouse=True)(hasten)


@pytest.mark.slow
def test_the_noise_is_normal_and_of_the_stated_scale(monkeypatch):
    def is_standard():
        parts = [p for _ in range(4) for p in make(random_state=None, max_iter=1).fit(X).marginals_]
        noise = [(p.counts - counted(p, X)).ravel() / p.noise_scale for p in parts]
        noise = np.concatenate(noise)
        pairs = (noise[:-1] * noise[1:]).mean()
        moments = [noise.mean(), ((noise**2).mean() - 1) / math.sqrt(2), pairs]
        return np.abs(moments).max() * math.sqrt(noise.size) < 6

    class Halved(NoiseSource):
        def normal(self, size):
            return super().normal(size) / 2

    class Repeated(NoiseSource):
        def normal(self, size):
            return np.ones(size)

    assert is_standard()
    for broken in (Halved, Repeated):
        monkeypatch.setattr(
            "sklearn_dpgen.ledger._base.noise_source", lambda *a, b=broken, **k: b()
        )
        assert not is_standard()


def draws(frame=WIDE_X, **options):
    return [step.draws for step in listen(make(**(AUTO | options)), frame).steps]


def unlike(first, second):
    """Whether the noise of every step is another, in all of its entries."""
    pairs = [(a.ravel(), b.ravel()) for a, b in zip(first, second, strict=False)]
    return all(np.abs(a[: b.size] - b[: a.size]).min() > 1e-9 for a, b in pairs)


@pytest.mark.slow
def test_equal_calls_repeat_their_noise():
    for options in ({}, {"verbose": 0}):
        assert all(map(np.array_equal, draws(), draws(**options)))
    assert not unlike(draws(), draws())


EDGES = [{"age": [0, edge, 100], "pay": 4, "day": 4} for edge in (60, 70)]


@pytest.mark.parametrize(
    ("first", "second"),
    [({}, {"epsilon": 2.0}), ({}, {"delta": 1e-3}), ({}, {"random_state": 1})]
    + [({}, {"neighbours": "add_or_remove"}), ({"n_bins": EDGES[0]}, {"n_bins": EDGES[1]})]
    + [({}, {"target": "x"}), ({}, {"max_iter": 3}), ({}, {"workload": {"job": 2}})]
    + [({}, {"frame": replaced(WIDE_X, 3, WIDE_HIGH)}), ({}, {"population_size": 21})]
    # As many cells, of other columns.
    + [({"marginals": [("x", "level")]}, {"marginals": [("z", "y")]})],
    ids=lambda options: " ".join(options),
)
def test_other_calls_have_other_noise(first, second):
    assert unlike(draws(**first), draws(**second))


def test_noise_has_a_source_of_its_own(monkeypatch):
    np.random.seed(0)  # noqa: NPY002
    before, seeds = np.random.get_state()[1].copy(), []  # noqa: NPY002

    def watch(seed=None, *bound, **options):
        seeds.append(seed)
        return noise_source(seed, *bound, **options)

    monkeypatch.setattr("sklearn_dpgen.ledger._base.noise_source", watch)
    afford(monkeypatch)
    make(random_state=None, **AUTO).fit(WIDE_X).sample(4)
    assert set(seeds) == {None}
    # The description of the report, and one source for all releases and selections.
    assert len(seeds) == 2
    seeds.clear()
    make(random_state=3, **AUTO).fit(WIDE_X)
    assert None not in seeds
    assert_array_equal(before, np.random.get_state()[1])  # noqa: NPY002
