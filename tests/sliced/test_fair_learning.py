"""What the fair estimators descend, and what they learn."""

import itertools

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch.nn import functional

from sklearn_dpgen.datasets import make_biased_labels
from sklearn_dpgen.domains import Ball, Box, Product
from sklearn_dpgen.metrics import (
    disparate_impact,
    equalized_odds_ratios,
    group_wasserstein_distance,
)
from sklearn_dpgen.nn import Training
from sklearn_dpgen.ot import random_directions, sliced_wasserstein
from sklearn_dpgen.sliced import (
    DPSlicedWassersteinFairClassifier,
    DPSlicedWassersteinFairEncoder,
    DPSlicedWassersteinFairRegressor,
)
from sklearn_dpgen.sliced._base import SlicedEstimator

# The assembled gradient against automatic differentiation of the loss.

UNCLIPPED = {"gradient__task_clip": 1e9, "gradient__jacobian_clip": 1e9, "epsilon": np.inf}


@pytest.fixture
def directions(monkeypatch):
    """Fix the directions of every step."""

    def fix(n_features):
        fixed = torch.ones(1, 1, dtype=torch.float64)
        if n_features > 1:
            generator = torch.Generator().manual_seed(0)
            fixed = random_directions(4, n_features, generator=generator, dtype=torch.float64)
        monkeypatch.setattr(SlicedEstimator, "_directions", lambda *args: lambda: fixed)
        return fixed

    return fix


def penalty(outputs, parts, theta, group_weights="size"):
    """Return the weighted sum of SW_2^2 over the pairs of groups within each label.

    It is 2G/(G-1) p_a p_b of each pair, with shares within the label, times the label's share.
    """
    total, n_records = 0, sum(len(rows) for groups in parts for rows in groups)
    for groups in parts:
        factor, within = 2 * len(groups) / (len(groups) - 1), sum(map(len, groups))
        for a, b in itertools.combinations(groups, 2):
            distance = sliced_wasserstein(
                outputs[torch.from_numpy(a)], outputs[torch.from_numpy(b)], directions=theta
            )
            weight = factor * len(a) * len(b) / within / n_records
            if group_weights == "equal":
                weight = factor / len(groups) ** 2 / len(parts)
            total = total + weight * distance
    return total


def differs_from_autograd(result, loss_fn):
    """Return how far the assembled gradient is from that of a loss, relative to its norm."""
    loss = loss_fn(result.module)
    expected = torch.autograd.grad(loss, list(result.module.parameters()))
    expected = torch.cat([part.flatten() for part in expected]).numpy()
    norm = np.linalg.norm(expected)
    assert norm > 1e-3
    return np.linalg.norm(result.gradients[-1] - expected) / norm


