"""Marginals and pairs are drawn as they are counted, and of releases from these alone."""

import numpy as np
import pandas as pd
import pytest

from sklearn_dpgen.evolution import PrivateEvolutionSampler
from sklearn_dpgen.reporting import MarginalDisplay, PairDisplay
from sklearn_dpgen.schema import Categorical, Numeric, Schema
from sklearn_dpgen.tables import LocalTableSampler, TableSampler

pyplot = pytest.importorskip("matplotlib.pyplot")

SCHEMA = Schema(
    {
        "age": Numeric(0, 100, integer=True, nullable=True),
        "ill": Categorical(["no", "yes"]),
        "$x$": Categorical(["a", "b", "c"]),
    }
)


def table(n=1500, seed=0):
    rng = np.random.default_rng(seed)
    age = rng.integers(20, 80, n).astype(float)
    return pd.DataFrame(
        {
            "age": np.where(rng.uniform(size=n) < 0.1, np.nan, age),
            "ill": np.where(age > 60, "yes", "no"),
            "$x$": rng.choice(["a", "b", "c"], n, p=[0.7, 0.2, 0.1]),
        }
    )


@pytest.fixture(autouse=True)
def figures():
    pyplot.switch_backend("agg")
    yield
    pyplot.close("all")


@pytest.fixture(scope="module")
def fitted():
    return TableSampler(schema=SCHEMA, population_size=200, max_iter=3).fit(table())


def heights(display):
    return [bar.get_height() for bar in display.bars_]


def test_bars_and_points_are_shares_of_labels():
    real, synthetic = table(), table(seed=1)
    for schema in (SCHEMA, None):
        display = MarginalDisplay.from_frames(real, synthetic, "$x$", schema=schema)
        assert display.labels == ["a", "b", "c"]
        for found, frame in (
            (heights(display), real),
            (display.points_.get_ydata(), synthetic),
        ):
            np.testing.assert_allclose(found, frame["$x$"].value_counts(normalize=True)[[*"abc"]])
        assert display.ax_.get_xlabel() == r"\$x\$"
        display.figure_.canvas.draw()


def test_bars_of_numbers_add_up_and_show_nulls():
    display = MarginalDisplay.from_frames(table(), table(seed=1), "age", schema=SCHEMA)
    assert display.labels[-1] == "null"
    assert heights(display)[-1] == pytest.approx(table()["age"].isna().mean())
    assert sum(heights(display)) == pytest.approx(1)
    assert sum(display.points_.get_ydata()) == pytest.approx(1)


def test_bars_of_an_estimator_are_the_released_counts(fitted):
    display = MarginalDisplay.from_estimator(fitted, "ill", n_samples=300, random_state=0)
    (part,) = [part for part in fitted.one_way_marginals_ if part.columns == ("ill",)]
    np.testing.assert_allclose(heights(display), part.counts / 1500)
    np.testing.assert_allclose(display.errors, part.noise_scale / 1500)
    drawn = fitted.sample(300, random_state=0)["ill"].value_counts(normalize=True)
    np.testing.assert_allclose(display.points_.get_ydata(), drawn[["no", "yes"]])
    assert display.first_name == "released"
    ages = MarginalDisplay.from_estimator(fitted, "age", n_samples=300)
    assert ages.labels[-1] == "null"
    assert sum(ages.points_.get_ydata()) == pytest.approx(1)


def test_cells_of_pairs_are_joint_shares():
    real, synthetic = table(), table(seed=1)
    display = PairDisplay.from_frames(real, synthetic, ("ill", "$x$"), schema=SCHEMA)
    crosses = [
        pd.crosstab(frame["ill"], frame["$x$"], normalize=True).to_numpy()
        for frame in (real, synthetic)
    ]
    shown = np.asarray(display.mesh_.get_array()).reshape(2, 3)
    np.testing.assert_allclose(shown, crosses[1] - crosses[0])
    for kind, expected in zip(("first", "second"), crosses, strict=True):
        display.plot(kind=kind)
        np.testing.assert_allclose(np.asarray(display.mesh_.get_array()).reshape(2, 3), expected)
    display.figure_.canvas.draw()


def test_cells_of_an_estimator_are_the_released_counts(fitted):
    for names in (("ill", "$x$"), ("$x$", "ill")):
        display = PairDisplay.from_estimator(fitted, names, n_samples=300, kind="first")
        assert np.shape(display.first) == tuple(len(SCHEMA[name].labels) for name in names)
        parts = [part for part in fitted.marginals_ if set(part.columns) == set(names)]
        released = [part.counts if part.columns == names else part.counts.T for part in parts]
        assert any(np.allclose(display.first, counts / 1500) for counts in released)
        assert np.sum(display.second) == pytest.approx(1)


def test_draws_on_axes_that_are_given(fitted):
    _, (left, right) = pyplot.subplots(1, 2)
    assert MarginalDisplay.from_estimator(fitted, "ill", ax=left, n_samples=100).ax_ is left
    assert PairDisplay.from_estimator(fitted, ("ill", "age"), ax=right, n_samples=100).ax_ is right


def test_errors_name_what_is_wrong(fitted):
    with pytest.raises(ValueError, match="'nothing'"):
        MarginalDisplay.from_frames(table(), table(), "nothing")
    with pytest.raises(ValueError, match="'nothing' was not counted"):
        MarginalDisplay.from_estimator(fitted, "nothing")
    with pytest.raises(ValueError, match="not counted together"):
        PairDisplay.from_estimator(fitted, ("ill", "nothing"))
    with pytest.raises(ValueError, match="two names"):
        PairDisplay.from_frames(table(), table(), ("ill", "ill"))
    with pytest.raises(ValueError, match="kind"):
        PairDisplay.from_estimator(fitted, ("ill", "age"), kind="third", n_samples=100)
    other = PrivateEvolutionSampler(schema=SCHEMA, n_samples=20, n_iter=1).fit(table())
    with pytest.raises(TypeError, match="no released counts"):
        MarginalDisplay.from_estimator(other, "ill")
    assert not hasattr(LocalTableSampler, "one_way_marginals_")
