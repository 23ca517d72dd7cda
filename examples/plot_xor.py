r"""
Dependence of three columns
===========================

This example shows that a private sampler finds a dependence of three columns that no pair of
columns shows. In an exclusive or, each of two columns alone tells nothing about a third, and both
together determine it. Synthetic rows from counts of pairs alone cannot have this dependence.
:class:`~sklearn_dpgen.tables.TableSampler` selects marginals of three to seven columns
privately, without being told which; :doc:`/tables` describes how.
"""

# %%
# A table with two dependences
# ----------------------------
# There are nine columns. The sign of ``u * v`` determines ``sign``, except for one record in
# twenty; neither ``u`` nor ``v`` alone tells anything about it. A sine of ``x`` determines
# ``wave``: that is a dependence of two columns, which wide bins of ``x`` would hide. Four columns
# are independent of everything. Public are the bounds, the labels and the number of records. No fit
# has a seed.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from sklearn_dpgen.schema import Categorical, Numeric, Schema
from sklearn_dpgen.tables import TableSampler

rng = np.random.default_rng()
n = 30_000
u, v = rng.uniform(-1, 1, (2, n))
x = rng.uniform(0, 1, n)
records = pd.DataFrame(
    {
        "u": u,
        "v": v,
        "sign": ((u * v > 0) ^ (rng.uniform(size=n) < 0.05)).astype(int),
        "x": x,
        "wave": (np.sin(20 * x) > 0).astype(int),
        **{f"other {i}": rng.integers(4, size=n) for i in range(4)},
    }
)
schema = Schema(
    {
        "u": Numeric(-1, 1),
        "v": Numeric(-1, 1),
        "sign": Categorical([0, 1]),
        "x": Numeric(0, 1),
        "wave": Categorical([0, 1]),
        **{f"other {i}": Categorical(range(4)) for i in range(4)},
    }
)

# %%
# Three fits with the same budget
# -------------------------------
# The first fit counts pairs alone, in 7 bins. The second is the default. The third names the
# columns that are to be predicted as ``target``. Which marginals of three and more columns are
# counted is selected privately, by how far each is from what the fit of the pairs expects, beyond
# noise and chance. The same budget pays for the selection.

options = {
    "pairs in 7 bins": {"marginals": "pairs", "n_bins": 7},
    "default": {},
    "target": {"target": ["sign", "wave"]},
}
samplers = {
    name: TableSampler(1.0, 1e-6, schema=schema, **given).fit(records)
    for name, given in options.items()
}
for name, sampler in samplers.items():
    larger = [part for part in sampler.marginals_ if len(part.columns) > 2]
    print(f"{name}: {len(sampler.marginals_) - len(larger)} pairs, {len(larger)} larger marginals")
    for part in larger[:3]:
        shape = " x ".join(map(str, part.counts.shape))
        print(f"    {', '.join(part.columns)}: {shape} cells, noise of {part.noise_scale:.0f}")
print(samplers["default"].privacy_)

# %%
# Real and synthetic records
# --------------------------
# The upper row has the share of ``sign`` = 1 in squares of ``u`` and ``v``. The lower row has the
# share of ``wave`` = 1 along ``x``, with real records in grey.

tables = {"real records": records} | {name: sampler.sample(n) for name, sampler in samplers.items()}
squares, cells = np.linspace(-1, 1, 25), np.linspace(0, 1, 101)


def share(of, *by, bins):
    hits, _ = np.histogramdd(by, bins, weights=of)
    return hits / np.maximum(np.histogramdd(by, bins)[0], 1)


def lines(frame):
    return share(frame["wave"], frame["x"], bins=[cells])


figure, axes = plt.subplots(
    2, 4, figsize=(11, 5.4), layout="constrained", sharex="row", sharey="row", height_ratios=[2, 1]
)
for (above, below), (name, frame) in zip(axes.T, tables.items(), strict=True):
    agrees = (frame["sign"] == (frame["u"] * frame["v"] > 0)).mean()
    found = share(frame["sign"], frame["u"], frame["v"], bins=[squares, squares])
    mesh = above.pcolormesh(squares, squares, found.T, cmap="PuOr", vmin=0, vmax=1)
    above.set_title(f"{name}\nfollows u v in {agrees:.3f}", loc="left", fontsize=10)
    above.set(xlabel="u", aspect="equal", xticks=[-1, 0, 1], yticks=[-1, 0, 1])
    agrees = (frame["wave"] == (np.sin(20 * frame["x"]) > 0)).mean()
    below.stairs(lines(records), cells, fill=True, color="0.85")
    below.stairs(lines(frame), cells, color="#004488")
    below.set_title(f"follows the wave in {agrees:.3f}", loc="left", fontsize=10)
    below.set(xlabel="x", ylim=(0, 1.05), xticks=[0, 0.5, 1])
    below.spines[["top", "right"]].set_visible(False)
axes[0, 0].set_ylabel("v")
axes[1, 0].set_ylabel("share of wave = 1")
figure.colorbar(mesh, ax=axes[0], label="share of sign = 1", pad=0.01)
plt.show()
