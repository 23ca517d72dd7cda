"""Per-sample Jacobians of a module, their clipped sums, and clipping factors."""

import math
from abc import ABC, abstractmethod

import torch
from torch import nn
from torch.func import functional_call, vjp, vmap
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.nn._generators import DomainHead
from sklearn_dpgen.utils._validation import Integral, check_positive

__all__ = [
    "ClippedJacobianSum",
    "Linearization",
    "clip_weights",
    "linearize",
    "norm_clip_factors",
    "spectral_clip_factors",
]

# Below this, a product with a weight of at most 1 may be a subnormal float32, whose rounding
# could exceed the bound.
_SMALLEST = torch.finfo(torch.float32).tiny / torch.finfo(torch.float32).eps


def spectral_clip_factors(gram: torch.Tensor, bound: float) -> torch.Tensor:
    """Return the factors that clip Jacobians to a spectral norm.

    Parameters
    ----------
    gram : Tensor of shape (n, d, d)
        J_i J_i^T of each Jacobian.
    bound : float
        Largest spectral norm.

    Returns
    -------
    Tensor of shape (n,)
        min(1, bound / ||J_i||_2) in float64; 0 if the Gram matrix is not finite.
    """
    return norm_clip_factors(_largest_eigenvalues(gram.double()), bound)


def norm_clip_factors(squared_norms: torch.Tensor, bound: float) -> torch.Tensor:
    """Return the factors that clip vectors to an l2 norm.

    Parameters
    ----------
    squared_norms : Tensor
        Squared l2 norm of each vector.
    bound : float
        Largest l2 norm.

    Returns
    -------
    Tensor of the same shape
        min(1, bound / norm) in float64; 0 if the norm is not finite.
    """
    bound = check_positive(bound, "bound")
    # Rounding may make an eigenvalue negative.
    factors = (bound / squared_norms.double().clamp_min(0).sqrt()).clamp_max(1)
    return torch.where(factors >= _SMALLEST, factors, 0)


def _largest_eigenvalues(gram):
    """Return the largest eigenvalue of each matrix, not finite if the matrix is not."""
    d = gram.shape[1]
    if d == 1:
        return gram[:, 0, 0]
    if d == 2:
        a, b, c = gram[:, 0, 0], gram[:, 1, 0], gram[:, 1, 1]
        return (a + c) / 2 + torch.hypot((a - c) / 2, b)
    finite = gram.flatten(1).isfinite().all(1)
    largest = torch.linalg.eigvalsh(torch.where(finite[:, None, None], gram, 0))[:, -1]
    return torch.where(finite, largest, torch.inf)


_ELEMENTWISE = {
    nn.ELU,
    nn.GELU,
    nn.Identity,
    nn.LeakyReLU,
    nn.ReLU,
    nn.SiLU,
    nn.Sigmoid,
    nn.Softplus,
    nn.Tanh,
}


def linearize(
    module: torch.nn.Module, X: torch.Tensor, *, chunk_size: int = 256
) -> "Linearization":
    r"""Linearize a module in its parameters, at each sample of a batch.

    Parameters
    ----------
    module : torch.nn.Module
        Maps a batch to outputs of shape (n, d), sample by sample. Stacks (``nn.Sequential``) of
        ``nn.Linear``, elementwise activations, and flattening, softmax and ``DomainHead``
        layers are fast; any other module is differentiated by ``torch.func``.
    X : Tensor of shape (n, ...)
        The batch.
    chunk_size : int, default=256
        Number of samples whose Jacobians are held at once if ``torch.func`` is used.

    Returns
    -------
    Linearization
        Refers to the module's parameters, and is valid until they change.

    Raises
    ------
    PublicValueError
        If the batch is empty, or the module has no trainable parameter, has no per-sample Jacobian
        (batch normalization, dropout in training mode), or does not return shape (n, d).

    Notes
    -----
    A linear layer with input :math:`a` and back-propagated rows :math:`B` (outputs by width) has
    the Jacobian :math:`B \otimes (a, 1)`. So the Gram matrix is the sum over the layers of
    :math:`(\|a\|^2 + 1) B B^\top`, and a weighted sum is one matrix product per layer.
    """
    if not isinstance(chunk_size, Integral) or chunk_size < 1:
        raise PublicValueError(f"chunk_size must be an integer of at least 1, got {chunk_size!r}.")
    if len(X) == 0:
        raise PublicValueError("X must hold at least one sample.")
    if not any(parameter.requires_grad for parameter in module.parameters()):
        raise PublicValueError("module has no parameter that requires grad.")
    _check_sample_wise(module)
    X = X.detach()
    leaves = _leaves(module)
    if _is_stack(leaves, X):
        return _StackLinearization(leaves, X)
    return _FunctionalLinearization(module, X, chunk_size)


