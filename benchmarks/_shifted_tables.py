"""Tables with a public source and a private target that differ by a known kind of shift.

Each table is cut at random into a source and a target, and the target is changed:

- *none*: it is not.
- *labels*: of one label three quarters are left out: of the rarer one, or where that is rarer than
  three in ten of the commoner one. Records of a label keep their distribution.
- *sampling*: a record is kept in the source with probability s(-z), and in the target with s(z), s
  the logistic function and z the first principal component over its standard deviation. The
  distribution of labels given a record is kept.
- *drift*: numbers of the target are shrunk by 0.8 about their mean, and moved by a standard
  deviation, up or down in turns. Labels keep their distribution.

Two thirds of the target are private records, the rest are to test on. Settings are chosen on the
tables of `CHOOSE`, with labels, and results are of `REPORT`.
"""

from functools import cache, partial

import numpy as np
from _domains import Task
from _public_pairs import PAIRS
from _tables import TABLES

from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.schema import Categorical, Numeric, Ordinal, Schema

__all__ = ["CHOOSE", "KINDS", "REPORT", "load_shifted"]

MOST_ROWS = 20_000
# Of columns with more labels, the code of the label is a number.
MOST_LABELS = 20
KINDS = ("none", "labels", "sampling", "drift")
# Tables of 4000 records or more and at most 100 encoded columns, by the roles that the registry
# gave them before.
CHOOSE = ("cps1988", "fair", "fertility", "insteval", "mlc_churn", "nmes1988", "tv16")
REPORT = (
    "adult", "rand health", "cpssw8", "default", "diamonds", "doctor_visits", "flights",
    "lending_club", "psid7682", "wa_churn",
)  # fmt: skip


@cache
def _encoded(name):
    """Return encoded records, labels, which columns are numbers, and the domain."""
    if name == "diamonds":
        pair = PAIRS[name]()
        frame, schema, target = pair.public, pair.schema, pair.target
        positive = np.asarray(frame[target] == pair.positive)
    else:
        table = TABLES[name]()
        frame, schema, target = table.frame, table.schema, table.target
        positive = np.asarray(table.is_positive(frame[target]))
    if len(frame) > MOST_ROWS:
        rows = np.random.default_rng(0).permutation(len(frame))[:MOST_ROWS]
        frame, positive = frame.iloc[rows], positive[rows]
    frame = frame.reset_index(drop=True)
    columns = {}
    for column, kind in schema.items():
        if column == target:
            continue
        if isinstance(kind, Categorical | Ordinal) and len(kind.labels) > MOST_LABELS:
            frame[column] = kind.codes(frame[column])
            kind = Numeric(0, len(kind.labels), integer=True)
        columns[column] = kind
    encoder = TabularEncoder(Schema(columns))
    X = np.asarray(encoder.fit_transform(frame[list(columns)]), dtype=np.float64)
    numbers = [
        encoder.blocks_[column].start
        for column, kind in columns.items()
        if not isinstance(kind, Categorical | Ordinal)
    ]
    return X, positive.astype(int), numbers, encoder.domain_


def load_shifted(name, kind, seed):
    """Return a table with a kind of shift as a Task; the seed cuts it."""
    X, y, numbers, domain = _encoded(name)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(X))
    source, target = np.array_split(order, 2)
    X = X.copy()
    if kind == "labels":
        share = y.mean()
        rarer = int(share < 0.5)
        fewer = rarer if min(share, 1 - share) >= 0.3 else 1 - rarer
        target = target[(y[target] != fewer) | (rng.random(len(target)) < 0.25)]
    elif kind == "sampling":
        z = _first_component(X)
        chance = 1 / (1 + np.exp(-z))
        source = source[rng.random(len(source)) > chance[source]]
        target = target[rng.random(len(target)) < chance[target]]
    elif kind == "drift":
        signs = np.where(np.arange(len(numbers)) % 2, -1.0, 1.0)
        Z, own = X[:, numbers], X[np.ix_(target, numbers)]
        X[np.ix_(target, numbers)] = (
            Z.mean(axis=0) + 0.8 * (own - Z.mean(axis=0)) + signs * Z.std(axis=0)
        )
        X = domain.project(X)
    cut = len(target) * 2 // 3
    private, test = target[:cut], target[cut:]
    whole = partial(_same, domain)
    return Task((X[source], y[source]), X[private], (X[test], y[test]), whole)


def _same(domain, n_features):
    return domain


def _first_component(X):
    spread = X.std(axis=0)
    Z = (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    z = Z @ np.linalg.svd(Z, full_matrices=False)[2][0]
    # The sign of a principal component is arbitrary.
    z *= np.sign(np.mean(z**3)) or 1.0
    return z / z.std()
