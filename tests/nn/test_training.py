"""The training loop: schedule, averaging, progress, and what it calls a divergence."""

import math
import subprocess
import sys

import pytest
import torch

from sklearn_dpgen.exceptions import TrainingDivergedError
from sklearn_dpgen.nn._training import OPTIMIZERS, TrainingResult, descend, fit_module


class Point(torch.nn.Module):
    """One free parameter, and a frozen one."""

    def __init__(self, value=0.0):
        super().__init__()
        self.value = torch.nn.Parameter(torch.tensor([value]))
        self.frozen = torch.nn.Parameter(torch.tensor([5.0]), requires_grad=False)


def steps_of_a_constant_slope(**options):
    """Return the parameter before each step under a loss of slope 1: Adam moves by the rate."""
    point, path = Point(), []

    def loss(step):
        path.append(point.value.item())
        return point.value.sum()

    fit_module(point, loss, **options)
    return point, path


def test_minimizes_and_leaves_the_module_in_evaluation_mode():
    point = Point(3.0)
    result = fit_module(
        point, lambda step: (point.value - 1).square().sum(), max_iter=300, learning_rate=0.1
    )
    assert isinstance(result, TrainingResult)
    assert result.n_iter == len(result.loss_curve) == 300
    assert result.loss_curve[0] == pytest.approx(4.0)
    assert point.value.item() == pytest.approx(1.0, abs=1e-2)
    assert point.frozen.item() == 5.0
    assert not point.training


def test_rate_warms_up_and_follows_a_cosine():
    max_iter, warmup, rate = 40, 5, 0.01
    point, path = steps_of_a_constant_slope(max_iter=max_iter, learning_rate=rate, warmup=warmup)
    moves = [a - b for a, b in zip(path, [*path[1:], point.value.item()], strict=True)]
    expected = [
        rate * min(1, (t + 1) / warmup) * (1 + math.cos(math.pi * t / max_iter)) / 2
        for t in range(max_iter)
    ]
    assert moves == pytest.approx(expected, rel=1e-3, abs=1e-7)


@pytest.mark.parametrize(("averaging", "n_averaged"), [(0.0, 0), (0.2, 4), (0.25, 5), (1.0, 20)])
def test_averages_the_last_parameters(averaging, n_averaged):
    point, path = steps_of_a_constant_slope(max_iter=20, learning_rate=0.1, averaging=averaging)
    plain, _ = steps_of_a_constant_slope(max_iter=20, learning_rate=0.1)
    after = [*path[1:], plain.value.item()]
    last = after[20 - n_averaged :] if n_averaged else after[-1:]
    assert point.value.item() == pytest.approx(sum(last) / len(last), rel=1e-5)
    assert point.frozen.item() == 5.0


@pytest.mark.parametrize("max_iter", [1, 2])
def test_few_steps(max_iter):
    point, path = steps_of_a_constant_slope(max_iter=max_iter, learning_rate=0.1, averaging=0.5)
    assert len(path) == max_iter
    assert point.value.item() < 0


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_is_a_divergence(bad):
    point = Point(1.0)

    def loss(step):
        return point.value.sum() * (bad if step == 3 else 1.0)

    with pytest.raises(TrainingDivergedError, match="loss became infinite or NaN at step 4 of 9"):
        fit_module(point, loss, max_iter=9, learning_rate=0.1)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_gradient_that_is_not_finite_is_a_divergence(bad):
    def gradient(step):
        return 0.0, [torch.tensor([bad if step == 3 else 1.0])]

    with pytest.raises(TrainingDivergedError, match="gradient became .* at step 4 of 9.*smaller"):
        descend(Point(1.0), gradient, max_iter=9, learning_rate=0.1)


def test_parameters_that_are_not_finite_are_a_divergence_even_at_the_last_step():
    def gradient(step):
        return 0.0, [torch.tensor([-1.0 if step == 2 else 0.0])]

    with pytest.raises(TrainingDivergedError, match="parameters became .* at step 3 of 3"):
        descend(Point(3.4e38), gradient, max_iter=3, learning_rate=3e37, warmup=1)


OTHERS = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_steps_are_those_of_torch(name, dtype):
    generator = torch.Generator().manual_seed(0)
    shapes = [(3, 2), (5,), (), (4,)]
    ours, others = (
        [torch.nn.Parameter(torch.ones(shape, dtype=dtype)) for shape in shapes] for _ in range(2)
    )
    optimizer, other = OPTIMIZERS[name](ours), OTHERS[name](others, lr=1.0)
    for step in range(50):
        scale = 10.0 ** (step % 7 - 3)
        gradients = [
            scale * torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes
        ]
        # The last parameter has a gradient in every third step, and is left alone in others.
        gradients[-1] = gradients[-1] if step % 3 == 0 else None
        rate = 0.1 / (1 + step)
        other.param_groups[0]["lr"] = rate
        for parameter, gradient in zip(others, gradients, strict=True):
            parameter.grad = gradient
        other.step()
        optimizer.step(gradients, rate)
        for one, same in zip(ours, others, strict=True):
            torch.testing.assert_close(one, same, rtol=8 * torch.finfo(dtype).eps, atol=0)
    assert not torch.equal(ours[0], torch.ones(3, 2, dtype=dtype))


