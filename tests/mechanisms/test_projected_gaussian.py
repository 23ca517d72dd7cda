"""Gaussian releases of projected batches: their price, their report, several batches at once."""

import math

import numpy as np
import pytest

from sklearn_dpgen.accounting import (
    PrivacyReport,
    ProjectionLaw,
    calibrate_noise_multiplier,
    epsilon_spent,
)
from sklearn_dpgen.accounting._composition import default_discretization
from sklearn_dpgen.accounting._profiles import (
    MixtureProfile,
    SampledProfile,
    sampled_without_replacement,
)
from sklearn_dpgen.mechanisms import StratifiedGaussianMechanism, Stratum
from sklearn_dpgen.utils._random import NoiseSource, noise_source

BUDGET = {"epsilon": 2.0, "delta": 1e-5, "n_releases": 30}
SAMPLED, WHOLE = Stratum(400, 20, 0.7), Stratum(9, 9, 0.7)
CONSTANT, CUT, SMALL = ProjectionLaw(5, 15), ProjectionLaw(5, 8), ProjectionLaw(5, 3)
INDEPENDENT = ProjectionLaw(20, 3, "independent")


def planned(stratum, law, **changes):
    return StratifiedGaussianMechanism([stratum], projections=law, **BUDGET | changes)


def keeps_to_the_budget(noise_scale, stratum, law):
    """Whether releases with this noise cost no more than the budget, and hardly less."""
    spent = epsilon_spent(
        noise_scale / stratum.sensitivity,
        BUDGET["delta"],
        sampling_rate=stratum.rate,
        n_steps=BUDGET["n_releases"],
        projections=law,
    )
    return 0.999 * BUDGET["epsilon"] < spent <= BUDGET["epsilon"]


@pytest.mark.slow
@pytest.mark.parametrize("stratum", [SAMPLED, WHOLE])
@pytest.mark.parametrize("law", [CONSTANT, CUT, SMALL, INDEPENDENT], ids=str)
def test_the_price_is_that_of_the_law(stratum, law):
    mechanism = planned(stratum, law)
    exact = calibrate_noise_multiplier(
        BUDGET["epsilon"],
        BUDGET["delta"],
        sampling_rate=stratum.rate,
        n_steps=BUDGET["n_releases"],
        projections=law,
    )
    assert exact <= mechanism.noise_multiplier <= exact * (1 + 1e-12)
    assert mechanism.noise_scale == pytest.approx(0.7 * exact)
    assert keeps_to_the_budget(mechanism.noise_scale, stratum, law)
    assert not keeps_to_the_budget(mechanism.noise_scale / 2, stratum, law)
    # Priced as a vector of the records' sensitivity: too cheap where a projection can be longer
    # than the record, and too dear where it hardly ever is as long.
    plain = planned(stratum, None).noise_scale
    assert not keeps_to_the_budget(plain, stratum, law)
    assert (plain < mechanism.noise_scale) == (law.mean > 1)


@pytest.mark.slow
@pytest.mark.parametrize("stratum", [SAMPLED, WHOLE])
def test_whole_blocks_are_as_many_releases_of_the_records(stratum):
    plain = planned(stratum, None).noise_scale
    for n_blocks in (1, 2, 5):
        law = ProjectionLaw(7, 7 * n_blocks)
        assert planned(stratum, law).noise_scale == pytest.approx(
            math.sqrt(n_blocks) * plain, rel=3e-5
        )
    other = planned(stratum, ProjectionLaw(7, 10)).noise_scale
    assert plain < other < math.sqrt(2) * plain


@pytest.mark.slow
def test_the_worst_stratum_is_found_under_the_law():
    strata = [Stratum(400, 20, 0.7), Stratum(400, 20, 0.5), Stratum(100, 3, 2.0)]
    mechanism = StratifiedGaussianMechanism(strata, projections=SMALL, **BUDGET)
    alone = [planned(stratum, SMALL).noise_scale for stratum in strata]
    assert mechanism.noise_scale == max(alone) == alone[2]
    assert mechanism.worst == strata[2]


def report(mechanism):
    return PrivacyReport(
        name="projections",
        events=(),
        epsilon=mechanism.epsilon,
        delta=mechanism.delta,
        **mechanism.report_fields(),
    )


