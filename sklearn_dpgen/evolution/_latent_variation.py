"""Candidates from a public generator network."""

import copy
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr
from sklearn.base import BaseEstimator

from sklearn_dpgen.domains import Domain, OneHot
from sklearn_dpgen.evolution._variation_interface import (
    check_candidates,
    check_degree,
    flat_factors,
)
from sklearn_dpgen.exceptions import PublicTypeError, PublicValueError
from sklearn_dpgen.mechanisms import Mechanism
from sklearn_dpgen.utils._validation import Integral

if TYPE_CHECKING:
    import torch

__all__ = ["LatentVariation"]

_CHUNK = 1024


class LatentVariation:
    """Candidates that are latents of a generator network.

    The network must have been trained on public data, because the report of a fit covers the votes
    alone. A network that was trained on private records has a privacy cost of its own.

    Parameters
    ----------
    generator : torch.nn.Module
        Network from (n, latent_dim + n_classes) to n points or images. It is copied, and used in
        evaluation mode.
    latent_dim : int
        Number of its inputs, without those for a class.
    class_weights : array-like of shape (n_classes,) or None, default=None
        For a network with a one-hot class after its latents: the public shares by which
        candidates are of the classes. A single one above 0 is a fixed class.
    latent_law : {"normal", "uniform"}, default="normal"
        Distribution of the latents in training: standard normal, or uniform on [-1, 1].
    domain : Domain or None, default=None
        Set on which decoded points are projected, after a category of each one-hot block was drawn
        by its soft weights. None does not change the points.
    device : str or torch.device, default="auto"
        "auto" takes a GPU if there is one.

    Attributes
    ----------
    width : int
        Width of a candidate: ``latent_dim``, one more where there are several classes, and one for
        each one-hot block of the domain.

    Notes
    -----
    ``vary`` returns sqrt(1 - degree²) z + degree N(0, I), which keeps the
    distribution of the latents normal, so that a variation is as likely under the network as its
    parent. At degree 1 it is independent of the parent. Candidates are always normal: uniform
    latents, the class and the draws of categories are functions of them.
    """

    latent_dim: int
    class_weights: np.ndarray
    latent_law: str
    domain: Domain | None
    device: "torch.device"
    generator: "torch.nn.Module"
    width: int
    _dtype: "torch.dtype"
    _blocks: list[slice]
    _n_inputs: int

    def __init__(
        self,
        generator: "torch.nn.Module",
        latent_dim: int,
        *,
        class_weights: ArrayLike | None = None,
        latent_law: str = "normal",
        domain: Domain | None = None,
        device: "str | torch.device" = "auto",
    ) -> None:
        import torch

        from sklearn_dpgen.utils._torch import resolve_device

        if not isinstance(generator, torch.nn.Module):
            raise PublicTypeError(
                f"generator must be a torch module, got {type(generator).__name__}."
            )
        if isinstance(latent_dim, bool) or not isinstance(latent_dim, Integral) or latent_dim < 1:
            raise PublicValueError(
                f"latent_dim must be an integer of at least 1, got {latent_dim!r}."
            )
        if latent_law not in ("normal", "uniform"):
            raise PublicValueError(f"latent_law must be 'normal' or 'uniform', got {latent_law!r}.")
        if domain is not None and not isinstance(domain, Domain):
            raise PublicTypeError(f"domain must be a Domain or None, got {type(domain).__name__}.")
        self.latent_dim = int(latent_dim)
        self.class_weights = _check_class_weights(class_weights)
        self.latent_law = latent_law
        self.domain = domain
        self.device = resolve_device(device)
        # A copy stays as it is while the original is trained on, or moved.
        self.generator = copy.deepcopy(generator).to(self.device).eval()
        parameter = next(self.generator.parameters(), None)
        self._dtype = torch.float32 if parameter is None else parameter.dtype
        factors = [] if domain is None else flat_factors(domain)
        self._blocks = [columns for columns, factor in factors if isinstance(factor, OneHot)]
        self._n_inputs = self.latent_dim + int(np.count_nonzero(self.class_weights) > 1)
        self.width = self._n_inputs + len(self._blocks)

    @classmethod
    def from_sampler(
        cls,
        sampler: BaseEstimator,
        y: Hashable | None = None,
        *,
        device: "str | torch.device" = "auto",
    ) -> Self:
        """Build the interface from a fitted estimator of this package that holds a network.

        Parameters
        ----------
        sampler : estimator
            Fitted, with its network as ``generator_`` or ``module_``, and ``latent_dim``.
        y : label or None, default=None
            The class of all candidates. None draws classes by ``label_proportions_`` after a fit
            with labels.
        device : str or torch.device, default="auto"

        Returns
        -------
        LatentVariation
            Its decoded points are what ``sample`` makes records of: encoded rows with a schema.

        Raises
        ------
        TypeError
            No network is found.
        ValueError
            A label that the sampler was not fitted with.
        """
        generator = getattr(sampler, "generator_", getattr(sampler, "module_", None))
        if generator is None or not hasattr(sampler, "latent_dim"):
            raise PublicTypeError(
                f"sampler must hold a fitted network with latents, got {type(sampler).__name__}."
            )
        # Estimators that invert a local mechanism train on uniform latents.
        mechanism: Any = getattr(sampler, "mechanism_", None)
        is_local = isinstance(mechanism, Mechanism)
        domain = getattr(sampler, "output_domain", None)
        if domain is None:
            domain = mechanism.domain_ if is_local else sampler.domain_
        return cls(
            generator,
            getattr(generator, "n_noise", 0) + sampler.latent_dim,
            class_weights=_sampler_class_weights(sampler, y),
            latent_law="uniform" if is_local else "normal",
            domain=domain,
            device=device,
        )

    def random(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw ``n`` standard normal latents; see :class:`VariationInterface`."""
        return rng.normal(size=(n, self.width))

    def vary(self, X: np.ndarray, rng: np.random.Generator, degree: float) -> np.ndarray:
        """Draw one variation of each latent, by a degree in (0, 1].

        See :class:`VariationInterface`.
        """
        degree = check_degree(degree)
        X = np.asarray(X, dtype=np.float64)
        return np.sqrt(1 - degree**2) * X + degree * rng.normal(size=X.shape)

    def decode(self, X: np.ndarray) -> np.ndarray:
        """Return the points that the network makes of latents.

        Parameters
        ----------
        X : ndarray of shape (n, width)

        Returns
        -------
        ndarray of float64 of shape (n, n_features)
            Images are flattened.

        Raises
        ------
        ValueError
            The network returns something else than one finite point for each latent.
        """
        import torch

        from sklearn_dpgen.utils._torch import as_array, as_tensor

        X = check_candidates(X, len(X), self.width, None, self)
        latents = X[:, : self.latent_dim]
        latents = latents if self.latent_law == "normal" else 2 * ndtr(latents) - 1
        if len(self.class_weights):
            latents = np.hstack([latents, np.eye(len(self.class_weights))[self.classes(X)]])
        inputs = as_tensor(latents, device=self.device, dtype=self._dtype)
        with torch.no_grad():
            outputs = [as_array(self.generator(chunk)) for chunk in inputs.split(_CHUNK)]
        points = np.concatenate([output.reshape(len(output), -1) for output in outputs])
        points = check_candidates(points, len(X), None, None, self.generator)
        if self.domain is None:
            return points
        if points.shape[1] != self.domain.n_features:
            raise PublicValueError(
                f"generator makes {points.shape[1]} features where the domain has "
                f"{self.domain.n_features}."
            )
        for columns, quantiles in zip(self._blocks, ndtr(X[:, self._n_inputs :]).T, strict=True):
            edges = np.cumsum(points[:, columns], axis=1)
            codes = (quantiles[:, None] * edges[:, -1:] > edges[:, :-1]).sum(axis=1)
            points[:, columns] = np.eye(edges.shape[1])[codes]
        return self.domain.project(points)

    def classes(self, X: np.ndarray) -> np.ndarray:
        """Return the class that each latent is decoded to.

        Parameters
        ----------
        X : ndarray of shape (n, width)

        Returns
        -------
        ndarray of int of shape (n,)
            Positions in ``class_weights``.

        Raises
        ------
        ValueError
            There are no classes.
        """
        possible = np.flatnonzero(self.class_weights)
        if len(possible) == 0:
            raise PublicValueError("Without class_weights there are no classes.")
        if len(possible) == 1:
            return np.repeat(possible, len(X))
        edges = np.cumsum(self.class_weights[possible])[:-1]
        return possible[np.searchsorted(edges, ndtr(X[:, self._n_inputs - 1]), side="right")]


def _check_class_weights(weights):
    if weights is None:
        return np.empty(0)
    weights = np.array(weights, dtype=np.float64)
    if weights.ndim != 1 or not np.isfinite(weights).all() or (weights < 0).any():
        raise PublicValueError("class_weights must be a vector of finite numbers of at least 0.")
    if not weights.sum() > 0:
        raise PublicValueError("class_weights must hold a number above 0.")
    return weights / weights.sum()


def _sampler_class_weights(sampler, y):
    classes = getattr(sampler, "classes_", None)
    if classes is None:
        if y is not None:
            raise PublicValueError("y needs a sampler that was fitted with labels.")
        return None
    if y is None:
        return sampler.label_proportions_
    chosen = np.asarray(classes) == y
    if not np.any(chosen):
        raise PublicValueError("y is not a label that the sampler was fitted with.")
    return chosen
