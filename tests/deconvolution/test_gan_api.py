"""EntropicDeconvGAN as a scikit-learn estimator, and what it says about bad input."""

import io
import pickle
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from conformity import parametrize_with_checks
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_dpgen.deconvolution import EntropicDeconvGAN
from sklearn_dpgen.domains import Ball, Box, OneHot
from sklearn_dpgen.exceptions import TrainingDivergedError
from sklearn_dpgen.mechanisms import (
    GaussianMechanism,
    LaplaceMechanism,
    RandomizedResponse,
    TabularMechanism,
)
from sklearn_dpgen.nn import Training
from sklearn_dpgen.schema import Categorical, Numeric, Schema

BOX = Box(-1, 1, n_features=2)
BUDGET = "The 'epsilon' parameter of .* or a float among {inf}"
X = BOX.sample(60, np.random.default_rng(0))
Y = LaplaceMechanism(5.0, domain=BOX, random_state=0).fit_transform(X)
# As read from a file: they do not name their mechanism.
BARE = np.asarray(Y)


def checked(**options):
    mechanism = LaplaceMechanism(5.0, domain=partial(Box, -1, 1), random_state=0)
    return EntropicDeconvGAN(
        mechanism,
        training=Training(hidden_layer_sizes=(4,), max_iter=2),
        batch_size=16,
        n_generated=8,
        n_sinkhorn=5,
        **options,
    )


_FRESH_RELEASE = "a score with privatize=True is a fresh release of the records it is given"
_EXPECTED_FAILURES = {
    False: {},
    True: {
        "check_estimators_nan_inf": (
            "infinity is moved to the border of the domain: "
            "test_infinity_is_no_release_and_a_record_as_any_other"
        ),
        "check_methods_subset_invariance": _FRESH_RELEASE,
        "check_methods_sample_order_invariance": _FRESH_RELEASE,
    },
}


