"""Plans without records, persons as the unit of protection, and ledgers."""

import numpy as np
import pandas as pd
import pytest

from sklearn_dpgen.accounting import calibrate_noise_multiplier
from sklearn_dpgen.domains import Box
from sklearn_dpgen.exceptions import BudgetExceededError, NoisyGradientsWarning
from sklearn_dpgen.ledger import PrivacyLedger
from sklearn_dpgen.ledger._unit import Persons
from sklearn_dpgen.nn import Training
from sklearn_dpgen.sliced import (
    DPSlicedWassersteinAdapter,
    DPSlicedWassersteinFairClassifier,
    DPSlicedWassersteinGenerator,
)
from sklearn_dpgen.sliced._base import SlicedEstimator
from sklearn_dpgen.sliced._strata import StratifiedRecords
from sklearn_dpgen.utils._random import NoiseSource, noise_source

KINDS = ["regressor", "classifier", "encoder", "generator"]
SIZES = {"group_sizes": [17, 24]}


def planned(estimator, kind, n_samples=41, **sizes):
    """Return the plan of a fit on the table of 41 records."""
    return estimator.plan(n_samples, 3, **({} if kind == "generator" else SIZES | sizes))


# Plans.


@pytest.mark.parametrize("seed", [0, None])
@pytest.mark.parametrize("kind", KINDS)
def test_a_plan_is_the_report_of_the_fit(tiny, table, kind, seed):
    estimator = tiny(kind, random_state=seed, gradient__batch_fraction=0.5)
    report = planned(estimator, kind)
    assert report == table.train(estimator).privacy_
    assert (report.neighbours, report.unit, report.split) == (
        "replace_one",
        None,
        {"noisy gradients": 1.0},
    )
    assert report.releases
    # One record more is another plan.
    more = {} if kind == "generator" else {"group_sizes": [17, 25]}
    assert report != planned(estimator, kind, 42, **more)


def test_a_plan_within_labels(tiny, table):
    classifier = tiny("classifier", penalty="equalized_odds")
    sizes = [[np.sum((table.groups == g) & (table.labels == y)) for y in (0, 1)] for g in "ab"]
    report = classifier.plan(41, 3, group_sizes=sizes)
    assert report == table.train(classifier).privacy_
    assert "group_and_label_sizes" in report.public
    with pytest.raises(ValueError, match=r"group_sizes must hold .*by label, of shape \(2, 2\)"):
        classifier.plan(41, 3, group_sizes=[17, 24])


def test_plans_of_more_outputs(tiny, table):
    three = tiny("classifier").fit(table.X, np.arange(41) % 3, sensitive_features=table.groups)
    assert three.plan(41, 3, n_classes=3, **SIZES) == three.privacy_
    declared = tiny("classifier", classes=range(3))
    assert declared.plan(41, 3, **SIZES).noise_scale == three.privacy_.noise_scale
    two = tiny("regressor").fit(table.X, table.Y, sensitive_features=table.groups)
    assert two.plan(41, 3, n_outputs=2, **SIZES) == two.privacy_
    latents = tiny("generator").fit(table.X, latents=table.Y[:30])
    assert latents.plan(41, 3, n_latents=30) == latents.privacy_


def test_a_declared_group_may_be_empty(tiny, table):
    classifier = tiny("classifier", groups=["a", "b", "c"])
    report = classifier.plan(41, 3, group_sizes=[17, 24, 0])
    assert report == table.train(classifier).privacy_


def test_a_plan_without_groups_warns_as_the_fit_does(tiny, table):
    classifier = tiny("classifier")
    with pytest.warns(UserWarning, match="sensitive_features is absent: fitting without"):
        report = classifier.plan(41, 3)
    with pytest.warns(UserWarning, match="sensitive_features is absent: fitting without"):
        assert classifier.fit(table.X, table.labels).privacy_ == report


def test_a_plan_warns_of_noise():
    classifier = DPSlicedWassersteinFairClassifier(training=Training(max_iter=5))
    with pytest.warns(NoisyGradientsWarning, match="records, got 41. Raise epsilon"):
        classifier.plan(41, 3, **SIZES)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ([17, 23], "group_sizes must add up to n_samples = 41, got 40"),
        ([40, 1], "at least two records; the smallest has 1"),
        ([41], "group_sizes must hold the number of records"),
        ([20.5, 20.5], "group_sizes must hold the number of records"),
        ([-1, 42], "group_sizes must hold the number of records"),
    ],
)
def test_sizes_are_checked(tiny, sizes, message):
    with pytest.raises(ValueError, match=message):
        tiny("classifier").plan(41, 3, group_sizes=sizes)


