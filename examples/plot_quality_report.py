"""
A quality report and a model card
=================================

This example makes the two pages that are handed over with a synthetic table: a report, which says
how good the table is, and a model card, which says what is guaranteed. Both are single HTML files,
and their pictures can be drawn by themselves. The table is the RAND Health Insurance Experiment;
:doc:`/reports` describes both pages.
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt

from sklearn_dpgen.datasets import load_rand_health
from sklearn_dpgen.reporting import (
    MarginalDisplay,
    PairDisplay,
    QualityReport,
    TradeOffDisplay,
    model_card,
)
from sklearn_dpgen.schema import Schema
from sklearn_dpgen.tables import TableSampler

parser = argparse.ArgumentParser(description="Reports, a model card, and their pictures.")
parser.add_argument("--output", type=Path, help="write the pages here")
output = parser.parse_args().output

health = load_rand_health()
columns = ["mdvis", "disea", "physlm", "idp", "hlthp"]
records = health.frame[columns]
schema = Schema({name: health.schema[name] for name in columns})
sampler = TableSampler(epsilon=1.0, delta=1e-6, schema=schema, target="hlthp")
synthetic = sampler.fit(records).sample(len(records))

# %%
# A report for those who may see the records
# ------------------------------------------
# This report compares the synthetic table with the records. It is not private, and says so.

inside = QualityReport(records, synthetic, privacy=sampler.privacy_, schema=schema, target="hlthp")
for line in inside.to_dict()["words"]:
    print("-", line)

# %%
# A report and a model card for everybody
# ---------------------------------------
# This report is made from the released noisy counts and from synthetic records alone. It is as
# private as they are. The model card may be published with it.

outside = QualityReport.from_estimator(sampler)
for line in outside.to_dict()["words"]:
    print("-", line)
card = model_card(sampler, title="Visits to doctors", description="Synthetic survey of a year.")
if output is not None:
    output.mkdir(parents=True, exist_ok=True)
    inside.to_html(output / "report_not_private.html")
    outside.to_html(output / "report.html")
    card.save(output / "card.html")

# %%
# The pictures
# ------------
# *Left:* one column, the visits to a doctor. Bars are the released counts, with two standard
# deviations of the noise; points are the counts of synthetic rows. *Middle:* the difference of the
# two for a pair of columns, which is mostly noise. *Right:* what the best attacker can find.

figure, axes = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
MarginalDisplay.from_estimator(sampler, "mdvis", ax=axes[0])
PairDisplay.from_estimator(sampler, ("mdvis", "hlthp"), ax=axes[1])
TradeOffDisplay.from_reports(sampler.privacy_, ax=axes[2])
axes[0].set(title="one column", xlabel="mdvis: visits to a doctor")
axes[1].set(ylabel="mdvis: visits to a doctor", xlabel="hlthp: in poor health")
axes[1].set_title("a pair: synthetic minus released")
axes[2].set_title("what the best attacker finds")
plt.show()
