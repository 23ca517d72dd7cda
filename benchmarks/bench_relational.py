"""Persons with several rows: RelationalSampler beside what could be done without it.

::

    python benchmarks/bench_relational.py --tables rwm5yr nlswork --epsilons 1 --seeds 3
    python benchmarks/bench_relational.py --environments environments --against all
    python benchmarks/bench_relational.py --public --persons 500 1000 --seeds 5 \\
        --name relational_public

Distances are those of `row_distances`, of the synthetic rows to those of held-out persons
(``--against held-out``, 30 percent of them), to those that were fitted (``fitted``), or of a fit to
all persons to all of them (``all``). Neighbours differ by adding or removing a person with all
rows, delta is 1e-5.

- "real": the fitted persons themselves, and "real half": half of them;
- "shuffled": the fitted rows, each given to the place of another, which keeps its person and index;
- "independent rows": `TableSampler` with ``unit``, for 90 percent of epsilon, and a noisy histogram
  of the numbers of rows; rows with similar static columns are given to one person;
- "flattened": `TableSampler` on one row a person, with a column for each column and row, of as many
  first rows as give 60 columns, or "by index" with one for each column and value of the index,
  where there are few;
- "dpsynth", and "dpsynth MST" with all slots: its relational synthesis, on codes in public bins.

With ``--public`` some persons are public (`CUTS`: those without a degree, white women), and the
private ones are all others:

- "public rows": the public persons as they are;
- "with public": `RelationalSampler` with the public tables, "with public, no keys" with their
  columns alone, and "with wrong public" with each of their columns shuffled.

All but the first two and `RelationalSampler` need a single child table or a panel. Seconds are CPU
time of fit and sample. TPC-H has relative errors of counting queries too: each counts the rows of
a join of the three tables in a random part of the range or the labels of three columns, one of each
table; errors are relative to the true count, or to 0.1 percent of the rows if it is less.
"""

import argparse
import time
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
from _common import record
from _peers import RELATIONAL, fit, versions
from _registry import public_bins
from _relational_tables import CUTS, NEXT_ROW, TABLES, cut_persons, keep_persons
from _tables import DELTA, summarize
from sklearn.ensemble import HistGradientBoostingClassifier
from threadpoolctl import threadpool_limits

from sklearn_dpgen.metrics import next_row_score, row_distances
from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.schema import Categorical, Datetime, Numeric, Ordinal, Schema
from sklearn_dpgen.tables import TableSampler
from sklearn_dpgen.tables._records import encode_codes

TEST = 0.3
# The share of epsilon for the numbers of rows, of independent rows.
SIZES = 0.1
# More columns of a flattened table take minutes.
MOST_COLUMNS = 60
N_QUERIES, LEAST = 500, 0.001
# What tells the results apart, but for seeds.
CASE = ("table", "persons", "view", "model", "epsilon")
# Why a model has no result.
NOT_HERE = "is not applicable or not installed"


def split(data, against):
    """Return the tables to fit, and those to compare with."""
    root = data.schema[data.schema.root]
    persons = data.tables[data.schema.root][root.primary_key].drop_duplicates()
    if against == "all":
        return data.tables, data.tables
    test = persons.sample(frac=TEST, random_state=0)
    train = keep_persons(data.tables, data.schema, persons[~persons.isin(test)])
    return train, train if against == "fitted" else keep_persons(data.tables, data.schema, test)


def real(data, tables, epsilon, seed, args, *, share=1.0):
    """Return the real rows of some persons."""
    root = data.schema[data.schema.root]
    persons = tables[data.schema.root][root.primary_key].drop_duplicates()
    chosen = persons.sample(frac=share, random_state=seed)
    kept = keep_persons(tables, data.schema, chosen)
    return {name: view.join(kept) for name, view in data.views.items()}


