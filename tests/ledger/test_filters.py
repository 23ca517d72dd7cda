"""Caps that hold whatever is chosen after what; and the one that does not."""

import itertools
import math
import shutil

import pytest
from ledger_cases import plan_of
from scipy.optimize import brentq
from scipy.stats import norm

from sklearn_dpgen.accounting import ApproximateProfile, GaussianProfile, LaplaceProfile
from sklearn_dpgen.accounting._composition import ComposedProfile
from sklearn_dpgen.accounting._profiles import (
    CatastrophicFailureProfile,
    RandomizedResponseProfile,
    SampledProfile,
)
from sklearn_dpgen.exceptions import BudgetExceededError
from sklearn_dpgen.ledger import PrivacyLedger
from sklearn_dpgen.ledger._ledger import ledger_faults

# A cap, and a first release, an answer by randomized response, whose loss is +A or -A.
EPSILON, DELTA, A = 1.0, 1e-3, 0.3
FIRST = (RandomizedResponseProfile(A), 1)
P_HIGH = math.exp(A) / (1 + math.exp(A))


def gaussian_delta(epsilon, mu):
    return norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)


def adaptive_delta(after_high, after_low):
    """Return the exact δ(ε) of the answer and of what follows on each of its two values.

    What follows has a profile of its own; after a loss ±A it is evaluated at ε ∓ A.
    """
    return P_HIGH * after_high(EPSILON - A) + (1 - P_HIGH) * after_low(EPSILON + A)


def worst_second_steps():
    """Return a Gaussian μ, and the probability of a failure, that each alone just fit the cap."""

    def total(mu):
        return adaptive_delta(lambda e: gaussian_delta(e, mu), lambda e: gaussian_delta(e, mu))

    return brentq(lambda mu: total(mu) - DELTA, 1e-3, 3.0) * (1 - 1e-9), DELTA * (1 - 1e-9)


class NaiveLedger:
    """Composes the exact profiles of what was run, and stops where they cross the cap."""

    def __init__(self):
        self.releases = []

    def reserve(self, report):
        planned = [*self.releases, *report.releases]
        if ComposedProfile(planned).delta(EPSILON) > DELTA * (1 + 1e-6):
            raise BudgetExceededError
        self.releases = planned


def test_composing_profiles_until_the_cap_is_crossed_is_no_guarantee():
    """The second step is chosen by the first answer, each fits the cap, and both together do not.

    This is the kind of failure of arXiv:2602.06756.
    """
    mu, failure = worst_second_steps()
    for second in (GaussianProfile(mu), CatastrophicFailureProfile(failure)):
        ledger = NaiveLedger()
        ledger.reserve(plan_of(FIRST))
        ledger.reserve(plan_of((second, 1)))
    exact = adaptive_delta(lambda e: gaussian_delta(e, mu), lambda _: failure)
    assert exact > 1.2 * DELTA


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gaussian", "renyi"])
def test_the_filters_hold_in_the_same_game(kind, tmp_path):
    """Whatever either kind of second step the ledger still allows, their best mix fits the cap."""

    def largest(make, high):
        """Return the largest second step that is booked after the first answer."""
        low = 0.0
        for turn in range(24):
            middle = (low + high) / 2
            path = tmp_path / f"{kind}-{make.__name__}-{turn}.ledger"
            cap = {"dataset": "game", "epsilon": EPSILON, "delta": DELTA, "filter": kind}
            ledger = PrivacyLedger.create(path, **cap)
            ledger.reserve(plan_of(FIRST), what="answer")
            try:
                ledger.reserve(plan_of((make(middle), 1)), what="second")
                low = middle
            except BudgetExceededError:
                high = middle
        return low

    failure, mu = largest(CatastrophicFailureProfile, 0.5), largest(GaussianProfile, 3.0)
    assert failure <= DELTA
    follow = [lambda e: gaussian_delta(e, mu) if mu else 0.0, lambda _: failure]
    worst = max(adaptive_delta(high, low) for high in follow for low in follow)
    assert worst <= DELTA
    naive = worst_second_steps()
    assert mu < naive[0]
    assert failure < naive[1]


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
@pytest.mark.parametrize("kind", ["gaussian", "renyi"])
def test_a_full_ledger_is_within_its_cap(kind, epsilon, tmp_path):
    """A Gaussian mechanism of all that was booked, which fails openly, by the printed profile."""
    cap = {"dataset": "x", "epsilon": epsilon, "delta": 1e-6, "filter": kind}
    ledger = PrivacyLedger.create(tmp_path / "a.ledger", **cap)
    releases = {
        "counts": (GaussianProfile(0.02 * epsilon), 1),
        "noise": (LaplaceProfile(0.05 * epsilon), 1),
        "batches": (SampledProfile(GaussianProfile(min(0.5 * epsilon, 1.0)), 0.01), 10),
    }
    squared_mu, n_booked = 0.0, dict.fromkeys(releases, 0)
    left = set(releases)
    while left:
        for name in sorted(left):
            try:
                ledger.reserve(plan_of(releases[name]), what=name)
            except BudgetExceededError:
                left.remove(name)
                continue
            n_booked[name] += 1
            squared_mu += releases[name][0].mu ** 2 if name == "counts" else 0.0
    assert min(n_booked.values()) > 2
    together = [(profile, times * n_booked[name]) for name, (profile, times) in releases.items()]
    assert ComposedProfile(together).delta(epsilon) <= 1e-6
    assert gaussian_delta(epsilon, math.sqrt(squared_mu)) <= 1e-6
    assert ledger.spent() <= epsilon
    assert ledger.report().composed <= ledger.spent()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gaussian", "renyi"])
