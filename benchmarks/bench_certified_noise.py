"""Certified noise against noise in floating point: time, scale and what is left of a table.

Times are of the processor, so that other programs on the machine do not count.

Draws: microseconds a draw of our exact samplers, of OpenDP's, and of noise in floating point, at
the scale of the grid in use. Releases: fits and local releases on RAND health and Adult at ε = 1
(tables) and ε = 4 (local), several times each, since certified noise takes no seed; the time is
the median and the others are means with their standard deviations over the repetitions. Synthetic
tables are compared with the records by total variation of single columns and by the mean of that of
pairs.

Run: python benchmarks/bench_certified_noise.py
"""

import argparse
import statistics
import time
import warnings

import numpy as np
from _common import record

from sklearn_dpgen.datasets import fetch_adult, load_rand_health
from sklearn_dpgen.mechanisms import JointRandomizedResponse, TabularMechanism
from sklearn_dpgen.metrics import marginal_total_variation
from sklearn_dpgen.tables import TableSampler
from sklearn_dpgen.utils._exact_draws import GRID_BITS, discrete_gaussian, discrete_laplace
from sklearn_dpgen.utils._random import NoiseSource

N_DRAWS = 100_000
TABLES = {"RAND": load_rand_health, "Adult": fetch_adult}


def timed(fn, repeat=5):
    """Return the median processor time of ``fn()`` in seconds, after one call to warm up."""
    fn()
    times = []
    for _ in range(repeat):
        start = time.process_time()
        fn()
        times.append(time.process_time() - start)
    return statistics.median(times)


def opendp_noise(kind):
    """Return OpenDP's noise on integers, as a function of how many."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    integers, scale = dp.vector_domain(dp.atom_domain(T="i64")), 2.0**GRID_BITS
    make, distance = dp.m.make_laplace, dp.l1_distance(T="i64")
    if kind == "gaussian":
        make, distance = dp.m.make_gaussian, dp.l2_distance(T="f64")
    noise = make(integers, distance, scale=scale)
    return lambda n: noise([0] * n)


def draws(n):
    """Yield microseconds a draw."""
    exact = {"gaussian": discrete_gaussian, "laplace": discrete_laplace}
    for kind, ours in exact.items():
        few, theirs = n // 10, opendp_noise(kind)
        floats = NoiseSource()
        zeros = np.zeros(n)
        yield {
            "noise": kind,
            "exact, ours (us)": 1e6 * timed(lambda: ours(n, GRID_BITS)) / n,  # noqa: B023
            "exact, OpenDP (us)": 1e6 * timed(lambda: theirs(few)) / few,  # noqa: B023
            "float (us)": 1e6 * timed(lambda: floats.add(zeros, 1.0, kind)) / n,  # noqa: B023
        }


def spread(values):
    return f"{statistics.mean(values):.5f} ± {statistics.stdev(values):.5f}"


def central(table, data, repeat):
    """Yield what fits with each noise take and give."""
    frame, schema = data.frame, data.schema
    for noise in ("float", "certified"):
        seconds, singles, pairs = [], [], []
        for _ in range(repeat):
            sampler = TableSampler(1.0, 1e-6, schema=schema, noise=noise)
            start = time.process_time()
            sampler.fit(frame)
            seconds.append(time.process_time() - start)
            drawn = sampler.sample(len(frame))
            for order, found in ((1, singles), (2, pairs)):
                distances = marginal_total_variation(frame, drawn, schema, order=order)
                found.append(float(distances.mean()))
        yield {
            "table": table,
            "estimator": "TableSampler",
            "noise": noise,
            "noise multiplier": sampler.noise_multiplier_,
            "fit (s)": statistics.median(seconds),
            "variation of columns": spread(singles),
            "variation of pairs": spread(pairs),
        }


def local(table, data, repeat):
    """Yield what local releases take."""
    ways = {
        TabularMechanism: {"float": "laplace", "certified": "certified"},
        JointRandomizedResponse: {"float": "float", "certified": "certified"},
    }
    for kind, names in ways.items():
        for noise, name in names.items():
            mechanism = kind(4.0, schema=data.schema, noise=name).fit()
            yield {
                "table": table,
                "mechanism": kind.__name__,
                "noise": noise,
                "transform (s)": timed(lambda: mechanism.transform(data.frame), repeat),  # noqa: B023
            }


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeat", type=int, default=10)
    parser.add_argument("--draws", type=int, default=N_DRAWS)
    options = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)
    tables = {name: load() for name, load in TABLES.items()}
    rows = list(draws(options.draws))
    for name, data in tables.items():
        rows += local(name, data, options.repeat)
    for name, data in tables.items():
        rows += central(name, data, options.repeat)
    record("certified_noise", rows, {"repeat": options.repeat, "draws": options.draws})


if __name__ == "__main__":
    main()