class Linearization(ABC):
    """Jacobians J_i (d outputs by p trainable parameters) of a module at n samples.

    Norms and Gram matrices are float64, in which squares of float32 neither overflow nor underflow.
    They are infinite for a sample with a feature that is not finite, or that exceeds the square
    root of the largest number of the module's dtype.

    Attributes
    ----------
    outputs : Tensor of shape (n, d)
        The module's outputs, detached.
    """

    def __init__(self, X: torch.Tensor, outputs: torch.Tensor) -> None:
        if outputs.ndim != 2:
            raise PublicValueError(f"module must return shape (n, d), got {tuple(outputs.shape)}.")
        self.outputs = outputs
        limit = torch.finfo(outputs.dtype).max ** 0.5
        self._in_range = (X[:, None].flatten(1).abs() <= limit).all(1)

    def gram(self) -> torch.Tensor:
        """Return J_i J_i^T of each sample: float64, of shape (n, d, d)."""
        return torch.where(self._in_range[:, None, None], self._gram(), torch.inf)

    def squared_norms(self, W: torch.Tensor) -> torch.Tensor:
        """Return ||J_i^T w_i||^2 of each sample, with w_i row i of W.

        Parameters
        ----------
        W : Tensor of shape (n, d)
            Weights; a row of zeros has the norm zero for any sample.

        Returns
        -------
        Tensor of shape (n,)
            In float64.
        """
        W, used = self._check_weights(W)
        norms = torch.where(self._in_range, self._squared_norms(W), torch.inf)
        return torch.where(used, norms, 0)

    def weighted_sum(self, W: torch.Tensor) -> list[torch.Tensor]:
        """Return the sum of J_i^T w_i over the samples, with w_i row i of W.

        Parameters
        ----------
        W : Tensor of shape (n, d)
            Weights; a row of zeros contributes exactly zero for any sample.

        Returns
        -------
        list of Tensor
            One for each parameter that requires grad, in the order of ``module.parameters()``.
        """
        return self._weighted_sum(*self._check_weights(W))

    def clipped_sum(
        self, W: torch.Tensor, bound: float, scale: torch.Tensor | None = None
    ) -> list[torch.Tensor]:
        """Return the sum of J_i^T w_i, each clipped to an l2 norm.

        The norm is computed from the vector that is added, so cancellation in J_i^T w_i cannot
        hide a part of it.

        Parameters
        ----------
        W : Tensor of shape (n, d)
            Weights.
        bound : float
            Largest l2 norm of a sample's vector. A vector that is not finite contributes zero.
        scale : Tensor of shape (n,), optional
            Factor of each clipped vector, finite and non-negative.

        Returns
        -------
        list of Tensor
            As of :meth:`weighted_sum`.
        """
        W, used = self._check_weights(W)
        usable = used & self._in_range & W.isfinite().all(1)
        scale = torch.ones_like(W[:, 0]) if scale is None else scale
        return self._clipped_sum(torch.where(usable[:, None], W, 0), usable, bound, scale)

    def _check_weights(self, W):
        """Return weights in the dtype of the outputs, and a mask of the samples with weight."""
        if W.shape != self.outputs.shape:
            raise PublicValueError(
                f"W must have the shape {tuple(self.outputs.shape)} of the module's outputs, got "
                f"{tuple(W.shape)}."
            )
        W = W.detach().to(self.outputs)
        return W, (W != 0).any(1)

    @abstractmethod
    def _gram(self):
        """Return the Gram matrices."""

    @abstractmethod
    def _squared_norms(self, W):
        """Return the squared norms of the weighted rows."""

    @abstractmethod
    def _weighted_sum(self, W, used):
        """Return the weighted sum over the samples in a mask."""

    @abstractmethod
    def _clipped_sum(self, W, used, bound, scale):
        """Return the scaled sum of clipped vectors over the samples in a mask."""


