"""Smoothed transport on lines against quadrature, finite differences and a direct count."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import ndtr

from sklearn_dpgen.ot._lines import LineGrid, SmoothedLines

# Truth: quantile functions of mixtures of normals, on a fine mesh of levels.
LEVELS = (np.arange(100_000) + 0.5) / 100_000


def smoothed_quantiles(points, scale, share=1.0):
    """Return the quantiles of a law of points, the rest of it at 0, plus normal noise."""
    t = np.linspace(-1.5 - 9 * scale, 1.5 + 9 * scale, 10_001)
    cdf = share * ndtr((t[:, None] - points) / scale).mean(axis=1) + (1 - share) * ndtr(t / scale)
    return np.interp(LEVELS, cdf, t)


def true_distance(fixed, moving, scale, *, q=2, weight=1.0, share=1.0):
    moved = smoothed_quantiles(moving, scale, share) - smoothed_quantiles(fixed, scale, share)
    if q == 1:
        return abs(moved).mean()
    return moved.mean() ** 2 + weight * moved.var()


def true_gradient(fixed, moving, scale, **options):
    def distance(step):
        return true_distance(fixed, moving + step, scale, **options)

    nudges = 1e-3 * np.eye(len(moving))
    return np.array([(distance(step) - distance(-step)) / 2e-3 for step in nudges])


def lines_of(fixed, scale, *, grid=None, share=1.0, **options):
    """Return the lines of an exact law, as a great many noisy values of it would give them."""
    grid = LineGrid.around(1.0, scale) if grid is None else grid
    edges = np.linspace(-grid.reach, grid.reach, grid.n_bins + 1)
    scale = max(scale, 1e-9)
    cdf = share * ndtr((edges[:, None] - fixed) / scale).mean(axis=1)
    counts = np.diff(cdf + (1 - share) * ndtr(edges / scale))
    counts = torch.tensor(1e7 * counts / counts.sum())[None, None]
    return SmoothedLines(grid, counts, scale, **options)


def column(points):
    """Return points of one group on one line."""
    return torch.tensor(points, dtype=torch.float32)[None, :, None]


RNG = np.random.default_rng(0)
FIXED, MOVING = RNG.uniform(-0.9, 0.3, 30), RNG.uniform(-0.5, 0.9, 6)


def relative_error(value, truth):
    return float(np.max(abs(value - truth)) / np.max(abs(truth)))


@pytest.mark.parametrize("scale", [3.0, 0.5, 0.1])
@pytest.mark.parametrize(
    ("options", "broken"),
    [
        ({}, {"q": 1}),
        ({"weight": 20.0}, {"weight": 10.0}),
        ({"share": 0.3}, {"share": 0.4}),
    ],
    ids=["order", "weight", "share"],
)
def test_the_distance_and_its_gradient(scale, options, broken):
    lines = lines_of(
        FIXED,
        scale,
        share=options.get("share", 1.0),
        shares=torch.tensor([options["share"]]) if "share" in options else None,
        shape_weight=options.get("weight", 1.0),
    )
    assert lines.noise_scale == scale
    value, gradient = lines.gradient(column(MOVING))
    gradient = gradient.flatten().numpy()
    assert float(value) == pytest.approx(true_distance(FIXED, MOVING, scale, **options), rel=0.005)
    assert relative_error(gradient, true_gradient(FIXED, MOVING, scale, **options)) < 0.02
    assert relative_error(gradient, true_gradient(FIXED, MOVING, scale, **broken)) > 0.03


def test_the_gradient_of_another_noise_is_told_apart():
    _, gradient = lines_of(FIXED, 0.2).gradient(column(MOVING))
    gradient = gradient.flatten().numpy()
    assert relative_error(gradient, true_gradient(FIXED, MOVING, 0.2)) < 0.01
    assert relative_error(gradient, true_gradient(FIXED, MOVING, 0.1)) > 0.02


def test_the_weight_is_of_the_shape_alone():
    scale = 0.4
    shifted = lines_of(MOVING + 0.2, scale, shape_weight=20.0)
    value, gradient = shifted.gradient(column(MOVING))
    assert float(value) == pytest.approx(0.04, rel=0.02)
    assert_allclose(gradient.flatten(), np.full(6, -0.4 / 6), atol=0.1 * 0.4 / 6)
    # A law that is narrower about the same mean: the weight counts in full.
    narrow = MOVING.mean() + 0.5 * (MOVING - MOVING.mean())
    light, heavy = (
        lines_of(narrow, scale, shape_weight=weight).gradient(column(MOVING))
        for weight in (1.0, 100.0)
    )
    assert float(heavy[0]) == pytest.approx(100 * float(light[0]), rel=0.01)
    assert_allclose(heavy[1], 100 * light[1], rtol=0.05, atol=2e-3)


def test_narrow_noise_is_raised_on_both_sides():
    grid = LineGrid(1.5)
    lines = lines_of(FIXED, 0.03, grid=grid)
    assert lines.noise_scale == grid.narrowest == 8 * grid.step
    value, gradient = lines.gradient(column(MOVING))
    truth = true_gradient(FIXED, MOVING, lines.noise_scale)
    assert float(value) == pytest.approx(true_distance(FIXED, MOVING, lines.noise_scale), rel=0.003)
    assert relative_error(gradient.flatten().numpy(), truth) < 0.01
    # Raised on one side alone it would be another distance between laws of other widths.
    narrow = true_gradient(FIXED, MOVING, 0.03)
    assert relative_error(gradient.flatten().numpy(), narrow) > 0.03


@pytest.mark.parametrize("scale", [0.0, 0.02, 0.3])
@pytest.mark.parametrize(
    "points", [[1.0] * 4, [-1.0, -1.0, 1.0, 1.0], [0.0] * 4, [-1.0, -0.5, 0.2, 0.9]], ids=str
)
def test_laws_that_agree_do_not_pull(points, scale):
    lines = lines_of(np.array(points), scale)
    value, gradient = lines.gradient(column(points))
    # To half a bin, in which a fixed value without noise may lie anywhere.
    half = lines.grid.step / 2
    assert float(value) < 1.5 * half**2
    assert abs(4 * gradient).max() < 2.2 * half


def test_without_room_for_the_noise_the_borders_pull():
    points = np.ones(4)
    for grid, is_wide in ((LineGrid.around(1.0, 0.0), True), (LineGrid(1.0), False)):
        value, gradient = lines_of(points, 0.0, grid=grid).gradient(column(points))
        assert (abs(4 * gradient).max() < 2.2 * grid.step / 2) == is_wide


@pytest.mark.parametrize("scale", [0.0, 1e-6, 0.05, 1 / 11, 0.2, 50.0])
@pytest.mark.parametrize("radius", [1e-3, 1.0, 1e4])
def test_a_grid_has_room_for_the_smoothing(radius, scale):
    grid = LineGrid.around(radius, radius * scale)
    smoothing = max(radius * scale, grid.narrowest)
    assert grid.reach == pytest.approx(radius + 5 * smoothing)
    # Noise of a reasonable width is not raised.
    assert (smoothing > radius * scale * (1 + 1e-9)) == (scale < 1 / 11)


@pytest.mark.slow
def test_points_follow_the_gradient_to_the_law():
    scale, target = 0.5, np.array([-0.8, -0.7, 0.1, 0.9])
    lines = lines_of(target, scale)
    points = column([0.0, 0.1, 0.2, 0.3])
    start = float(lines.gradient(points)[0])
    for _ in range(3000):
        points = points - lines.gradient(points)[1]
    assert float(lines.gradient(points)[0]) < 1e-5 * start
    points = points.flatten().numpy()
    assert points.mean() == pytest.approx(target.mean(), abs=1e-3)
    assert points.std() == pytest.approx(target.std(), abs=0.02)


def test_groups_and_lines_are_apart():
    """Many at once are as each by itself, and the value is their mean."""
    rng = np.random.default_rng(1)
    grid = LineGrid.around(1.0, 0.3)
    counts = torch.tensor(rng.integers(1, 100, size=(2, 3, 256)), dtype=torch.float64)
    points = torch.tensor(rng.uniform(-1, 1, size=(2, 5, 3)), dtype=torch.float32)
    shares = torch.tensor([0.2, 0.7])
    options = {"shape_weight": 3.0}
    value, gradient = SmoothedLines(grid, counts, 0.3, shares=shares, **options).gradient(points)
    total = 0.0
    for c in range(2):
        for j in range(3):
            alone = SmoothedLines(
                grid, counts[c, j][None, None], 0.3, shares=shares[c : c + 1], **options
            )
            one, pull = alone.gradient(points[c : c + 1, :, j : j + 1])
            total += float(one) / 6
            torch.testing.assert_close(gradient[c, :, j], pull[0, :, 0] / 6, rtol=1e-3, atol=1e-5)
    assert float(value) == pytest.approx(total, rel=1e-3)
    # Of some lines only.
    lines = SmoothedLines(grid, counts, 0.3, shares=shares, **options)
    some = lines.gradient(points[..., 1:], slice(1, 3))[1]
    torch.testing.assert_close(some, gradient[..., 1:] * 1.5)
    other = lines.gradient(points[..., 1:], slice(0, 2))[1]
    assert not torch.allclose(other, gradient[..., 1:] * 1.5, rtol=0.05)


values = st.floats(-40, 40, width=32)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(values, values), min_size=1, max_size=30),
    st.sampled_from([0.5, 7.0, 100.0]),
    st.sampled_from([8, 256]),
    st.integers(1, 300),
)
def test_counts_are_those_of_a_histogram(points, reach, n_bins, n_lines):
    points = torch.tensor(points)
    angles = torch.linspace(0, 3, n_lines)
    directions = torch.stack([angles.cos(), angles.sin()], 1)
    grid = LineGrid(reach, n_bins)
    counts = grid.counts(points, directions)
    assert counts.shape == (n_lines, n_bins)
    assert counts.dtype == torch.float64
    assert_array_equal(counts.sum(1), np.full(n_lines, len(points)))
    # Beyond the outermost edges a value counts in the outermost bins.
    inside = (points @ directions.t()).double().numpy().clip(-reach, reach)
    positions = (inside + reach) / grid.step
    for line in (0, n_lines - 1):
        clear = abs(positions[:, line] - positions[:, line].round()) > 1e-3
        bins = np.floor(positions[clear, line]).astype(int)
        assert (counts[line].numpy() >= np.bincount(bins, minlength=n_bins)[:n_bins]).all()


@settings(max_examples=60, deadline=None)
@given(st.lists(values, min_size=1, max_size=30), st.sampled_from([0.5, 7.0, 100.0]))
def test_a_point_is_shared_by_its_two_centers(points, reach):
    grid = LineGrid(reach)
    points = torch.tensor(points, dtype=torch.float64)
    below, share = grid.locate(points)
    centers = grid.centers(points)
    assert ((below >= 0) & (below <= 254)).all()
    assert ((share >= 0) & (share <= 1)).all()
    between = (1 - share) * centers[below] + share * centers[below + 1]
    expected = points.clamp(centers[0], centers[-1])
    torch.testing.assert_close(between, expected, rtol=0, atol=1e-9 * reach)


def test_centers_and_steps():
    grid = LineGrid(2.0, 8)
    assert grid.step == 0.5
    assert_array_equal(grid.centers(torch.zeros(0)), np.arange(-1.75, 2, 0.5))
    assert math.isclose(grid.narrowest, 4.0)


def test_samples_of_noise_give_the_distance():
    """From values drawn, as a fit has them, and points that are far from a grid of centers."""
    rng = np.random.default_rng(2)
    scale, n = 1.0, 200_000
    drawn = rng.choice(FIXED, n) + scale * rng.normal(size=n)
    grid = LineGrid.around(1.0, scale)
    counts = grid.counts(torch.tensor(drawn, dtype=torch.float32)[:, None], torch.ones(1, 1))
    value, gradient = SmoothedLines(grid, counts[None], scale).gradient(column(MOVING))
    difference = abs(MOVING.mean() - FIXED.mean())
    # The mean of n values is off by scale / sqrt(n), and so is each gradient, twice, over m.
    error = 5 * math.hypot(scale, 1) / math.sqrt(n)
    truth = true_gradient(FIXED, MOVING, scale)
    assert abs(math.sqrt(float(value)) - difference) < 2 * error
    assert abs(gradient.flatten().numpy() - truth).max() < 4 * error / 6
    half = SmoothedLines(grid, counts[None], scale / 2).gradient(column(MOVING))[0]
    assert abs(math.sqrt(float(half)) - difference) > 2 * error
