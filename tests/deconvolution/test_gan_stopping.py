"""Which of several trainings is kept, and when one stops: held-out privatized records decide."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

from sklearn_dpgen.deconvolution import _gan, likelihood_score
from sklearn_dpgen.deconvolution._training import HeldOutScore, hold_out
from sklearn_dpgen.domains import Box, Product
from sklearn_dpgen.mechanisms import LaplaceMechanism, TabularMechanism
from sklearn_dpgen.schema import Ordinal, Schema

BOX = Box(-1, 1, n_features=2)
MECHANISM = LaplaceMechanism(20.0, domain=BOX, random_state=0)
X = BOX.sample(400, np.random.default_rng(0))
Y = MECHANISM.fit_transform(X)


class Points(torch.nn.Module):
    """Makes given points, each as often, whatever the weights."""

    def __init__(self, points):
        super().__init__()
        self.points = torch.nn.Parameter(torch.tensor(points, dtype=torch.float32))

    def forward(self, Z):
        return self.points[((Z[:, 0] + 1) / 2 * len(self.points)).long()]


def first_and_last(Y, fraction, generator):
    """Part records where the test can tell them: the last tenth is scored."""
    n_scored = round(fraction * len(Y))
    return Y[:-n_scored], Y[-n_scored:]


def scores_the_first(Y, fraction, generator):
    """A broken variant: what is scored was trained on."""
    n_scored = round(fraction * len(Y))
    return Y[:-n_scored], Y[:n_scored]


def kept_start(tiny, starts, **options):
    """Return which of the starts a fit keeps, of generators that training leaves as they are."""
    queue = iter(starts)
    gan = tiny(
        MECHANISM,
        generator=lambda latent_dim, domain: Points(next(queue)),
        n_init=len(starts),
        training__learning_rate=1e-20,
        **options,
    ).fit(Y)
    kept = gan.generator_.points.detach().numpy()
    return [np.allclose(kept, start) for start in starts].index(True)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("early_stopping", [False, True])
def test_a_start_that_knows_the_training_records_by_heart_is_not_kept(
    tiny, monkeypatch, order, early_stopping
):
    # Of as many points, one start has the noisy training records, the other one fresh raw ones.
    by_heart = np.asarray(BOX.project(Y[:360]))
    general = BOX.sample(360, np.random.default_rng(1))
    starts = [(by_heart, general)[which] for which in order]
    options = {"early_stopping": early_stopping}
    monkeypatch.setattr(_gan, "hold_out", first_and_last)
    assert order[kept_start(tiny, starts, **options)] == 1
    monkeypatch.setattr(_gan, "hold_out", scores_the_first)
    assert order[kept_start(tiny, starts, **options)] == 0


@pytest.mark.parametrize("n", [2, 3, 10, 400, 600_000])
def test_records_are_parted(n):
    Y = torch.arange(n)[:, None]
    trained, scored = hold_out(Y, 0.1, torch.Generator().manual_seed(0))
    assert sorted([*trained[:, 0].tolist(), *scored[:, 0].tolist()]) == list(range(n))
    assert len(scored) == min(max(1, round(0.1 * n)), 50_000)
    if n > 10:
        assert scored[:, 0].tolist() != list(range(n))[-len(scored) :]


def test_a_single_record_is_both():
    Y = torch.ones(1, 2)
    trained, scored = hold_out(Y, 0.9, torch.Generator())
    assert torch.equal(trained, Y)
    assert torch.equal(scored, Y)


def steps_until_stopped(scores, **options):
    """Return the step that stops, and the step of the last gain, given the score of each check."""
    model = _gan.GeneratorModel(Points([[0.0, 0.0]]), 1, None)
    watch = HeldOutScore(torch.ones(1, 2), **options)
    given = iter(scores)
    watch._score = lambda model: next(given)
    stop = watch.watch(model)
    for step in range(50 * len(scores)):
        if stop(step):
            return step + 1, watch.n_best
    return None, watch.n_best


@pytest.mark.parametrize(
    ("scores", "patience", "tol", "expected"),
    [
        ([1, 2, 3, 4, 5, 6], 100, 0.0, (None, 300)),
        ([1, 2, 1, 1, 1, 1], 100, 0.0, (200, 100)),
        ([1, 2, 1, 1, 1, 1], 150, 0.0, (250, 100)),
        ([1, 2, 1, 3, 1, 1], 100, 0.0, (300, 200)),
        ([1, 2, 2, 2, 2, 2], 100, 0.0, (200, 100)),
        ([1, 1.4, 1.8, 1.9, 2.3, 2.2], 100, 0.5, (250, 150)),
        ([3, 2, 1, 0, 0, 0], 1, 0.0, (100, 50)),
    ],
)
def test_stops_after_so_many_steps_without_a_gain(scores, patience, tol, expected):
    assert steps_until_stopped(scores, n_iter_no_change=patience, tol=tol) == expected


@pytest.mark.slow
def test_stopping_early_explains_new_records_better(tiny, monkeypatch):
    # Ten independent coins of few people: a long training learns pairs that are not there.
    schema = Schema({f"coin {i}": Ordinal([0, 1]) for i in range(10)})
    coins = np.random.default_rng(0).integers(0, 2, (4300, 10))
    mechanism = TabularMechanism(20.0, schema=schema, random_state=0)
    released = mechanism.fit_transform(pd.DataFrame(coins, columns=list(schema)))
    known, new = released[:300], released[300:]
    options = {
        "training__hidden_layer_sizes": (64, 64),
        "training__activation": "silu",
        "latent_dim": 6,
        "batch_size": 300,
        "n_generated": 200,
        "training__max_iter": 400,
        "loss": "likelihood",
    }
    monkeypatch.setattr(_gan, "_HELD_OUT_SHARE", 0.3)
    monkeypatch.setattr(_gan, "_PATIENCE", 100)
    stopped = tiny(mechanism, **options).fit(known)
    whole = tiny(mechanism, early_stopping=False, **options).fit(known)
    assert stopped.n_iter_ < 400 == whole.n_iter_
    assert len(stopped.loss_curve_) == stopped.n_iter_
    gain = stopped.score_samples(new) - whole.score_samples(new)
    assert gain.mean() > 5 * stats.sem(gain)
    assert likelihood_score(stopped, known) < likelihood_score(whole, known)


def test_without_need_nothing_is_held_out(tiny, monkeypatch):
    def refuse(*args):
        raise AssertionError("records were held out")

    monkeypatch.setattr(_gan, "hold_out", refuse)
    tiny(MECHANISM, early_stopping=False).fit(Y)
    for options in ({"early_stopping": True}, {"early_stopping": False, "n_init": 2}):
        with pytest.raises(AssertionError, match="held out"):
            tiny(MECHANISM, **options).fit(Y)


@pytest.mark.parametrize(
    ("n", "options", "expected"),
    [
        (200, {}, True),
        (202, {}, False),
        (200, {"training__max_iter": 594}, False),
        (200, {"loss": "wasserstein"}, False),
        (10, {"training__max_iter": 300}, False),
        (10, {"training__max_iter": 301}, True),
        (202, {"early_stopping": True}, True),
        (200, {"early_stopping": False}, False),
    ],
)
def test_stops_where_records_are_seen_often(tiny, monkeypatch, n, options, expected):
    used = []

    def spy(*args):
        used.append(True)
        return hold_out(*args)

    def train(*args, **words):
        raise InterruptedError("Whether records are held out is decided before.")

    monkeypatch.setattr(_gan, "hold_out", spy)
    monkeypatch.setattr(_gan, "train_generator", train)
    options = {"batch_size": 101, "training__max_iter": 600, **options}
    table = Product([Box(-1, 1), Box(-1, 1)])
    with pytest.raises(InterruptedError):
        tiny(LaplaceMechanism(20.0, domain=table), **options).fit(np.asarray(Y[:n]))
    assert bool(used) is expected
    if options.get("early_stopping") is None:
        used.clear()
        with pytest.raises(InterruptedError):
            tiny(MECHANISM, **options).fit(Y[:n])
        assert not used


@pytest.mark.slow
def test_batch_normalization_is_scored_in_evaluation_mode(tiny, monkeypatch):
    mechanism = LaplaceMechanism(50.0, domain=Box(-1, 1, n_features=64), random_state=0)
    released = mechanism.fit_transform(np.random.default_rng(0).uniform(-1, 1, (30, 64)))
    options = {"training__max_iter": 60, "early_stopping": True}
    monkeypatch.setattr(_gan, "_PATIENCE", 1)
    gan = tiny(mechanism, generator="dcgan", **options).fit(released)
    assert not gan.generator_.training
    assert gan.score(released) == gan.score(released)