class _StackLinearization(Linearization):
    """The fast path: a stack of linear layers and sample-wise functions.

    Back-propagated rows have shape (n, q, width), or (1, q, width) if all samples have the same.
    """

    def __init__(self, leaves, X):
        # Each trained layer with its input, and the functions that pull rows back to it.
        self._tape = []
        A = X
        for leaf in leaves:
            output, pull = _forward(leaf, A)
            trained = any(parameter.requires_grad for parameter in leaf.parameters())
            if trained:
                self._tape.append((leaf, A, pull))
            elif self._tape:
                self._tape.append((None, None, pull))
            A = output
        self._basis_rows = None
        super().__init__(X, A)

    def _rows(self, V):
        """Return trained layers, their inputs and the rows V (n, q, d) pulled back to them."""
        rows: list = []
        for k, (layer, A, pull) in reversed(list(enumerate(self._tape))):
            if layer is not None:
                rows.insert(0, (layer, A, V))
            if k > 0:
                V = pull(V)
        return rows

    def _gram(self):
        if self._basis_rows is None:
            self._basis_rows = self._rows(_basis(self.outputs))
        return _gram_of_rows(self._basis_rows)

    def _squared_norms(self, W):
        return _gram_of_rows(self._rows(W[:, None]))[:, 0, 0]

    def _weighted_sum(self, W, used):
        if self._basis_rows is None:
            rows = [(layer, A, B[:, 0]) for layer, A, B in self._rows(W[:, None])]
        else:
            # The same rows whose norms were measured, so that rounding cannot exceed the bound.
            rows = [(layer, A, _combine(W, B)) for layer, A, B in self._basis_rows]
        return self._sum_of_rows(rows, used)

    def _clipped_sum(self, W, used, bound, scale):
        rows = self._rows(W[:, None])
        factors = norm_clip_factors(_gram_of_rows(rows)[:, 0, 0], bound)
        scale = (scale * factors).to(W)[:, None]
        return self._sum_of_rows(
            [(layer, A, scale * B[:, 0]) for layer, A, B in rows], used & (factors > 0)
        )

    @staticmethod
    def _sum_of_rows(rows, used):
        gradients = []
        for layer, A, R in rows:
            if not used.all():
                A, R = (torch.where(used[:, None], T, 0) for T in (A, R))
            if layer.weight.requires_grad:
                gradients.append(R.mT @ A)
            if _trains_bias(layer):
                gradients.append(R.sum(0))
        return gradients


class _FunctionalLinearization(Linearization):
    """Any module under ``torch.func``: Jacobians of one chunk at a time."""

    def __init__(self, module, X, chunk_size):
        named = dict(module.named_parameters())
        self._parameters = {k: p.detach() for k, p in named.items() if p.requires_grad}
        self._fixed = {k: p for k, p in named.items() if not p.requires_grad}
        self._fixed |= dict(module.named_buffers())
        self._module, self._X, self._chunk_size = module, X, chunk_size
        forward = vmap(self._forward, in_dims=(None, 0))
        with torch.no_grad():
            outputs = [forward(self._parameters, chunk) for chunk in X.split(chunk_size)]
        super().__init__(X, torch.cat(outputs))

    def _forward(self, parameters, x):
        return functional_call(self._module, self._fixed | parameters, (x[None],)).squeeze(0)

    def _rows(self, V):
        """Yield, chunk by chunk, the rows V (n, q, d) pulled back to each parameter."""

        def pull(x, v):
            pullback = vjp(lambda parameters: self._forward(parameters, x), self._parameters)[1]
            return vmap(pullback)(v)[0]

        for chunk in zip(self._X.split(self._chunk_size), V.split(self._chunk_size), strict=True):
            yield list(vmap(pull)(*chunk).values())

    def _gram_of(self, V):
        chunks = []
        for rows in self._rows(V):
            flat = (row.flatten(2).double() for row in rows)
            chunks.append(sum(J @ J.mT for J in flat))
        return torch.cat(chunks)

    def _gram(self):
        return self._gram_of(_basis(self.outputs).expand(len(self.outputs), -1, -1))

    def _squared_norms(self, W):
        return self._gram_of(W[:, None])[:, 0, 0]

    def _weighted_sum(self, W, used):
        total = [torch.zeros_like(parameter) for parameter in self._parameters.values()]
        for rows, use in zip(self._rows(W[:, None]), used.split(self._chunk_size), strict=True):
            for gradient, row in zip(total, rows, strict=True):
                row = row[:, 0]
                gradient += torch.where(_column(use, row), row, 0).sum(0)
        return total

    def _clipped_sum(self, W, used, bound, scale):
        total = [torch.zeros_like(parameter) for parameter in self._parameters.values()]
        parts = used.split(self._chunk_size), scale.split(self._chunk_size)
        for rows, use, times in zip(self._rows(W[:, None]), *parts, strict=True):
            rows = [row[:, 0] for row in rows]
            norms = sum(row.flatten(1).double().square().sum(1) for row in rows)
            factors = norm_clip_factors(norms, bound)
            kept = use & (factors > 0)
            for gradient, row in zip(total, rows, strict=True):
                scaled = _column((times * factors).to(row), row) * row
                gradient += torch.where(_column(kept, row), scaled, 0).sum(0)
        return total


