"""Labels of open columns: their discovery, its exact price, and what a fit may show of them."""

import itertools
import math
import pickle

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm

from sklearn_dpgen import load
from sklearn_dpgen.accounting import PrivacyReport, gaussian_sigma
from sklearn_dpgen.auditing import audit
from sklearn_dpgen.auditing._transcript import Transcript
from sklearn_dpgen.exceptions import PublicRuntimeError, PublicValueError
from sklearn_dpgen.inference import estimate_shares
from sklearn_dpgen.ledger import PrivacyLedger
from sklearn_dpgen.mechanisms import GaussianSequenceMechanism
from sklearn_dpgen.reporting import QualityReport, model_card
from sklearn_dpgen.schema import (
    Categorical,
    Identifier,
    Implication,
    Numeric,
    OpenCategorical,
    Schema,
)
from sklearn_dpgen.tables import SyntheticDataClassifier, TableSampler
from sklearn_dpgen.tables._column_trees import ColumnCells
from sklearn_dpgen.tables._privacy_plan import MarginalsPlan
from sklearn_dpgen.tables._releases import with_label_counts
from sklearn_dpgen.tables._sampler_plan import SamplerPlan, declared_table
from sklearn_dpgen.utils._random import NoiseObserver, noise_source, observed_noise

SCHEMA = Schema({"town": OpenCategorical(), "age": Numeric(0, 100), "ill": Categorical([0, 1])})
FAST = {"population_size": 200, "max_iter": 2}


def people(n=3000, n_towns=200, seed=0):
    """Return records with towns of decreasing frequency."""
    rng = np.random.default_rng(seed)
    shares = 1 / np.arange(1, n_towns + 1)
    towns = np.array([f"town {i}" for i in range(n_towns)], dtype=object)
    return pd.DataFrame(
        {
            "town": rng.choice(towns, n, p=shares / shares.sum()),
            "age": rng.uniform(0, 100, n),
            "ill": rng.integers(0, 2, n),
        }
    )


def sampler(**parameters):
    return TableSampler(**{"schema": SCHEMA, "random_state": 0, **FAST, **parameters})


# The mechanism on its own: everything below is computed by hand from its noise scales.


def keep_probabilities(mechanism, counts, contribution=1.0):
    """Return the probability that each count passes the threshold, by the normal distribution."""
    scale = mechanism.noise_scales[0]
    return norm.sf((mechanism.threshold(contribution) - np.asarray(counts)) / scale)


@pytest.mark.parametrize("n_open", [1, 3])
@pytest.mark.parametrize("certified", [False, True])
def test_a_label_of_one_record_passes_with_the_paid_probability(n_open, certified):
    if certified:
        pytest.importorskip("opendp")
    sizes = {"n_values": (2 * n_open, 10)} if certified else {}
    mechanism = GaussianSequenceMechanism(math.sqrt(2), (1, 9), 1.0, 1e-6, n_open=n_open, **sizes)
    (passed,) = keep_probabilities(mechanism, [1.0])
    # The margin for the grid of the noise is 1/512 of a standard deviation.
    assert 0.98 * 0.049e-6 / n_open < passed < 0.049e-6 / n_open
    assert_allclose(mechanism.threshold_delta, 0.049e-6)


def hockey_stick(p, q, epsilon):
    """Return the divergence at e^ε of two distributions on the same atoms."""
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


def distribution_of_sets(kept):
    """Return the probability of each set of labels, which are kept independently."""
    return np.array(
        [
            math.prod(k if inside else 1 - k for k, inside in zip(kept, one, strict=True))
            for one in itertools.product((False, True), repeat=len(kept))
        ]
    )


# Neighbouring counts of the same labels, of which a count of 0 does not occur.
REPLACED = [
    ([1, 0], [0, 1]),
    ([7, 1, 0], [7, 0, 1]),
    ([2, 40, 5], [1, 41, 5]),
    ([120, 99], [119, 100]),
    ([1, 60], [0, 61]),
]


