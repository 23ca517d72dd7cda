"""What a fit leaves behind, and what its report says."""

import pickle
import types
from dataclasses import replace

import numpy as np
import pytest
import torch

from sklearn_dpgen.accounting import Bound, epsilon_spent
from sklearn_dpgen.accounting._wording import caveat_texts, public_texts
from sklearn_dpgen.mechanisms import StratifiedGaussianMechanism, Stratum
from sklearn_dpgen.mechanisms._sampled import StratifiedGaussianRun
from sklearn_dpgen.sliced import DPSlicedWassersteinFairClassifier
from sklearn_dpgen.sliced._objective import parity_penalty_sensitivity
from sklearn_dpgen.utils._random import NoiseSource

KINDS = ["regressor", "classifier", "encoder", "generator"]

# What a fit leaves behind.


def bytes_of(*arrays):
    """Return the numbers of arrays as they look in memory: doubles and singles."""
    values = np.concatenate([np.ravel(array) for array in arrays]).astype(np.float64)
    return {v.tobytes() for v in values} | {v.tobytes() for v in values.astype(np.float32)}


def holds_records(estimator, table):
    """Whether a pickle holds a number of a record, or the list of a group's rows."""
    dump = pickle.dumps(estimator)
    rows = [np.flatnonzero(table.groups == group).tobytes() for group in "ab"]
    return any(part in dump for part in bytes_of(table.X, table.Y, table.y / 2) | set(rows))


@pytest.mark.parametrize("kind", KINDS)
def test_no_record_is_stored(tiny, table, kind):
    estimator = table.train(tiny(kind, training__verbose=0))
    assert not holds_records(estimator, table)
    parameters = set(estimator.get_params(deep=False))
    assert set(vars(estimator)) - parameters <= FITTED
    for kept in (table.X, table.y, torch.from_numpy(table.X).float(), table.groups == "a"):
        estimator.kept_ = kept if kept.dtype != bool else np.flatnonzero(kept)
        assert holds_records(estimator, table)


# What a fit may leave. Each is the released network, the report, or public.
FITTED = {
    "_frame_kind",
    "_single_output",
    "alpha_",
    "classes_",
    "domain_",
    "encoder_",
    "groups_",
    "mechanism_",
    "module_",
    "n_features_in_",
    "n_iter_",
    "noise_multiplier_",
    "privacy_",
    "y_domain_",
}


def random_streams(root):
    """Return the random streams that are reachable from an object."""
    found, seen, stack = [], set(), [root]
    kinds = (np.random.Generator, np.random.RandomState, torch.Generator, NoiseSource)
    while stack:
        value = stack.pop()
        if id(value) in seen or isinstance(value, type | types.ModuleType | str | bytes):
            continue
        seen.add(id(value))
        if isinstance(value, kinds):
            found.append(value)
        if isinstance(value, dict):
            stack += [*value, *value.values()]
        elif isinstance(value, list | tuple | set | frozenset):
            stack += value
        elif isinstance(value, types.FunctionType):
            stack += [cell.cell_contents for cell in value.__closure__ or ()]
        elif isinstance(value, types.MethodType):
            stack += [value.__self__, value.__func__]
        stack += list(getattr(value, "__dict__", {}).values())
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_no_random_stream_is_stored(tiny, table, kind):
    estimator = table.train(tiny(kind))
    assert random_streams(estimator) == []
    stream = torch.Generator()
    estimator.module_.draw = lambda: stream
    assert random_streams(estimator) == [stream]


@pytest.mark.parametrize("kind", KINDS)
def test_progress_and_callback_show_no_loss(tiny, table, kind, capfd):
    steps = []
    table.train(
        tiny(kind, training__verbose=1, training__callback=lambda *seen: steps.append(seen))
    )
    assert "loss" not in capfd.readouterr().err
    assert [step for step, _ in steps] == [0, 1, 2]
    assert all(isinstance(module, torch.nn.Module) for _, module in steps)


# The report.


def neighbouring_table(table):
    """Replace a record in its group and its label."""
    table.X[5] = [1e6, -1e6, 0.0]
    table.y[5] = table.Y[5, 0] = 1e6 * np.sign(table.y[5])


class ScalesByTheData(DPSlicedWassersteinFairClassifier):
    """A broken variant: the report shows a bound that was read from the records."""

    def _read(self, X, y, **options):
        records, facts = super()._read(X, y, **options)
        return records, facts | {"largest": abs(X).max()}

    def _plan(self, *, largest, **facts):
        plan = super()._plan(**facts)
        report = replace(plan.report, bounds=(Bound("task_clip", largest),))
        return replace(plan, report=report)


@pytest.mark.parametrize("kind", [*KINDS, "odds", "broken"])
def test_neighbours_have_the_same_report(tiny, table, kind):
    penalty = {"penalty": "equalized_odds"} if kind == "odds" else {}
    estimator = tiny(kind if kind in KINDS else "classifier", **penalty)
    if kind == "broken":
        estimator = ScalesByTheData(**estimator.get_params(deep=False))
    report = table.train(estimator).privacy_
    neighbouring_table(table)
    assert (table.train(estimator).privacy_ == report) == (kind != "broken")