@parametrize_with_checks(
    [checked(random_state=0)],
    variants=[checked(random_state=0, privatize=True)],
    expected_failed_checks=lambda estimator: _EXPECTED_FAILURES[estimator.privatize],
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


# Reproducibility.


def test_an_int_repeats_the_whole_fit(tiny):
    first, second = (tiny(privatize=True, n_init=2).fit(X) for _ in range(2))
    assert first.loss_curve_ == second.loss_curve_
    np.testing.assert_array_equal(first.sample(9, random_state=1), second.sample(9, random_state=1))
    assert first.score(X) == second.score(X)


def test_other_seeds_give_other_fits(tiny):
    curves = [tiny(random_state=seed).fit(Y).loss_curve_ for seed in (0, 1, None, None)]
    assert len({tuple(curve) for curve in curves}) == 4


def test_a_random_state_object_is_advanced(tiny):
    state = np.random.RandomState(0)
    gan = tiny(random_state=state)
    assert gan.fit(Y).loss_curve_ != gan.fit(Y).loss_curve_


def test_samples_follow_their_seed(tiny):
    gan = tiny().fit(Y)
    first = gan.sample(50, random_state=0)
    np.testing.assert_array_equal(first, gan.sample(50, random_state=0))
    assert not np.array_equal(first, gan.sample(50, random_state=1))
    assert not np.array_equal(gan.sample(50), gan.sample(50))
    assert len(np.unique(gan.sample(3000, random_state=0), axis=0)) > 2900


def test_global_random_state_is_left_alone(tiny):
    def draws():
        # The global streams of each library from here on, put back as they were.
        state = np.random.mtrand._rand.get_state(), torch.get_rng_state()
        values = np.random.mtrand._rand.uniform(size=3).tolist(), torch.rand(3).tolist()
        np.random.mtrand._rand.set_state(state[0])
        torch.set_rng_state(state[1])
        return values

    before = draws()
    tiny(privatize=True, loss="noisy_wasserstein").fit(X).sample(3)
    assert draws() == before
    torch.rand(1)
    assert draws() != before


# Composition with scikit-learn.


def test_clone_and_parameters(tiny):
    gan = tiny(reg_scale=2.0, output_domain=BOX)
    copy = clone(gan)
    assert copy.get_params(deep=False).keys() == gan.get_params(deep=False).keys()
    assert copy.reg_scale == 2.0
    assert copy.output_domain == BOX
    copy.set_params(mechanism__epsilon=9.0)
    assert (copy.mechanism.epsilon, gan.mechanism.epsilon) == (9.0, 5.0)
    assert copy.fit(BARE).mechanism_.scale_ == pytest.approx(4 / 9)


def test_fit_changes_no_parameter(tiny):
    gan = tiny(privatize=True)
    before = repr(gan.get_params())
    gan.fit(X)
    assert repr(gan.get_params()) == before
    assert not hasattr(gan.mechanism, "scale_")


@pytest.mark.parametrize("fitted", [False, True])
@pytest.mark.parametrize("loss", ["entropic", "noisy_wasserstein"])
def test_pickle(tiny, fitted, loss):
    gan = tiny(loss=loss, privatize=True)
    copy = pickle.loads(pickle.dumps(gan.fit(X) if fitted else gan))
    gan, copy = (gan, copy) if fitted else (gan.fit(X), copy.fit(X))
    np.testing.assert_array_equal(gan.sample(5, random_state=0), copy.sample(5, random_state=0))
    assert copy.score(X) == gan.score(X)
    assert copy.privacy_ == gan.privacy_


def test_generator_weights_can_be_saved_by_torch(tiny):
    gan = tiny().fit(Y)
    file = io.BytesIO()
    torch.save(gan.generator_.state_dict(), file)
    file.seek(0)
    other = tiny(random_state=1).fit(Y)
    other.generator_.load_state_dict(torch.load(file, weights_only=True))
    np.testing.assert_array_equal(gan.sample(5, random_state=0), other.sample(5, random_state=0))


def test_grid_search_over_the_budget(tiny):
    grid = {"mechanism__epsilon": [1.0, 50.0], "reg_scale": [1.0, 3.0]}
    search = GridSearchCV(tiny(privatize=True), grid, cv=2, error_score="raise").fit(X)
    best = search.best_estimator_
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert best.privacy_.epsilon == search.best_params_["mechanism__epsilon"]
    assert np.isfinite(search.score(X))


def test_cross_validation_on_privatized_records(tiny):
    scores = cross_val_score(tiny(), Y, cv=3, error_score="raise")
    assert np.isfinite(scores).all()
    assert len(set(scores)) == 3


def test_at_the_end_of_a_pipeline(tiny):
    mechanism = LaplaceMechanism(5.0, domain=BOX, random_state=0)
    pipeline = make_pipeline(mechanism, tiny(mechanism)).fit(X)
    gan = pipeline[-1]
    np.testing.assert_array_equal(gan.loss_curve_, tiny(mechanism).fit(Y).loss_curve_)
    assert pipeline.score(X) == gan.score(mechanism.fit(X).transform(X))


def test_a_domain_of_unknown_width(tiny):
    gan = tiny(LaplaceMechanism(5.0, domain=partial(Ball, 2.0)))
    assert gan.fit(np.zeros((9, 3))).sample(2).shape == (2, 3)
    assert gan.fit(np.zeros((9, 4))).sample(2).shape == (2, 4)


def test_progress_on_request(tiny, capfd):
    tiny().fit(Y)
    assert capfd.readouterr() == ("", "")
    tiny(training__verbose=1).fit(Y)
    assert "EntropicDeconvGAN: 100%" in capfd.readouterr().err


def test_lists_and_single_precision(tiny):
    expected = tiny().fit(Y).score_samples(Y)
    for same in (Y.tolist(), Y.astype(np.float32), np.asfortranarray(Y)):
        np.testing.assert_allclose(tiny().fit(same).score_samples(same), expected, rtol=1e-3)


def test_one_row(tiny):
    gan = tiny().fit(Y[:1])
    assert gan.sample(2).shape == (2, 2)
    assert np.isfinite(gan.score(Y[:1]))


def test_equal_rows(tiny):
    assert np.isfinite(tiny().fit(np.ones((7, 2))).score(np.ones((3, 2))))


# What is fitted.

LATER = {
    "mechanism": LaplaceMechanism(0.1, domain=Box(-9, 9, n_features=3)),
    "privatize": True,
    "generator": "dcgan",
    "training__hidden_layer_sizes": (3,),
    "training__activation": "tanh",
    "latent_dim": 5,
    "output_domain": Box(-9, 9, n_features=2),
    "output_transform": StandardScaler(),
    "loss": "wasserstein",
    "reg_scale": 9.0,
    "batch_size": 1,
    "n_generated": 1,
    "training__max_iter": 1,
    "n_init": 7,
    "n_sinkhorn": 1,
    "sinkhorn_tol": 9.0,
    "early_stopping": False,
    "training__learning_rate": 9.0,
    "ledger": "nowhere",
    "random_state": 9,
    "training__device": "nowhere",
    "training__verbose": 9,
}


@pytest.mark.parametrize("name", LATER)
def test_parameters_set_after_fit_change_nothing_of_it(tiny, name):
    gan = tiny().fit(Y)
    assert {later.split("__")[0] for later in LATER} == set(gan.get_params(deep=False))
    expected = gan.sample(9, random_state=0), gan.score_samples(Y)
    gan.set_params(**{name: LATER[name]})
    np.testing.assert_array_equal(gan.sample(9, random_state=0), expected[0])
    np.testing.assert_array_equal(gan.score_samples(Y), expected[1])


@pytest.mark.parametrize("privatize", [False, True])
def test_names_of_columns(tiny, privatize):
    raw = pd.DataFrame(X, columns=["b", "a"])
    mechanism = LaplaceMechanism(5.0, domain=BOX).set_output(transform="pandas")
    gan = tiny(mechanism, privatize=privatize)
    gan.fit(raw if privatize else mechanism.fit_transform(raw))
    assert list(gan.feature_names_in_) == ["b", "a"]
    assert gan.n_features_in_ == 2
    assert list(gan.sample(3).columns) == ["b", "a"]
    swapped = raw[["a", "b"]] if privatize else mechanism.transform(raw)[["a", "b"]]
    with pytest.raises(ValueError, match="same order"):
        gan.score(swapped)
    assert np.isfinite(gan.score(raw if privatize else mechanism.transform(raw)))


def test_names_of_columns_need_no_output_of_frames(tiny):
    raw = pd.DataFrame(X, columns=["b", "a"])
    gan = tiny(privatize=True).fit(raw)
    assert list(gan.feature_names_in_) == ["b", "a"]
    assert np.isfinite(gan.score(raw))
    assert not hasattr(gan.fit(X), "feature_names_in_")


@pytest.mark.parametrize("device", ["nowhere", "cuda:99"])
def test_a_device_that_is_not_there(tiny, device):
    with pytest.raises(ValueError, match=f"device='{device}' is not a device of this machine"):
        tiny(training__device=device).fit("not looked at")


# Bad input.

SCHEMA = Schema({"a": Numeric(0, 1), "b": Categorical(["x", "y"])})
TABLE = pd.DataFrame({"a": [0.1, 0.9, 0.5], "b": ["x", "y", "y"]})


def test_infinity_is_no_release_and_a_record_as_any_other(tiny):
    far = np.where(Y > 1, np.inf, Y)
    with pytest.raises(ValueError, match="infinity"):
        tiny().fit(far)
    # A record is moved to the domain before it is privatized.
    near = np.where(Y > 1, 1e9, Y)
    curves = [tiny(privatize=True).fit(records).loss_curve_ for records in (far, near)]
    assert curves[0] == curves[1]


@pytest.mark.parametrize("privatize", [False, True])
@pytest.mark.parametrize(
    ("records", "message"),
    [
        (BARE[:0], "0 sample"),
        (np.where(Y > 1, np.nan, Y), "NaN"),
        (np.ones((5, 3)), "2 features.* 3 features"),
        (np.ones((5, 2, 2)), "dim|2D"),
        (np.ones(5), "2D array"),
    ],
)
def test_bad_records(tiny, privatize, records, message):
    gan = tiny(privatize=privatize)
    with pytest.raises(ValueError, match=message):
        gan.fit(records)
    with pytest.raises(NotFittedError):
        gan.sample()
    with pytest.raises(ValueError, match=message.replace("2 features.* 3", "3")):
        tiny(privatize=privatize).fit(X).score(records)


@pytest.mark.parametrize("method", ["fit", "score"])
@pytest.mark.parametrize(
    ("table", "message"),
    [
        (TABLE[["a"]], r"\['b'\]|missing:\n- b"),
        (TABLE.rename(columns={"b": "c"}), r"'b'|missing:\n- b"),
        (TABLE.assign(a=np.nan), "'a' has missing values but is not nullable"),
        (TABLE.assign(b="z"), "'b'"),
    ],
)
def test_bad_tables(tiny, method, table, message):
    gan = tiny(TabularMechanism(5.0, schema=SCHEMA, random_state=0)).fit(TABLE)
    with pytest.raises(ValueError, match=message):
        getattr(gan, method)(table)


@pytest.mark.parametrize(
    ("mechanism", "error", "message"),
    [
        ("laplace", TypeError, "mechanism must be a Mechanism with a likelihood"),
        (None, ValueError, "mechanism must be given .*, got None"),
        (StandardScaler(), TypeError, "StandardScaler lacks log_likelihood"),
        (LaplaceMechanism(np.inf, domain=BOX), ValueError, "epsilon must be finite, got inf"),
        (GaussianMechanism(np.inf, domain=BOX), ValueError, "epsilon must be finite, got inf"),
        (LaplaceMechanism(1e308, domain=BOX), ValueError, BUDGET),
        (GaussianMechanism(1e308, domain=BOX), ValueError, BUDGET),
        (LaplaceMechanism(1.1e5, domain=BOX), ValueError, BUDGET),
        (LaplaceMechanism(1.0), ValueError, "'domain' parameter"),
        (LaplaceMechanism(-1.0, domain=BOX), ValueError, "'epsilon' parameter"),
    ],
)
@pytest.mark.parametrize("privatize", [False, True])
def test_bad_mechanism(privatize, mechanism, error, message):
    with pytest.raises(error, match=message):
        EntropicDeconvGAN(mechanism, privatize=privatize).fit(X)


@pytest.mark.parametrize("loss", ["wasserstein", "noisy_wasserstein", "sinkhorn_divergence"])
def test_baselines_need_additive_noise(tiny, loss):
    response = RandomizedResponse(1.0, domain=OneHot(3))
    tables = TabularMechanism(5.0, schema=SCHEMA)
    for mechanism, records in ((response, np.eye(3)), (tables, TABLE)):
        with pytest.raises(ValueError, match=f"loss='{loss}' needs a mechanism with additive"):
            tiny(mechanism, loss=loss).fit(records)


@pytest.mark.parametrize(
    "options",
    [
        {"loss": "debiased"},
        {"generator": "cnn"},
        {"training__activation": "gelu"},
        {"reg_scale": 0.0},
        {"reg_scale": np.nan},
        {"batch_size": 0},
        {"n_generated": 0},
        {"training__max_iter": 0},
        {"n_init": 0},
        {"n_sinkhorn": 0},
        {"sinkhorn_tol": -1.0},
        {"early_stopping": "yes"},
        {"training__learning_rate": 0},
        {"latent_dim": 0},
        {"latent_dim": 1.5},
        {"privatize": "yes"},
        {"random_state": "seed"},
    ],
)
def test_bad_parameters_are_named(tiny, options):
    (name,) = options
    *nested, name = name.split("__")
    owner = "Training" if nested else "EntropicDeconvGAN"
    with pytest.raises(ValueError, match=f"'{name}' parameter of {owner}"):
        tiny(**options).fit(Y)


def test_dcgan_needs_square_images(tiny):
    with pytest.raises(ValueError, match="multiple of 4; the domain has 2 features"):
        tiny(generator="dcgan").fit(Y)


def test_output_of_another_width(tiny):
    with pytest.raises(ValueError, match="domain has 2 features, X has 3"):
        tiny(output_domain=Box(-1, 1, n_features=3)).fit(Y)


@pytest.mark.parametrize("n_samples", [0, -1, 1.5, 2.0, "3", None])
def test_bad_number_of_samples(tiny, n_samples):
    with pytest.raises(ValueError, match="n_samples must be an integer of at least 1"):
        tiny().fit(Y).sample(n_samples)


@pytest.mark.parametrize("method", ["sample", "score", "score_samples"])
def test_use_before_fit(tiny, method):
    arguments = () if method == "sample" else (Y,)
    with pytest.raises(NotFittedError):
        getattr(tiny(), method)(*arguments)


# Divergence.


class NotANumber(torch.nn.Linear):
    def __init__(self, latent_dim, domain):
        super().__init__(latent_dim, domain.n_features)

    def forward(self, Z):
        return super().forward(Z) * torch.nan


def raises_diverged(gan):
    with pytest.raises(TrainingDivergedError, match="infinite or NaN at step"):
        gan.fit(BARE)
    for method, arguments in (("sample", ()), ("score", (BARE,))):
        with pytest.raises(NotFittedError):
            getattr(gan, method)(*arguments)


@pytest.mark.parametrize(
    "options",
    [
        {"loss": "entropic"},
        {"loss": "likelihood"},
        {"loss": "wasserstein"},
        {"loss": "noisy_wasserstein"},
        {"loss": "sinkhorn_divergence"},
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "cause", [{"generator": NotANumber}, {"training__learning_rate": 1e38}], ids=str
)
@pytest.mark.parametrize("domain", [BOX, Ball(1.0, p=1, n_features=2)], ids=str)
def test_a_diverged_fit_leaves_the_estimator_unfitted(tiny, options, cause, domain):
    mechanism = LaplaceMechanism(5.0, domain=domain, random_state=0)
    raises_diverged(tiny(mechanism, training__max_iter=60, **options, **cause))


def test_a_diverged_fit_forgets_the_fit_before(tiny):
    gan = tiny().fit(Y)
    gan.sample()
    raises_diverged(gan.set_params(generator=NotANumber))
    assert gan.set_params(generator="mlp").fit(Y).sample().shape == (1, 2)


def test_a_refused_fit_forgets_the_fit_before(tiny):
    gan = tiny().fit(Y)
    with pytest.raises(ValueError, match="NaN"):
        gan.fit(np.full((3, 2), np.nan))
    with pytest.raises(NotFittedError):
        gan.sample()


def test_a_refused_fit_keeps_no_report_of_the_fit_before(tiny):
    class Keeps(EntropicDeconvGAN):
        def _forget(self):
            pass

    def left(gan):
        gan.set_params(mechanism=LaplaceMechanism(1.0, domain=Box(-1, 1, n_features=3)))
        with pytest.raises(ValueError, match="3 features, X has 2"):
            gan.fit(Y)
        return {name for name in vars(gan) if name.endswith("_")}

    fitted = tiny().fit(Y)
    keeps = Keeps(**fitted.get_params(deep=False)).fit(Y)
    assert left(fitted) == set()
    assert left(keeps) >= {"privacy_", "mechanism_", "n_features_in_"}