def test_failures_and_noise_are_within_the_cap_together(kind, tmp_path):
    """Both of them to the brim: δ is that of what fails openly or else tells by its noise."""
    cap = {"dataset": "x", "epsilon": EPSILON, "delta": DELTA, "filter": kind}
    ledger = PrivacyLedger.create(tmp_path / "a.ledger", **cap)
    failure = 0.998 * 0.1 * DELTA
    ledger.reserve(plan_of((CatastrophicFailureProfile(failure), 1)), what="failure")
    squared_mu, mu = 0.0, 0.5
    while mu > 1e-4:
        try:
            ledger.reserve(plan_of((GaussianProfile(mu), 1)), what="noise")
            squared_mu += mu**2
        except BudgetExceededError:
            mu /= 1.1
    total = failure + (1 - failure) * gaussian_delta(EPSILON, math.sqrt(squared_mu))
    assert total <= DELTA
    spent = ledger.spent()
    assert 0.999 * EPSILON < spent <= EPSILON
    if kind == "gaussian":
        assert total > 0.998 * DELTA
        told = failure + (1 - failure) * gaussian_delta(spent, math.sqrt(squared_mu))
        # The filter keeps a little more for the charge that only fails.
        assert told == pytest.approx(DELTA, rel=2e-3)
        # The negative twin: noise that has all of δ.
        alone = brentq(lambda mu: gaussian_delta(EPSILON, mu) - DELTA, 1e-3, 3.0)
        assert failure + (1 - failure) * gaussian_delta(EPSILON, alone) > 1.09 * DELTA


@pytest.mark.slow
def test_the_gaussian_filter_loses_nothing_on_counts_and_renyi_wins_on_answers(tmp_path):
    def number(kind, release):
        name = f"{kind}-{release[0]}.ledger"
        cap = {"dataset": "x", "epsilon": 1.0, "delta": 1e-6, "filter": kind}
        ledger = PrivacyLedger.create(tmp_path / name, **cap)
        for n in range(1000):
            try:
                ledger.reserve(plan_of(release), what="a fit")
            except BudgetExceededError:
                return n
        return 1000

    counts, answers = (GaussianProfile(0.03), 1), (RandomizedResponseProfile(0.05), 1)
    n_counts = number("gaussian", counts)
    assert n_counts > number("renyi", counts)
    assert number("renyi", answers) > number("gaussian", answers)
    exact = next(n for n in range(1000) if GaussianProfile(0.03 * math.sqrt(n + 1)).delta(1) > 1e-6)
    # All but the tenth of δ that is kept.
    assert 0.97 * exact <= n_counts <= exact


