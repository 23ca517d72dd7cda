"""Fits on two tables that release the same: what differs between them was never paid for."""

import contextlib
import hashlib
import io
import itertools
import math
import os
import random
import types
import warnings
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import pytest
import torch
from dp_accounting import get_epsilon_gaussian
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy.optimize import brentq
from scipy.special import ndtr, softmax

from sklearn_dpgen.mechanisms._sequence import ThresholdedLaplaceRun
from sklearn_dpgen.utils._random import NoiseObserver, observed_noise


@contextlib.contextmanager
def scripted_entropy(seed):
    """Let the system's entropy be a script: its k-th draw is the same in every fit, no two alike.

    So ``random_state=None`` is replayed as users have it, whoever draws. Seeds of generators, which
    come from `random`, have a script of their own: how often certified noise draws depends on what
    it is added to, and on luck.
    """

    def script(name):
        places = itertools.count()

        def urandom(size):
            return hashlib.shake_256(f"{seed} {name} {next(places)}".encode()).digest(size)

        return urandom

    kept = os.urandom, random._urandom
    states = np.random.get_state(), torch.random.get_rng_state()  # noqa: NPY002
    os.urandom, random._urandom = script("noise"), script("seeds")
    np.random.seed(seed)  # noqa: NPY002
    torch.manual_seed(seed)
    try:
        yield
    finally:
        os.urandom, random._urandom = kept
        np.random.set_state(states[0])  # noqa: NPY002
        torch.random.set_rng_state(states[1])


class Diverged(AssertionError):
    """The second fit asked for other releases than the first one had."""


@dataclass
class Release:
    """What noise was added to, or selected by, and what came out in the first fit."""

    kind: str
    values: np.ndarray
    scale: float
    outcome: np.ndarray
    batches: list = field(default_factory=list)


class Tape(NoiseObserver):
    """Keeps all releases of a fit, or gives those of an earlier one in the place of new ones.

    Parameters
    ----------
    earlier : Tape or None, default=None
    member : int or None, default=None
        Which record of each stratum is in every secret batch.
    altered : collection of int, default=()
        Places of releases that are others than in the earlier fit.
    """

    def __init__(self, earlier=None, member=None, altered=()):
        self.releases, self._batches, self.kept = [], [], []
        self._earlier, self._member, self._altered = earlier, member, altered

    def added(self, values, scale, kind, noisy):
        return self._released(Release(kind, values.copy(), scale, noisy, self._batches))

    def selected(self, scores, scale, indices):
        return self._released(Release("gumbel", scores.copy(), scale, indices, self._batches))

    def drawn(self, n, indices):
        if self._member is not None and indices.size and self._member < n:
            rows = np.atleast_2d(indices).copy()
            rows[~(rows == self._member).any(axis=1), 0] = self._member
            indices = rows.reshape(indices.shape)
        self._batches.append((n, indices.copy()))
        return indices

    def above_threshold(self, counts):
        """Return the noisy counts that passed a threshold, which a count of 0 never does."""
        place = len(self.kept)
        self.kept.append(counts if self._earlier is None else self._earlier.kept[place])
        return self.kept[-1].copy()

    def _released(self, release):
        self._batches = []
        self.releases.append(release)
        if self._earlier is not None:
            place = len(self.releases) - 1
            if place >= len(self._earlier.releases):
                raise Diverged("more releases")
            first = self._earlier.releases[place]
            for name in ("kind", "scale"):
                if getattr(release, name) != getattr(first, name):
                    raise Diverged(f"release {place} has another {name}")
            for name in ("values", "outcome"):
                if getattr(release, name).shape != getattr(first, name).shape:
                    raise Diverged(f"release {place} has other numbers of {name}")
            release.outcome = first.outcome.copy()
            if place in self._altered:
                release.outcome += release.scale
        return release.outcome.copy()


@dataclass
class Fit:
    """A fit with all that can be seen of it."""

    estimator: object
    warned: list
    printed: str
    tape: Tape


@contextlib.contextmanager
def _thresholds(tape):
    release = ThresholdedLaplaceRun.release
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            ThresholdedLaplaceRun,
            "release",
            lambda self, counts, noise: tape.above_threshold(release(self, counts, noise)),
        )
        yield


def fitted(fit, estimator, given, tape, seed=0):
    """Fit an estimator on records, to what a tape says.

    Parameters
    ----------
    fit : callable
        Of a frame, the sides of its records, and the estimator.
    estimator : estimator
    given : Records
    tape : Tape
    seed : int

    Returns
    -------
    Fit
    """
    printed = io.StringIO()
    with (
        scripted_entropy(seed),
        _thresholds(tape),
        observed_noise(tape),
        warnings.catch_warnings(record=True) as warned,
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(printed),
    ):
        warnings.simplefilter("always")
        fit(given.frame, given.side, estimator)
    if tape._earlier is not None and len(tape.releases) != len(tape._earlier.releases):
        raise Diverged("fewer releases")
    told = [(warning.category, str(warning.message)) for warning in warned]
    return Fit(estimator, told, printed.getvalue(), tape)