FIRST_FIT = """
import sys, warnings
import numpy as np
from sklearn_dpgen.domains import Box
from sklearn_dpgen.nn import Training
from sklearn_dpgen.sliced import (
    DPSlicedWassersteinFairClassifier, DPSlicedWassersteinFairEncoder,
    DPSlicedWassersteinFairRegressor, DPSlicedWassersteinGenerator,
)
warnings.simplefilter("ignore")
X, groups = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 2
few = {"training": Training(max_iter=2, hidden_layer_sizes=(4,))}
fair = {"sensitive_features": groups}
DPSlicedWassersteinFairClassifier(**few).fit(X, (X[:, 0] > 0).astype(int), **fair)
DPSlicedWassersteinFairRegressor(y_domain=(-1, 1), **few).fit(X, X[:, :2], **fair)
DPSlicedWassersteinFairEncoder(**few).fit(X, **fair)
DPSlicedWassersteinGenerator(domain=Box(-3, 3, n_features=3), **few).fit(X)
"""


@pytest.mark.slow
@pytest.mark.parametrize("broken", [False, True])
def test_a_first_fit_imports_no_compiler(broken):
    script = FIRST_FIT + "torch = sys.modules['torch']\n"
    if broken:
        script += "torch.optim.Adam([torch.ones(1, requires_grad=True)]).step()\n"
    script += "print([name for name in ('torch._dynamo', 'sympy') if name in sys.modules])"
    command = [sys.executable, "-c", script]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    assert (found == "[]") == (not broken)


def test_losses_and_gradients_are_those_of_adam():
    points = Point(3.0), Point(3.0)
    rates = [0.1 * (1 + math.cos(math.pi * t / 20)) / 2 for t in range(20)]
    optimizer = torch.optim.Adam([points[0].value])
    losses = []
    for rate in rates:
        optimizer.param_groups[0]["lr"] = rate
        optimizer.zero_grad()
        loss = (points[0].value - 1).square().sum()
        losses.append(loss.item())
        loss.backward()
        optimizer.step()

    def loss(step):
        return (points[1].value - 1).square().sum()

    result = fit_module(points[1], loss, max_iter=20, learning_rate=0.1, warmup=1)
    assert result.loss_curve == losses
    assert torch.equal(points[0].value, points[1].value)


@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_a_constant_rate_is_that_of_plain_descent(schedule):
    point = Point(3.0)
    descend(
        point,
        lambda step: (None, [2 * (point.value.detach() - 1)]),
        max_iter=20,
        learning_rate=0.1,
        optimizer="sgd",
        schedule=schedule,
    )
    plain = 1 + 2 * 0.8**20
    assert (point.value.item() == pytest.approx(plain, rel=1e-6)) == (schedule == "constant")


@pytest.mark.parametrize("paid", [True, False])
def test_descends_given_gradients(paid, capfd):
    point, path = Point(3.0), []

    def gradient(step):
        slope = 2 * (point.value.detach() - 1)
        return (step + 0.5 if paid else None), [slope]

    result = descend(
        point,
        gradient,
        max_iter=200,
        learning_rate=0.1,
        verbose=1,
        callback=lambda step: path.append((step, point.value.item(), point.training)),
    )
    assert result == TrainingResult([step + 0.5 for step in range(200)] if paid else [], 200)
    assert point.value.item() == pytest.approx(1.0, abs=1e-2)
    assert [step for step, _, _ in path] == list(range(200))
    assert path[0][1] != 3.0
    assert path[-1][1] == point.value.item()
    assert all(training for _, _, training in path)
    assert not point.training
    shown = capfd.readouterr().err
    assert "200/200" in shown
    assert ("loss=" in shown) == paid


def test_a_parameter_without_gradient_is_left_alone():
    module = torch.nn.ModuleDict({"used": Point(3.0), "unused": Point(7.0)})
    fit_module(module, lambda step: module["used"].value.sum(), max_iter=3, learning_rate=0.1)
    assert module["used"].value.item() < 3.0
    assert module["unused"].value.item() == 7.0


def test_gradients_and_parameters_correspond_one_to_one():
    for gradients in ([], [torch.ones(1), torch.ones(1)]):
        with pytest.raises(ValueError, match="zip"):
            descend(Point(), lambda step, g=gradients: (0.0, g), max_iter=1, learning_rate=0.1)


def test_progress_is_shown_on_request_only(capfd):
    steps_of_a_constant_slope(max_iter=3, learning_rate=0.1, name="Curve")
    assert capfd.readouterr() == ("", "")
    steps_of_a_constant_slope(max_iter=3, learning_rate=0.1, verbose=1, name="Curve")
    shown = capfd.readouterr().err
    assert "Curve: 100%" in shown
    assert "3/3" in shown
    assert "loss=" in shown