def test_a_plan_refuses_what_a_fit_refuses(tiny):
    with pytest.raises(ValueError, match="'epsilon' parameter"):
        tiny("classifier", epsilon=-1).plan(41, 3, **SIZES)
    with pytest.raises(ValueError, match="equalized_odds"):
        tiny("regressor", penalty="equalized_odds").plan(41, 3, **SIZES)
    with pytest.raises(ValueError, match="either schema or domain"):
        tiny("generator", domain=None).plan(41, 3)
    with pytest.raises(ValueError, match="n_features is needed"):
        tiny("generator").plan(41)


SIDES = [("target", 25), ("source", 16), ("both", 41)]


def adapter_and_records(table, private, **options):
    domain = np.where(np.arange(41) < 16, 1, -1)
    small = {
        "training__max_iter": 3,
        "source_iter": 3,
        "gradient__batch_fraction": 0.5,
        "random_state": 0,
    }
    adapter = DPSlicedWassersteinAdapter(private=private).set_params(**small, **options)
    return adapter, (table.X, np.arange(41) % 2, domain)


@pytest.mark.parametrize(("private", "n_samples"), SIDES)
def test_plans_of_an_adapter(table, private, n_samples):
    adapter, records = adapter_and_records(table, private)
    report = adapter.plan(n_samples, 3, n_source=16)
    assert report == adapter.fit(*records).privacy_
    if private == "both":
        with pytest.raises(ValueError, match="n_source must be less than n_samples"):
            adapter.plan(16, 3, n_source=16)


def test_a_plan_of_an_adapter_without_target(table):
    adapter, (X, y, _) = adapter_and_records(table, "target")
    with pytest.warns(UserWarning, match="sample_domain is absent"):
        assert adapter.fit(X, y).privacy_ == adapter.plan(0, 3)


def test_the_plan_says_whether_a_step_points_anywhere(tiny):
    report = tiny("classifier", alpha=0.25, training__max_iter=100).plan(41, 3, **SIZES)
    sigma = report.noise_scale
    # C = 1 by 1 - alpha; three features, four hidden units, one logit.
    ratios = f"signal-to-noise ratio of a step at most {0.75 / sigma:.2g} along a direction"
    assert ratios in report.precision["gradient of the task"]
    assert f"and {0.75 / sigma / 21**0.5:.2g} over all" in report.precision["gradient of the task"]
    assert f"{sigma / 10:.2g} along a direction" in report.precision["noise of the mean step"]
    exact = tiny("classifier", epsilon=np.inf).plan(41, 3, **SIZES)
    assert (exact.precision, exact.split) == ({"gradients": "exact, without noise"}, {})


def test_the_largest_gradient_of_a_distance_is_a_bound(tiny, probe, table):
    """Points at one end of the domain, and records at the other."""
    options = {
        "epsilon": np.inf,
        "gradient__jacobian_clip": 0.01,
        "domain": Box(-3, 3, n_features=3),
    }
    generator = tiny("generator", **options)
    X = np.full((41, 3), 3.0)
    (gradient,) = probe(generator.fit, X).gradients
    report = tiny("generator", **options | {"epsilon": 1.0}).plan(41)
    (norm,) = [float(report.precision["gradient of the distance"].split()[3].rstrip(";"))]
    # 2 D L s: the mean over whole bases takes 1 / √d of each.
    assert norm == pytest.approx(2 * 6 * 3**0.5 * 0.01 / 3**0.5, rel=0.05)
    assert np.linalg.norm(gradient) <= norm


# Persons.


def of_persons(table, n_rows=4):
    """Return the table as a frame in which the first of 41 persons has more rows than others."""
    counts = np.r_[n_rows, np.arange(40) % 3 + 1]
    rows = np.repeat(np.arange(41), counts)
    frame = pd.DataFrame(table.X[rows], columns=["u", "v", "w"])
    frame.insert(1, "who", [f"person {row}" for row in rows])
    order = np.random.default_rng(1).permutation(len(rows))
    return frame.iloc[order].reset_index(drop=True), rows[order]


def fit_persons(estimator, kind, table, frame, rows):
    """Fit on rows of persons: targets and groups are those of the person."""
    targets = {"regressor": (table.y[rows],), "classifier": (table.labels[rows],)}.get(kind, ())
    groups = {} if kind == "generator" else {"sensitive_features": table.groups[rows]}
    return estimator.fit(frame, *targets, **groups)