def test_an_order_needs_a_cap_that_leaves_something(tmp_path):
    with pytest.raises(ValueError, match="Gaussian filter"):
        PrivacyLedger.create(
            tmp_path / "a.ledger", dataset="x", epsilon=1e-9, delta=1e-12, filter="renyi"
        )
    assert not (tmp_path / "a.ledger").exists()


def pure_plan(epsilon):
    return plan_of((RandomizedResponseProfile(epsilon), 1), epsilon=epsilon, delta=0.0)


@pytest.mark.parametrize("kind", ["gaussian", "renyi"])
def test_pure_charges_add_up_as_pure_ones(kind, tmp_path):
    """Five of ε = 2 are (10, 0)-private together; the sums of the filters hold one of them."""
    cap = {"dataset": "x", "epsilon": 10.0, "delta": 1e-6, "filter": kind}
    ledger = PrivacyLedger.create(tmp_path / "a.ledger", **cap)
    for number in range(1, 5):
        ledger.reserve(pure_plan(2.0 - 1e-9), what="an answer")
        assert ledger.spent() <= 2 * number
        assert ledger.spent(1e-12) == pytest.approx(2 * number)
    assert ledger.report().pure == pytest.approx(8.0)
    assert "largest pure fit that is left" in str(ledger.report())
    ledger.reserve(pure_plan(2.0 - 1e-9), what="an answer")
    with pytest.raises(BudgetExceededError, match="the epsilon of all charges, which are pure"):
        ledger.reserve(pure_plan(0.1), what="one more")
    with pytest.raises(BudgetExceededError):
        ledger.reserve(plan_of((GaussianProfile(0.05), 1), epsilon=0.2), what="counts")
    n_charges, faults = ledger_faults(ledger)
    assert (n_charges, faults) == (5, [])


@pytest.mark.parametrize("kind", ["gaussian", "renyi"])
@pytest.mark.parametrize(("part", "count"), [(0.1, 10), (0.2, 5), (0.25, 4), (0.5, 2), (1.0, 1)])
def test_pure_charges_may_add_up_to_the_whole_cap(kind, part, count, tmp_path):
    cap = {"dataset": "x", "epsilon": 1.0, "delta": 1e-6, "filter": kind}
    ledger = PrivacyLedger.create(tmp_path / "a.ledger", **cap)
    for _ in range(count):
        ledger.reserve(pure_plan(part), what="an answer")
    assert ledger.spent() == 1.0
    assert ledger_faults(ledger) == (count, [])
    with pytest.raises(BudgetExceededError):
        ledger.reserve(pure_plan(1e-9), what="one more")


@pytest.mark.parametrize("before", [(), (0.3,)])
def test_a_charge_with_a_large_delta_is_not_pure(before, tmp_path):
    """By its ε alone it would be within the cap, of which its δ is 300,000 times the δ."""
    ledger = PrivacyLedger.create(tmp_path / "a.ledger", dataset="x", epsilon=1.0, delta=1e-6)
    for epsilon in before:
        ledger.reserve(pure_plan(epsilon), what="an answer")
    report = plan_of((ApproximateProfile(0.5, 0.3), 1), epsilon=0.5, delta=0.3)
    with pytest.raises(BudgetExceededError):
        ledger.reserve(report, what="counts")
    assert ledger.spent() == pytest.approx(sum(before))


