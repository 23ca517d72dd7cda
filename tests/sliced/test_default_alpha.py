"""The weight that "auto" stands for: as large as its noise allows, from public sizes alone."""

import math
import re
import warnings

import numpy as np
import pytest
from sklearn.base import clone

from sklearn_dpgen.exceptions import NoisyGradientsWarning
from sklearn_dpgen.mechanisms import StratifiedGaussianMechanism
from sklearn_dpgen.mechanisms._sampled import Stratum
from sklearn_dpgen.nn import Training
from sklearn_dpgen.sliced import (
    ClippedGradient,
    DPSlicedWassersteinFairClassifier,
    DPSlicedWassersteinFairRegressor,
)
from sklearn_dpgen.sliced._fair import evened_sensitivities
from sklearn_dpgen.sliced._strata import Strata

N_FEATURES, N_STEPS = 4, 5
SHORT = {"training": Training(max_iter=N_STEPS), "random_state": 0, "delta": 1e-4}
KINDS = {
    "classifier": DPSlicedWassersteinFairClassifier(**SHORT),
    "regressor": DPSlicedWassersteinFairRegressor(y_domain=(0, 1), **SHORT),
}


def noise(model, alpha, sizes):
    """Return the noise of all steps relative to the task's gradient, whose clip is 1."""
    report = clone(model).set_params(alpha=alpha).plan(sum(sizes), N_FEATURES, group_sizes=sizes)
    return report.noise_scale * math.sqrt((N_FEATURES + 1) / N_STEPS) / (1 - alpha)


def fitted(model, sizes, seed=0, **options):
    rng = np.random.default_rng(seed)
    X, a = rng.normal(size=(sum(sizes), N_FEATURES)), np.repeat(["a", "b"], sizes)
    y = rng.integers(2, size=len(X))
    return clone(model).set_params(**options).fit(X, y, sensitive_features=a)


@pytest.mark.filterwarnings("ignore::sklearn_dpgen.exceptions.NoisyGradientsWarning")
@pytest.mark.parametrize("sizes", [(200, 200), (100, 300)])
@pytest.mark.parametrize("epsilon", [0.5, 8.0, 11.0])
@pytest.mark.parametrize("kind", KINDS)
def test_the_weight_is_the_largest_whose_noise_is_tolerated(kind, epsilon, sizes):
    model = KINDS[kind].set_params(epsilon=epsilon)
    alpha, plain = fitted(model, sizes).alpha_, noise(model, 0.0, sizes)
    allowed = max(0.025, 1.1 * plain)
    assert 0 < alpha < 0.5
    # One stratum determines the noise with a penalty, maybe another one that without.
    assert 0.97 * allowed < noise(model, alpha, sizes) < 1.01 * allowed
    # The negative twin: a weight that is larger by a fifth.
    assert noise(model, 1.2 * alpha, sizes) > 1.01 * allowed


@pytest.mark.filterwarnings("ignore::sklearn_dpgen.exceptions.NoisyGradientsWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_the_weight_depends_on_public_sizes_and_not_on_records(kind):
    one, other = (fitted(KINDS[kind], (150, 250), seed).alpha_ for seed in (0, 1))
    assert one == other
    assert one != fitted(KINDS[kind], (200, 200)).alpha_


@pytest.mark.parametrize(
    ("options", "alpha"),
    [({}, 0.5), ({"max_gap": 0.1}, 0.0), ({"alpha": 0.3}, 0.3)],
)
@pytest.mark.parametrize("kind", KINDS)
def test_the_weight_without_noise_and_where_it_is_not_read(kind, options, alpha):
    assert fitted(KINDS[kind], (200, 200), epsilon=np.inf, **options).alpha_ == alpha


@pytest.mark.parametrize("kind", KINDS)
def test_without_groups_the_weight_is_0_and_a_fit_says_so(kind):
    X, y = np.eye(4)[np.arange(400) % 4], np.arange(400) % 2
    with pytest.warns(UserWarning, match="sensitive_features is absent: fitting without the pen"):
        model = clone(KINDS[kind]).set_params(epsilon=np.inf).fit(X, y)
    assert model.alpha_ == 0


def told(model, n, **sizes):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        model.plan(n, 6, **sizes)
    return [str(w.message) for w in seen if w.category is NoisyGradientsWarning]


def test_a_plan_says_where_noise_leaves_the_penalty_next_to_nothing():
    model = DPSlicedWassersteinFairClassifier(delta=1e-5)
    (message,) = [text for text in told(model, 700, group_sizes=[350, 350]) if "auto" in text]
    enough = int(re.search(r"About (\d+) records allow alpha=0.5", message)[1])
    assert 1000 < enough < 3000
    assert not told(model, 2 * (enough // 2 + 50), group_sizes=[enough // 2 + 50] * 2)
    # A weight that was asked for, and a target, are not commented on.
    for options in ({"alpha": 0.02}, {"max_gap": 0.1}):
        other = clone(model).set_params(**options)
        assert not any("auto" in text for text in told(other, 700, group_sizes=[350, 350]))


@pytest.mark.parametrize("sizes", [(30, 470), (83, 417), (7, 993)])
def test_strata_declare_what_the_noise_of_the_worst_allows(sizes):
    batches, given = Strata(sizes).batch_sizes(0.2), [0.5, 0.01]
    evened = evened_sensitivities(Strata(sizes), batches, given)
    assert all(one >= other for one, other in zip(evened, given, strict=True))
    scales = [
        StratifiedGaussianMechanism(
            [Stratum(*each) for each in zip(sizes, batches, bounds, strict=True)],
            epsilon=1.0,
            delta=1e-5,
            n_releases=50,
        ).noise_scale
        for bounds in (given, evened)
    ]
    assert scales[0] <= scales[1] <= 1.02 * scales[0]
    assert evened[1] > 30 * given[1]


def test_a_group_that_leaves_the_penalty_nothing_is_named():
    model = DPSlicedWassersteinFairClassifier(delta=1e-5, gradient=ClippedGradient())
    model.set_params(gradient__group_weights="equal", groups=["few", "many"])
    messages = told(model, 6000, group_sizes=[10, 5990])
    assert any("Group 'few' has 10 records and multiplies the noise" in text for text in messages)
    messages = told(model.set_params(gradient__group_weights="size"), 6000, group_sizes=[10, 5990])
    assert not any("Group 'few'" in text for text in messages)


@pytest.mark.parametrize("fraction", [0.1, 1.0])
def test_the_group_that_is_named_is_the_small_one_where_strata_are_evened(fraction):
    model = DPSlicedWassersteinFairRegressor(0.5, y_domain=(0, 1), delta=1e-5, epsilon=0.3)
    model.set_params(
        gradient=ClippedGradient(group_weights="equal", batch_fraction=fraction),
        groups=["large", "small"],
    )
    (message,) = told(model, 945, group_sizes=[900, 45])
    assert "Group 'small' has 45 records and multiplies the noise" in message