def replay(keep, first, second, epsilon):
    """Return the largest divergence of the sets of labels that are kept, in both directions."""
    first, second = (
        distribution_of_sets([keep(n) if n else 0.0 for n in counts]) for counts in (first, second)
    )
    return max(hockey_stick(first, second, epsilon), hockey_stick(second, first, epsilon))


@pytest.mark.parametrize("epsilon", [0.05, 0.3, 1.0])
@pytest.mark.parametrize(("first", "second"), REPLACED)
def test_replaced_records_change_the_probability_of_no_set_by_more(first, second, epsilon):
    delta = 1e-4
    mechanism = GaussianSequenceMechanism(math.sqrt(2), (1,), epsilon, delta, n_open=1)

    def keep(n):
        return float(keep_probabilities(mechanism, [n])[0])

    # All profiles at once, at other ε too.
    for at in (0.5 * epsilon, epsilon, 2 * epsilon):
        ((profile, _),) = mechanism.releases
        paid = 0.049 * delta + (1 - 0.049 * delta) * gaussian_delta(profile.mu, at)
        assert replay(keep, first, second, at) <= paid * (1 + 1e-9)
    assert replay(keep, first, second, epsilon) <= delta


def gaussian_delta(mu, epsilon):
    """Return the profile of a Gaussian mechanism."""
    return norm.cdf(-epsilon / mu + mu / 2) - math.exp(epsilon) * norm.cdf(-epsilon / mu - mu / 2)


def test_a_threshold_on_exact_counts_is_caught():
    def keep(n):
        return float(n >= 41)

    assert max(replay(keep, *pair, 1.0) for pair in REPLACED) == 1.0


def test_two_labels_of_one_record_are_caught():
    mechanism = GaussianSequenceMechanism(math.sqrt(2), (1,), 0.3, 1e-4, n_open=1)

    def keep(n):
        return float(keep_probabilities(mechanism, [n])[0])

    # A record in three labels, each with its whole contribution, is replaced by one in none.
    at = round(mechanism.threshold(1.0))
    assert replay(keep, [at] * 8, [at - 1] * 8, 0.3) > 1e-4
    # A label of one person with two rows counts twice, and passes too often.
    assert keep(2) > 0.05e-4


def test_the_whole_budget_is_spent_and_not_more():
    mechanism = GaussianSequenceMechanism(math.sqrt(2), (1, 3), 1.0, 1e-6, n_open=2)
    mu = math.sqrt(sum(2 / scale**2 for scale in mechanism.noise_scales))
    failure = 0.049e-6
    spent = failure + (1 - failure) * gaussian_delta(mu, 1.0)
    assert 0.999e-6 < spent <= 1e-6
    assert_allclose(2 / mechanism.noise_scales[0] ** 2, mu**2 / 4, rtol=1e-9)


def optimal_keep(epsilon, delta, n):
    """Return π(0), ..., π(n) of Desfontaines et al., by their recursion."""
    kept = [0.0]
    for _ in range(n):
        kept.append(
            min(
                math.exp(epsilon) * kept[-1] + delta,
                1 - math.exp(-epsilon) * (1 - kept[-1] - delta),
                1.0,
            )
        )
    return np.array(kept)


def test_the_threshold_is_the_optimal_rule_of_its_trade_off_function():
    # π(n + 1) = 1 − f(π(n)) with f of (ε, δ)-privacy is the published recursion, and with the f of
    # Gaussian privacy it is the threshold.
    epsilon, delta, mu = 0.5, 1e-5, 0.3

    def approximate(alpha):
        return max(
            0, 1 - delta - math.exp(epsilon) * alpha, math.exp(-epsilon) * (1 - delta - alpha)
        )

    def gaussian(alpha):
        return norm.cdf(norm.isf(alpha) - mu)

    kept, thresholded = [0.0], [delta]
    for _ in range(60):
        kept.append(1 - approximate(kept[-1]))
        thresholded.append(1 - gaussian(thresholded[-1]))
    assert_allclose(kept, optimal_keep(epsilon, delta, 60), rtol=1e-10)
    at = np.arange(61)
    assert_allclose(thresholded, norm.cdf(norm.ppf(delta) + at * mu), rtol=1e-6)


