"""What the fair regressor and the fair classifier share: a network with a head, and its fit."""

import numpy as np
import torch
from torch import nn

from sklearn_dpgen.domains import Ball
from sklearn_dpgen.sliced._base import DTYPE, FairEstimator, linear_stack
from sklearn_dpgen.sliced._objective import FairObjective, fair_gradient
from sklearn_dpgen.utils._torch import as_array, as_tensor, resolve_device, seeded_initialization
from sklearn_dpgen.utils._validation import check_is_fitted, validate_data

__all__ = ["FairPredictor"]


class FairPredictor(FairEstimator):
    """Base of the predictors: what they return is what the penalty compares."""

    def _fit_predictor(
        self, X, targets, strata, *, head, n_logits, ball, residuals, keys=(), public=()
    ):
        """Train a linear stack under a head without parameters.

        Parameters
        ----------
        X : ndarray of shape (n, n_features)
        targets : ndarray of shape (n,) or (n, n_outputs)
        strata : Strata
        head : torch.nn.Module
            From (n, n_logits) to the outputs.
        n_logits : int
        ball : Ball
            Holds the outputs.
        residuals : callable
            From logits and targets to the gradient of each record's loss in its logits.
        keys : tuple
            What a seeded noise is keyed by, beside records, targets and parameters.
        public : tuple of str
            What is public, beside sizes and groups.
        """
        noise_seed, init_seed, direction_seed = self._seeds()
        if self.output_bound != "auto":
            ball = Ball(self.output_bound, center=ball.center)
        objective = FairObjective(
            alpha=self.alpha if strata.pairs else 0.0,
            strata=strata,
            task_clip=self.task_clip,
            jacobian_clip=self.jacobian_clip,
            ball=ball,
            n_directions=self._n_directions(ball.n_features),
            clipping=self.jacobian_clipping,
        )
        device = resolve_device(self.device)
        with seeded_initialization(init_seed):
            widths = [X.shape[1], *self._widths(), n_logits]
            backbone = linear_stack(widths, self.activation)
        module = nn.Sequential(backbone, head).to(device, DTYPE)
        backbone = module[0]
        records = as_tensor(X, device=device, dtype=DTYPE)
        wanted = torch.from_numpy(np.ascontiguousarray(targets)).to(device)
        draw_directions = self._directions(direction_seed, objective.n_directions, ball.n_features)

        def gradient(rows, batch):
            rows = rows.to(device)
            return fair_gradient(
                objective,
                backbone,
                module,
                lambda logits: residuals(logits, wanted[rows]),
                records[rows],
                batch,
                draw_directions(),
            )

        self._fit_module(
            module, gradient, objective, [X, targets, *keys], noise_seed=noise_seed, public=public
        )

    @torch.no_grad()
    def _outputs(self, X):
        """Return what the network makes of records, as an array."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        device = next(self.module_.parameters()).device
        return as_array(self.module_(as_tensor(X, device=device, dtype=DTYPE)))
