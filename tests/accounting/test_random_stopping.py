"""The best of a random number of runs: exact laws of small mechanisms, and the bounds of others."""

import json
import math

import numpy as np
import pytest
from dp_accounting.dp_event import GaussianDpEvent, RepeatAndSelectDpEvent
from dp_accounting.privacy_accountant import NeighboringRelation
from dp_accounting.rdp import RdpAccountant
from scipy.stats import norm

from sklearn_dpgen.accounting import (
    ApproximateProfile,
    BinomialRuns,
    GaussianProfile,
    NegativeBinomialRuns,
    PoissonRuns,
    gaussian_sigma,
)
from sklearn_dpgen.accounting._profiles import (
    FailingGaussianProfile,
    MaximumProfile,
    PrivacyProfile,
    RandomizedResponseProfile,
)
from sklearn_dpgen.accounting._selection import RandomStoppingProfile, calibrate_runs

RUNS = {
    "few": PoissonRuns(2.0),
    "poisson": PoissonRuns(10.0),
    "geometric": NegativeBinomialRuns(0.1),
    "logarithmic": NegativeBinomialRuns(0.05, 0.0),
    "between": NegativeBinomialRuns(0.05, -0.5),
    "wide": NegativeBinomialRuns(0.3, 3.0),
    "binomial": BinomialRuns(12, 0.7),
    "one": BinomialRuns(1, 0.5),
}
by_law = pytest.mark.parametrize("runs", RUNS.values(), ids=RUNS)
EPSILONS = np.concatenate([[0.0], np.geomspace(1e-2, 12, 60)])


def generating_function(runs, z):
    """E z^K in closed form, of the law that the parameters name."""
    if isinstance(runs, PoissonRuns):
        return np.expm1(runs.rate * z) / math.expm1(runs.rate)
    if isinstance(runs, BinomialRuns):
        none = (1 - runs.p) ** runs.n
        return ((1 - runs.p + runs.p * z) ** runs.n - none) / (1 - none)
    left = 1 - (1 - runs.gamma) * z
    if runs.eta == 0:
        return np.log(left) / math.log(runs.gamma)
    return (left**-runs.eta - 1) / (runs.gamma**-runs.eta - 1)


def law_of_best(law, ranks, phi):
    """Return the law of the best output; outputs of one rank are as likely as in one run."""
    best = np.zeros_like(law)
    for rank in np.unique(ranks):
        tied = ranks == rank
        below, upto = law[ranks < rank].sum(), law[ranks <= rank].sum()
        share = law[tied] / max(law[tied].sum(), 1e-300)
        best[tied] = share * (phi(min(upto, 1.0)) - phi(below))
    return best


def hockey_stick(p, q, epsilon):
    return np.maximum(p - np.exp(epsilon)[:, None] * q, 0).sum(axis=1)


def gaussian_pair(mu, n_cells=30):
    edges = np.concatenate([[-np.inf], np.linspace(-5, 5 + mu, n_cells - 1), [np.inf]])
    return np.diff(norm.cdf(edges, mu)), np.diff(norm.cdf(edges))


def response_pair(epsilon, n):
    p = np.ones(n)
    p[0] = math.exp(epsilon)
    return p / p.sum(), np.roll(p, 1) / p.sum()


def failing_pair(epsilon, delta):
    p, q = response_pair(epsilon, 2)
    return np.array([delta, 0, *(1 - delta) * p]), np.array([0, delta, *(1 - delta) * q])


MECHANISMS = {
    "gaussian": (GaussianProfile(0.3), *gaussian_pair(0.3)),
    "large": (GaussianProfile(1.5), *gaussian_pair(1.5)),
    "response": (RandomizedResponseProfile(0.7, 5), *response_pair(0.7, 5)),
    "gaussian or not": (
        FailingGaussianProfile(0.3, 1e-2),
        *(
            np.concatenate([failure, 0.99 * law])
            for failure, law in zip(([0.01, 0], [0, 0.01]), gaussian_pair(0.3), strict=True)
        ),
    ),
    "failing": (ApproximateProfile(0.4, 1e-2), *failing_pair(0.4, 1e-2)),
}
by_mechanism = pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=MECHANISMS)