_PLAIN = (str, bytes, int, bool, type(None), complex, types.BuiltinFunctionType, types.ModuleType)
NUMBERS = (bool, int, float, complex, np.generic, type(None))
_CODE = (types.FunctionType, types.MethodType)


def differences(first, second):
    """Return the places in which two objects differ, in all that they hold, to any depth."""
    return list(_differences(first, second, "", set()))


def _differences(a, b, where, seen):
    if a is b or (id(a), id(b)) in seen:
        return
    if type(a) is not type(b):
        yield f"{where}: {type(a).__name__} and {type(b).__name__}"
        return
    seen.add((id(a), id(b)))
    if isinstance(a, np.ndarray) and a.dtype != object:
        is_same = (a.dtype, a.shape) == (b.dtype, b.shape) and a.tobytes() == b.tobytes()
    elif isinstance(a, torch.Tensor):
        is_same = a.dtype == b.dtype and torch.equal(a, b)
    elif isinstance(a, pd.DataFrame | pd.Series | pd.Index):
        is_same = a.equals(b)
    elif isinstance(a, float | np.generic):
        is_same = a == b or bool(pd.isna(a) and pd.isna(b))
    elif isinstance(a, (*_PLAIN, type, set, frozenset)):
        is_same = a == b
    else:
        parts = parts_of(a), parts_of(b)
        is_same = list(parts[0]) == list(parts[1])
        if is_same:
            for name, value in parts[0].items():
                other = parts[1][name]
                # Long lists of numbers are compared at once.
                if isinstance(value, NUMBERS) and type(value) is type(other) and value == other:
                    continue
                yield from _differences(value, other, f"{where}.{name}", seen)
    if not is_same:
        yield where


def parts_of(thing):
    """Return what an object holds, by names."""
    if isinstance(thing, dict):
        return {f"key {i}": key for i, key in enumerate(thing)} | {
            f"value {i} ({key!r})": value for i, (key, value) in enumerate(thing.items())
        }
    if isinstance(thing, list | tuple):
        return {str(i): value for i, value in enumerate(thing)}
    if isinstance(thing, np.ndarray):
        return {"shape": thing.shape} | {str(i): v for i, v in enumerate(thing.ravel().tolist())}
    if isinstance(thing, torch.Generator):
        return {"state": thing.get_state()}
    if isinstance(thing, types.MethodType):
        return {"function": thing.__func__, "self": thing.__self__}
    if isinstance(thing, types.FunctionType):
        # Records may be kept in what a function closes over.
        cells = thing.__closure__ or ()
        held = {f"cell {i}": cell.cell_contents for i, cell in enumerate(cells)}
        return held | {"code": thing.__code__.co_code.hex(), "defaults": thing.__defaults__}
    held = dict(getattr(thing, "__dict__", {}))
    for kind in type(thing).__mro__:
        for name in np.atleast_1d(vars(kind).get("__slots__", [])).tolist():
            if hasattr(thing, name) and not name.startswith("__"):
                held[name] = getattr(thing, name)
    if held:
        # In the order of names: a second fit sets some of them anew.
        return dict(sorted(held.items()))
    # Of compiled classes, what they would be made of again.
    return {"pickled": thing.__reduce_ex__(4)[1:]}


def _norms(a, b, rows=1):
    moved = np.zeros(a.values.shape)
    # A score of a fit that fails is −∞ on both.
    np.subtract(a.values, b.values, out=moved, where=a.values != b.values)
    return np.linalg.norm(moved.reshape(rows, -1) / a.scale, axis=1)


def least_epsilon(first, second, delta):
    """Return an ε that all releases of two fits on neighbours cost at least, if any are told apart.

    Each release is the pair of distributions that it has on the two tables, given those before; by
    dp_accounting alone, and where losses are discretized, rounded to the lower side.

    Parameters
    ----------
    first, second : sequence of Release
        With the same outcomes, and a record that differs in every secret batch.
    delta : float
    """
    squares, parts, sampled = 0.0, [], []
    for a, b in zip(first, second, strict=True):
        if a.kind == "gaussian":
            batches = [rows for rows in a.batches if np.atleast_2d(rows[1]).shape[1] < rows[0]]
            if not batches:
                squares += float(_norms(a, b)[0] ** 2)
                continue
            n, drawn = batches[0]
            n_batches, size = np.atleast_2d(drawn).shape
            sampled.append((_norms(a, b, n_batches).max() / 2, size / n, n_batches))
        elif a.kind == "laplace":
            shifts = np.abs(a.values - b.values).ravel() / a.scale
            parts += [_laplace(shift) for shift in shifts[shifts > 0]]
        else:
            parts += _selections(a.values / a.scale, b.values / b.scale, a.outcome)
    if sampled:
        assert not parts
        norms, rates, counts = map(np.array, zip(*sampled, strict=True))
        return _sampled_epsilon(norms.max(), rates.min(), counts.sum(), math.sqrt(squares), delta)
    if not parts:
        return get_epsilon_gaussian(1 / math.sqrt(squares), delta) if squares else 0.0
    if squares:
        parts.append(_gaussian(math.sqrt(squares)))
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.compose(part)
    return whole.get_epsilon_for_delta(delta)


