"""Counting all pairs of 15 columns: nanoseconds a record, what they are spent on, and two threads.

Compared are the tables one by one (``marginal_counts``), the joint tables of ``JointCounts``, and
the same two ways compiled by numba, where it is installed: codes of a block of records, then one
increment each. Times are CPU times of one thread, the least of several runs. Parts (--part):
``counting``, ``threads``, ``batches``.
"""

import argparse
import math
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, combinations, pairwise

import numpy as np
from _common import record

from sklearn_dpgen.tables._joint_counts import JointCounts, cover_tables
from sklearn_dpgen.tables._marginals import Marginal, marginal_counts

N_COLUMNS = 15
PAIRS = tuple(combinations(range(N_COLUMNS), 2))
MIXED = (2, 2, 2, 2, 2, 3, 5, 7, 9, 12, 16, 16, 42, 74, 96)
CASES = {str(size): (size,) * N_COLUMNS for size in (2, 4, 8, 16, 32, 64, 96)} | {"mixed": MIXED}


def records(sizes, n, *, is_skewed=False, seed=0):
    """Return columns of bytes: uniform, or half of the records in the first tenth of them."""
    rng = np.random.default_rng(seed)
    columns = (rng.beta(0.5, 2.0, n) if is_skewed else rng.random(n) for _ in sizes)
    return [(u * size).astype(np.uint8) for u, size in zip(columns, sizes, strict=True)]


def cpu_ns(fn, n, repeat):
    """Return the least CPU time of this thread a record."""
    fn()
    times = []
    for _ in range(repeat):
        start = time.thread_time()
        fn()
        times.append(time.thread_time() - start)
    return min(times) / n * 1e9


def copy_bandwidth(repeat):
    """Return the bytes read and written a nanosecond by a large copy."""
    source = np.ones(1 << 25)
    target = np.empty_like(source)
    return 2 / cpu_ns(lambda: np.copyto(target, source), source.nbytes, repeat)


def pair_marginals(sizes):
    groups = [np.arange(size) for size in sizes]
    return [Marginal(pair, tuple(groups[j] for j in pair)) for pair in PAIRS]


def compiled_counter():
    """Return a function that counts joint tables, compiled, or None without numba."""
    try:
        import numba
    except ImportError:
        return None

    @numba.njit(nogil=True)
    def begin(codes, first, column, size):
        for i in range(len(column)):
            codes[i] = np.uint16(first[i]) * size + np.uint16(column[i])

    @numba.njit(nogil=True)
    def join(codes, column, size):
        for i in range(len(column)):
            codes[i] = codes[i] * size + np.uint16(column[i])

    @numba.njit(nogil=True)
    def increment(counts, codes):
        for i in range(len(codes)):
            counts[codes[i]] += 1

    @numba.njit(nogil=True)
    def count(columns, sizes, stops, places, cells, counts, block):
        buffer = np.empty(block, np.uint16)
        n = columns.shape[1]
        for start in range(0, n, block):
            end = min(start + block, n)
            codes = buffer[: end - start]
            for t in range(len(stops) - 1):
                places_t = places[stops[t] : stops[t + 1]]
                first, second = columns[places_t[0], start:end], columns[places_t[1], start:end]
                begin(codes, first, second, sizes[places_t[1]])
                for j in places_t[2:]:
                    join(codes, columns[j, start:end], sizes[j])
                increment(counts[cells[t] : cells[t + 1]], codes)

    def prepared(columns, sizes, tables, block):
        stops = np.cumsum([0, *map(len, tables)])
        cells = np.cumsum([0, *(math.prod(sizes[j] for j in t) for t in tables)])
        places, counts = np.array([*chain(*tables)]), np.zeros(cells[-1], np.int64)
        columns, sizes = np.array(columns), np.array(sizes, np.uint16)
        return lambda: count(columns, sizes, stops, places, cells, counts, block)

    return prepared


def touched_bytes(sizes, tables):
    """Return what counting reads and writes a record, in whatever cache."""
    columns = len(sizes) * (1 + 1 + 2)
    joins = sum(6 * (len(t) - 1) for t in tables)
    # The codes are read for the least, the largest and the increments, of eight bytes.
    return columns + joins + len(tables) * (3 * 2 + 16)


