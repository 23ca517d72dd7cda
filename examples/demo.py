"""
One survey, two promises: ``make demo`` writes one page with everything that leaves a fit.

A health survey becomes synthetic rows twice: by a curator who is trusted with the rows, and without
anybody who sees one. Beside the page are both tables, their models, reports and cards. Raw rows are
used to fit, and to show how well it went: the pictures' left panels and the scores are not private.
"""

import argparse
import base64
import io
import time
from html import escape
from pathlib import Path
from string import Template

import matplotlib as mpl
import numpy as np
import pandas as pd
import torch
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import train_test_split

from sklearn_dpgen.datasets import load_rand_health
from sklearn_dpgen.mechanisms import JointRandomizedResponse, TabularMechanism
from sklearn_dpgen.metrics import marginal_total_variation, train_synthetic_test_real
from sklearn_dpgen.reporting import QualityReport, model_card
from sklearn_dpgen.schema import Schema
from sklearn_dpgen.tables import LocalTableSampler, TableSampler

CENTRAL_EPSILON, LOCAL_EPSILON, DELTA = 1.0, 4.0, 1e-6
COLUMNS = ["mdvis", "disea", "physlm", "hlthg", "hlthf", "hlthp"]
# Tables that are drawn from each model for the scores, at no cost.
N_DRAWS = 3
# Public: the question is who has an index of diseases above 12, and the index has a scale.
BINS = {
    "mdvis": [0, 1, 2, 3, 4, 6, 9, 24],
    "disea": [0, 3, 6, 9, 12, 15, 20, 60],
    "physlm": [0, 0.05, 0.95, 1],
}
PAIR = ("mdvis", "disea")


def fit_central(rows, schema, epsilon):
    """Return a sampler of a curator who may see the rows."""
    return TableSampler(epsilon, DELTA, schema=schema, target="disea").fit(rows)


def fit_local(rows, schema, epsilon):
    """Return a sampler of answers that were randomized one by one, and the answers."""
    mechanism = JointRandomizedResponse(
        epsilon, schema=schema, n_bins=BINS, always=("disea",)
    ).fit()
    answers = mechanism.transform(rows)
    return LocalTableSampler().fit(answers), answers


def central_panels(sampler, rows, synthetic):
    """Return the edges of the counted cells, with counts of rows, noisy ones, of synthetic rows."""
    (released,) = (part for part in sampler.marginals_ if part.columns == PAIR)
    edges = []
    for name, groups in zip(PAIR, released.groups, strict=True):
        starts = np.flatnonzero(np.diff(groups, prepend=-1))
        edges.append(np.append(sampler.bins_[name][starts], sampler.bins_[name][-1]))
    return edges, [count(rows, edges), released.counts, count(synthetic, edges)]


def local_panels(sampler, answers, rows, synthetic):
    """Return the edges of public cells, with counts of rows, of answers, of synthetic rows."""
    edges = [BINS[name] for name in PAIR]
    return edges, [
        count(rows, edges),
        face_value(sampler.mechanism_, answers),
        count(synthetic, edges),
    ]


def count(frame, edges):
    return np.histogram2d(*(frame[name] for name in PAIR), edges)[0]


def face_value(mechanism, answers):
    """Count the cells that answers about the pair stand for, each divided among its cells."""
    encoder = mechanism.encoder_
    encoded = mechanism.encode_release(answers)
    numbers = [list(encoder.columns_).index(name) for name in PAIR]
    about_both = np.all([(encoded[:, 4:] == k).any(axis=1) for k in numbers], axis=0)
    shape = [len(BINS[name]) - 1 for name in PAIR]
    cells = np.zeros((np.prod(shape), max(block.stop for block in encoder.blocks_.values())))
    for name, place in zip(PAIR, np.indices(shape), strict=True):
        cells[np.arange(len(cells)), encoder.blocks_[name].start + place.ravel()] = 1
    likelihood = mechanism.log_likelihood(
        torch.as_tensor(cells), torch.as_tensor(encoded[about_both])
    ).numpy()
    stands_for = likelihood > likelihood.mean(axis=0)
    return (stands_for / stands_for.sum(axis=0)).sum(axis=1).reshape(shape)


def draw(panels, titles):
    """Return a picture of three tables of counts, as a PNG."""
    edges, tables = panels
    figure = Figure(figsize=(12, 4), layout="constrained")
    axes = figure.subplots(1, 3, sharey=True)
    cmap = mpl.colormaps["viridis"].with_extremes(under="0.8")
    for ax, table, title in zip(axes, tables, titles, strict=True):
        ax.pcolormesh(table, cmap=cmap, norm=PowerNorm(0.4, vmin=0, vmax=table.max()))
        ax.set_title(title, loc="left", fontsize=13)
        for axis, starts, k in ((ax.yaxis, edges[0], 1), (ax.xaxis, edges[1], 2)):
            lows = np.ceil(starts) if axis is ax.yaxis else np.asarray(starts)
            axis.set_ticks(np.arange(0, len(lows), k), [f"{low:.3g}" for low in lows][::k])
        ax.set_xlabel("index of chronic diseases, from")
    axes[0].set_ylabel("visits to a doctor, from")
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=100)
    return file.getvalue()