def shuffled(data, tables, epsilon, seed, args):
    """Return the rows given to others, without noise, but for the index."""
    name, view, frame = _single(data, tables)
    rows = [c for c in view.schema if c not in (view.index, *view.static)]
    frame, is_row = frame.copy(), _is_row(frame, view)
    order = np.random.default_rng(seed).permutation(is_row.sum())
    frame.loc[is_row, rows] = frame.loc[is_row, rows].iloc[order].set_axis(frame.index[is_row])
    return {name: frame}


def independent_rows(data, tables, epsilon, seed, args):
    """Return rows from `TableSampler`, given to persons of noisy numbers of rows."""
    name, view, frame = _single(data, tables)
    rng = np.random.default_rng(seed)
    sizes = frame.assign(is_row=_is_row(frame, view)).groupby(view.person)["is_row"].sum()
    bound = _max_rows(data)
    counts = np.bincount(sizes.clip(upper=bound), minlength=bound + 1).astype(float)
    # A person adds one to one count.
    counts += rng.laplace(scale=1 / (SIZES * epsilon), size=len(counts))
    shares = counts.clip(0, None) / counts.clip(0, None).sum()
    sizes = rng.choice(bound + 1, size=len(sizes), p=shares)
    sampler = _sampler(view.schema, (1 - SIZES) * epsilon, seed, unit=view.person)
    rows = frame.loc[_is_row(frame, view), [view.person, *view.schema]]
    made = sampler.fit(rows).sample(int(sizes.sum()), random_state=seed)
    static = [*view.static]
    if static:
        made = made.sort_values(static, ignore_index=True)
    made[view.person] = np.repeat(np.arange(len(sizes)), sizes)
    for column in static:
        made[column] = made.groupby(view.person)[column].transform("first")
    if view.index is None or not (sizes == 0).any():
        return {name: made}
    empty = pd.DataFrame({view.person: np.flatnonzero(sizes == 0)})
    return {name: pd.concat([made, empty])}


