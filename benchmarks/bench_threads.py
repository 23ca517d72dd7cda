"""What threads cost and gain: a user's defaults, all threads, and one, idle and beside a process.

Each estimator fits in a fresh process, without ``OMP_NUM_THREADS`` for ``all``
(``SKLEARN_DPGEN_THREADS=all``) and ``default``, and with ``OMP_NUM_THREADS=1`` for ``one``; first
alone, and then beside processes that compute all the time, which it starts itself. Wall and CPU
seconds are medians, and CPU seconds are of all threads. ``default / best`` is the wall time of the
default in units of the better of the two others.

Sizes are for ``MANY_VALUES`` of ``utils/_threads.py``, from which on transport keeps its
threads: it should be where ``all / one`` is below 1 alone, and not much above it beside another
process.

Run it on an idle machine, where it takes about seven minutes:
``python benchmarks/bench_threads.py``.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from statistics import median

LOADS = ("idle", "busy")
# What each setting adds to an environment without limits.
SETTINGS = {
    "all": {"SKLEARN_DPGEN_THREADS": "all"},
    "default": {},
    "one": {"OMP_NUM_THREADS": "1"},
}
LIMITS = ("MKL_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "SKLEARN_DPGEN_THREADS")
# It ends with the process that started it, whatever happens to that.
BUSY = "import os; parent = os.getppid()\nwhile os.getppid() == parent: sum(range(10000))"
BUDGET = {"epsilon": 1.0, "delta": 1e-5}


def rand_health(n=6000):
    from sklearn_dpgen.datasets import load_rand_health

    data = load_rand_health()
    return data.frame.sample(n, random_state=0, ignore_index=True), data.schema


def curve(n=20000):
    import numpy as np

    rng = np.random.default_rng(0)
    X = np.cos(rng.uniform(0, 3, (n, 1)) * np.arange(1, 9)) + 0.05 * rng.standard_normal((n, 8))
    return np.clip(X, -1, 1)


def table_sampler():
    from sklearn_dpgen.tables import TableSampler

    X, schema = rand_health()

    def run():
        TableSampler(**BUDGET, schema=schema, random_state=0).fit(X).sample(len(X))

    return run


def local_sampler():
    from sklearn_dpgen.mechanisms import JointRandomizedResponse
    from sklearn_dpgen.tables import LocalTableSampler

    X, schema = rand_health()
    mechanism = JointRandomizedResponse(2.0, schema=schema, random_state=0).fit()
    answers = mechanism.transform(X)
    return lambda: LocalTableSampler(mechanism, max_iter=100, random_state=0).fit(answers)


def smoothed_generator():
    from sklearn_dpgen.domains import Box
    from sklearn_dpgen.nn import Training
    from sklearn_dpgen.smoothed import SmoothedSlicedWassersteinGenerator

    X, options = curve(), {"domain": Box(-1, 1, n_features=8), "random_state": 0}
    options["training"] = Training(max_iter=200)
    return lambda: SmoothedSlicedWassersteinGenerator(**BUDGET, **options).fit(X)


def moments():
    import numpy as np

    from sklearn_dpgen.moments import MomentImageSampler

    X = np.random.default_rng(0).uniform(0, 1, (2000, 144))
    options = {"shape": (12, 12), "pixel_range": (0, 1), "max_iter": 50, "random_state": 0}
    return lambda: MomentImageSampler(**BUDGET, **options).fit(X)


def evolution():
    from sklearn_dpgen.domains import Box
    from sklearn_dpgen.evolution import PrivateEvolutionSampler

    X, options = curve(), {"domain": Box(-1, 1, n_features=8), "n_iter": 20, "random_state": 0}
    return lambda: PrivateEvolutionSampler(**BUDGET, **options).fit(X)


def fair_classifier():
    from sklearn_dpgen.datasets import make_biased_labels
    from sklearn_dpgen.nn import Training
    from sklearn_dpgen.sliced import DPSlicedWassersteinFairClassifier

    data = make_biased_labels(10000, random_state=0)
    options = {"groups": [0, 1], "training": Training(max_iter=50), "random_state": 0}

    def run():
        model = DPSlicedWassersteinFairClassifier(**BUDGET, **options)
        model.fit(data.X, data.y, sensitive_features=data.sensitive).predict(data.X)

    return run


def gan(n_generated=500, batch_size=2000, max_iter=30):
    from sklearn_dpgen.deconvolution import EntropicDeconvGAN
    from sklearn_dpgen.domains import Box
    from sklearn_dpgen.mechanisms import LaplaceMechanism
    from sklearn_dpgen.nn import Training

    mechanism = LaplaceMechanism(8.0, domain=Box(-1, 1, n_features=8), random_state=0).fit()
    Y = mechanism.transform(curve())
    options = {"n_generated": n_generated, "batch_size": batch_size, "random_state": 0}
    options["training"] = Training(max_iter=max_iter)
    return lambda: EntropicDeconvGAN(mechanism, **options).fit(Y)


def deconvolution_em():
    from sklearn_dpgen.deconvolution import DeconvolutionEM
    from sklearn_dpgen.domains import Box
    from sklearn_dpgen.mechanisms import LaplaceMechanism

    mechanism = LaplaceMechanism(4.0, domain=Box(-1, 1, n_features=2), random_state=0).fit()
    Y = mechanism.transform(curve()[:, :2])
    return lambda: DeconvolutionEM(mechanism, dependence="joint", random_state=0).fit(Y)


def sinkhorn(n=500):
    import torch

    from sklearn_dpgen.ot import sinkhorn

    cost = 5 * torch.rand(n, n, generator=torch.Generator().manual_seed(0))
    n_calls = max(1, 2**23 // cost.numel())
    return lambda: [sinkhorn(cost, n_iter=50, tol=0) for _ in range(n_calls)]


def sliced_wasserstein(n=5000):
    import torch

    from sklearn_dpgen.ot import sliced_wasserstein

    X, Y = torch.randn(2, n, 8, generator=torch.Generator().manual_seed(0))
    k = max(2, 2**22 // n)
    return lambda: sliced_wasserstein(X, Y, n_projections=k)


CASES = {
    "table sampler": table_sampler,
    "local sampler": local_sampler,
    "smoothed generator": smoothed_generator,
    "moments": moments,
    "evolution": evolution,
    "fair classifier": fair_classifier,
    "GAN": gan,
    "deconvolution EM": deconvolution_em,
    "sinkhorn": sinkhorn,
    "sliced_wasserstein": sliced_wasserstein,
}
SIZES = {
    "sinkhorn 1024": lambda: sinkhorn(1024),
    "sinkhorn 2048": lambda: sinkhorn(2048),
    "sinkhorn 4096": lambda: sinkhorn(4096),
    "sliced_wasserstein 2^16": lambda: sliced_wasserstein(2**16),
    "sliced_wasserstein 2^19": lambda: sliced_wasserstein(2**19),
    "sliced_wasserstein 2^22": lambda: sliced_wasserstein(2**22),
    "GAN 1024 x 2048": lambda: gan(1024, 2048, 10),
    "GAN 2048 x 2048": lambda: gan(2048, 2048, 5),
    "GAN 4096 x 4096": lambda: gan(4096, 4096, 2),
}


def measure(run, repeat, seconds):
    """Return the medians of wall and CPU seconds, of fewer runs where these take too long."""
    times, end = [], time.perf_counter() + seconds
    while not times or (len(times) < repeat and time.perf_counter() < end):
        wall, cpu = time.perf_counter(), time.process_time()
        run()
        times.append((time.perf_counter() - wall, time.process_time() - cpu))
    return [median(each) for each in zip(*times, strict=True)]


def in_this_process(name, args):
    """Print what one case takes, alone and beside busy processes."""
    import warnings

    warnings.simplefilter("ignore")
    run = (CASES | SIZES)[name]()
    # What is imported late, and caches, are not what is measured.
    run()
    found = {"idle": measure(run, args.repeat, args.seconds)}
    others = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(args.competitors)]
    try:
        time.sleep(0.2)
        found["busy"] = measure(run, args.repeat, args.seconds)
    finally:
        for other in others:
            other.kill()
            other.wait()
    print(json.dumps(found))


def in_a_fresh_process(name, setting, args):
    environment = {key: value for key, value in os.environ.items() if key not in LIMITS}
    command = [sys.executable, __file__, "--case", name, "--repeat", str(args.repeat)]
    command += ["--seconds", str(args.seconds), "--competitors", str(args.competitors)]
    done = subprocess.run(
        command, env=environment | SETTINGS[setting], stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def main():
    """Run all cases; print and store the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", nargs="+", default=[*CASES, *SIZES], choices=[*CASES, *SIZES])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="after which no run begins")
    parser.add_argument("--competitors", type=int, default=1, help="busy processes")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.case is not None:
        in_this_process(args.case, args)
        return
    from _common import record

    rows = []
    for name in args.cases:
        # Of sizes, the rule is what is looked for.
        settings = [each for each in SETTINGS if each != "default" or name in CASES]
        found = {setting: in_a_fresh_process(name, setting, args) for setting in settings}
        for load in LOADS:
            row = {"case": name, "load": load}
            for setting in settings:
                wall, cpu = found[setting][load]
                row |= {f"{setting} wall": wall, f"{setting} cpu": cpu}
            row |= {"all / one": row["all wall"] / row["one wall"]}
            if name in CASES:
                best = min(row["all wall"], row["one wall"])
                row |= {"default / best": row["default wall"] / best}
            rows.append(row)
            print(row, file=sys.stderr, flush=True)
    meta = {"repeat": args.repeat, "seconds": args.seconds, "competitors": args.competitors}
    record("threads", rows, meta=meta)


if __name__ == "__main__":
    main()