def counting(options):
    compiled, bandwidth = compiled_counter(), copy_bandwidth(options.repeat)
    for name, sizes in CASES.items():
        for kind in ("uniform", "skewed", "weighted"):
            n = options.rows
            codes = records(sizes, n, is_skewed=kind == "skewed")
            weights = np.full(n, 1 << 26) if kind == "weighted" else None
            joint, marginals = JointCounts(sizes, PAIRS), pair_marginals(sizes)
            start = time.thread_time()
            cover_tables.__wrapped__(joint.sizes, joint.tables)
            planning = time.thread_time() - start
            before = [column[: n // 4] for column in codes]
            heavy = None if weights is None else weights[: n // 4]
            old = cpu_ns(lambda b=before, h=heavy, s=marginals: marginal_counts(b, s, h), n // 4, 2)
            new = cpu_ns(lambda j=joint, c=codes, w=weights: j.add(c, w), n, options.repeat)
            limits = {}
            for label, tables in (("pairs", PAIRS), ("joint", joint.blocks)):
                fits = compiled is not None and kind != "weighted"
                limits[f"numba {label}"] = (
                    min(
                        cpu_ns(compiled(codes, sizes, tables, block), n, options.repeat)
                        for block in (1 << 14, 1 << 16)
                    )
                    if fits
                    else None
                )
            yield {
                "part": "counting",
                "sizes": name,
                "records": kind,
                "marginal_counts ns": old,
                "JointCounts ns": new,
                **{f"{key} ns": value for key, value in limits.items()},
                "times faster": old / new,
                "ns a pair": new / len(PAIRS),
                "tables": len(joint.blocks),
                "cells": len(joint.vector),
                "increments a ns": len(joint.blocks) / new,
                "bytes of a record": N_COLUMNS,
                "bytes touched": touched_bytes(sizes, joint.blocks),
                "copy GB/s": bandwidth,
                "share of bandwidth, record": N_COLUMNS / new / bandwidth,
                "share of bandwidth, touched": touched_bytes(sizes, joint.blocks) / new / bandwidth,
                "planning s": planning,
            }


def threads(options):
    """Two batches, one after the other and in two threads: wall times, the least of many."""
    n = 1 << 16
    for name in ("2", "8", "16", "64", "mixed"):
        sizes = CASES[name]
        halves = [records(sizes, n, seed=seed) for seed in range(2)]
        marginals = pair_marginals(sizes)
        counters = [JointCounts(sizes, PAIRS) for _ in halves]
        ways = {
            "JointCounts": lambda i, c=counters, h=halves: c[i].add(h[i]),
            "marginal_counts": lambda i, h=halves, s=marginals: marginal_counts(h[i], s),
        }
        for way, count in ways.items():
            with ThreadPoolExecutor(2) as pool:
                one, two = _least_walls(
                    lambda c=count: [c(0), c(1)],
                    lambda c=count, p=pool: [*p.map(c, range(2))],
                    20 * options.repeat,
                )
            yield {
                "part": "threads",
                "sizes": name,
                "counted by": way,
                "one thread ns": one / n / 2 * 1e9,
                "two threads ns": two / n / 2 * 1e9,
                "speed-up": one / two,
            }


def _least_walls(first, second, repeat):
    """Return the least wall times of two functions in turns: what else runs disturbs both."""
    least = [math.inf, math.inf]
    for _ in range(repeat):
        for i, fn in enumerate((first, second)):
            time.sleep(0.02)
            start = time.perf_counter()
            fn()
            least[i] = min(least[i], time.perf_counter() - start)
    return least


def batches(options):
    """Batches of several lengths."""
    for name in ("8", "64", "mixed"):
        sizes, codes = CASES[name], records(CASES[name], options.rows)
        for length in (1 << 10, 1 << 13, 1 << 16, 1 << 18, options.rows):
            joint = JointCounts(sizes, PAIRS)
            bounds = [*range(0, options.rows, length), options.rows]
            parts = [[column[a:b] for column in codes] for a, b in pairwise(bounds)]
            each = cpu_ns(
                lambda j=joint, p=parts: [j.add(part) for part in p], options.rows, options.repeat
            )
            yield {"part": "batches", "sizes": name, "batch": length, "JointCounts ns": each}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parts = {part.__name__: part for part in (counting, threads, batches)}
    parser.add_argument("--part", nargs="+", choices=[*parts], default=[*parts])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--name", default="joint_counts")
    options = parser.parse_args()
    rows = [row for part in options.part for row in parts[part](options)]
    record(options.name, rows, {"columns": N_COLUMNS, "mixed": MIXED, "rows": options.rows})
