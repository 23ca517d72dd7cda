"""What a notebook shows of reports, risks, ledgers and estimators: escaped, with the guarantee."""

import math
import os
import re
from html.parser import HTMLParser

import numpy as np
import pytest
import sklearn

from sklearn_dpgen.accounting import AttackRisk, GaussianProfile, LaplaceProfile, PrivacyReport
from sklearn_dpgen.domains import Box
from sklearn_dpgen.ledger import PrivacyLedger
from sklearn_dpgen.mechanisms import LaplaceMechanism
from sklearn_dpgen.utils._random import SEEDED

HOSTILE = "<script>alert(1)</script>"


class Reader(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        assert not [name for name, _ in attrs if name.startswith("on") or name in ("src", "href")]

    def handle_data(self, data):
        self.text += data


def report(**changes):
    fields = {"name": HOSTILE, "events": (), "epsilon": 1.0, "delta": 1e-5, "unit": HOSTILE}
    return PrivacyReport(**fields | changes)


def test_a_report_shows_what_its_text_says():
    part = report(name="a part")
    whole = report(unit=HOSTILE, parts=(part,), releases=((GaussianProfile(0.3), 1),))
    found = Reader(whole._repr_html_())
    assert "script" not in found.tags
    for label, text in whole.to_rows():
        assert label in found.text
        assert text in found.text
    assert "(ε, δ) = (1, 1e-05)" in found.text
    assert "a part" in found.text
    assert "SEEDED" not in found.text


def test_the_rows_of_a_report_are_those_of_its_text():
    whole = report(unit="patient", sensitivity=1.0, noise_scale=2.0)
    text = " ".join(str(whole).split())
    for label, row in whole.to_rows():
        assert f"{label} {' '.join(row.split())}" in text


def test_a_seeded_report_says_so():
    mechanism = LaplaceMechanism(1.0, domain=Box(0, 1), random_state=0).fit(np.zeros((3, 1)))
    assert "SEEDED" in mechanism.privacy_._repr_html_()
    assert "SEEDED" in mechanism._repr_html_()


@pytest.mark.parametrize("profile", [GaussianProfile(0.3), LaplaceProfile(0.5), None])
def test_a_risk_shows_its_bounds(profile):
    risk = AttackRisk(profile)
    found = Reader(risk._repr_html_())
    for what, much in risk.to_rows():
        assert what in found.text
        assert much in found.text
    # No bound is rounded down.
    shown = float(dict(risk.to_rows())["advantage over guessing"].split()[2])
    assert risk.advantage <= shown / 100 + 1e-9
    assert math.isclose(risk.advantage, shown / 100, abs_tol=1e-4)


def test_a_ledger_shows_charges_and_what_is_spent(tmp_path):
    ledger = PrivacyLedger.create(tmp_path / "ledger", dataset=HOSTILE, epsilon=3.0, delta=1e-4)
    empty = Reader(ledger.report()._repr_html_())
    assert "of ε = 3 is spent" in empty.text
    ledger.reserve(report(releases=((GaussianProfile(0.2), 1),)), what=HOSTILE)
    found = Reader(ledger.report()._repr_html_())
    assert "script" not in found.tags
    assert HOSTILE in found.text
    assert f"{ledger.report().spent:.4g} of ε = 3" in found.text
    assert ledger._repr_html_() == ledger.report()._repr_html_()
    # A bar for the whole, and one for the charge.
    assert ledger._repr_html_().count('class="meter"') == 2
    assert repr(ledger.report()).startswith(f"<LedgerReport of {HOSTILE!r}: epsilon ")
    assert repr(ledger.report()).endswith("of 3 spent by 1 charge>")
    os.unlink(ledger.path)
    assert "PrivacyLedger" in Reader(ledger._repr_html_()).text


def test_a_fitted_estimator_shows_its_guarantee_below_that_of_scikit_learn():
    mechanism = LaplaceMechanism(1.0, domain=Box(0, 1))
    before = mechanism._repr_html_()
    assert "LaplaceMechanism" in before
    assert "ε" not in before
    mechanism.fit(np.zeros((3, 1)))
    for text in (mechanism._repr_html_(), mechanism._repr_mimebundle_()["text/html"]):
        assert text.count("(ε, δ) = (1, 0), local model") == 1
        assert "LaplaceMechanism" in text
    with sklearn.config_context(display="text"):
        assert set(mechanism._repr_mimebundle_()) == {"text/plain"}
        assert not hasattr(mechanism, "_repr_html_")


def test_a_ledger_of_many_charges_has_a_bar_for_the_last_ones(tmp_path):
    ledger = PrivacyLedger.create(tmp_path / "ledger", dataset="d", epsilon=3.0, delta=1e-4)
    for i in range(15):
        ledger.reserve(report(releases=((GaussianProfile(0.02), 1),)), what=f"fit {i}")
    found = ledger._repr_html_()
    assert found.count('class="meter"') == 1 + 1 + 12
    assert "3 earlier charges" in found
    assert "charge 15: fit 14" in found
    shares = [float(x) for x in re.findall(r"width:([\d.]+)%", found)]
    # All charges are equal: three earlier ones have three times the bar of one.
    assert shares[1] == pytest.approx(3 * shares[2], rel=0.01)


def test_a_plan_says_what_it_is_in_a_line():
    text = repr(report(unit="patient"))
    assert "(epsilon, delta) = (1, 1e-05), replace one person" in text
    assert "SEEDED" not in text
    assert repr(report(noise_source=SEEDED)).startswith("<SEEDED ")
