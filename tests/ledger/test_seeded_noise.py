"""Seeded fits share no noise unless they are the same fit.

Noise that two releases share cancels in their difference, which is then exactly the difference of
the records. A seeded source hashes what it is given, and every estimator is checked for it here.
"""

import numpy as np
import pytest
from contract_cases import CASES, FRAME, PERSON, SIDE
from sklearn.base import clone

from sklearn_dpgen.preprocessing._steps import private_parameters
from sklearn_dpgen.utils import _random
from sklearn_dpgen.utils._random import NoiseObserver, observed_noise

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

# Their fits take seconds, and release what the samplers within them do.
LEARNERS = ("synthetic classifier", "barycenter classifier")
NAMES = [pytest.param(name, marks=pytest.mark.slow) if name in LEARNERS else name for name in CASES]
# A release is rounded to a grid below a thousandth of the scale of its noise.
GRID = 2e-3
# A neighbouring table, in which one record has other values, and one in which all have.
NEIGHBOUR = FRAME.copy()
NEIGHBOUR.loc[3] = 1 - NEIGHBOUR.loc[3].round()
OTHER = 1 - FRAME


class Releases(NoiseObserver):
    """Keeps the values, the noise and the secret batches of a fit."""

    def __init__(self):
        self.noisy, self.batches = [], []

    def added(self, values, scale, kind, noisy):
        self.noisy.append((values.copy(), (noisy - values) / scale))
        return noisy

    def drawn(self, n, indices):
        if indices.shape[-1] < n:
            self.batches.append(indices)
        return indices


def releases(name, frame=FRAME, factor=1.0):
    """Return the releases of a seeded fit, with a factor on its budget."""
    case = CASES[name]
    given = case.estimator.get_params()
    changes = {key: 0 for key in given if key.split("__")[-1] == "random_state"}
    # The outermost budget determines those within.
    budgets = private_parameters(case.estimator, "epsilon")
    changes |= {key: factor * given[key] for key in budgets}
    with observed_noise(Releases()) as seen:
        case.fit(frame, SIDE, clone(case.estimator).set_params(**changes))
    assert seen.noisy
    return seen


def shared(first, second, *, of_equal_values):
    """Return what two fits share: noise, be it on different values alone, and secret batches."""
    found = set()
    for values, noise in first.noisy:
        for other_values, other_noise in second.noisy:
            is_other = of_equal_values or not np.array_equal(values, other_values)
            is_same_shape = is_other and noise.shape == other_noise.shape
            if is_same_shape and np.allclose(noise, other_noise, rtol=0, atol=GRID):
                found.add("noise")
    # Of two batches in small strata some agree by chance.
    if first.batches and all(map(np.array_equal, first.batches, second.batches)):
        found.add("batches")
    return found


def shared_with(first, frame, name):
    # A record may leave a vector as it is: its release is then repeated, and reveals nothing.
    return shared(first, releases(name, frame), of_equal_values=False)


def shared_with_another_budget(first, name):
    return shared(first, releases(name, factor=1.5), of_equal_values=True)


@pytest.mark.parametrize("name", NAMES)
def test_seeded_fits_share_no_noise_unless_they_are_the_same(name):
    first = releases(name)
    assert "noise" in shared(first, releases(name), of_equal_values=True)
    assert shared_with(first, NEIGHBOUR, name) == shared_with(first, OTHER, name) == set()
    assert shared_with_another_budget(first, name) == set()


# The negative twins: sources that ignore some of what they are given.


def ignoring(*kinds):
    feed = _random._feed

    def fed(digest, part):
        feed(digest, None if isinstance(part, kinds) else part)

    return fed


@pytest.mark.parametrize("name", NAMES)
def test_a_source_that_ignores_records_is_caught(name, monkeypatch):
    monkeypatch.setattr(_random, "_feed", ignoring(np.ndarray))
    first = releases(name)
    found = shared_with(first, OTHER, name)
    assert "noise" in found
    assert ("batches" in found) == bool(first.batches)


@pytest.mark.parametrize("name", NAMES)
def test_a_source_that_ignores_scales_is_caught(name, monkeypatch):
    monkeypatch.setattr(_random, "_feed", ignoring(float))
    assert "noise" in shared_with_another_budget(releases(name), name)


# Who a row is of, and which group it is in, is no part of the arrays that a source is bound to.

# Of two persons of each side, one gives a row to the other.
OTHER_PERSON = PERSON.copy()
for giver, taker in ((2, 0), (5, 3)):
    OTHER_PERSON[np.flatnonzero(giver == PERSON)[0]] = taker
# One row of each side is in the other one.
OTHER_SIDE = SIDE.copy()
for group in (0, 1):
    OTHER_SIDE[np.flatnonzero(group == SIDE)[0]] = 1 - group
# Batches of persons that are smaller than all of them.
BATCHES = {
    "sliced generator": {},
    "fair encoder": {},
    "sliced adapter": {},
    "smoothed projections": {"release__batch_size": 10},
    "smoothed adapter on projections": {"release__batch_size": 10},
}


def first_batch(name, person, side, **changes):
    """Return the first secret batch of a seeded fit, of persons if there are any."""
    case, frame = CASES[name], FRAME
    if person is not None:
        frame, changes = FRAME.assign(person=person), changes | {"unit": "person"}
    with observed_noise(Releases()) as seen:
        case.fit(frame, side, clone(case.estimator).set_params(random_state=0, **changes))
    return seen.batches[0]


def batches_of_other_persons(name):
    return [first_batch(name, person, SIDE, **BATCHES[name]) for person in (PERSON, OTHER_PERSON)]


def batches_of_other_groups():
    return [first_batch("fair encoder", None, side) for side in (SIDE, OTHER_SIDE)]


def ignore_positions(monkeypatch):
    """Let a source ignore arrays of integers: persons and strata, and no values of records."""
    feed = _random._feed

    def fed(digest, part):
        is_ignored = isinstance(part, np.ndarray) and part.dtype.kind == "i"
        feed(digest, None if is_ignored else part)

    monkeypatch.setattr(_random, "_feed", fed)


@pytest.mark.parametrize("name", BATCHES)
def test_rows_of_other_persons_are_drawn_in_other_batches(name, monkeypatch):
    first, second = batches_of_other_persons(name)
    assert np.array_equal(first, batches_of_other_persons(name)[0])
    assert not np.array_equal(first, second)
    # Twin: nobody tells the source whose rows they are.
    ignore_positions(monkeypatch)
    assert np.array_equal(*batches_of_other_persons(name))


def test_rows_of_other_groups_are_drawn_in_other_batches(monkeypatch):
    assert not np.array_equal(*batches_of_other_groups())
    # Twin: nobody tells the source which stratum they are in.
    ignore_positions(monkeypatch)
    assert np.array_equal(*batches_of_other_groups())
