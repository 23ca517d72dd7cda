"""Audits come close to the claims of intact estimators, stay below them, and catch broken ones."""

import json

import numpy as np
import pytest

from sklearn_dpgen.auditing import AuditResult, audit
from sklearn_dpgen.domains import Box
from sklearn_dpgen.evolution import PrivateSignedMeasureSampler
from sklearn_dpgen.moments import MomentSampler
from sklearn_dpgen.utils._random import NoiseSource

RNG = np.random.default_rng(0)
X = RNG.uniform(size=(120, 2))
# A test that fails by chance would hide one that fails for a reason.
SURE = {"confidence": 1 - 1e-6}
VOTES = PrivateSignedMeasureSampler(
    domain=Box(0, 1, n_features=2), n_points=16, device="cpu", epsilon=2.0, delta=1e-4
)
SAMPLER = MomentSampler(domain=Box(0, 1, n_features=2), epsilon=2.0, delta=1e-4)


@pytest.mark.slow
def test_an_audit_comes_close_to_the_claim_and_stays_below():
    result = audit(VOTES, X, n_trials=20, random_state=0, **SURE)
    assert not result.is_violation, result.to_text()
    assert 0.98 < result.ratio <= 1
    assert result.claimed["epsilon"] == pytest.approx(2.0)


@pytest.mark.slow
def test_releases_that_follow_earlier_ones_stay_below_the_claim():
    result = audit(SAMPLER, X, n_trials=40, random_state=0, **SURE)
    assert not result.is_violation, result.to_text()
    assert result.ratio > 0.4


@pytest.mark.slow
def test_halved_noise_is_a_violation(monkeypatch):
    add = NoiseSource.add

    def halved(self, values, scale, kind):
        return add(self, values, scale / 2, kind)

    monkeypatch.setattr(NoiseSource, "add", halved)
    result = audit(VOTES, X, n_trials=20, random_state=0, **SURE)
    assert result.is_violation
    assert result.ratio > 1.9


def test_a_result_is_told_in_text_and_json():
    claimed = {"epsilon": 1.0, "delta": 1e-5, "mu": 0.25}
    result = AuditResult(
        estimator="Sampler",
        method="white_box",
        epsilon_lower=np.inf,
        mu_lower=0.3,
        confidence=0.99,
        claimed=claimed,
        findings=("noise is used twice",),
    )
    assert result.is_violation
    text = result.to_text()
    assert text.startswith("Audit of Sampler (white_box): VIOLATION")
    assert "noise is used twice" in text
    assert "not private" in text
    content = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert content["epsilon_lower"] == "inf"
    assert content["ratio"] == pytest.approx(1.2)


def test_a_bound_that_is_no_number_is_no_proof():
    from sklearn_dpgen.auditing import AuditResult

    fields = {"estimator": "E", "method": "white_box", "mu_lower": 0.0, "confidence": 0.9}
    claimed = {"epsilon": 1.0, "delta": 0.0, "mu": 1.0}
    assert AuditResult(epsilon_lower=float("nan"), claimed=claimed, **fields).is_violation
    assert not AuditResult(epsilon_lower=1.0, claimed=claimed, **fields).is_violation