def auc(table, held_out):
    """Train on a table, test on real rows that nobody used: an index of diseases above 12."""
    model = HistGradientBoostingClassifier(max_iter=60, random_state=0)
    return train_synthetic_test_real(
        model, table, held_out, target="disea", target_transform=lambda index: index > 12
    )


def score(tables, rows, held_out, schema):
    """Return the mean scores of tables: of a model, and of single columns."""
    distances = [marginal_total_variation(rows, table, schema).mean() for table in tables]
    return np.mean([auc(table, held_out) for table in tables]), np.mean(distances)


def write_files(folder, kind, sampler, synthetic, title):
    """Write what may leave a fit, and return its names with what they are."""
    names = {
        f"{kind}.csv": "synthetic rows",
        f"{kind}_report.html": "quality report, of what was released alone",
        f"{kind}_card.html": "model card",
        f"{kind}_privacy.txt": "what is guaranteed",
        f"{kind}.safetensors": "the model, without records or code",
    }
    table, report, card, privacy, model = (folder / name for name in names)
    synthetic.to_csv(table, index=False)
    sampler.save(model)
    report.write_text(QualityReport.from_estimator(sampler).to_html(), encoding="utf-8")
    card.write_text(model_card(sampler, title=title, file=model).to_html(), encoding="utf-8")
    privacy.write_text(f"{sampler.privacy_}\n", encoding="utf-8")
    return names


def html_table(frame):
    return frame.to_html(index=False, border=0, escape=True, float_format="{:.3g}".format)


def main(folder):
    start = time.perf_counter()
    folder.mkdir(parents=True, exist_ok=True)
    health = load_rand_health()
    schema = Schema({name: health.schema[name] for name in COLUMNS})
    rows, held_out = train_test_split(health.frame[COLUMNS], test_size=0.3, random_state=1)

    print("A curator counts, with noise ...")
    budgets = CENTRAL_EPSILON, LOCAL_EPSILON
    centrals = {epsilon: fit_central(rows, schema, epsilon) for epsilon in budgets}
    print("Nobody is trusted: each person sends one randomized answer ...")
    locals_ = {epsilon: fit_local(rows, schema, epsilon) for epsilon in budgets}
    central, (local, answers) = centrals[CENTRAL_EPSILON], locals_[LOCAL_EPSILON]
    tables = {"central": central.sample(len(rows)), "local": local.sample(len(rows))}
    randomized = TabularMechanism(LOCAL_EPSILON, schema=schema, n_bins=BINS).fit_transform(rows)

    print("Writing tables, models, reports and cards ...")
    files = {
        "central": write_files(
            folder, "central", central, tables["central"], "Health survey, by a curator"
        ),
        "local": write_files(
            folder, "local", local, tables["local"], "Health survey, nobody trusted"
        ),
    }
    answers.head(1000).to_csv(folder / "local_answers.csv", index=False)
    files["local"]["local_answers.csv"] = "the first thousand answers, as they were sent"

    scored = {"real rows, no privacy": [rows]}
    for epsilon in budgets:
        for who, sampler in (
            ("a curator", centrals[epsilon]),
            ("nobody trusted", locals_[epsilon][0]),
        ):
            drawn = [sampler.sample(len(rows)) for _ in range(N_DRAWS)]
            scored[f"synthetic, {who} at ε = {epsilon:g}"] = drawn
    scored[f"every column randomized by itself at ε = {LOCAL_EPSILON:g}"] = [randomized]
    figures = [score(found, rows, held_out, schema) for found in scored.values()]
    scores = pd.DataFrame(
        {
            "trained on": list(scored),
            "area under the ROC curve, real rows": [f"{area:.3f}" for area, _ in figures],
            "mean distance of a column to the real one": [f"{far:.3f}" for _, far in figures],
        }
    )
    pictures = {
        "central": draw(
            central_panels(central, rows, tables["central"]),
            [
                f"{len(rows):,} private rows",
                "what is published: noisy counts",
                f"{len(rows):,} synthetic rows",
            ],
        ),
        "local": draw(
            local_panels(local, answers, rows, tables["local"]),
            [
                "private rows, on their devices",
                "answers, at face value",
                f"{len(rows):,} synthetic rows",
            ],
        ),
    }
    fields = {
        "scores": html_table(scores),
        "n_rows": f"{len(rows):,}",
        "n_draws": str(N_DRAWS),
        "answers": html_table(answers.head(3)),
    }
    for kind, sampler in (("central", central), ("local", local)):
        data = base64.b64encode(pictures[kind]).decode("ascii")
        fields |= {
            f"{kind}_picture": f"data:image/png;base64,{data}",
            f"{kind}_rows": html_table(tables[kind].head(5)),
            f"{kind}_privacy": escape(str(sampler.privacy_)),
            f"{kind}_epsilon": f"{sampler.privacy_.epsilon:g}",
            f"{kind}_files": "\n".join(
                f'<li><a href="{name}">{name}</a>: {what}</li>'
                for name, what in files[kind].items()
            ),
        }
    template = Path(__file__).with_suffix(".html").read_text(encoding="utf-8")
    (folder / "index.html").write_text(Template(template).substitute(fields), encoding="utf-8")
    print(scores.to_string(index=False))
    print(f"\nOpen {folder / 'index.html'} ({time.perf_counter() - start:.0f} s)")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0].strip())
    parser.add_argument("--output", type=Path, default=Path("demo_out"), help="folder to write to")
    main(parser.parse_args().output)
