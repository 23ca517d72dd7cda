"""EntropicDeconvGAN on joint answers: releases of another form than the records."""

import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline

from sklearn_dpgen.deconvolution import _gan, likelihood_score
from sklearn_dpgen.deconvolution._model import generate, score_latents
from sklearn_dpgen.mechanisms import JointRandomizedResponse
from sklearn_dpgen.schema import Categorical, Numeric, Ordinal, Schema

SCHEMA = Schema(
    {
        "age": Numeric(0, 100, integer=True),
        "job": Categorical(["baker", "nurse", "pilot"]),
        "level": Ordinal([1, 2, 3]),
    }
)
MECHANISM = JointRandomizedResponse(3.0, schema=SCHEMA, n_bins=4, n_asked=2, random_state=0).fit()


def table(n=150, seed=0):
    rng = np.random.default_rng(seed)
    columns = {name: rng.integers(1, 4, size=n) for name in ("age", "level")}
    jobs = np.array(["baker", "nurse", "pilot"], dtype=object)[columns["level"] - 1]
    return pd.DataFrame({"age": 25 * columns["age"], "job": jobs, "level": columns["level"]})


X = table()
Y = MECHANISM.transform(X)


@pytest.mark.parametrize("loss", ["entropic", "likelihood"])
def test_answers_in_and_records_out(tiny, loss):
    gan = tiny(MECHANISM, loss=loss).fit(Y)
    assert np.isfinite(gan.loss_curve_).all()
    assert gan.privacy_.epsilon == 3.0
    drawn = gan.sample(20, random_state=0)
    assert drawn.dtypes.to_dict() == {name: SCHEMA[name].dtype for name in SCHEMA}
    assert set(drawn["job"]) <= {"baker", "nurse", "pilot"}
    loaded = pickle.loads(pickle.dumps(gan))
    assert loaded.score(Y) == gan.score(Y)


def test_scores_are_those_of_the_mixture_of_its_points(tiny):
    """By the probabilities of all soft records, one answer at a time."""
    gan = tiny(MECHANISM).fit(Y)
    points = generate(gan.generator_, score_latents(2)).double()
    encoded = torch.tensor(MECHANISM.encode_release(Y))
    each = [MECHANISM.log_likelihood(points, answer[None]).exp().mean().log() for answer in encoded]
    found = gan.score_samples(Y)
    assert found.shape == (150,)
    np.testing.assert_allclose(found, each, atol=1e-5)
    assert likelihood_score(gan, Y) == pytest.approx(np.mean(each), abs=1e-5)
    # Answers of other people have another likelihood.
    assert abs(found - gan.score_samples(MECHANISM.transform(table(seed=1)))).max() > 0.1


@pytest.mark.parametrize("epsilon", [0.1, 3.0, 12.0, 20.0])
def test_single_precision_keeps_answers(epsilon):
    """Up to the largest key, the largest answer and the last column."""
    schema = Schema({f"x{j}": Categorical(range(2 + 11 * j)) for j in range(12)})
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({name: rng.integers(2, size=400) for name in schema})
    options = {"schema": schema, "n_asked": 4, "random_state": 0}
    mechanism = JointRandomizedResponse(epsilon, **options).fit()
    answers = mechanism.transform(frame)
    answers.loc[0, "grouping"] = 2**48 - 1
    encoded = mechanism.encode_release(answers)
    assert (encoded == encoded.astype(np.float32)).all()
    parts = encoded.astype(np.float32).astype(np.int64)
    keys = parts[:, 1] + (parts[:, 2] << 16) + (parts[:, 3] << 32)
    np.testing.assert_array_equal(keys, answers["grouping"])
    np.testing.assert_array_equal(parts[:, 0], answers["answer"])
    # Whole, a key is one that single precision does not keep.
    assert (answers["grouping"].to_numpy().astype(np.float32) != answers["grouping"]).any()


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"n_init": 2}, {"early_stopping": True}], ids=str)
def test_held_out_answers_choose(tiny, monkeypatch, options):
    parted, hold_out = [], _gan.hold_out

    def spy(*args):
        parted.append([len(part) for part in hold_out(*args)])
        return hold_out(*args)

    monkeypatch.setattr(_gan, "hold_out", spy)
    # Steps in which nothing is gained: a tiny rate.
    monkeypatch.setattr(_gan, "_PATIENCE", 50)
    given = {"training__max_iter": 120, "training__learning_rate": 1e-20, "n_generated": 4}
    gan = tiny(MECHANISM, loss="likelihood", **(given | options)).fit(Y)
    assert parted == [[135, 15]]
    assert gan.n_iter_ == (50 if "early_stopping" in options else 120)
    assert np.isfinite(gan.score(Y))


