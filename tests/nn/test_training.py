"""The training loop: schedule, averaging, progress, and what it calls a divergence."""

import math

import pytest
import torch

from sklearn_dpgen.exceptions import TrainingDivergedError
from sklearn_dpgen.nn import TrainingResult, fit_module


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


def test_parameters_that_are_not_finite_are_a_divergence_even_at_the_last_step():
    point = Point(0.0)

    def loss(step):
        # Zero with the slope of a square root at zero.
        return point.value.sqrt().sum() if step == 2 else 0 * point.value.sum()

    with pytest.raises(TrainingDivergedError, match="parameters became .* at step 3 of 3"):
        fit_module(point, loss, max_iter=3, learning_rate=0.1)


def test_progress_is_shown_on_request_only(capfd):
    steps_of_a_constant_slope(max_iter=3, learning_rate=0.1, name="Curve")
    assert capfd.readouterr() == ("", "")
    steps_of_a_constant_slope(max_iter=3, learning_rate=0.1, verbose=1, name="Curve")
    shown = capfd.readouterr().err
    assert "Curve: 100%" in shown
    assert "3/3" in shown
    assert "loss=" in shown