def _column(values, like):
    return values.reshape(-1, *[1] * (like.ndim - 1))


def _check_sample_wise(module):
    for name, part in module.named_modules():
        label = f"{type(part).__name__} (module {name!r})"
        if isinstance(part, _BatchNorm):
            raise PublicValueError(
                f"{label} mixes the samples of a batch, so that a per-sample Jacobian does not "
                "exist; use GroupNorm or LayerNorm."
            )
        if isinstance(part, _DropoutNd) and part.training and part.p > 0:
            raise PublicValueError(
                f"{label} draws at random in training mode, so that no Jacobian belongs to the "
                "outputs; use p=0 or evaluation mode."
            )


def _leaves(module):
    if type(module) is not nn.Sequential or _has_hooks(module):
        return [module]
    return [leaf for child in module for leaf in _leaves(child)]


def _has_hooks(module):
    forward = (module._forward_pre_hooks, module._forward_hooks)
    backward = (module._backward_pre_hooks, module._backward_hooks)
    return any(forward + backward)


def _is_stack(leaves, X):
    """Return whether leaves are known to act on the rows of a matrix, sharing no parameter."""
    flat = X.ndim == 2 or (X.ndim > 2 and type(leaves[0]) is nn.Flatten)
    parameters = [parameter for leaf in leaves for parameter in leaf.parameters()]
    unshared = len({id(parameter) for parameter in parameters}) == len(parameters)
    return flat and unshared and all(map(_is_known, leaves))


def _is_known(leaf):
    kind = type(leaf)
    if _has_hooks(leaf):
        return False
    if kind is nn.Flatten:
        return (leaf.start_dim, leaf.end_dim) == (1, -1)
    if kind is nn.Softmax:
        return leaf.dim in (1, -1)
    return kind is nn.Linear or kind is DomainHead or kind in _ELEMENTWISE


def _forward(leaf, A):
    """Return the output of a leaf, and the function from rows at the output to rows at A."""
    if type(leaf) is nn.Linear:
        weight = leaf.weight.detach()
        with torch.no_grad():
            return leaf(A), lambda V: V @ weight
    A = A.detach().requires_grad_()
    with torch.enable_grad():
        output = leaf(A.clone() if getattr(leaf, "inplace", False) else A)

    # The gradient of a sum, as gradients with weights make torch import symbolic algebra.
    @torch.enable_grad()
    def slope(v):
        return torch.autograd.grad((output * v).sum(), A, retain_graph=True)[0]

    if type(leaf) in _ELEMENTWISE:
        slopes = slope(1.0)[:, None]
        return output.detach(), lambda V: V * slopes

    def pull(V):
        return torch.stack([slope(v) for v in V.expand(len(A), -1, -1).unbind(1)], 1)

    return output.detach(), pull


def _basis(outputs):
    d = outputs.shape[1]
    return torch.eye(d, dtype=outputs.dtype, device=outputs.device)[None]


def _combine(W, B):
    """Return the weighted sum of the rows (n, d, width) of each sample, of shape (n, width)."""
    R = W[:, :1] * B[:, 0]
    for k in range(1, W.shape[1]):
        R.addcmul_(W[:, k, None], B[:, k])
    return R


def _trains_bias(layer):
    return layer.bias is not None and layer.bias.requires_grad


def _gram_of_rows(rows):
    total = 0
    for layer, A, B in rows:
        scale = A.double().square().sum(1) * layer.weight.requires_grad + _trains_bias(layer)
        B = B.double()
        total = total + scale[:, None, None] * (B @ B.mT)
    return total


# Samples per block: enough for efficient products, few enough for the cache.
_BLOCK = 1024