def test_raw_records_are_answered_first(tiny):
    gan = tiny(MECHANISM, privatize=True).fit(X)
    answers = gan.mechanism_.transform(X)
    again = tiny(MECHANISM).fit(answers)
    assert gan.loss_curve_ == again.loss_curve_
    assert gan.score(X) == again.score(answers)
    assert list(gan.sample(3).columns) == list(SCHEMA)
    with pytest.raises(ValueError, match="released these records with epsilon=3 already"):
        gan.score(Y)


def test_answers_from_a_file(tiny, tmp_path):
    Y.to_csv(tmp_path / "answers.csv", index=False)
    read = pd.read_csv(tmp_path / "answers.csv")
    gan = tiny(MECHANISM).fit(read)
    assert gan.loss_curve_ == tiny(MECHANISM).fit(Y).loss_curve_
    assert gan.score(read) == gan.score(Y)


def test_answers_of_another_mechanism(tiny):
    other = clone(MECHANISM).set_params(epsilon=2.0).fit().transform(X)
    gan = tiny(MECHANISM).fit(Y)
    for method in (gan.score, tiny(MECHANISM).fit):
        with pytest.raises(ValueError, match="epsilon=2, .* epsilon=3: "):
            method(other)
    twice = pd.concat([Y, Y[:2]], ignore_index=True)
    with pytest.raises(ValueError, match="2 answers are there twice"):
        tiny(MECHANISM).fit(twice)
    with pytest.raises(ValueError, match=r"Raw records are .* privatize=True"):
        tiny(MECHANISM).fit(X)


def test_around_it(tiny):
    """A pipeline, and a search over the budget of the one mechanism of an estimator."""
    pipeline = Pipeline([("answer", clone(MECHANISM)), ("learn", tiny(MECHANISM))]).fit(X)
    assert np.isfinite(pipeline.score(X))
    grid = {"mechanism__epsilon": [1.0, 5.0]}
    search = GridSearchCV(tiny(MECHANISM, privatize=True), grid, cv=2, error_score="raise").fit(X)
    assert search.best_estimator_.privacy_.epsilon == search.best_params_["mechanism__epsilon"]


@pytest.mark.parametrize("loss", ["wasserstein", "noisy_wasserstein", "sinkhorn_divergence"])
def test_transport_to_answers_is_refused(tiny, loss):
    """An answer is no point of the domain, to which there were a distance."""
    gan = tiny(MECHANISM, loss=loss)
    with pytest.raises(ValueError, match=f"loss='{loss}' needs a mechanism with additive .* Joint"):
        gan.fit(Y)
    assert not hasattr(gan, "generator_")


@pytest.mark.slow
def test_dependence_is_learned(tiny):
    """Jobs follow from levels; a generator that is not trained does not know."""
    mechanism = clone(MECHANISM).set_params(epsilon=8.0, always=["job", "level"]).fit()
    records = table(3000)
    options = {
        "training__hidden_layer_sizes": (32,),
        "training__activation": "silu",
        "latent_dim": 4,
    }
    options |= {"training__learning_rate": 0.01, "batch_size": 500, "n_generated": 200}
    options |= {"loss": "likelihood", "early_stopping": False}
    answers = mechanism.transform(records)

    def agreement(max_iter):
        gan = tiny(mechanism, training__max_iter=max_iter, **options).fit(answers)
        drawn = gan.sample(2000, random_state=0)
        names = dict(zip([1, 2, 3], ["baker", "nurse", "pilot"], strict=True))
        return (drawn["job"] == drawn["level"].map(names)).mean()

    assert agreement(200) > 0.8
    assert agreement(1) < 0.5