@pytest.mark.parametrize("kind", KINDS)
def test_persons_are_planned_as_records_are(tiny, table, kind):
    frame, rows = of_persons(table)
    estimator = tiny(kind, unit="who", gradient__batch_fraction=0.5)
    report = fit_persons(estimator, kind, table, frame, rows).privacy_
    assert report == planned(estimator, kind)
    plain = planned(tiny(kind, gradient__batch_fraction=0.5), kind)
    assert (report.unit, report.noise_scale) == ("who", plain.noise_scale)
    assert "person" in report.neighbouring
    assert "n_samples" in report.public
    assert report.releases == plain.releases
    # By hand: 41 persons, whatever the number of their rows.
    rate = 20 / 41 if kind == "generator" else max(8 / 17, 12 / 24)
    multiplier = calibrate_noise_multiplier(1.0, 0.1 / 41, sampling_rate=rate, n_steps=3)
    assert estimator.noise_multiplier_ <= multiplier * (1 + 1e-9)
    assert estimator.n_features_in_ == 3
    assert "who" not in estimator.feature_names_in_
    assert "person 0" not in report.to_text()


@pytest.mark.parametrize("kind", ["regressor", "classifier", "encoder"])
def test_the_id_is_dropped_where_something_is_predicted(tiny, table, kind):
    frame, rows = of_persons(table)
    model = fit_persons(tiny(kind, unit="who"), kind, table, frame, rows)
    look = model.transform if kind == "encoder" else model.predict
    np.testing.assert_array_equal(look(frame), look(frame.drop(columns="who")))
    if kind == "classifier":
        assert model.score(frame, table.labels[rows]) == model.score(
            frame.drop(columns="who"), table.labels[rows]
        )


def replaced_person(table, frame, rows, rng, n_rows):
    """Return the table with other rows of the first person, as many as wanted."""
    kept = rows != 0
    own = pd.DataFrame(rng.normal(size=(n_rows, 3)), columns=["u", "v", "w"])
    own = own * 10.0 ** rng.uniform(-1, 9)
    own.insert(1, "who", "somebody else")
    return (
        pd.concat([frame[kept], own], ignore_index=True),
        np.r_[rows[kept], np.zeros(n_rows, dtype=int)],
    )


def all_rows(self, drawn, noise):
    """A broken variant: all rows of the persons in a batch."""
    picked = [who[positions] for who, positions in zip(self.strata, drawn, strict=True)]
    return [np.flatnonzero(np.isin(self.persons[0].codes, who)) for who in picked]


# Of one of 41 persons, in a group of 21: by hand.
PRICES = {
    # 2 D L s / n.
    "generator": 2 * 6 * 3**0.5 * 0.2 / 3**0.5 / 41,
    # (1 - alpha) 2 C / n + alpha 4 (1 - p) 8 M L / n.
    "classifier": 0.75 * 2 * 0.3 / 41 + 0.25 * 4 * 20 / 41 * 8 * 0.5 * 0.2 / 41,
    "regressor": 0.75 * 2 * 0.3 / 41 + 0.25 * 4 * 20 / 41 * 8 * 1.0 * 0.2 / 41,
}


@pytest.mark.parametrize("broken", [False, True])
@pytest.mark.parametrize("kind", sorted(PRICES))
def test_a_person_moves_a_step_by_what_was_priced(tiny, table, probe, monkeypatch, kind, broken):
    """Of all other persons the same rows are drawn on both sides."""
    monkeypatch.setattr(NoiseSource, "uniform", lambda self, size: np.full(size, 0.7))
    if broken:
        monkeypatch.setattr(StratifiedRecords, "rows", all_rows)
    table.groups = np.where(np.arange(41) % 2, "b", "a")
    price = PRICES[kind]
    own = {"alpha": 0.25, "gradient__task_clip": 0.3} if kind != "generator" else {}
    frame, rows = of_persons(table, n_rows=20)
    rng, moved = np.random.default_rng(0), []

    def gradient(frame, rows):
        model = tiny(kind, unit="who", epsilon=np.inf, gradient__jacobian_clip=0.2, **own)
        return probe(fit_persons, model, kind, table, frame, rows).gradients[0]

    base = gradient(frame, rows)
    for n_rows in (1, 3, 20, 20, 60):
        other = replaced_person(table, frame, rows, rng, n_rows)
        moved.append(np.linalg.norm(gradient(*other) - base))
    assert 0.05 * price < max(moved)
    assert (max(moved) <= price) == (not broken)


def test_rows_are_drawn_anew_at_each_step():
    codes = np.repeat(np.arange(5), [1, 2, 3, 4, 10])
    members = StratifiedRecords.from_cells(
        ((0, None), (1, None)), np.array([0, 1, 0, 1, 1]), None, Persons(codes)
    )
    noise, counts = noise_source(3), np.zeros(20)
    for _ in range(2000):
        first, second = members.rows([np.array([1, 0]), np.array([0, 2])], noise)
        # Positions 1 and 0 are persons 2 and 0; 0 and 2 are 1 and 4.
        assert codes[first].tolist() == [2, 0]
        assert codes[second].tolist() == [1, 4]
        counts[first] += 1
        counts[second] += 1
    expected = np.array([2000, 1000, 667, 0, 200])[codes]
    np.testing.assert_allclose(counts, expected, atol=5 * 1000**0.5)