def test_labels_are_released_first_once_and_only_if_paid_for():
    noise = noise_source(0)
    mechanism = GaussianSequenceMechanism(1.0, (1, 1), 1.0, 1e-6, n_open=1)
    run, counts = mechanism.run(), np.array([1.0, 1e6])
    with pytest.raises(PublicRuntimeError, match="first"):
        run.release(counts, noise)
    kept, noisy = run.release_open(counts, 1.0, noise)
    assert_array_equal(kept, [1])
    assert abs(noisy[0] - 1e6) < 1000
    with pytest.raises(PublicRuntimeError, match="once"):
        run.release_open(counts, 1.0, noise)
    run.release(counts, noise)
    plain = GaussianSequenceMechanism(1.0, (1, 1), 1.0, 1e-6).run()
    with pytest.raises(PublicRuntimeError, match="no open"):
        plain.release_open(counts, 1.0, noise)


def test_labels_without_records_are_never_released():
    # A categorical dtype may list labels of no record, of which there is no bound.
    mechanism = GaussianSequenceMechanism(1.0, (1,), math.inf, 1e-6, n_open=1)
    kept, _ = mechanism.run().release_open(np.array([0.0, 1.0]), 1.0, noise_source(0))
    assert_array_equal(kept, [1])


# Fits.


class Recorder(NoiseObserver):
    """Keeps the values of each release."""

    def __init__(self):
        self.values, self.scales = [], []

    def added(self, values, scale, kind, noisy):
        self.values.append(values.copy())
        self.scales.append(scale)
        return noisy


def recorded(X, **parameters):
    recorder = Recorder()
    with observed_noise(recorder):
        model = sampler(**parameters).fit(X)
    return model, recorder


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn_dpgen.exceptions.NoisyCountsWarning")
@pytest.mark.parametrize("neighbours", ["replace_one", "add_or_remove"])
def test_a_replaced_record_changes_the_counts_by_the_sensitivity(neighbours):
    X = people(400, 30)
    other = X.copy()
    other.loc[0, "town"] = X["town"].iloc[-1] if X["town"].iloc[0] != X["town"].iloc[-1] else "x"
    if neighbours == "add_or_remove":
        other = X.iloc[1:]
    first, second = (recorded(one, neighbours=neighbours)[1] for one in (X, other))
    towns = sorted({*X["town"], *other["town"]})
    aligned = []
    for one, recorder in ((X, first), (other, second)):
        present = sorted({*one["town"]})
        assert len(recorder.values[0]) == len(present)
        counts = dict(zip(present, recorder.values[0], strict=True))
        assert_allclose(recorder.values[0], [(one["town"] == town).sum() for town in present])
        aligned.append([counts.get(town, 0.0) for town in towns])
    moved = np.linalg.norm(np.subtract(*aligned))
    assert moved == pytest.approx({"replace_one": math.sqrt(2), "add_or_remove": 1.0}[neighbours])


def test_only_discovered_labels_are_in_the_fit_and_in_samples():
    X = people()
    X.loc[0, "town"] = "a secret place"
    model = sampler(epsilon=1.0, delta=1e-6).fit(X)
    labels = model.schema_["town"].categories
    assert list(labels) == sorted(labels)
    assert {"town 0", "town 1"} <= {*labels}
    assert len(labels) < 60
    counts = X["town"].value_counts()
    # A label far below the threshold would need noise of more than six deviations.
    assert counts[list(labels)].min() > 20
    assert {*model.sample(500)["town"]} <= {*labels, "other"}
    assert model.encoder_.columns_["town"].labels == (*labels, "other")
    names = model.one_way_marginals_[0].columns
    assert names == ("town",)


def test_the_shares_of_labels_are_those_of_the_records():
    X = people(20_000, 40)
    model = sampler(epsilon=5.0).fit(X)
    drawn = model.sample(20_000)["town"].value_counts(normalize=True)
    labels = list(model.schema_["town"].categories)
    real = X["town"].value_counts(normalize=True)
    assert_allclose(drawn[labels[:3]], real[labels[:3]], atol=0.02)
    assert_allclose(drawn.get("other", 0), 1 - real[labels].sum(), atol=0.03)


