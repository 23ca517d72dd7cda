"""The objective of a log-linear conditional, evaluated by PyTorch on a GPU."""

import numpy as np
import torch
from torch.nn.functional import embedding_bag

from sklearn_dpgen.tables._log_linear_fit import _Problem
from sklearn_dpgen.utils._threads import limit_new_libraries
from sklearn_dpgen.utils._torch import as_array, as_tensor

__all__ = ["TensorProblem"]


class TensorProblem(_Problem):
    """The same objective as on the CPU, and its gradient.

    Parameters
    ----------
    *args, **options
        Those of the objective.
    device : str or torch.device
    """

    def __init__(self, *args, device, **options):
        self._device = device
        super().__init__(*args, **options)

    def _prepare(self):
        limit_new_libraries()
        device = self._device
        cells = np.ascontiguousarray(self._cells)
        self._cells_of_rows = torch.from_numpy(cells).to(device)
        self._members = _cell_members(cells, self._starts[-1], device)
        own = self._base, self._marginal, self._ridge, self._scale
        self._own = [as_tensor(array, device=device) for array in own]
        self._of_shift = None
        if self._shift_ridge is not None:
            both = self._scales[0], self._shift_ridge
            self._of_shift = [as_tensor(array, device=device) for array in both]
        self._fixed_tensors = [as_tensor(table, device=device) for table in self._fixed]
        self._terms = [
            (
                as_tensor(target, device=device),
                [as_tensor(basis, device=device) for basis in bases],
                *(
                    None if codes is None else torch.from_numpy(codes.astype(np.int64)).to(device)
                    for codes in (groups, pattern)
                ),
            )
            for target, bases, groups, pattern in zip(
                self._targets, self._bases, self._groups, self._patterns, strict=True
            )
        ]
        self._lengths = [scale.size for scale in self._scales]

    def __call__(self, vector):
        base, marginal, ridge, scales = self._own
        every = as_tensor(vector, device=self._device) * scales
        shift, *parts = every.split(self._lengths)
        thetas = []
        for part, scale, (_, bases, _, pattern) in zip(
            parts, self._scales[1:], self._terms, strict=True
        ):
            coefficients = part.view(scale.shape)
            theta = bases[0] @ coefficients
            thetas.append(theta @ bases[1].T if pattern is None else theta)
        shares, value = self._probabilities(base + shift, thetas)
        value = value - torch.dot(base + shift, marginal)
        fitted = embedding_bag(self._members[0], shares, self._members[1], mode="sum").div_(self._n)
        slopes, gains = [fitted[: self._starts[1]].sum(dim=0) - marginal], []
        penalties = [part.sum() for part in (ridge / 2 * every.square()).split(self._lengths)]
        for i, (theta, (target, bases, groups, pattern)) in enumerate(
            zip(thetas, self._terms, strict=True)
        ):
            slope = fitted[self._starts[i] : self._starts[i + 1]]
            if groups is not None:
                sums = slope.new_zeros(len(slope), self._width(i))
                slope = sums.index_add_(1, groups, slope)
            if pattern is None:
                slope = bases[0].T @ (slope - target) @ bases[1]
            else:
                sums = torch.zeros_like(target).index_add_(0, pattern, slope.flatten())
                slope = bases[0].T @ (sums - target)
            gains.append((theta * target).sum())
            slopes.append(slope.flatten())
        slope = (torch.cat(slopes) + ridge * every) * scales
        if self._of_shift is not None:
            scale, shift_ridge = self._of_shift
            value = value + (shift_ridge * shift.square()).sum() / 2
            slope[: len(shift)] += scale * shift_ridge * shift
        value = float(value)
        if gains:
            for penalty, gain in torch.stack([*penalties[1:], *gains]).view(2, -1).T.tolist():
                value = value + penalty - gain
        return value, as_array(slope)

    def _probabilities(self, base, thetas):
        """Return the probabilities of all rows, and the mean of their log-partition functions."""
        blocks = []
        for i, (theta, (_, _, groups, pattern)) in enumerate(zip(thetas, self._terms, strict=True)):
            table = theta if pattern is None else theta[pattern].view(self._shapes[i])
            blocks.append(table if groups is None else table[:, groups])
        blocks += self._fixed_tensors
        # Each row is in one cell of the first table, so the base is added to that table.
        blocks[0] = blocks[0] + base
        scores = embedding_bag(self._cells_of_rows, torch.cat(blocks), mode="sum")
        # These four passes take a tenth of the time of a softmax over few entries.
        highest = scores.amax(dim=1, keepdim=True)
        scores = scores.sub_(highest).exp_()
        sums = scores @ scores.new_ones(scores.shape[1], 1)
        return scores.div_(sums), (highest + sums.log()).mean(dtype=torch.float64)


def _cell_members(cells, width, device):
    """Return the rows of all cells in order, and the index of the first row of each cell."""
    # The cells of each table come after those of the table before. Numbers of 16 bits are sorted by
    # a radix sort, which is several times as fast.
    small = cells.T.astype(np.min_scalar_type(width))
    order = np.concatenate([np.argsort(own, kind="stable") for own in small])
    starts = np.append(0, np.cumsum(np.bincount(small.ravel(), minlength=width)))[:-1]
    return tuple(torch.from_numpy(v.astype(np.int32)).to(device) for v in (order, starts))