@pytest.mark.parametrize(
    ("stratum", "law", "is_numerical"),
    [
        (WHOLE, CONSTANT, False),
        (WHOLE, CUT, True),
        (WHOLE, INDEPENDENT, True),
        (SAMPLED, CONSTANT, True),
        (SAMPLED, INDEPENDENT, True),
        (WHOLE, None, False),
        (SAMPLED, None, True),
    ],
)
def test_the_report_states_how_it_was_priced(stratum, law, is_numerical):
    stated = report(planned(stratum, law))
    ((profile, times),) = stated.releases
    assert times == 30
    assert isinstance(profile, SampledProfile) == (stratum == SAMPLED)
    averaged = profile.profile if isinstance(profile, SampledProfile) else profile
    assert isinstance(averaged, MixtureProfile) == (law in (CUT, INDEPENDENT))
    assert (stated.batches != ()) == (stratum == SAMPLED)
    assert (stated.discretization is not None) == is_numerical
    assert stated.sensitivity == 0.7
    assert stated.noise_multiplier == stated.noise_scale / 0.7
    if law is not None and stated.discretization is not None:
        profile = sampled_without_replacement(law.profile(stated.noise_multiplier), stratum.rate)
        assert stated.discretization == default_discretization([(profile, 30)])


def test_without_noise_there_is_nothing_to_average():
    mechanism = planned(SAMPLED, CUT, epsilon=math.inf)
    stated = report(mechanism)
    assert stated.releases == ()
    assert (stated.noise_scale, stated.noise_multiplier, stated.discretization) == (0, 0, None)
    run, value = mechanism.run(noise_source(0)), np.array([0.1, 0.2])
    run.draw(30)
    np.testing.assert_array_equal(run.release(value), value)


def test_what_is_no_law_is_refused():
    for epsilon in (2.0, math.inf):
        with pytest.raises(TypeError, match="projections must be a ProjectionLaw"):
            planned(SAMPLED, (5, 15), epsilon=epsilon)


def counts_every_batch(draw):
    """Whether a run of 5 releases refuses a sixth batch, in whatever portions they are drawn."""
    for portions in ([5, 1], [2, 2, 2], [3, 3], [None, 4, None], [None, 2, 2, 1], [6]):
        run = StratifiedGaussianMechanism([SAMPLED], epsilon=1.0, delta=1e-5, n_releases=5).run(
            noise_source(0)
        )
        for portion in portions[:-1]:
            draw(run, portion)
            run.release(np.zeros(2))
        try:
            draw(run, portions[-1])
        except RuntimeError as error:
            if "paid for 5 release(s)" not in str(error):
                return False
        else:
            return False
    return True


def test_a_chunk_counts_as_many_releases_as_it_holds():
    def draw(run, portion):
        return run.draw(portion)

    def uncounted(run, portion):
        run._n_drawn += 1 - (portion or 1)
        return run.draw(portion)

    assert counts_every_batch(draw)
    assert not counts_every_batch(uncounted)


@pytest.mark.slow
def test_a_refused_chunk_costs_nothing():
    run = planned(SAMPLED, CUT).run(noise_source(0))
    with pytest.raises(RuntimeError, match=r"30 left, 31 wanted"):
        run.draw(31)
    for count, error in ((0, ValueError), (-1, ValueError), (2.0, TypeError), (True, TypeError)):
        with pytest.raises(error, match="n_releases"):
            run.draw(count)
    assert run.draw(30)[0].shape == (30, 20)
    with pytest.raises(RuntimeError, match="release of the batch"):
        run.draw(1)
    run.release(np.zeros(1))
    with pytest.raises(RuntimeError, match=r"0 left, 1 wanted"):
        run.draw()


def test_shapes_of_a_chunk():
    strata = [Stratum(20, 5, 1.0), Stratum(12, 12, 1.0), Stratum(3, 1, 1.0)]
    run = StratifiedGaussianMechanism(strata, projections=CUT, **BUDGET).run(noise_source(0))
    assert [rows.shape for rows in run.draw(4)] == [(4, 5), (4, 12), (4, 1)]
    run.release(np.zeros(1))
    assert [rows.shape for rows in run.draw(1)] == [(1, 5), (1, 12), (1, 1)]
    run.release(np.zeros(1))
    assert [rows.shape for rows in run.draw()] == [(5,), (12,), (1,)]


class WithReplacement(NoiseSource):
    def choices(self, n, size, count):
        return self.integers(n, (count, size))


class OneRowForAll(NoiseSource):
    def choices(self, n, size, count):
        return np.tile(self.choice(n, size), (count, 1))