_ROUNDED_DOWN = {"pessimistic_estimate": False, "value_discretization_interval": 1e-3}


def runs_of(releases):
    """Return the places of the releases of each run of a search: those of its fit, and its score.

    A score is a vector of one, and ends its run.
    """
    ends = [i for i, release in enumerate(releases) if release.values.shape == (1,)]
    if not ends or ends[-1] != len(releases) - 1:
        raise Diverged("a release that is of no run")
    return np.split(np.arange(len(releases)), np.add(ends, 1))[:-1]


def least_search_epsilon(first, second, mean_runs, delta):
    """Return an ε that the best of a Poisson number of runs costs at least, by its worst run.

    Parameters
    ----------
    first, second : sequence of Release
    mean_runs : float
    delta : float
    """
    moved = np.array([_norms(a, b)[0] for a, b in zip(first, second, strict=True)])
    runs = runs_of(first)
    fits = [float(np.linalg.norm(moved[run[:-1]])) for run in runs]
    scores = [float(moved[run[-1]]) for run in runs]
    # A record trains or scores.
    assert not (any(fits) and any(scores))
    mu = max(fits + scores)
    # The best of the runs is above a threshold where one of them is; on the one table the score
    # of each is larger by μ.
    thresholds = np.linspace(-8, 8 + mu, 4001)
    above = (
        -np.expm1(-mean_runs * ndtr(shift - thresholds)) / -math.expm1(-mean_runs)
        for shift in (mu, 0.0)
    )
    p, q = above
    excesses = [(p, q), (1 - q, 1 - p)]

    def excess(epsilon):
        return max(float((a - math.exp(epsilon) * b).max()) for a, b in excesses) - delta

    return 0.0 if excess(0.0) <= 0 else brentq(excess, 0.0, 50.0)


def _gaussian(mu):
    return pld.from_gaussian_mechanism(1 / mu, **_ROUNDED_DOWN)


def _laplace(shift):
    return pld.from_laplace_mechanism(1 / shift, **_ROUNDED_DOWN)


def _selections(first, second, chosen):
    """Return the pairs of selections one after another: what was chosen is then left out."""
    left, pairs = np.arange(len(first)), []
    for index in chosen:
        laws = softmax(first[left]), softmax(second[left])
        if not np.array_equal(*laws):
            pairs.append(_discrete(*laws))
        left = left[left != index]
    return pairs


def _discrete(p, q):
    logs = [dict(enumerate(np.log(np.maximum(law, 1e-300)))) for law in (p, q)]
    return pld.from_two_probability_mass_functions(*logs, **_ROUNDED_DOWN)


def _sampled_epsilon(norm, rate, count, mu, delta, step=2e-5):
    """Return the ε of sums that a record moves by ±norm, where it is in their random batches.

    Of N(±norm, 1) with probability ``rate``, else N(0, 1), ``count`` times; and of one Gaussian
    release that it moves by ``mu`` in any case. Losses are rounded down to multiples of ``step``,
    and added up by a Fourier transform.
    """
    if norm == mu == 0:
        return 0.0
    places = np.linspace(-9 - norm, 9 + norm, 4001)
    mass, other = (
        np.diff((1 - rate) * ndtr(places) + rate * ndtr(places - sign * norm)) for sign in (1, -1)
    )
    kept = (mass > 0) & (other > 0)
    mass, other = mass[kept], other[kept]
    losses = np.floor(np.log(mass / other) / step).astype(int)
    size = 2**20
    one = np.bincount(losses % size, weights=mass, minlength=size)
    values = step * (np.arange(size) - size // 2)
    once = np.zeros(size)
    if mu > 0:
        once = np.diff(ndtr(np.append(values, values[-1] + step) / mu - mu / 2))
        once = np.fft.ifftshift(once)
    else:
        once[0] = 1.0
    total = np.fft.irfft(np.fft.rfft(one) ** count * np.fft.rfft(once), size)
    total = np.fft.fftshift(total)

    def excess(epsilon):
        above = values > epsilon
        return total[above] @ -np.expm1(epsilon - values[above]) - delta

    return 0.0 if excess(0.0) <= 0 else brentq(excess, 0.0, values[-1])
