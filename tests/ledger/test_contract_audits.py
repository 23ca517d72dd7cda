"""Audits of every estimator: none tells more than it claims, and too little noise is found."""

import warnings

import pytest
from contract_cases import CASES, FRAME, SIDE
from sklearn.base import BaseEstimator

from sklearn_dpgen.auditing import audit
from sklearn_dpgen.utils._random import NoiseSource


class Arguments(BaseEstimator):
    """What a case gives to ``fit``."""

    def fit(self, X, y=None, sensitive_features=None):
        self.given_ = X, y, sensitive_features
        return self


def audited(case):
    X, y, sides = case.fit(FRAME[list(case.columns)], SIDE, Arguments()).given_
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return audit(
            case.estimator,
            X,
            y,
            sensitive_features=sides,
            n_trials=4,
            n_transcripts=1,
            n_draws=2**16,
            random_state=0,
        )


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_no_fit_tells_more_than_it_claims_and_less_noise_is_found(name, monkeypatch):
    result = audited(CASES[name])
    assert not result.is_violation, result.to_text()
    assert 0 < result.ratio <= 1
    # As little noise as the audit has to see: what it finds is then twice the claim.
    share = result.ratio / 2
    normal, laplace = NoiseSource.normal, NoiseSource.laplace
    monkeypatch.setattr(NoiseSource, "normal", lambda self, size: share * normal(self, size))
    monkeypatch.setattr(NoiseSource, "laplace", lambda self, size: share * laplace(self, size))
    broken = audited(CASES[name])
    assert broken.is_violation, broken.to_text()
