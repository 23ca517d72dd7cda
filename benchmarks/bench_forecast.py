"""What plans forecast of time and memory, against fits: each in a process of its own.

Seconds are of one thread (``OMP_NUM_THREADS=1``), without those in which others had the processor.

``--part`` runs some of tables, evolution, moments, fair, generator, smoothed and predictors. The
figures of the forecast of each part are fitted to it, and hold within a factor of three.
"""

import argparse
import multiprocessing
import time
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from _common import record
from _forecast_gradients import fair, generator, predictors, smoothed

from sklearn_dpgen.datasets import fetch_adult
from sklearn_dpgen.domains import Box
from sklearn_dpgen.evolution import PrivateEvolutionSampler, PrivateSignedMeasureSampler
from sklearn_dpgen.moments import MomentImageSampler, MomentSampler
from sklearn_dpgen.schema import Categorical, Numeric, Ordinal, Schema
from sklearn_dpgen.tables import TableSampler


def mixed_table(n, p, seed=0):
    """Return records of amounts, grades and labels that depend on three hidden factors."""
    rng = np.random.default_rng(seed)
    hidden, columns, schema = rng.normal(size=(n, 3)), {}, {}
    for j in range(p):
        name, values = f"x{j}", hidden @ rng.normal(size=3) + rng.normal(size=n)
        if j % 3 == 0:
            columns[name], schema[name] = np.exp(values).round(2), Numeric(0, 1000)
        elif j % 3 == 1:
            columns[name] = np.clip(2 * values + 5, 0, 9).astype(int)
            schema[name] = Ordinal(range(10))
        else:
            columns[name] = np.array(list("abcd"))[np.digitize(values, [-1, 0, 1])]
            schema[name] = Categorical(list("abcd"))
    return pd.DataFrame(columns), Schema(schema)


def tables():
    """Yield samplers of tables: Adult, and simulated tables of several sizes."""
    adult = fetch_adult()
    for name, options in (("", {}), (", a target", {"target": "income"})):
        sampler = TableSampler(schema=adult.schema, device="cpu", **options)
        yield f"Adult{name}", sampler, adult.frame, None
    for n, p, options in (
        (2_000, 6, {}),
        (20_000, 15, {}),
        (20_000, 15, {"population_size": 5_000}),
        (100_000, 15, {"marginals": "pairs"}),
        (100_000, 30, {}),
    ):
        frame, schema = mixed_table(n, p)
        name = ", ".join(f"{key}={value}" for key, value in options.items())
        yield f"{n} x {p} {name}", TableSampler(schema=schema, **options), frame, None


def evolution():
    """Yield samplers by votes, of boxes of several dimensions and of a table."""
    for n in (10_000, 100_000):
        for d in (2, 6, 20):
            X, box = np.random.default_rng(0).beta(2, 5, size=(n, d)), Box(0, 1, n_features=d)
            yield (
                f"evolution, {n} x {d}",
                PrivateEvolutionSampler(domain=box, device="cpu"),
                X,
                None,
            )
            if d < 20:
                sampler = PrivateSignedMeasureSampler(domain=box, device="cpu")
                yield f"signed measure, {n} x {d}", sampler, X, None
        frame, schema = mixed_table(n, 12)
        sampler = PrivateEvolutionSampler(schema=schema, device="cpu")
        yield f"evolution of a table, {n} x 12", sampler, frame, None


def moments():
    """Yield samplers from moments, of vectors and of images by class."""
    rng = np.random.default_rng(0)
    for n, d in ((10_000, 10), (100_000, 10), (10_000, 60), (100_000, 60)):
        X, box = rng.beta(2, 5, size=(n, d)), Box(0, 1, n_features=d)
        yield f"moments, {n} x {d}", MomentSampler(domain=box), X, None
    for n, side, n_classes in ((2_000, 8, 1), (10_000, 28, 1), (10_000, 28, 10)):
        X, y = rng.beta(2, 5, size=(n, side**2)), None
        if n_classes > 1:
            y = np.arange(n) % n_classes
        sampler = MomentImageSampler(shape=(side, side), pixel_range=(0, 1), device="cpu")
        yield (
            f"images, {n} x {side}^2, {n_classes} classes",
            sampler,
            X,
            y if n_classes > 1 else None,
        )


def calls(part):
    """Return a part as of the gradients: names, functions that fit, and functions that plan."""

    def cases():
        for name, estimator, X, y in part():
            sizes = {} if y is None else {"class_sizes": np.bincount(y)}
            records = (X,) if y is None else (X, y)
            yield (
                name,
                partial(estimator.fit, *records),
                partial(estimator.plan, len(X), X.shape[1], **sizes),
            )

    return cases


PARTS = {part.__name__: calls(part) for part in (tables, evolution, moments)}
PARTS |= {part.__name__: part for part in (fair, generator, smoothed, predictors)}


def measured(fit, queue):
    """Put the seconds of a fit, and the bytes by which memory grew."""
    Path("/proc/self/clear_refs").write_text("5")
    before = _memory("VmRSS")
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit()
    queue.put((time.process_time() - start, _memory("VmHWM") - before))


def _memory(name):
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return 1024 * int(line.split()[1])
    raise OSError(name)


def compared(part, name, fit, plan):
    """Return a row: what was forecast, and what it took."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = time.perf_counter()
        forecast = plan().forecast
        planned = time.perf_counter() - start
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    process = context.Process(target=measured, args=(fit, queue))
    process.start()
    seconds, grown = queue.get()
    process.join()
    return {
        "part": part,
        "fit": name,
        "plan s": planned,
        "forecast s": forecast["seconds"],
        "fit s": seconds,
        "time ratio": forecast["seconds"] / seconds,
        "forecast MB": forecast["bytes"] / 1e6,
        "MB": grown / 1e6,
        "memory ratio": forecast["bytes"] / grown,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", choices=PARTS, nargs="*", default=list(PARTS))
    for part in parser.parse_args().part:
        rows = [compared(part, *case) for case in PARTS[part]()]
        worst = max(max(r["time ratio"], 1 / r["time ratio"]) for r in rows)
        record(f"forecast_{part}", rows, {"largest factor of time": worst})


if __name__ == "__main__":
    main()