def clip_weights(
    gram: torch.Tensor, W: torch.Tensor, bound: float, *, clipping: str = "spectral"
) -> torch.Tensor:
    """Return weights that clip the Jacobians they are applied to.

    Parameters
    ----------
    gram : Tensor of shape (n, d, d)
        J_i J_i^T of each Jacobian.
    W : Tensor of shape (n, d)
        Weights.
    bound : float
        Largest spectral norm of a clipped Jacobian.
    clipping : {"spectral", "componentwise"}, default="spectral"
        Whether a Jacobian is scaled by its spectral norm, or each of its rows (the gradient of an
        output) is clipped to bound / sqrt(d). The latter is Remark A.2 of Rodríguez-Vítores,
        Lalanne and Loubes (2025), and may clip up to sqrt(d) times more than needed.

    Returns
    -------
    Tensor of shape (n, d)
        W' with sum_i J_i^T W'_i = sum_i clip(J_i)^T W_i. A row is zero if W or the Gram matrix
        is not finite there.
    """
    bound = check_positive(bound, "bound")
    if W.shape != gram.shape[:2]:
        raise PublicValueError(
            f"W must have the shape {tuple(gram.shape[:2])} of the module's outputs, got "
            f"{tuple(W.shape)}."
        )
    if clipping == "spectral":
        factors = spectral_clip_factors(gram, bound)[:, None]
    elif clipping == "componentwise":
        diagonal = gram.diagonal(dim1=1, dim2=2)
        factors = norm_clip_factors(diagonal, bound / math.sqrt(gram.shape[1]))
    else:
        raise PublicValueError(f"clipping must be 'spectral' or 'componentwise', got {clipping!r}.")
    finite = gram.flatten(1).isfinite().all(1) & W.isfinite().all(1)
    return torch.where(finite[:, None], (factors * W).to(W.dtype), 0)


class ClippedJacobianSum:
    """A weighted sum of clipped per-sample Jacobians that knows its sensitivity.

    It maps samples x_i and weights w_i to sum_i clip(J_i)^T w_i, with J_i the Jacobian of
    module(x_i) in the parameters, scaled by clip to a spectral norm of at most ``bound``. A sample
    whose features, Jacobian or weights are not finite contributes zero.

    Parameters
    ----------
    module : torch.nn.Module
        See :func:`linearize`.
    bound : float
        Largest spectral norm of a Jacobian, declared without looking at the samples.
    clipping : {"spectral", "componentwise"}, default="spectral"
        See ``clip_weights``.
    chunk_size : int, default=256
        See :func:`linearize`.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        bound: float,
        *,
        clipping: str = "spectral",
        chunk_size: int = 256,
    ) -> None:
        self.module = module
        self.bound = check_positive(bound, "bound")
        self.clipping = clipping
        self.chunk_size = chunk_size

    def __call__(self, X: torch.Tensor, weights: torch.Tensor) -> list[torch.Tensor]:
        """Return the clipped sum.

        Parameters
        ----------
        X : Tensor of shape (n, ...)
            Samples.
        weights : Tensor of shape (n, d)
            One weight per output of each sample; a row that is not finite counts as zero.

        Returns
        -------
        list of Tensor
            One for each parameter that requires grad, in the order of ``module.parameters()``.
        """
        first, *others = zip(X.split(_BLOCK), weights.split(_BLOCK), strict=True)
        total = self._block_sum(*first)
        for block in others:
            part = self._block_sum(*block)
            total = [a + b for a, b in zip(total, part, strict=True)]
        return total

    def _block_sum(self, X, weights):
        jacobians = linearize(self.module, X, chunk_size=self.chunk_size)
        clipped = clip_weights(jacobians.gram(), weights, self.bound, clipping=self.clipping)
        return jacobians.weighted_sum(clipped)

    def sensitivity(self, weight_bound: float) -> float:
        """Return the l2 sensitivity of the sum for given weights of the other samples.

        Two inputs are neighbours if they have the same number of samples and differ in one: in its
        features and in its own weight. The weights of all other samples are the same; if they
        depend on the replaced sample, that dependence has to be added.

        Parameters
        ----------
        weight_bound : float
            Largest l2 norm of a sample's weight, ensured by the caller.

        Returns
        -------
        float
            2 * bound * weight_bound, attained by opposite Jacobians of full norm.
        """
        return 2 * self.bound * check_positive(weight_bound, "weight_bound")