def orders(n):
    """Yield ranks of n outputs: up, down, from the middle, at random, and with ties."""
    rank = np.arange(n)
    yield rank
    yield -rank
    yield np.abs(rank - n // 2)
    yield -np.abs(rank - n // 2)
    yield rank // 3
    yield np.zeros(n, dtype=int)
    rng = np.random.default_rng(0)
    for _ in range(8):
        yield rng.permutation(n)
    for _ in range(4):
        yield rng.integers(0, 3, n)


def excess(delta, p, q, phi):
    """Return by how much the exact divergence of the best is above ``delta``, at most."""
    worst = -np.inf
    for ranks in orders(len(p)):
        for one, other in ((p, q), (q, p)):
            best, second = law_of_best(one, ranks, phi), law_of_best(other, ranks, phi)
            exact = hockey_stick(best, second, EPSILONS)
            # Relative to the values, down to what the rounding of the sums leaves of them.
            worst = max(worst, np.max((exact - delta(EPSILONS)) / (exact + 1e-12)))
    return worst


@by_law
@by_mechanism
def test_bounds_the_exact_law_for_every_order(runs, mechanism):
    run, p, q = mechanism
    profile = RandomStoppingProfile(run, runs)
    assert excess(profile.delta, p, q, lambda z: generating_function(runs, z)) <= 1e-9


@pytest.mark.parametrize("runs", [RUNS[n] for n in RUNS if n != "one"], ids=lambda runs: str(runs))
@by_mechanism
def test_the_exact_law_is_above_the_price_of_one_run(runs, mechanism):
    run, p, q = mechanism
    assert excess(run.delta, p, q, lambda z: generating_function(runs, z)) > 0.1


def test_a_fixed_number_of_runs_costs_more_than_a_random_one():
    """What is proved of K is not true of its mean: the profile is below the best of 10 runs."""
    run, p, q = MECHANISMS["response"]
    random = RandomStoppingProfile(run, NegativeBinomialRuns(0.1))
    assert excess(random.delta, p, q, lambda z: z**10) > 0.1


def test_a_law_that_is_another_one_is_seen():
    run, p, q = MECHANISMS["response"]
    for said, drawn in (("few", "poisson"), ("geometric", "poisson"), ("few", "binomial")):
        profile = RandomStoppingProfile(run, RUNS[said])
        phi = RUNS[drawn]
        assert excess(profile.delta, p, q, lambda z, phi=phi: generating_function(phi, z)) > 0.1


def test_one_run_costs_what_it_costs():
    for run in (GaussianProfile(0.3), RandomizedResponseProfile(0.7, 5)):
        profile = RandomStoppingProfile(run, BinomialRuns(1, 0.5))
        np.testing.assert_allclose(
            profile.delta(EPSILONS), run.delta(EPSILONS), rtol=2e-3, atol=2e-9
        )


@pytest.mark.parametrize("mu", [0.02, 0.1, 0.5, 1.0])
@pytest.mark.parametrize(
    "runs",
    [PoissonRuns(3.0), PoissonRuns(10.0), PoissonRuns(40.0)]
    + [NegativeBinomialRuns(0.1), NegativeBinomialRuns(0.01, 0.5), NegativeBinomialRuns(0.05, 0.0)],
    ids=str,
)
def test_is_below_the_bound_by_renyi_divergences(mu, runs):
    """Of Papernot and Steinke, at the same law of K; with a grid of orders for each scale."""
    poisson = isinstance(runs, PoissonRuns)
    mean, shape = (runs.rate, math.inf) if poisson else (runs.mean, runs.eta)
    orders = np.concatenate([np.linspace(1.02, 8, 200), np.geomspace(8, 5000, 200)])
    accountant = RdpAccountant(orders, neighboring_relation=NeighboringRelation.REPLACE_ONE)
    accountant.compose(RepeatAndSelectDpEvent(GaussianDpEvent(1 / mu), mean, shape))
    for delta in (1e-8, 1e-5, 1e-3):
        ours = RandomStoppingProfile(GaussianProfile(mu), runs).epsilon(delta)
        assert GaussianProfile(mu).epsilon(delta) <= ours < accountant.get_epsilon(delta)


@pytest.mark.parametrize("mu", [0.1, 0.5])
@pytest.mark.parametrize(
    ("runs", "share"),
    [(PoissonRuns(10.0), 0.96), (NegativeBinomialRuns(0.1), 0.98), (BinomialRuns(12, 0.7), 0.95)],
    ids=str,
)
def test_an_order_of_the_outputs_nearly_attains_it(mu, runs, share):
    """Best is what tells against the record, up to some point; next, what tells for it the most."""
    p, q = gaussian_pair(mu, 2000)
    epsilon = RandomStoppingProfile(GaussianProfile(mu), runs).epsilon(1e-5)
    attained = []
    for cut in range(40, 1960, 40):
        order = np.concatenate([np.arange(cut, 2000), np.arange(cut)[::-1]])
        one, other = (
            np.diff(generating_function(runs, np.append(0, np.minimum(law[order].cumsum(), 1))))
            for law in (p, q)
        )
        attained.append(np.maximum(one - math.exp(share * epsilon) * other, 0).sum())
    assert max(attained) > 1e-5


def divergence_of_scores(mu, phi, epsilon):
    """Return the exact δ of publishing the best of noisy scores that all move by μ deviations."""
    cells = np.linspace(-8, 8 + mu, 20_001)
    one, other = (np.diff(phi(norm.cdf(cells, mean))) for mean in (mu, 0.0))
    return max(
        np.maximum(a - math.exp(epsilon) * b, 0).sum() for a, b in ((one, other), (other, one))
    )


@pytest.mark.slow
def test_the_best_of_forty_at_the_price_of_one_is_refuted():
    """On scores alone, even without what the best candidate itself tells."""
    mu = 1 / gaussian_sigma(1.0, 1e-5)
    assert divergence_of_scores(mu, lambda F: F, 1.0) <= 1e-5
    assert divergence_of_scores(mu, lambda F: F**40, 1.0) > 100 * 1e-5
    for runs in (PoissonRuns(40.0), NegativeBinomialRuns(0.025), BinomialRuns(60, 2 / 3)):
        mu = calibrate_runs(1.0, 1e-5, runs).run.mu
        law = lambda F, runs=runs: generating_function(runs, F)  # noqa: E731
        assert divergence_of_scores(mu, law, 1.0) <= 1e-5


@by_law
def test_is_below_the_composition_and_the_largest_ratio(runs):
    """Both are valid too; the second is the bound of Koskela et al., with its best constant."""
    run = GaussianProfile(0.2)
    profile = RandomStoppingProfile(run, runs)
    law = runs.probabilities()
    composed = sum(
        mass * GaussianProfile(0.2 * math.sqrt(k)).delta(EPSILONS)
        for k, mass in enumerate(law, start=1)
    )
    events = np.linspace(0, 1, 100_001)
    likely = norm.sf(norm.isf(events) - 0.2)
    ratio = (runs.log_weight(events) - runs.log_weight(likely)).max()
    shifted = runs.mean * run.delta(EPSILONS - ratio)
    # Numbers of composed runs are rounded up to a few, and chords lie above.
    assert np.all(profile.delta(EPSILONS) <= 1.05 * np.minimum(composed, shifted) + 1e-15)


@by_law
@by_mechanism
def test_contract(runs, mechanism):
    profile = RandomStoppingProfile(mechanism[0], runs)
    epsilons = np.concatenate([-EPSILONS[:0:-1], EPSILONS])
    values = profile.delta(epsilons)
    assert np.all((values >= 0) & (values <= 1))
    assert np.all(np.diff(values) <= 1e-15)
    assert np.all(np.diff(np.diff(values) / np.diff(np.exp(epsilons))) >= -1e-9)
    assert profile.delta(math.inf) <= values[-1]
    assert profile.delta(profile.epsilon(0.2)) <= 0.2
    assert isinstance(profile.delta(0.3), float)


@pytest.mark.parametrize("mu", [1e-4, 0.3, 8.0, 100.0])
@pytest.mark.parametrize(
    "runs",
    [
        PoissonRuns(1e-9),
        PoissonRuns(5000.0),
        NegativeBinomialRuns(0.999, -0.99),
        NegativeBinomialRuns(1e-3, 20.0),
        BinomialRuns(2000, 0.99),
    ],
    ids=str,
)
def test_extremes_are_still_profiles(mu, runs):
    run = GaussianProfile(mu)
    profile = RandomStoppingProfile(run, runs)
    epsilons = np.concatenate([EPSILONS, [100.0, 1e3, 1e5, math.inf]])
    values = profile.delta(epsilons)
    assert np.all((values >= 0) & (values <= 1))
    assert np.all(np.diff(values) <= 1e-15)
    # Never below one run, but for values that count as nothing.
    assert np.all(values >= run.delta(epsilons) * (1 - 1e-6) - 1e-12)


@by_law
@by_mechanism
def test_round_trips(runs, mechanism):
    profile = RandomStoppingProfile(mechanism[0], runs)
    content = json.loads(json.dumps(profile.to_dict()))
    assert PrivacyProfile.from_dict(content) == profile
    nested = MaximumProfile((profile, mechanism[0]))
    assert PrivacyProfile.from_dict(json.loads(json.dumps(nested.to_dict()))) == nested


@by_law
def test_laws_sum_to_one_and_have_their_generating_function(runs):
    law = runs.probabilities()
    k = np.arange(1, len(law) + 1)
    assert abs(law.sum() - 1) < 1e-12
    assert k @ law == pytest.approx(runs.mean, rel=1e-9)
    for z in (0.1, 0.5, 0.9):
        assert law @ z**k == pytest.approx(generating_function(runs, z), rel=1e-9)
        step = 1e-6
        slope = generating_function(runs, z + step) - generating_function(runs, z - step)
        weight = runs.mean * math.exp(runs.log_weight(1 - z))
        assert slope / (2 * step) == pytest.approx(weight, rel=1e-6)


class Quantiles:
    """Uniform numbers that are one in each of many equal parts."""

    def __init__(self, n):
        self.values = iter((np.arange(n) + 0.5) / n)

    def uniform(self, size):
        return np.array([next(self.values) for _ in range(size)])


def largest_gap(runs, drawn):
    k = np.arange(0, 40)
    folded = np.fft.fft(generating_function(runs, np.exp(2j * np.pi * k / 40))).real / 40
    return np.max(np.abs(np.bincount(drawn % 40, minlength=40) / len(drawn) - folded))


@by_law
def test_draws_have_the_law(runs):
    """The remainder of K by 40 is as likely as the generating function at roots of 1 says."""
    n = 500
    noise = Quantiles(n)
    drawn = np.array([runs.draw(noise) for _ in range(n)])
    assert drawn.min() >= 1
    assert largest_gap(runs, drawn) < 10 / n
    # One run too many is seen.
    assert largest_gap(runs, drawn + 1) > 10 / n


@pytest.mark.parametrize("runs", [RUNS["poisson"], RUNS["geometric"], RUNS["binomial"]], ids=str)
@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-6), (1.0, 1e-5), (5.0, 1e-3)])
def test_calibration_spends_the_budget_and_no_more(runs, epsilon, delta):
    profile = calibrate_runs(epsilon, delta, runs)
    assert epsilon * (1 - 1e-3) <= profile.epsilon(delta) <= epsilon
    assert profile.run.mu < 1 / gaussian_sigma(epsilon, delta)
    assert runs.mean * profile.run.delta0 == pytest.approx(1e-3 * delta)
    # A run that costs a little more is seen.
    more = FailingGaussianProfile(1.01 * profile.run.mu, profile.run.delta0)
    assert RandomStoppingProfile(more, runs).epsilon(delta) > epsilon


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: PoissonRuns(0.0), ValueError, "rate"),
        (lambda: NegativeBinomialRuns(1.0), ValueError, "gamma"),
        (lambda: NegativeBinomialRuns(0.5, -1.0), ValueError, "eta"),
        (lambda: NegativeBinomialRuns(0.5, True), TypeError, "eta"),
        (lambda: BinomialRuns(0, 0.5), ValueError, "n"),
        (lambda: BinomialRuns(3, 1.0), ValueError, "p must"),
        (lambda: RandomStoppingProfile(1.0, PoissonRuns(1.0)), TypeError, "run"),
        (lambda: RandomStoppingProfile(GaussianProfile(1.0), 10), TypeError, "n_runs"),
    ],
)
def test_bad_parameters(build, error, message):
    with pytest.raises(error, match=message):
        build()
