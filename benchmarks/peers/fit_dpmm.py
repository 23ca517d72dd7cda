"""AIM, MST and PrivBayes of dpmm, at the defaults of its models; see `_fitting.py`.

Its pipelines put a table of bins, which costs further budget, before a model; the public codes are
given to the model itself. A null is one of them. The Gaussian noise, of OpenDP, takes no seed. The
models would derive their budget, rho, and the noise from epsilon and delta; here those of the task
are put in their place.
"""

import math

from _fitting import main
from dpmm.models.aim import AIMGM
from dpmm.models.mst import MSTGM
from dpmm.models.priv_bayes import PrivBayesGM
from numpy.random import RandomState

MODELS = {
    "AIM": AIMGM,
    "AIM of pairs with the target": AIMGM,
    "MST": MSTGM,
    "PrivBayes": PrivBayesGM,
}


def fit(codes, task):
    # One process: more would be forked with all records, and not be counted.
    model = MODELS[task["model"]](epsilon=task["epsilon"], delta=task["delta"], n_jobs=1)
    generator = model.generator
    if "sigma" in task:
        generator.sigma = task["sigma"]
    else:
        # MST spends a third on each of two measurements.
        generator.rho, generator.sigma = task["rho"], math.sqrt(3 / (2 * task["rho"]))
    model.set_domain({name: size for name, (size, _) in task["sizes"].items()})
    model.set_random_state(RandomState(task["seed"]))  # noqa: NPY002, it is what they take
    model.check_fit(codes)
    if task["model"] == "AIM of pairs with the target":
        target = task["target"]
        pairs = [((target, name), 1.0) for name in codes if name != target]
        generator.fit(codes, W=pairs)
    else:
        model.fit(codes)
    return model.generate(n_records=len(codes)), generator


if __name__ == "__main__":
    main(fit)
