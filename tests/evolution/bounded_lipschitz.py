"""The bounded-Lipschitz norm of signed measures, for comparisons."""

import numpy as np
import ot
from scipy.spatial.distance import cdist


def bounded_lipschitz_distance(support, weights, diameter):
    """Return sup sum weights f over functions f that the diameter bounds, 1-Lipschitz in l2.

    The lighter of the positive and negative parts is carried to the other, and mass that is left
    over is removed at the cost of the diameter: exact partial transport.
    """
    support, weights = np.asarray(support, dtype=float), np.asarray(weights, dtype=float)
    positive, negative = weights > 0, weights < 0
    supply, demand = weights[positive], -weights[negative]
    amount, rest = min(supply.sum(), demand.sum()), abs(supply.sum() - demand.sum())
    if amount <= 0:
        return diameter * rest
    # What is not carried goes to or from an imaginary atom, for free.
    costs = np.zeros((len(supply) + 1, len(demand) + 1))
    costs[:-1, :-1] = cdist(support[positive], support[negative])
    sources = np.append(supply, max(demand.sum() - amount, 0.0))
    targets = np.append(demand, max(supply.sum() - amount, 0.0))
    total = sources.sum()
    targets *= total / targets.sum()
    return total * ot.emd2(sources / total, targets / total, costs) + diameter * rest
