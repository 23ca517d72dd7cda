"""AIM and MST of SmartNoise, at their defaults; see `_fitting.py`.

Its transformers learn the labels of a column from the records; here they are fitted on the public
codes. A null is one of them. The noise, of OpenDP, takes no seed: that is for choices and draws. It
would derive rho from epsilon and delta; here that of the task is put in its place.
"""

import numpy as np
import snsynth.aim.aim
import snsynth.mst.mst
from _fitting import main
from snsynth.aim import AIMSynthesizer
from snsynth.mst import MSTSynthesizer
from snsynth.transform import LabelTransformer, TableTransformer


def fit(codes, task):
    transformers = [LabelTransformer(nullable=False) for _ in codes]
    for transformer, name in zip(transformers, codes, strict=True):
        transformer.fit(range(task["sizes"][name][0]))
    for module in (snsynth.aim.aim, snsynth.mst.mst):
        module.cdp_rho = lambda epsilon, delta: task["rho"]
    algorithm = {"AIM": AIMSynthesizer, "MST": MSTSynthesizer}[task["model"]]
    np.random.seed(task["seed"])  # noqa: NPY002, it is what they draw from
    synthesizer = algorithm(epsilon=task["epsilon"], delta=task["delta"])
    synthesizer.fit(codes, transformer=TableTransformer(transformers))
    return synthesizer.sample(len(codes)), synthesizer


if __name__ == "__main__":
    main(fit)
