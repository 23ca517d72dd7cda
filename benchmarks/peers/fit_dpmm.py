"""AIM, MST and PrivBayes of dpmm, at the defaults of its models; see `_fitting.py`.

Its pipelines put a table of bins, which costs further budget, before a model; the public codes are
given to the model itself. A null is one of them. The Gaussian noise, of OpenDP, takes no seed.
"""

from _fitting import main
from dpmm.models.aim import AIMGM
from dpmm.models.mst import MSTGM
from dpmm.models.priv_bayes import PrivBayesGM
from numpy.random import RandomState

MODELS = {"AIM": AIMGM, "MST": MSTGM, "PrivBayes": PrivBayesGM}


def fit(codes, task):
    # One process: more would be forked with all records, and not be counted.
    model = MODELS[task["model"]](epsilon=task["epsilon"], delta=task["delta"], n_jobs=1)
    model.set_domain({name: size for name, (size, _) in task["sizes"].items()})
    model.set_random_state(RandomState(task["seed"]))  # noqa: NPY002, it is what they take
    model.check_fit(codes)
    model.fit(codes)
    return model.generate(n_records=len(codes)), model.generator


if __name__ == "__main__":
    main(fit)
