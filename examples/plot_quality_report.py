"""
Reports that can be shown
=========================

A synthetic table is handed over with two pages: a report, which says how good it is, and a model
card, which says what is guaranteed. Both are single files of HTML, and the pictures in them can be
drawn by themselves. The table is the RAND Health Insurance Experiment.
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt

from sklearn_dpgen.datasets import load_rand_health
from sklearn_dpgen.inspection import (
    MarginalDisplay,
    PairDisplay,
    QualityReport,
    TradeOffDisplay,
    model_card,
)
from sklearn_dpgen.schema import Schema
from sklearn_dpgen.tables import SlicedMeasureSampler

parser = argparse.ArgumentParser(description="Reports, a model card, and their pictures.")
parser.add_argument("--output", type=Path, help="write the pages here")
output = parser.parse_args().output

health = load_rand_health()
columns = ["mdvis", "disea", "physlm", "idp", "hlthp"]
records = health.frame[columns]
schema = Schema({name: health.schema[name] for name in columns})
sampler = SlicedMeasureSampler(epsilon=1.0, delta=1e-6, schema=schema, target="hlthp")
synthetic = sampler.fit(records).sample(len(records))

# %%
# For those who may see the records
# ---------------------------------
# The first report compares the synthetic table with the records. It is not private, and says so.

inside = QualityReport(records, synthetic, privacy=sampler.privacy_, schema=schema, target="hlthp")
for line in inside.to_dict()["words"]:
    print("-", line)

# %%
# For everybody
# -------------
# The second is made of the noisy counts that were released, and of synthetic records. It is as
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
# The pictures by themselves
# --------------------------
# Of one column: what was released, with two standard deviations of the noise, and what is drawn
# from the law that was fitted to it. Of two columns: the difference, which is mostly noise. And
# what the best attacker can do.

figure, axes = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
MarginalDisplay.from_estimator(sampler, "mdvis", ax=axes[0])
PairDisplay.from_estimator(sampler, ("mdvis", "hlthp"), ax=axes[1])
TradeOffDisplay.from_reports(sampler.privacy_, ax=axes[2])
axes[2].set_title("what an attacker finds")
plt.show()