def flattened(data, tables, epsilon, seed, args, *, by_index=False):
    """Return rows from `TableSampler` on one row a person.

    There is a column for each column and row, the index among them, or ``by_index`` for each other
    column and value of the index.
    """
    name, view, frame = _single(data, tables)
    bound, values = _max_rows(data), _index_values(view)
    rows = [c for c in view.schema if c not in view.static]
    required = [c for c in rows if not view.schema[c].nullable and c != view.index]
    if view.index is None and not required:
        return None
    if by_index:
        if not required or values is None:
            return None
        rows.remove(view.index)
        slot = frame[view.index].map({value: place for place, value in enumerate(values)})
        bound = len(values)
    else:
        values = None
        frame = frame.sort_values([view.person, *([view.index] if view.index else [])])
        slot = frame.groupby(view.person).cumcount()
        bound = min(bound, (MOST_COLUMNS - len(view.static)) // len(rows))
    if len(rows) * bound + len(view.static) > MOST_COLUMNS:
        return None
    slots = {c: [f"{c} {place}" for place in range(bound)] for c in rows}
    columns = {c: view.schema[c] for c in view.static}
    columns |= {s: replace(view.schema[c], nullable=True) for c in rows for s in slots[c]}
    wide = frame.drop_duplicates(view.person).set_index(view.person)[[*view.static]]
    given = frame[slot < bound].assign(slot=slot)
    for c in rows:
        pivot = given.pivot(index=view.person, columns="slot", values=c)
        wide = wide.join(pivot.reindex(columns=range(bound)).set_axis(slots[c], axis=1))
    made = _sampler(Schema(columns), epsilon, seed).fit(wide).sample(len(wide), random_state=seed)
    parts = []
    for place in range(bound):
        part = made[[*view.static]].assign(**{c: made[slots[c][place]] for c in rows})
        if values is not None:
            part[view.index] = values[place]
        parts.append(part.assign(**{view.person: made.index}))
    long = pd.concat(parts, ignore_index=True)
    # There is a row where a column without nulls has a value, the index if it is a column.
    required = [c for c in rows if c in (view.index, *required)]
    presence = view.index if view.index in rows else required[0]
    long = long[long[presence].notna()].copy()
    rng = np.random.default_rng(seed)
    for c in required:
        known, is_null = long[c].dropna().to_numpy(), long[c].isna()
        long.loc[is_null, c] = rng.choice(known, size=is_null.sum())
    return {name: long}


def _index_values(view):
    """Return the values of the index, or None if it is no range of integers."""
    column = view.schema.get(view.index)
    if isinstance(column, Ordinal):
        return list(column.labels)
    if isinstance(column, Numeric) and column.integer and column.step in (None, 1):
        return list(range(int(column.low), int(column.high) + 1))
    return None


def dpsynth(data, tables, epsilon, seed, args, *, model):
    """Return rows from the relational synthesis of dpsynth, in an environment of its own."""
    if args.environments is None or versions("dpsynth", args.environments) is None:
        return None
    name, view, frame = _single(data, tables)
    static, rows = [*view.static], [c for c in view.schema if c not in view.static]
    if not static:
        return None
    is_row = _is_row(frame, view)
    # A person without rows has -1 in their columns.
    codes = pd.DataFrame(-1, index=frame.index, columns=[*static, *rows])
    codes.insert(0, view.person, pd.factorize(frame[view.person])[0])
    encoders, sizes = [], {}
    for names, chosen in ((static, is_row | True), (rows, is_row)):
        schema = Schema({c: view.schema[c] for c in names})
        encoder = TabularEncoder(schema, n_bins=public_bins(schema)).fit()
        found = encode_codes(frame.loc[chosen, names], encoder).columns
        codes.loc[chosen, names] = np.column_stack(found).astype(int)
        sizes |= {c: (column.n_categories, False) for c, column in encoder.columns_.items()}
        encoders.append(encoder)
    task = {"epsilon": epsilon, "delta": DELTA, "seed": seed, "sizes": sizes, "rows": rows}
    task |= {"person": view.person, "static": static, "max_rows": _max_rows(data)}
    made, result = fit(
        model,
        codes,
        task,
        environments=args.environments,
        limit=args.limit_s,
        memory=args.memory_gib,
        timeout=2 * args.limit_s,
    )
    if made is None:
        print(f"{model}: {result['failure']}")
        return None
    rng, is_row = np.random.default_rng(seed), made[rows[0]] >= 0
    first, second = (
        encoder.decode_codes(part, rng=rng).set_index(part.index)
        for encoder, part in zip(encoders, (made[static], made.loc[is_row, rows]), strict=True)
    )
    return {name: made[[view.person]].join(first).join(second)}, result["cpu seconds"]


def public_rows(data, tables, epsilon, seed, args):
    """Return the rows of the public persons."""
    if args.public_tables is None:
        return None
    return {name: view.join(args.public_tables) for name, view in data.views.items()}


def with_public(data, tables, epsilon, seed, args, *, keys=True, wrong=False):
    """Return what `RelationalSampler` draws with public tables, or with shuffled columns."""
    if args.public_tables is None:
        return None
    public, rng = {}, np.random.default_rng(seed)
    for name, frame in args.public_tables.items():
        table = data.schema[name]
        shuffled = [c for c in table.schema if wrong and c != table.sequence_index]
        frame = frame.assign(**{c: rng.permutation(frame[c].to_numpy()) for c in shuffled})
        public[name] = frame if keys else frame[[*table.schema]]
    return relational_sampler(data, tables, epsilon, seed, args, public=public)


def relational_sampler(data, tables, epsilon, seed, args, *, public=None):
    """Return what `RelationalSampler` draws."""
    try:
        from sklearn_dpgen.tables import RelationalSampler
    except ImportError:
        return None
    root, is_panel = data.schema.root, len(data.schema) == 1
    sampler = RelationalSampler(
        epsilon=epsilon,
        delta=DELTA,
        schema=data.schema[root] if is_panel else data.schema,
        neighbours="add_or_remove",
        random_state=seed,
        public=public,
    )
    n_persons = tables[root][data.schema[root].primary_key].nunique()
    sampler.fit(tables[root] if is_panel else tables)
    made = sampler.sample(n_persons, random_state=seed)
    made = {root: made} if is_panel else made
    return {name: view.join(made) for name, view in data.views.items()}


MODELS = {
    "real": real,
    "real half": partial(real, share=0.5),
    "shuffled": shuffled,
    "independent rows": independent_rows,
    "flattened": flattened,
    "flattened by index": partial(flattened, by_index=True),
    "RelationalSampler": relational_sampler,
    **{model: partial(dpsynth, model=model) for model in RELATIONAL},
}
BESIDE_PUBLIC = {
    "public rows": public_rows,
    "RelationalSampler": relational_sampler,
    "with public": with_public,
    "with public, no keys": partial(with_public, keys=False),
    "with wrong public": partial(with_public, wrong=True),
}
# Of these, several budgets are of no use.
WITHOUT_NOISE = ("real", "real half", "shuffled", "public rows")
TREES = ("real", "real half", *BESIDE_PUBLIC)


def _single(data, tables):
    ((name, view),) = data.views.items()
    return name, view, view.join(tables).reset_index(drop=True)


def _is_row(frame, view):
    """Return which rows are not those of a person without rows."""
    if view.index is None:
        rows = [c for c in view.schema if c not in view.static]
        return frame[rows].notna().any(axis=1)
    return frame[view.index].notna()


def _max_rows(data):
    (bound,) = (table.max_rows for table in data.schema.values() if table.max_rows is not None)
    return bound


def _sampler(schema, epsilon, seed, **options):
    return TableSampler(
        epsilon,
        DELTA,
        schema=schema,
        neighbours="add_or_remove",
        population_size=5_000,
        random_state=seed,
        device="cpu",
        **options,
    )


def distances(data, tables, made):
    """Return the distances of each view."""
    found = {}
    for name, view in data.views.items():
        frames = (view.join(tables), made[name])
        row = row_distances(
            *frames, view.schema, person=view.person, index=view.index, static=view.static
        )
        found[name] = {measure: float(value) for measure, value in row.items()}
    return found


def next_row_auc(name, view, tables, made):
    """Return the area under the curve of a predictor of the next row, fitted to synthetic rows."""
    target, transform = NEXT_ROW[name]
    return next_row_score(
        made,
        view.join(tables),
        view.schema,
        person=view.person,
        index=view.index,
        target=target,
        target_transform=transform,
        estimator=HistGradientBoostingClassifier(random_state=0),
    )


def query_errors(data, tables, made):
    """Return the mean and the median relative error of counting queries through all tables."""
    orders, lines = data.views["orders"], data.views["lines"]
    joined = [
        _all_tables(orders, lines, {"orders": orders.join(tables), "lines": lines.join(tables)}),
        _all_tables(orders, lines, made),
    ]
    persons = [frames[orders.person].nunique() for frames in (orders.join(tables), made["orders"])]
    rng, errors = np.random.default_rng(0), []
    groups = [
        [*orders.static],
        [c for c in orders.schema if c not in orders.static],
        [c for c in lines.schema if c not in lines.static],
    ]
    schema = dict(orders.schema) | dict(lines.schema)
    for _ in range(N_QUERIES):
        chosen = [(c, schema[c]) for c in (rng.choice(names) for names in groups)]
        parts = [_random_part(column, rng) for _, column in chosen]
        real_count, made_count = (
            np.logical_and.reduce(
                [is_in(frame[c]) for (c, _), is_in in zip(chosen, parts, strict=True)]
            ).sum()
            for frame in joined
        )
        made_count = made_count * persons[0] / persons[1]
        errors.append(abs(made_count - real_count) / max(real_count, LEAST * len(joined[0])))
    return {"query error": float(np.mean(errors)), "median error": float(np.median(errors))}


def _all_tables(orders, lines, made):
    """Return the rows of the join of all tables."""
    static = made["orders"][[lines.person, *orders.static]]
    return made["lines"].merge(static, on=lines.person).dropna(subset=[lines.index])


def _random_part(column, rng):
    """Return a test of whether values are in a random half of the labels or of the range."""
    if isinstance(column, Categorical | Ordinal):
        labels = list(column.labels)
        chosen = [labels[i] for i in rng.permutation(len(labels))[: -(-len(labels) // 2)]]
        return lambda values: values.isin(chosen).to_numpy()
    start = rng.uniform(0, 0.5)
    low, high = column.from_unit(np.array([2 * start - 1, 2 * start]))
    if isinstance(column, Datetime):
        low, high = pd.Timestamp(low), pd.Timestamp(high)
    return lambda values: values.between(low, high).to_numpy()


def run(name, args, n_persons):
    """Yield the results of all models on a table, a row for each view, budget and seed."""
    data, args.public_tables = TABLES[name](), None
    if args.public:
        args.public_tables, data = cut_persons(name, data)
    train, test = split(data, args.against)
    root = data.schema[data.schema.root].primary_key
    persons = train[data.schema.root][root].drop_duplicates()
    if n_persons is not None:
        persons = persons.sample(min(n_persons, len(persons)), random_state=0)
        train = keep_persons(train, data.schema, persons)
    for model in args.models:
        if len(data.views) > 1 and model not in TREES:
            continue
        for epsilon in [np.inf] if model in WITHOUT_NOISE else args.epsilons:
            for seed in range(args.seeds):
                start = time.process_time()
                made = (MODELS | BESIDE_PUBLIC)[model](data, train, epsilon, seed, args)
                seconds = time.process_time() - start
                if made is None:
                    print(f"{name}: {model} {NOT_HERE}")
                    break
                if isinstance(made, tuple):
                    made, seconds = made
                found = distances(data, test, made)
                if name in NEXT_ROW:
                    ((view, frame),) = made.items()
                    found[view]["AUC next row"] = next_row_auc(name, data.views[view], test, frame)
                if "lines" in made:
                    found["lines"] |= query_errors(data, test, made)
                for view, row in found.items():
                    yield {
                        "table": name,
                        "persons": len(persons),
                        "view": view,
                        "model": model,
                        "epsilon": float(epsilon),
                        "seed": seed,
                        "cpu seconds": seconds,
                        **row,
                    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    every = MODELS | BESIDE_PUBLIC
    parser.add_argument("--tables", nargs="+", choices=TABLES)
    parser.add_argument("--models", nargs="+", choices=every)
    parser.add_argument("--public", action="store_true", help="with some persons that are public")
    parser.add_argument("--epsilons", nargs="+", type=float, default=[1.0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--persons", nargs="+", type=int, help="fit so many persons; default all")
    parser.add_argument("--name", default="relational", help="name of the record")
    parser.add_argument("--against", default="held-out", choices=["held-out", "fitted", "all"])
    parser.add_argument("--environments", help="folder of the environments of peers")
    parser.add_argument("--limit-s", type=int, default=900, help="CPU seconds of a peer's fit")
    parser.add_argument("--memory-gib", type=float, default=8, help="memory of a peer's fit")
    args = parser.parse_args()
    args.tables = args.tables or list(CUTS if args.public else TABLES)
    args.models = args.models or list(BESIDE_PUBLIC if args.public else MODELS)
    rows = []
    with threadpool_limits(1):
        for name in args.tables:
            found = [row for n in args.persons or [None] for row in run(name, args, n)]
            if found:
                rows += summarize(found, by=CASE)
                _show(found)
    meta = {"delta": DELTA, "against": args.against, "seeds": args.seeds, "public": args.public}
    record(args.name, rows, meta)


def _show(rows):
    frame = pd.DataFrame(rows).drop(columns="seed")
    means = frame.groupby([*CASE], sort=False).mean()
    with pd.option_context("display.width", 250, "display.max_columns", None):
        print(means.round(3), flush=True)


if __name__ == "__main__":
    main()
