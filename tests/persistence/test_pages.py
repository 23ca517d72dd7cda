"""Every estimator has a page of its releases, a model card and notebook HTML, without a record."""

import json

import pytest
from contract_cases import CASES
from saved_cases import FITS, FRAME, SECRET_NAME, SECRET_SEED, fitted
from test_save_and_load import CENTRAL, with_secrets

from sklearn_dpgen.reporting import QualityReport, model_card

pytest.importorskip("matplotlib")

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def pages_of(estimator):
    """Return the texts that somebody may publish of an estimator."""
    card = model_card(estimator)
    report = QualityReport.from_estimator(estimator, n_samples=30)
    return [
        report.to_html(),
        report._repr_html_(),
        card.to_html(),
        card.to_markdown(),
        card.to_json(),
        card._repr_html_(),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(FITS))
def test_every_estimator_has_pages(name):
    estimator = fitted(name)
    report, card = QualityReport.from_estimator(estimator, n_samples=30), model_card(estimator)
    json.dumps(report.to_dict()["figures"], allow_nan=False)
    page = report.to_html()
    assert len(page.encode("utf-8")) < 2_000_000
    assert 'id="certificate"' in page
    assert (
        json.loads(card.to_json())["privacy"]["epsilon"] == estimator.privacy_.to_dict()["epsilon"]
    )


def found_secrets(texts):
    planted = [SECRET_NAME, str(SECRET_SEED), "secret-ledger", *map(repr, FRAME["a"].tolist())]
    return {secret for secret in planted for text in texts if secret in text}


# Each reads the same attributes of all: some stand for the others.
@pytest.mark.slow
@pytest.mark.parametrize("name", CENTRAL[::3])
def test_pages_hold_no_record_id_seed_or_ledger(name, tmp_path):
    assert found_secrets(pages_of(with_secrets(name, tmp_path))) == set()


@pytest.mark.slow
def test_a_page_that_holds_a_secret_is_caught(tmp_path, monkeypatch):
    from sklearn_dpgen.reporting import _model_card

    monkeypatch.setattr(_model_card, "_NOT_SHOWN", frozenset())
    estimator = with_secrets(CENTRAL[0], tmp_path)
    assert str(SECRET_SEED) in found_secrets(pages_of(estimator))


@pytest.mark.slow
def test_predictors_have_a_certificate_alone():
    for name in ("synthetic classifier", "barycenter classifier"):
        case = CASES[name]
        estimator = case.fit(FRAME[list(case.columns)], FRAME["b"].to_numpy(), case.estimator)
        assert 'id="columns"' not in QualityReport.from_estimator(estimator).to_html()