def parts_of(groups, labels=None):
    """Return the rows of each group, within each label."""
    labels = np.zeros(len(groups)) if labels is None else labels
    return [
        [np.flatnonzero((groups == group) & (labels == label)) for group in np.unique(groups)]
        for label in np.unique(labels)
    ]


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("odds", [False, True])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("n_groups", [2, 3])
@pytest.mark.parametrize("group_weights", ["size", "equal"])
def test_gradient_of_the_classifier(
    tiny, table, probe, directions, alpha, odds, n_classes, n_groups, group_weights
):
    theta = directions(1 if n_classes == 2 else n_classes)
    labels = np.arange(41) % n_classes
    # Of three groups the first has 9 records, of two 12.
    groups = np.minimum(np.arange(41) // 3 % (n_groups + 1), n_groups - 1)
    name = "equalized_odds" if odds else "demographic_parity"
    options = {"penalty": name, "gradient__group_weights": group_weights, **UNCLIPPED}
    classifier = tiny("classifier", alpha=alpha, **options)
    result = probe(classifier.fit, table.X, labels, sensitive_features=groups, scales=(2.0,))

    def loss(module, alpha=alpha):
        logits = module[0](torch.from_numpy(table.X))
        wanted = torch.from_numpy(labels)
        if n_classes == 2:
            task = functional.binary_cross_entropy_with_logits(logits[:, 0], wanted.double())
            outputs = torch.sigmoid(logits)
        else:
            task = functional.cross_entropy(logits, wanted)
            outputs = torch.softmax(logits, dim=1)
        parts = parts_of(groups, labels if odds else None)
        return (1 - alpha) * task + alpha * penalty(outputs, parts, theta, group_weights)

    assert differs_from_autograd(result, loss) < 1e-9
    assert differs_from_autograd(result, lambda module: loss(module, alpha=0.5)) > 1e-3


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
@pytest.mark.parametrize(
    ("domain", "center"),
    [
        # In a product a fit places no box.
        (Product([Box(-2, 2)]), [0.0]),
        (Product([Box(0, 1.0), Box(-1, 5.0)]), [0.5, 2.0]),
        (Ball(0.75, center=[0.0, 0.5, 1.0]), [0.0, 0.5, 1.0]),
    ],
    ids=str,
)
def test_gradient_of_the_regressor(tiny, table, probe, directions, alpha, domain, center):
    theta = directions(domain.n_features)
    y = np.column_stack([table.Y, table.X])[:, : domain.n_features]
    regressor = tiny("regressor", alpha=alpha, y_domain=domain, **UNCLIPPED)
    result = probe(regressor.fit, table.X, y, sensitive_features=table.groups, scales=(2.0,))
    radius = domain.diameter(2) / 2
    wanted = torch.from_numpy((domain.project(y) - center) / radius)

    def loss(module, alpha=alpha):
        outputs = module(torch.from_numpy(table.X))
        task = ((outputs - wanted) ** 2).sum(dim=1).mean()
        return (1 - alpha) * task + alpha * penalty(outputs, parts_of(table.groups), theta)

    assert differs_from_autograd(result, loss) < 1e-9
    assert differs_from_autograd(result, lambda module: loss(module, alpha=0.5)) > 1e-3


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("n_components", [1, 2])
@pytest.mark.parametrize("code_law", ["uniform", "free"])
def test_gradient_of_the_encoder(
    tiny, table, probe, directions, monkeypatch, alpha, n_components, code_law
):
    theta = directions(n_components)
    reference = Ball(2.0, n_features=n_components).sample(30, np.random.default_rng(5))
    monkeypatch.setattr(Ball, "sample", lambda self, n, rng: reference[:n])
    options = {"n_components": n_components, "code_law": code_law, **UNCLIPPED}
    encoder = tiny("encoder", alpha=alpha, **options)
    result = probe(encoder.fit, table.X, sensitive_features=table.groups, scales=(2.0,))
    X = torch.from_numpy(table.X)

    def loss(module, alpha=alpha):
        codes = module[0](X)
        task = ((module[1](codes) - X) ** 2).sum(dim=1).mean()
        (parts,) = parts_of(table.groups)
        if code_law == "free":
            fairness = penalty(codes, [parts], theta)
        else:
            pulls = [
                sliced_wasserstein(
                    codes[torch.from_numpy(rows)],
                    torch.from_numpy(reference[: len(rows)]),
                    directions=theta,
                )
                for rows in parts
            ]
            fairness = sum(len(rows) / 41 * pull for rows, pull in zip(parts, pulls, strict=True))
        both = (1 - alpha) * task + alpha * fairness
        # Without the task, the decoder's gradient is zero.
        return both + 0 * sum(p.sum() for p in module.parameters())

    assert differs_from_autograd(result, loss) < 1e-9
    assert differs_from_autograd(result, lambda module: loss(module, alpha=0.5)) > 1e-3


@pytest.mark.parametrize("kind", ["regressor", "encoder"])
def test_ways_of_clipping_agree_where_nothing_is_clipped(tiny, table, probe, kind):
    def gradient(clipping, **options):
        estimator = tiny(kind, gradient__jacobian_clipping=clipping, **{**UNCLIPPED, **options})
        return probe(table.train, estimator).gradients[0]

    if kind == "regressor":
        table.y = table.Y
        two = {"y_domain": Box(-2, 2, n_features=2)}
    else:
        two = {}
    free = gradient("spectral", **two)
    assert_allclose(gradient("componentwise", **two), free, rtol=1e-9)
    clipped = {**two, "gradient__jacobian_clip": 0.05}
    spectral, componentwise = (gradient(way, **clipped) for way in ("spectral", "componentwise"))
    assert not np.allclose(spectral, free, rtol=1e-3)
    assert not np.allclose(spectral, componentwise, rtol=1e-3)


# Learning.

BIASED = make_biased_labels(3000, random_state=0)
TEST = make_biased_labels(3000, random_state=1)
FEW = {
    "gradient__task_clip": 1.0,
    "gradient__jacobian_clip": 1.0,
    "gradient__batch_fraction": 0.2,
    "training__max_iter": 100,
    "delta": 1e-5,
    "random_state": 0,
}


def fair_classifier(alpha, epsilon=np.inf, **options):
    options = {
        **FEW,
        "training__hidden_layer_sizes": (),
        "training__learning_rate": 0.1,
        "gradient__jacobian_clip": 0.25,
    } | options
    classifier = DPSlicedWassersteinFairClassifier(alpha, classes=[0, 1], epsilon=epsilon)
    return classifier.set_params(**options).fit(
        BIASED.X, BIASED.y, sensitive_features=BIASED.sensitive
    )


def gap(ratio):
    return abs(np.log(ratio))


@pytest.mark.slow
def test_the_penalty_moves_disparate_impact_to_one():
    classifiers = [fair_classifier(alpha) for alpha in (0.0, 0.5, 0.95)]
    predictions = [classifier.predict(TEST.X) for classifier in classifiers]
    ratios = [disparate_impact(TEST.y, p, sensitive_features=TEST.sensitive) for p in predictions]
    accuracies = [np.mean(p == TEST.y) for p in predictions]
    assert ratios[0] < 0.6
    assert gap(ratios[0]) > gap(ratios[1]) > gap(ratios[2])
    assert gap(ratios[2]) < 0.15
    assert accuracies[0] > 0.75
    assert accuracies[2] > 0.7


@pytest.mark.slow
def test_a_private_fit_is_near_that_without_noise():
    for alpha in (0.0, 0.9):
        free, private = (fair_classifier(alpha, epsilon) for epsilon in (np.inf, 20.0))
        assert np.mean(private.predict(TEST.X) == free.predict(TEST.X)) > 0.9
        strict = fair_classifier(alpha, 0.01)
        assert np.mean(strict.predict(TEST.X) == free.predict(TEST.X)) < 0.9


def odds_gap(classifier):
    ratios = equalized_odds_ratios(
        TEST.y, classifier.predict(TEST.X), sensitive_features=TEST.sensitive
    )
    return gap(ratios).max()


@pytest.mark.slow
def test_equalized_odds_brings_the_rates_within_labels_together():
    plain = fair_classifier(0.0)
    odds = fair_classifier(0.9, penalty="equalized_odds")
    assert odds_gap(odds) < 0.4 * odds_gap(plain)
    # Demographic parity is another aim: at odds with this one where labels and groups agree.
    assert odds_gap(fair_classifier(0.9)) > odds_gap(odds)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [np.inf, 20.0])