def test_no_file_of_a_model_holds_a_rare_label(tmp_path):
    X = people()
    X.loc[0, "town"] = "zzyzx-unique"
    model = sampler().fit(X)
    model.save(tmp_path / "model.safetensors")
    data = (tmp_path / "model.safetensors").read_bytes()
    assert b"zzyzx" not in data
    assert b"town 0" in data
    loaded = load(tmp_path / "model.safetensors")
    assert loaded.schema_ == model.schema_
    pd.testing.assert_frame_equal(
        loaded.sample(50, random_state=1), model.sample(50, random_state=1)
    )
    # Neither does an attribute in memory.
    assert b"zzyzx" not in pickle.dumps(model)


def test_a_copy_of_the_records_in_the_model_would_be_found():
    model = sampler().fit(people())
    for kind in (object, "string", "category"):
        model.leak_ = {"records": [pd.Series(["zzyzx-unique"], dtype=kind)]}
        assert b"zzyzx" in pickle.dumps(model)


def test_the_plan_is_the_report_of_the_fit_and_states_the_discovery():
    X = people()
    plan = sampler().plan(len(X))
    assert sampler().fit(X).privacy_ == plan
    assert PrivacyReport.from_dict(plan.to_dict()) == plan
    assert plan.split["labels"] == pytest.approx(0.2)
    assert sum(plan.split.values()) == pytest.approx(1)
    assert plan.events[0].what == "open_labels"
    assert plan.events[0].times == 1
    # By hand: the noise has a fifth of μ², and the threshold a twentieth of δ.
    mu = 1 / gaussian_sigma(1.0, 0.95e-5)
    tau = 1 + math.sqrt(2) / (mu * math.sqrt(0.2)) * norm.isf(0.049e-5)
    text = plan.precision["label of an open column"]
    assert text.startswith(f"with {float(f'{tau:.2g}'):.0f} records")


def test_two_open_columns_share_the_noise():
    X = people().assign(trade=lambda X: "trade " + X["town"].str[5:])
    schema = Schema({**SCHEMA, "trade": OpenCategorical(max_labels=2)})
    model, recorder = recorded(X, schema=schema)
    assert len(model.schema_["trade"].categories) == 2
    assert model.schema_["trade"].categories == ("trade 0", "trade 1")
    # Each record changes two counts by 1/√2.
    n_labels = X["town"].nunique()
    assert recorder.values[0].sum() == pytest.approx(math.sqrt(2) * len(X))
    assert len(recorder.values[0]) == 2 * n_labels
    assert model.privacy_.split["labels"] == pytest.approx(0.4)


def test_a_ledger_books_the_discovery(tmp_path):
    path = tmp_path / "towns.ledger"
    ledger = PrivacyLedger.create(path, dataset="towns", epsilon=3.0, delta=1e-4)
    model = sampler(ledger=ledger, delta=1e-5).fit(people())
    (charge,) = ledger.report().charges
    assert charge.delta >= 0.049e-5
    assert charge.amount >= (1 / gaussian_sigma(1.0, 0.95e-5)) ** 2 * (1 - 1e-3)
    assert charge.report.events[0].what == "open_labels"
    assert model.privacy_.ledger["charge"] == 1


@pytest.mark.filterwarnings("ignore::sklearn_dpgen.exceptions.NoisyCountsWarning")
def test_a_fit_that_discovers_nothing_has_the_rest_label_alone():
    model = sampler(epsilon=0.01).fit(people(100))
    assert model.schema_["town"].categories == ()
    assert {*model.sample(20)["town"]} == {"other"}


def test_without_noise_all_labels_are_discovered():
    X = people(500, 20)
    model = sampler(epsilon=math.inf).fit(X)
    assert {*model.schema_["town"].categories} == {*X["town"]}


def test_long_labels_nulls_and_the_rest_label_are_not_discovered():
    X = people(2000, 3)
    X.loc[:400, "town"] = "x" * 101
    X.loc[401:800, "town"] = None
    X.loc[801:1200, "town"] = "other"
    schema = Schema({**SCHEMA, "town": OpenCategorical(nullable=True)})
    model = sampler(schema=schema, epsilon=10.0).fit(X)
    assert {*model.schema_["town"].categories} == {"town 0", "town 1", "town 2"}
    drawn = model.sample(2000)["town"]
    assert drawn.isna().mean() == pytest.approx(0.2, abs=0.05)
    assert (drawn == "other").mean() == pytest.approx(0.4, abs=0.05)


