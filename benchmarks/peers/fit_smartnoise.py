"""AIM and MST of SmartNoise, at their defaults; see `_fitting.py`.

Its transformers learn the labels of a column from the records; here they are fitted on the public
codes. A null is one of them. The noise, of OpenDP, takes no seed: that is for choices and draws.
"""

import numpy as np
from _fitting import main
from snsynth.aim import AIMSynthesizer
from snsynth.mst import MSTSynthesizer
from snsynth.transform import LabelTransformer, TableTransformer


def fit(codes, task):
    transformers = [LabelTransformer(nullable=False) for _ in codes]
    for transformer, name in zip(transformers, codes, strict=True):
        transformer.fit(range(task["sizes"][name][0]))
    algorithm = {"AIM": AIMSynthesizer, "MST": MSTSynthesizer}[task["model"]]
    np.random.seed(task["seed"])  # noqa: NPY002, it is what they draw from
    synthesizer = algorithm(epsilon=task["epsilon"], delta=task["delta"])
    synthesizer.fit(codes, transformer=TableTransformer(transformers))
    return synthesizer.sample(len(codes)), synthesizer


if __name__ == "__main__":
    main(fit)
