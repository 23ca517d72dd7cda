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
"""

import argparse
import multiprocessing
import resource
import time
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from _common import record
from threadpoolctl import threadpool_limits

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


def synthetic(method, frame, labels, epsilon, seed):
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


def compare(law, epsilons, n_seeds, methods):
    """Return the rows of a table of scores."""
    frame, labels = simulated(law)
    print(f"{len(labels)} codes, {law.n_chapters} chapters, {law.n} records")
    rows = []
    for epsilon in epsilons:
        for method in methods:
            found = []
            for seed in range(n_seeds):
                start = time.perf_counter()
                drawn = synthetic(method, frame, labels, epsilon, seed)
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
    methods = ["hierarchy", "flat", "chapters", "resampled", "shuffled"]
    parser.add_argument("--methods", nargs="*", default=methods)
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
    laws = CHOOSE if args.choose else REPORT
    with threadpool_limits(1):
        rows = [
            {"table": law.seed} | row
            for law in laws
            for row in compare(law, args.epsilons, args.seeds, args.methods)
        ]
    name = "hierarchies_choice" if args.choose else "hierarchies"
    meta = {"laws": [law._asdict() for law in laws], "seeds": args.seeds, "delta": DELTA}
    record(name, rows, meta)


if __name__ == "__main__":
    main()
