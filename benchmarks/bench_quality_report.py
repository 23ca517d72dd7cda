"""Quality reports: how large their pages are, and how long they take.

A page of Adult with its synthetic table (TableSampler at ε = 1 with its defaults, the
target income), one of what it released alone, one of a made-up table of 100 columns, and a model
card. CPU seconds of one thread, the median of three; the fit is not counted.
"""

import statistics
import time

import numpy as np
import pandas as pd
import torch
from _common import record
from threadpoolctl import threadpool_limits

from sklearn_dpgen.datasets import fetch_adult
from sklearn_dpgen.reporting import QualityReport, model_card
from sklearn_dpgen.tables import TableSampler


def wide(n=10_000):
    """Return two samples of one law of 60 numbers and 40 labels."""
    rng = np.random.default_rng(0)
    parts = []
    for _ in range(2):
        common = rng.normal(size=n)
        numbers = {f"number {i}": rng.normal(size=n) + common * (i % 2) for i in range(60)}
        labels = {f"label {i}": rng.choice([*"abcdefghijkl"], n) for i in range(40)}
        parts.append(pd.DataFrame(numbers | labels))
    return parts


def cpu_seconds(make, repeat=3):
    """Return the median CPU time of a call, after one to warm up, and what it returns."""
    made, times = make(), []
    for _ in range(repeat):
        start = time.process_time()
        make()
        times.append(time.process_time() - start)
    return statistics.median(times), made


def main():
    torch.set_num_threads(1)
    adult, tables = fetch_adult(), wide()
    start = time.process_time()
    sampler = TableSampler(schema=adult.schema, target="income").fit(adult.frame)
    fit_seconds = time.process_time() - start
    synthetic = sampler.sample(len(adult.frame))
    options = {"privacy": sampler.privacy_, "schema": adult.schema, "target": "income"}
    pages = {
        "Adult, both tables": lambda: QualityReport(adult.frame, synthetic, **options).to_html(),
        "Adult, releases alone": lambda: QualityReport.from_estimator(sampler).to_html(),
        "100 columns, both tables": lambda: QualityReport(*tables).to_html(),
        "Adult, model card": lambda: model_card(sampler).to_html(),
    }
    rows = []
    with threadpool_limits(1):
        for name, make in pages.items():
            seconds, text = cpu_seconds(make)
            size = len(text.encode("utf-8")) / 1000
            rows.append({"page": name, "cpu seconds": seconds, "kB": size})
    record(
        "quality_report",
        rows,
        meta={
            "records": {"Adult": len(adult.frame), "100 columns": len(tables[0])},
            "fit_cpu_seconds": fit_seconds,
            "repeat": 3,
        },
    )


if __name__ == "__main__":
    main()