class Neighbours(NoiseSource):
    """Uniform and distinct, but a row starts where the row before it ends."""

    def choices(self, n, size, count):
        starts = self.integers(n, 1) + size * np.arange(count)
        return (starts[:, None] + np.arange(size)) % n


class OneDrawForAllStrata(NoiseSource):
    def choices(self, n, size, count):
        if not hasattr(self, "_keys"):
            self._keys = self.uniform((count, 100))
        keys = self._keys[:, :n]
        if n < 60:
            del self._keys
        return keys.argsort(axis=1)[:, :size]


def samples_as_stated(noise):
    """Whether batches are distinct, uniform, and independent in and between chunks and strata."""
    # By rejection of rows for the first stratum, row by row for the second.
    strata, n_releases, chunk = [Stratum(60, 5, 1.0), Stratum(12, 6, 1.0)], 4000, 20
    budget = {**BUDGET, "epsilon": math.inf, "n_releases": n_releases}
    run = StratifiedGaussianMechanism(strata, projections=CUT, **budget).run(noise)
    drawn = np.zeros((n_releases, 72))
    for rows in drawn.reshape(-1, chunk, 72):
        batches = run.draw(chunk)
        run.release(np.zeros(1))
        for batch, first in zip(batches, (0, 60), strict=True):
            np.put_along_axis(rows, first + batch, 1.0, axis=1)
    if (drawn[:, :60].sum(1) != 5).any() or (drawn[:, 60:].sum(1) != 6).any():
        return False
    rates = np.repeat([s.rate for s in strata], [s.size for s in strata])
    z = (drawn - rates) / np.sqrt(rates * (1 - rates))
    between = z[:, :60].T @ z[:, 60:]
    successive = z[1:].T @ z[:-1]
    deviations = [z.sum(0), between.ravel(), successive.ravel()]
    # Some thousand sums of thousands of terms: 5.5 standard deviations.
    return abs(np.concatenate(deviations)).max() < 5.5 * math.sqrt(n_releases)


@pytest.mark.slow
def test_batches_of_a_chunk_are_drawn_as_priced():
    assert samples_as_stated(noise_source(3))
    for broken in (WithReplacement, OneRowForAll, Neighbours, OneDrawForAllStrata):
        assert not samples_as_stated(broken(0)), broken


class SortedBatches(NoiseSource):
    def choice(self, n, size):
        return np.sort(super().choice(n, size))


class SortedChunks(NoiseSource):
    def choices(self, n, size, count):
        return np.sort(super().choices(n, size, count), axis=1)


def comes_in_random_order(noise, portion):
    """Whether any two places of a batch hold indices that rise as often as they fall."""
    # Of each way to draw: by sorted keys, by rejection of indices, by rejection of rows.
    strata = [Stratum(*sizes, 1.0) for sizes in ((60, 5), (12, 6), (40, 2), (2000, 45))]
    n_rows = 2000
    budget = {**BUDGET, "epsilon": math.inf, "n_releases": n_rows}
    run = StratifiedGaussianMechanism(strata, projections=CUT, **budget).run(noise)
    drawn = [[] for _ in strata]
    for _ in range(n_rows // (portion or 1)):
        for rows, batch in zip(drawn, run.draw(portion), strict=True):
            rows.append(np.atleast_2d(batch))
        run.release(np.zeros(1))
    for rows in map(np.vstack, drawn):
        first, second = np.triu_indices(rows.shape[1], 1)
        rises = (rows[:, first] < rows[:, second]).mean(axis=0)
        if abs(rises - 0.5).max() > 5 * 0.5 / math.sqrt(n_rows):
            return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize(("portion", "broken"), [(None, SortedBatches), (20, SortedChunks)])
def test_a_batch_is_in_random_order(portion, broken):
    assert comes_in_random_order(noise_source(5), portion)
    assert not comes_in_random_order(broken(0), portion)


def test_the_noise_of_a_chunk_is_fresh_on_every_entry():
    mechanism = planned(SAMPLED, CUT)
    run, n_entries = mechanism.run(noise_source(1)), 20_000
    run.draw(2)
    errors = run.release(np.zeros(2 * n_entries)).reshape(2, -1) / mechanism.noise_scale
    assert abs((errors**2).mean() - 1) < 5 * math.sqrt(1 / n_entries)
    assert abs((errors[0] * errors[1]).mean()) < 5 / math.sqrt(n_entries)
