"""The law that fits what was measured so far: a population that goes on from where it stands."""

import numpy as np

from sklearn_dpgen.tables._population import Population, predicted_slices
from sklearn_dpgen.tables._product_mixture import ProductMixture
from sklearn_dpgen.utils._random import torch_generator
from sklearn_dpgen.utils._torch import resolve_device

__all__ = ["PopulationFit"]

# Steps of a round that is not the last, as a share of all.
_ROUND = 0.05
# Nats of log likelihood, of all tables, that a nat of dependence between columns must be worth.
_PRIOR = 150.0


class PopulationFit:
    """A population that follows measurements: post-processing of what was released.

    Parameters
    ----------
    measured : Measurements
        Of single columns at least; more may be added between calls.
    n_rows : int
        Of the population.
    seed : int or None
        Of its start.
    max_iter : int
        Steps of Adam to the law; a twentieth of it before each prediction.
    learning_rate : float
    device : str or torch.device
    **progress
        ``verbose`` and ``name`` of the progress bar.

    Attributes
    ----------
    loss_curve : list of float
    """

    def __init__(self, measured, n_rows, seed, *, max_iter, learning_rate, device, **progress):
        self._measured, self._max_iter = measured, max_iter
        self._options = {"learning_rate": learning_rate} | progress
        start, self._device = torch_generator(seed), resolve_device(device)
        self._population = Population(measured.singles, n_rows, start, self._device)
        self.loss_curve = []

    def predict(self, slices):
        """Return the expected counts of slices, by all that was measured so far."""
        self._descend(max(1, int(_ROUND * self._max_iter)))
        shares = predicted_slices(self._population().T, self._measured.sizes, slices)
        return [self._measured.n_records * table for table in shares]

    def law(self, domain):
        """Return the law of encoded records, a row of the population each component."""
        self._descend(self._max_iter)
        rows = self._population.probabilities()
        return ProductMixture(domain, np.full(len(rows), 1 / len(rows)), rows)

    def _descend(self, max_iter):
        result = self._population.fit(
            self._measured.loss(self._device),
            prior=2 * _PRIOR / self._measured.n_cells,
            max_iter=max_iter,
            **self._options,
        )
        self.loss_curve += result.loss_curve