def test_regression_learns_and_the_penalty_brings_groups_together(epsilon):
    def fit(alpha):
        regressor = DPSlicedWassersteinFairRegressor(
            alpha,
            y_domain=Box(0, 1, n_features=2),
            epsilon=epsilon,
            training=Training(hidden_layer_sizes=(16,), learning_rate=0.05),
        )
        return regressor.set_params(**FEW).fit(
            BIASED.X, BIASED.y_continuous, sensitive_features=BIASED.sensitive
        )

    plain, fair = fit(0.0), fit(0.9)
    assert plain.score(TEST.X, TEST.y_continuous) > 0.4
    distances = [
        group_wasserstein_distance(
            None, regressor.predict(TEST.X), sensitive_features=TEST.sensitive, random_state=0
        )
        for regressor in (plain, fair)
    ]
    assert distances[1] < 0.6 * distances[0]


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [np.inf, 20.0])
def test_codes_reconstruct_and_the_penalty_brings_groups_together(epsilon):
    def fit(alpha):
        encoder = DPSlicedWassersteinFairEncoder(
            alpha,
            epsilon=epsilon,
            training=Training(hidden_layer_sizes=(16,), learning_rate=0.05),
        )
        return encoder.set_params(**FEW).fit(BIASED.X, sensitive_features=BIASED.sensitive)

    plain, fair = fit(0.0), fit(0.9)
    codes = [encoder.transform(TEST.X) for encoder in (plain, fair)]
    errors = ((plain.inverse_transform(codes[0]) - TEST.X) ** 2).mean()
    assert errors < 0.8 * TEST.X.var(axis=0).mean()
    distances = [
        group_wasserstein_distance(None, code, sensitive_features=TEST.sensitive, random_state=0)
        / code.std()
        for code in codes
    ]
    assert distances[1] < 0.6 * distances[0]