@pytest.mark.parametrize("penalty", ["demographic_parity", "equalized_odds"])
def test_a_person_is_in_one_stratum(tiny, table, penalty):
    frame, rows = of_persons(table)
    several = np.flatnonzero(rows == 0)
    groups, labels = table.groups[rows], table.labels[rows]
    groups[several[0]] = "a" if groups[several[1]] == "b" else "b"
    fair = tiny("classifier", unit="who", penalty=penalty)
    with pytest.raises(ValueError, match="of one group of sensitive_features") as raised:
        fair.fit(frame, labels, sensitive_features=groups)
    assert "person 0" not in str(raised.value)
    labels[several[0]] = 1 - labels[several[1]]
    if penalty == "equalized_odds":
        with pytest.raises(ValueError, match="must be of one label"):
            fair.fit(frame, labels, sensitive_features=table.groups[rows])
    else:
        fair.fit(frame, labels, sensitive_features=table.groups[rows])


def test_private_latents_have_no_persons(tiny, table):
    frame, _ = of_persons(table)
    generator = tiny("generator", unit="who")
    with pytest.raises(ValueError, match="latents must be None with unit"):
        generator.fit(frame, latents=table.Y)
    with pytest.raises(ValueError, match="latents must be None with unit"):
        generator.plan(41, 3, n_latents=41)


@pytest.mark.parametrize(("private", "n_samples"), SIDES)
def test_an_adapter_protects_persons(table, private, n_samples):
    frame, rows = of_persons(table)
    adapter, (_, y, domain) = adapter_and_records(table, private, unit="who")
    adapter.fit(frame, y[rows], domain[rows])
    assert adapter.privacy_ == adapter.plan(n_samples, 3, n_source=16)
    np.testing.assert_array_equal(
        adapter.predict(frame), adapter.predict(frame.drop(columns="who"))
    )
    mixed = domain[rows]
    several = np.flatnonzero(rows == 0)
    mixed[several[0]] = -mixed[several[1]]
    if private == "both":
        with pytest.raises(ValueError, match="must be of one domain"):
            adapter.fit(frame, y[rows], mixed)
    else:
        adapter.fit(frame, y[rows], mixed)


# Ledgers.


def no_draw(self, size):
    raise AssertionError("a draw was made")


def charges_late(self, report):
    """A broken variant: what is refused comes after the training."""
    self.privacy_ = report


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("broken", [False, True])
def test_a_refused_fit_draws_nothing(tiny, table, tmp_path, monkeypatch, kind, broken):
    ledger = PrivacyLedger.create(tmp_path / "small.ledger", dataset="t", epsilon=0.5, delta=1e-2)
    estimator = tiny(kind, ledger=ledger, gradient__batch_fraction=0.5)
    monkeypatch.setattr(NoiseSource, "uniform", no_draw)
    if broken:
        monkeypatch.setattr(SlicedEstimator, "_charge", charges_late)
    with pytest.raises(AssertionError if broken else BudgetExceededError):
        table.train(estimator)
    assert not hasattr(estimator, "module_")
    assert hasattr(estimator, "privacy_") == broken
    assert ledger.spent() == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_fit_is_booked_once_as_planned(tiny, table, tmp_path, kind):
    ledger = PrivacyLedger.create(tmp_path / "of.ledger", dataset="t", epsilon=5.0, delta=1e-2)
    estimator = tiny(kind, ledger=str(ledger.path))
    table.train(estimator)
    (charge,) = ledger.report().charges
    assert charge.what == type(estimator).__name__
    assert charge.report == estimator.privacy_ == planned(estimator, kind)


def test_what_reads_nothing_private_is_booked_for_nothing(table, tmp_path):
    ledger = PrivacyLedger.create(tmp_path / "of.ledger", dataset="t", epsilon=5.0, delta=1e-2)
    adapter, (X, y, _) = adapter_and_records(table, "target", ledger=ledger)
    with pytest.warns(UserWarning, match="sample_domain is absent"):
        adapter.fit(X, y)
    assert ledger.spent() == 0


def test_the_generator_draws_persons_of_a_table():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"u": rng.uniform(size=60), "who": np.arange(60) // 3})
    box = Box(0, 1, n_features=1)
    generator = DPSlicedWassersteinGenerator(
        domain=box, unit="who", training=Training(max_iter=2), epsilon=20.0
    )
    generator.fit(frame)
    assert generator.mechanism_.strata[0].size == 20
    assert list(generator.sample(2).columns) == ["u"]
