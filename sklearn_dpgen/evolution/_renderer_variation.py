"""Candidates that are parameters of a public renderer."""

from collections.abc import Callable

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from sklearn_dpgen.domains import Domain
from sklearn_dpgen.evolution._tabular_variation import TabularVariation
from sklearn_dpgen.evolution._variation_interface import check_candidates, check_degree
from sklearn_dpgen.schema import Schema

__all__ = ["RendererVariation"]


class RendererVariation:
    """Candidates that are parameters of a renderer, and votes that go to what it draws.

    A renderer is any program that makes a record of declared parameters: a simulator, a graphics
    engine, fonts. It was not trained, and nothing of it is private [1]_.

    Parameters
    ----------
    render : callable
        From a data frame of n rows of parameters to an array of n points or images. Each row by
        itself, and the same for the same parameters.
    parameters : Schema or TabularVariation
        What is public of its parameters: their ranges and categories. An interface instead of a
        schema tells how they are drawn and varied.
    domain : Domain or None, default=None
        Where rendered points are projected. None leaves them as they are.

    Attributes
    ----------
    parameters : TabularVariation
        Draws parameters and varies them.

    Notes
    -----
    Candidates are encoded rows of parameters: numbers on [-1, 1], and categories as one-hot
    blocks. ``parameters.encoder`` makes data frames of them. ``vary`` moves a few parameters at a
    time, see :class:`TabularVariation`; ``smooth`` moves all numbers, and no category.

    References
    ----------
    .. [1] Z. Lin, T. Baltrusaitis, W. Wang, S. Yekhanin, "Differentially private synthetic data via
       APIs 3: using simulators instead of foundation models", 2025.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_dpgen.evolution import RendererVariation
    >>> from sklearn_dpgen.schema import Categorical, Numeric, Schema
    >>> schema = Schema({"size": Numeric(1, 4), "color": Categorical(["black", "grey"])})
    >>> def bars(frame):
    ...     shade = np.where(frame["color"] == "black", 1.0, 0.5)
    ...     return shade[:, None] * (np.arange(5) < frame["size"].to_numpy()[:, None])
    >>> interface = RendererVariation(bars, schema)
    >>> rng = np.random.default_rng(0)
    >>> interface.decode(interface.vary(interface.random(3, rng), rng, 0.25)).shape
    (3, 5)
    """

    def __init__(
        self,
        render: Callable[[pd.DataFrame], ArrayLike],
        parameters: Schema | TabularVariation,
        *,
        domain: Domain | None = None,
    ) -> None:
        if not callable(render):
            raise TypeError(f"render must be callable, got {type(render).__name__}.")
        if isinstance(parameters, Schema):
            parameters = TabularVariation(parameters)
        if not isinstance(parameters, TabularVariation):
            raise TypeError(
                "parameters must be a Schema or a TabularVariation, got "
                f"{type(parameters).__name__}."
            )
        if domain is not None and not isinstance(domain, Domain):
            raise TypeError(f"domain must be a Domain or None, got {type(domain).__name__}.")
        self.render = render
        self.parameters = parameters
        self.domain = domain

    def random(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw ``n`` rows of parameters; see :class:`VariationInterface`."""
        return self.parameters.random(n, rng)

    def vary(self, X: np.ndarray, rng: np.random.Generator, degree: float) -> np.ndarray:
        """Draw one variation of each row of parameters, by a degree in (0, 1].

        See :class:`VariationInterface`.
        """
        return self.parameters.vary(X, rng, degree)

    def smooth(self, X: np.ndarray, rng: np.random.Generator, degree: float) -> np.ndarray:
        """Move all numbers of each row, and keep its categories.

        Parameters
        ----------
        X : ndarray of shape (n, width)
        rng : numpy.random.Generator
        degree : float
            Standard deviation of a move over the range of the number, in (0, 1].

        Returns
        -------
        ndarray of shape (n, width)
        """
        degree = check_degree(degree)
        blocks = self.parameters.encoder.blocks_.values()
        numbers = [part.start for part in blocks if part.stop - part.start == 1]
        moved = np.array(X, dtype=np.float64)
        moved[:, numbers] += 2 * degree * rng.normal(size=(len(moved), len(numbers)))
        return self.parameters.domain.project(moved)

    def decode(self, X: np.ndarray) -> np.ndarray:
        """Return what the renderer makes of parameters.

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
            The renderer returns something else than one finite point for each row, or points of
            another width than those of the domain.
        """
        frame = self.parameters.encoder.inverse_transform(X)
        points = np.asarray(self.render(frame))
        points = points.reshape(len(points), -1) if points.ndim > 2 else points
        width = None if self.domain is None else self.domain.n_features
        points = check_candidates(points, len(X), width, None, self)
        return points if self.domain is None else self.domain.project(points)

    def __repr__(self):
        return f"RendererVariation({self.render!r}, {self.parameters.schema!r})"