@pytest.mark.parametrize("as_dtype", [object, "string", "category", "int", "float"])
def test_labels_do_not_depend_on_the_dtype(as_dtype):
    numbers = people(2000, 3)["town"].str[5:].astype(int)
    X = people(2000, 3).assign(town=numbers.astype(str).astype(object))
    given = numbers if as_dtype in ("int", "float") else X["town"]
    model = sampler(epsilon=5.0).fit(X.assign(town=given.astype(as_dtype)))
    assert model.schema_["town"].categories == ("0", "1", "2")


# Counts of the discovery, used again.


def estimates_of_counts(true, n_draws=4000, seed=0):
    """Return estimates of the count of a discovered label, with and without the threshold.

    The noise of the discovery is 10 and the threshold 100; a later count has noise 20.
    """
    rng = np.random.default_rng(seed)
    noisy = true + 10 * rng.standard_normal(20 * n_draws)
    noisy = noisy[noisy >= 100][:n_draws]
    later = true + 20 * rng.standard_normal(len(noisy))
    n = 1e7
    cells = ColumnCells(
        np.arange(len(noisy) + 1),
        np.append(later, n - later.sum()) / n,
        np.full(len(noisy) + 1, (20 / n) ** 2),
    )
    found = with_label_counts(cells, noisy, 10.0, 100.0, n)
    assert found.shares.sum() == pytest.approx(1)
    naive = (noisy / 100 + later / 400) / (1 / 100 + 1 / 400)
    return found.shares[:-1] * n, np.sqrt(found.variances[:-1]) * n, naive


@pytest.mark.parametrize("true", [80, 90, 100])
def test_counts_of_labels_that_just_passed_are_hardly_raised(true):
    estimated, _, naive = estimates_of_counts(true)
    raised = naive.mean() - true
    assert raised > 5
    assert abs(estimated.mean() - true) < raised / 2


@pytest.mark.parametrize("true", [80, 100, 120, 200])
def test_counts_are_better_than_without_those_of_the_discovery(true):
    estimated, _, _ = estimates_of_counts(true)
    assert math.sqrt(np.mean((estimated - true) ** 2)) < 0.9 * 20


def test_counts_far_above_the_threshold_are_averaged_by_precision():
    estimated, spread, naive = estimates_of_counts(500)
    assert_allclose(estimated, naive, rtol=2e-3)
    assert_allclose(spread, (1 / 100 + 1 / 400) ** -0.5, rtol=1e-2)


# Persons.