def spends_its_budget(mechanism, noise_scale):
    """Whether no stratum costs more than the budget, and the worst of them about all of it."""
    costs = [
        epsilon_spent(
            noise_scale / stratum.sensitivity,
            mechanism.delta,
            sampling_rate=stratum.rate,
            n_steps=mechanism.n_releases,
        )
        for stratum in mechanism.strata
    ]
    return 0.995 * mechanism.epsilon <= max(costs) <= mechanism.epsilon


@pytest.mark.parametrize("kind", KINDS)
def test_the_noise_is_calibrated(tiny, table, kind):
    options = {"code_law": "free"} if kind == "encoder" else {}
    estimator = table.train(
        tiny(kind, epsilon=2.0, gradient__batch_fraction=0.3, training__max_iter=7, **options)
    )
    report = estimator.privacy_
    assert (report.epsilon, report.n_releases) == (2.0, 7)
    assert report.delta == pytest.approx(0.1 / 41)
    strata = {"generator": [(41, 12)]}.get(kind, [(17, 5), (24, 7)])
    if kind == "generator":
        sensitivities = estimator._sensitivities([12], estimator.domain_)
    else:
        # A record moves 4 p_a p_b times the distance of two groups.
        ball = {"regressor": 1.0, "classifier": 0.5, "encoder": 2.0}[kind]
        clip = estimator._gradient.jacobian_clip
        spread = 0.5**0.5 if kind == "encoder" else 1.0
        sensitivities = [
            estimator._gradient.task_clip * size / 41 / n
            + 4
            * 17
            / 41
            * 24
            / 41
            * parity_penalty_sensitivity(n, 2, radius=ball, clip=clip, spread=spread)
            / 2
            for size, n in strata
        ]
    mechanism = StratifiedGaussianMechanism(
        [Stratum(*sizes, s) for sizes, s in zip(strata, sensitivities, strict=True)],
        epsilon=2.0,
        delta=report.delta,
        n_releases=7,
    )
    assert report.noise_scale == pytest.approx(mechanism.noise_scale, rel=1e-12)
    assert report.noise_multiplier == estimator.noise_multiplier_
    assert estimator.noise_multiplier_ == pytest.approx(mechanism.noise_multiplier, rel=1e-12)
    assert spends_its_budget(mechanism, report.noise_scale)
    assert not spends_its_budget(mechanism, 0.99 * report.noise_scale)
    assert not spends_its_budget(mechanism, 1.05 * report.noise_scale)


GROUP_SIZES = "group_set", "group_sizes"


@pytest.mark.parametrize(
    ("kind", "options", "neighbours", "public"),
    [
        ("regressor", {}, "another of the same group; sizes", ("y_domain", *GROUP_SIZES)),
        ("encoder", {}, "another of the same group; sizes of the groups are", GROUP_SIZES),
        ("classifier", {"classes": [0, 1]}, "another of the same group; sizes of", GROUP_SIZES),
        ("classifier", {}, "another of the same group; sizes", ("label_set", *GROUP_SIZES)),
        (
            "classifier",
            {"penalty": "equalized_odds"},
            "the same group and with the same label; sizes of the groups by label are public",
            (
                "label_set",
                "group_set",
                "group_and_label_sizes",
            ),
        ),
        ("generator", {}, "replace one record; the number of records is public", ("domain",)),
    ],
)
def test_the_report_says_what_is_public(tiny, table, kind, options, neighbours, public):
    report = table.train(tiny(kind, random_state=None, **options)).privacy_
    assert neighbours in report.neighbouring
    assert "n_samples" in report.public
    assert set(public) <= set(report.public)
    assert len(report.public) == len(public) + 2
    assert ("label_set" in report.public) == ("label_set" in public)
    assert report.noise_source == "operating system entropy"
    assert report.norm == "l2"
    assert ("group_membership" in report.caveats) == (kind != "generator")
    assert "void" in table.train(tiny(kind, **options)).privacy_.noise_source
    for text in (*public_texts(report), *caveat_texts(report), report.neighbouring):
        assert " ".join(text.split()) in " ".join(report.to_text().split())


def test_the_report_without_a_penalty(tiny, table):
    regressor = tiny("regressor", alpha=0.0, gradient__task_clip=1.0)
    table.train(regressor, sensitive_features=None)
    report = regressor.privacy_
    assert report.neighbouring == "replace one record; the number of records is public"
    assert report.public == ("n_samples", "column_names", "y_domain")
    assert report.sensitivity == pytest.approx(2 / 41)


def test_the_report_of_private_latents(tiny, table):
    report = tiny("generator").fit(table.X, latents=table.Y[:30]).privacy_
    assert "replace one record or one latent by another" in report.neighbouring
    assert {"n_samples", "n_latents"} <= set(report.public)


def test_the_report_is_planned_before_a_gradient(tiny, table, monkeypatch):
    def stop(self):
        raise AssertionError("a batch was drawn")

    monkeypatch.setattr(StratifiedGaussianRun, "draw", stop)
    for kind in KINDS:
        estimator = tiny(kind)
        with pytest.raises(AssertionError, match="a batch was drawn"):
            table.train(estimator)
        assert estimator.privacy_.epsilon == 1.0
        assert estimator.privacy_.n_releases == 3
