"""Audits of every estimator: none tells more than it claims, and too little noise is found."""

import warnings

import pytest
from contract_cases import CASES, FRAME, IDS, SIDE
from sklearn.base import BaseEstimator, clone

from sklearn_dpgen.auditing import audit
from sklearn_dpgen.utils._random import NoiseSource


class Arguments(BaseEstimator):
    """What a case gives to ``fit``."""

    def fit(self, X, y=None, sensitive_features=None):
        self.given_ = X, y, sensitive_features
        return self


# Persons with all rows, too.
KINDS = [
    (name, unit) for name, case in CASES.items() for unit in ("who", None)[1 - case.has_unit :]
]


def audited(case, unit):
    frame, estimator = FRAME[list(case.columns)], clone(case.estimator)
    if unit is not None:
        frame, estimator = frame.assign(who=IDS), estimator.set_params(unit=unit)
    X, y, sides = case.fit(frame, SIDE, Arguments()).given_
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return audit(
            estimator,
            X,
            y,
            sensitive_features=sides,
            n_trials=4,
            n_transcripts=1,
            n_draws=2**16,
            random_state=0,
        )


@pytest.mark.slow
@pytest.mark.parametrize(("name", "unit"), KINDS)
def test_no_fit_tells_more_than_it_claims_and_less_noise_is_found(name, unit, monkeypatch):
    result = audited(CASES[name], unit)
    assert not result.is_violation, result.to_text()
    assert 0 < result.ratio <= 1
    # As little noise as the audit has to see: what it finds is then twice the claim.
    share = result.ratio / 2
    normal, laplace = NoiseSource.normal, NoiseSource.laplace
    monkeypatch.setattr(NoiseSource, "normal", lambda self, size: share * normal(self, size))
    monkeypatch.setattr(NoiseSource, "laplace", lambda self, size: share * laplace(self, size))
    broken = audited(CASES[name], unit)
    assert broken.is_violation, broken.to_text()