def test_a_charge_of_almost_nothing_is_a_charge(tmp_path):
    """After it the fit that is chosen may depend on it, and the cap is not for one fit alone."""
    ledger = PrivacyLedger.create(tmp_path / "a.ledger", dataset="x", epsilon=1.0, delta=1e-6)
    tiny = plan_of((ApproximateProfile(1e-40, 0.0), 1), epsilon=1e-40, delta=0.0)
    ledger.reserve(tiny, what="an answer")
    assert ledger.spent() == 1e-40
    whole = plan_of((ApproximateProfile(1.0, 1e-6), 1), epsilon=1.0, delta=1e-6)
    with pytest.raises(BudgetExceededError):
        ledger.reserve(whole, what="all")
    # The negative twin: it is booked where nothing was.
    fresh = PrivacyLedger.create(tmp_path / "b.ledger", dataset="x", epsilon=1.0, delta=1e-6)
    fresh.reserve(whole, what="all")
    assert fresh.spent() == pytest.approx(1.0)


@pytest.mark.parametrize("kind", ["gaussian", "renyi"])
def test_pure_charges_after_others_count_in_the_filter(kind, tmp_path):
    """Each condition is of all charges: counts up to the cap and then answers would exceed it."""
    cap = {"dataset": "x", "epsilon": EPSILON, "delta": DELTA, "filter": kind}
    ledger = PrivacyLedger.create(tmp_path / "a.ledger", **cap)
    squared_mu, mu = 0.0, 0.3
    while mu > 1e-3:
        try:
            ledger.reserve(plan_of((GaussianProfile(mu), 1), epsilon=0.1), what="counts")
            squared_mu += mu**2
        except BudgetExceededError:
            mu /= 1.2
    assert ledger.spent() > 0.98 * EPSILON
    epsilon = 0.9 * EPSILON
    with pytest.raises(BudgetExceededError, match="nor are all charges pure"):
        ledger.reserve(pure_plan(epsilon), what="an answer")
    # The negative twin: a ledger that adds the pure charges alone books it, and is wrong.
    high = math.exp(epsilon) / (1 + math.exp(epsilon))
    exact = high * gaussian_delta(EPSILON - epsilon, math.sqrt(squared_mu))
    exact += (1 - high) * gaussian_delta(EPSILON + epsilon, math.sqrt(squared_mu))
    assert exact > 1.1 * DELTA


@pytest.mark.slow
def test_whichever_condition_an_outcome_ends_in_both_together_hold_the_cap(tmp_path):
    """A pure answer, and by its value an answer that exhausts ε, or counts that exhaust δ."""
    cap = {"dataset": "game", "epsilon": EPSILON, "delta": DELTA}
    ledger = PrivacyLedger.create(tmp_path / "a.ledger", **cap)
    ledger.reserve(pure_plan(A), what="answer")
    copied = tmp_path / "b.ledger"
    shutil.copy(ledger.path, copied)
    rest = EPSILON - A
    ledger.reserve(pure_plan(rest * (1 - 1e-9)), what="second")
    with pytest.raises(BudgetExceededError):
        ledger.reserve(pure_plan(1e-6), what="third")
    other, squared_mu, mu = PrivacyLedger(copied), 0.0, 0.5
    while mu > 1e-3:
        try:
            other.reserve(plan_of((GaussianProfile(mu), 1)), what="second")
            squared_mu += mu**2
        except BudgetExceededError:
            mu /= 1.1
    assert squared_mu > 0
    high = math.exp(rest) / (1 + math.exp(rest))

    def answer(epsilon):
        """Return the exact δ of the second answer, whose loss is ± ``rest``."""
        return max(high * -math.expm1(epsilon - rest), 0.0) + max(
            (1 - high) * -math.expm1(epsilon + rest), 0.0
        )

    def counts(epsilon):
        return gaussian_delta(epsilon, math.sqrt(squared_mu))

    worst = max(adaptive_delta(*pair) for pair in itertools.product((answer, counts), repeat=2))
    assert worst <= DELTA
    # The negative twin: a second answer of all of ε beside the first.
    rest = EPSILON
    high = math.exp(rest) / (1 + math.exp(rest))
    assert adaptive_delta(answer, counts) > 10 * DELTA