@pytest.mark.parametrize("unit_weights", ["equal", "rows"])
def test_a_person_counts_for_one_label(unit_weights):
    # One person has a thousand labels, and another one label in a thousand rows.
    many = pd.DataFrame({"town": [f"rare {i}" for i in range(1000)], "who": "a"})
    same = pd.DataFrame({"town": ["home of b"] * 1000, "who": "b"})
    rest = people(600, 3)[["town"]].assign(who=[f"p{i}" for i in range(600)])
    X = pd.concat([many, same, rest], ignore_index=True)
    X = X.assign(age=50.0, ill=[0, 1] * (len(X) // 2))
    most = {"max_rows": 4} if unit_weights == "rows" else {}
    options = {"unit": "who", "unit_weights": unit_weights, "epsilon": 5.0}
    model, recorder = recorded(X, **options, **most)
    values = recorder.values[0] / (4 if most else 1)
    assert values.sum() == pytest.approx(602)
    assert len(values) == 5
    assert sorted(values)[:2] == [1, 1]
    assert "home of b" not in model.schema_["town"].categories
    assert not any(label.startswith("rare") for label in model.schema_["town"].categories)
    assert "town 0" in model.schema_["town"].categories


def test_rows_without_persons_would_reveal_one_person():
    # The negative twin: rows count, so that the home of one person is discovered.
    same = pd.DataFrame({"town": ["home of b"] * 1000})
    X = pd.concat([same, people(600, 3)[["town"]]], ignore_index=True)
    X = X.assign(age=50.0, ill=[0, 1] * (len(X) // 2))
    assert "home of b" in sampler().fit(X).schema_["town"].categories


def test_the_row_of_a_person_is_drawn_uniformly_and_once():
    X = pd.DataFrame({"town": ["a", "b", "b", "b"] * 2000, "who": np.repeat(np.arange(2000), 4)})
    X = X.assign(age=1.0, ill=[0, 1] * 4000)
    counts = []
    for seed in (0, 1):
        _, recorder = recorded(X, unit="who", random_state=seed)
        counts.append(recorder.values[0])
        assert recorder.values[0].sum() == 2000
        # Five standard deviations of a binomial number.
        assert abs(recorder.values[0][0] - 500) < 5 * math.sqrt(2000 * 0.25 * 0.75)
    assert not np.array_equal(*counts)


def test_persons_need_stored_codes():
    X = people(50).assign(who=range(50))
    with pytest.raises(PublicValueError, match="store must be 'codes'"):
        sampler(unit="who", store="none").fit(X)


def test_an_identifier_may_be_the_unit():
    X = people(600, 3).assign(who=[f"p{i}" for i in range(600)])
    schema = Schema({**SCHEMA, "who": Identifier("p")})
    assert sampler(schema=schema, unit="who").fit(X).sample(3)["who"].iloc[0] == "p0"


# Sources.


def _sources(X, tmp_path):
    X.to_parquet(tmp_path / "towns.parquet")
    X.to_csv(tmp_path / "towns.csv", index=False)
    yield "parquet", tmp_path / "towns.parquet"
    yield "csv", tmp_path / "towns.csv"
    yield "frames", [X.iloc[:700], X.iloc[700:]]


@pytest.mark.slow
@pytest.mark.parametrize("store", ["codes", "none"])
def test_all_sources_give_the_same_releases(store, tmp_path):
    X = people(1500, 20)
    X["age"] = X["age"].round()
    expected = sampler().fit(X)
    for name, source in _sources(X, tmp_path):
        model = sampler(store=store).fit(source)
        assert model.schema_ == expected.schema_, name
        for mine, theirs in zip(model.marginals_, expected.marginals_, strict=True):
            assert_array_equal(mine.counts, theirs.counts)


@pytest.mark.slow
@pytest.mark.parametrize("package", ["polars", "duckdb", "dask"])
def test_lazy_tables_give_the_same_releases(package):
    module = pytest.importorskip("dask.dataframe" if package == "dask" else package)
    X = people(1500, 20)
    expected = sampler().fit(X).schema_
    if package == "polars":
        source = module.from_pandas(X).lazy()
    elif package == "duckdb":
        source = module.connect().from_df(X)
    else:
        source = module.from_pandas(X, npartitions=3)
    assert sampler(store="none").fit(source).schema_ == expected


def test_a_source_that_is_read_once_needs_stored_codes():
    X = people(1500, 20)
    expected = sampler().fit(X).schema_
    assert sampler().fit(iter([X.iloc[:700], X.iloc[700:]])).schema_ == expected
    with pytest.raises(PublicValueError, match="read"):
        sampler(store="none").fit(iter([X]))


# Around a fit.


@pytest.mark.slow
def test_unknown_labels_of_other_records_are_the_rest_label():
    model = sampler(target="ill").fit(people())
    records = people(5).assign(town="nowhere")
    law = model.target_law(records)
    pd.testing.assert_frame_equal(law, model.target_law(records.assign(town="other")))
    assert -1 <= _score(model, people(500)) <= 0


def _score(model, X):
    with pytest.warns(UserWarning, match="not private"):
        return model.score(X)


def test_conditions_take_known_labels_only():
    model = sampler().fit(people())
    assert {*model.sample(20, conditions={"town": "town 0"})["town"]} == {"town 0"}
    assert {*model.sample(20, conditions={"town": "other"})["town"]} == {"other"}
    with pytest.raises(PublicValueError, match="must list known labels"):
        model.sample(20, conditions={"town": "nowhere"})


def test_constraints_may_not_name_open_columns():
    rule = Implication({"town": "town 0"}, {"ill": 1})
    with pytest.raises(PublicValueError, match="constraints must not name open columns"):
        sampler(constraints=[rule]).plan(1000)
    young = Implication({"ill": 1}, {"age": pd.Interval(0, 50)})
    drawn = sampler(constraints=[young]).fit(people()).sample(300)
    assert drawn.loc[drawn["ill"] == 1, "age"].max() <= 50
    assert "town 0" in {*drawn["town"]}


def test_a_public_table_is_read_with_the_discovered_labels():
    X = people()
    model = sampler(public=X.iloc[:1000]).fit(X)
    assert "town 0" in model.schema_["town"].categories
    assert model.public_agreement_


# Around a model.


@pytest.mark.slow
def test_reports_cards_and_estimates_show_discovered_labels():
    X = people()
    model = sampler(target="ill").fit(X)
    report = QualityReport.from_estimator(model).to_html()
    assert "town 0" in report
    assert "town 150" not in report
    card = model_card(model)
    assert "town 0" in str(card.to_dict())
    assert "{'town': 'town 0'}" in list(estimate_shares(model, "town").index)


@pytest.mark.slow
def test_a_report_compares_open_columns_by_the_labels_of_the_samples():
    X = people()
    model = sampler().fit(X)
    drawn = model.sample(500, random_state=0)
    given = QualityReport(X, drawn, schema=SCHEMA, random_state=0).to_dict()
    known = QualityReport(X, drawn, schema=model.schema_, random_state=0).to_dict()
    assert given["figures"].keys() == known["figures"].keys()
    assert "town 150" not in str(given)


@pytest.mark.slow
def test_a_classifier_takes_open_features_and_no_open_target():
    X = people()
    model = SyntheticDataClassifier(sampler(target="ill")).fit(X[["town", "age"]], X["ill"])
    unknown = model.predict(X[["town", "age"]].head().assign(town="nowhere"))
    rest = model.predict(X[["town", "age"]].head().assign(town="other"))
    assert_array_equal(unknown, rest)
    with pytest.raises(PublicValueError, match="must have known labels"):
        SyntheticDataClassifier(sampler(target="town")).fit(X[["ill", "age"]], X["town"])


QUICK = {"n_trials": 6, "n_transcripts": 1, "random_state": 0}


@pytest.mark.slow
def test_an_audit_compares_the_counts_of_labels():
    estimator = sampler(random_state=None, neighbours="add_or_remove")
    found = audit(estimator, people(100, n_towns=1), **QUICK)
    assert not found.findings
    assert 0.85 < found.epsilon_lower <= 1
    assert found.n_releases > 2


@pytest.mark.slow
def test_an_audit_finds_labels_that_count_twice(monkeypatch):
    """Labels have a fifth of μ², which is 0.8 + 0.2 · 2² = 1.6 times as large: ε is above 1.2."""
    monkeypatch.setattr(MarginalsPlan, "label_factor", 0.5)
    estimator = sampler(random_state=None, neighbours="add_or_remove")
    found = audit(estimator, people(100, n_towns=1), **QUICK)
    assert found.is_violation
    assert found.epsilon_lower > 1.15


@pytest.mark.slow
def test_guesses_ignore_selections_and_labels_that_others_lack():
    found = audit(sampler(random_state=None), people(60), method="one_run", n_canaries=5)
    assert not found.is_violation


def test_an_audit_compares_values_of_the_same_name():
    first, exact = Transcript(), [np.array([3.0, 1.0]), np.array([4.0, 7.0])]
    with observed_noise(first):
        seen = noise_source().name(["b", "c"]).add(exact[0], 2.0, "gaussian")
        noise_source().add(exact[0], 2.0, "gaussian")
    second = Transcript(first)
    with observed_noise(second):
        found = noise_source().name(["a", "c"]).add(exact[1], 2.0, "gaussian")
        noise_source().add(exact[1], 2.0, "gaussian")
    # "a" is not released by the earlier fit, and there are no "b" in the later one.
    assert_array_equal(found, [-np.inf, seen[1]])
    assert_array_equal(second.releases[0].values, [0, 7])
    assert_array_equal(first.releases[0].values, exact[0])
    # Names are those of one release alone.
    assert_array_equal(second.releases[1].values, exact[1])
    assert second.releases[1].names is None


def test_constraints_are_saved_with_the_discovered_labels(tmp_path):
    young = Implication({"ill": 1}, {"age": pd.Interval(0, 50)})
    model = sampler(constraints=[young]).fit(people())
    model.save(tmp_path / "model")
    assert load(tmp_path / "model").schema_ == model.schema_


@pytest.mark.slow
@pytest.mark.parametrize("neighbours", ["replace_one", "add_or_remove"])
def test_certified_noise_discovers_labels(neighbours):
    pytest.importorskip("opendp")
    model = sampler(noise="certified", random_state=None, neighbours=neighbours, epsilon=3.0)
    plan = model.plan(3000)
    model.fit(people())
    assert "town 0" in model.schema_["town"].categories
    assert model.privacy_ == plan
    # Of the counts of labels those are paid for that differ between neighbours.
    ((profile, _), *_) = plan.releases
    assert profile.delta0 > 0.049e-5


class Replaced(Recorder):
    """Lets out given noisy counts of labels, of which the first release is."""

    def __init__(self, counts):
        super().__init__()
        self.counts = counts

    def added(self, values, scale, kind, noisy):
        noisy = super().added(values, scale, kind, noisy)
        return self.counts(scale) if len(self.scales) == 1 else noisy


def discovered(counts, **parameters):
    """Return the labels that a fit discovers if their noisy counts are those."""
    X = pd.DataFrame({"town": [*"a" * 500, *"b" * 400, *"c" * 300, "d"], "ill": 0})
    schema = Schema({"town": OpenCategorical(**parameters), "ill": Categorical([0, 1])})
    with observed_noise(Replaced(counts)):
        model = sampler(schema=schema, epsilon=8.0, neighbours="add_or_remove").fit(X)
    return [label for label in model.schema_["town"].labels if label != "other"]


@pytest.mark.filterwarnings("ignore::sklearn_dpgen.exceptions.NoisyCountsWarning")
def test_a_fit_compares_noisy_counts_with_the_threshold():
    """A label of one record passes at one and the quantile of the noise, and not below."""

    def near(ratio):
        def counts(scale):
            threshold = 1 + scale * norm.isf(0.049 * 1e-5)
            # Without the contribution of the record itself the last would pass.
            assert 0.97 * threshold > threshold - 1
            return np.array([5.0, 0.2, 0.5, ratio]) * [1, 1, 1, threshold]

        return counts

    assert "d" in discovered(near(1.03))
    assert "d" not in discovered(near(0.97))


@pytest.mark.filterwarnings("ignore::sklearn_dpgen.exceptions.NoisyCountsWarning")
def test_labels_beyond_the_largest_number_are_left_out_by_noisy_counts(monkeypatch):
    """The order of the exact counts is the reverse."""
    given = []

    def watch(cells, noisy, *args):
        given.append(noisy)
        return with_label_counts(cells, noisy, *args)

    monkeypatch.setattr("sklearn_dpgen.tables._table_sampler.with_label_counts", watch)
    noisy = np.array([100.0, 200.0, 300.0, 400.0])
    assert discovered(lambda scale: noisy, max_labels=2) == ["c", "d"]
    assert_allclose(given, [[300.0, 400.0]])


@pytest.mark.parametrize(("neighbours", "changed"), [("replace_one", 4), ("add_or_remove", 2)])
def test_counts_of_labels_that_differ_are_paid_for(neighbours, changed):
    """Of two open columns: one label of each, of both records if one is replaced."""
    schema = Schema({"town": OpenCategorical(), "job": OpenCategorical(), "ill": SCHEMA["ill"]})
    certified = sampler(schema=schema, neighbours=neighbours, noise="certified", random_state=None)
    n_values, n_changed = SamplerPlan(certified, declared_table(certified), 1000).marginals.sizes
    assert (n_values[0], n_changed[0]) == (changed, changed)
