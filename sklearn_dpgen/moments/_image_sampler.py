"""MomentImageSampler: synthetic images by class, from moments of their low frequencies."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import ArrayLike
from tqdm import tqdm

from sklearn_dpgen.domains import Ball
from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.ledger._ledger import LedgerLike
from sklearn_dpgen.moments._base import BaseMomentSampler, encode_public_array
from sklearn_dpgen.moments._cosines import coefficients, low_cosines
from sklearn_dpgen.moments._declared_images import check_images, check_width
from sklearn_dpgen.persistence._declarations import Array, demand
from sklearn_dpgen.utils._random import split_random_state
from sklearn_dpgen.utils._validation import (
    Integral,
    Interval,
    Real,
    check_array,
    check_fits,
    check_is_fitted,
    check_n_samples,
    fit_context,
    validate_data,
)

if TYPE_CHECKING:
    import torch

__all__ = ["MomentImageSampler"]

# Images of a class per step.
_N_DRAWS = 3000
# Public seed of the samples of a score, common to all scores, and their smallest number.
_SCORE_SEED, _FEWEST_GENERATED = 0, 1000


class MomentImageSampler(BaseMomentSampler):
    """Synthetic images by class, from released means and covariances of their low frequencies.

    Sums over each class of low-frequency cosine coefficients of the images, and of their outer
    products, are released with Gaussian noise. The rest is post-processing. Images are made of
    normal coefficients: sharpened, clipped to the range of the pixels, and deformed at random. The
    normal distribution is chosen such that the images have the released moments.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy budget of the whole fit, in nats; ``np.inf`` releases without noise.
    delta : float or "auto", default="auto"
        Failure probability, in (0, 1). "auto" is 0.1 / n_samples.
    shape : tuple of int
        Shape of an image: (height, width) or (height, width, channels). A row of ``X`` is a
        flattened image.
    pixel_range : tuple of float
        Public (low, high) of the pixels, such as (0, 255). Pixels outside are clipped without a
        warning, as a warning would reveal them: see :meth:`check`.
    labels : {"public", "private"} or None, default=None
        Privacy of the labels, required by ``fit(X, y)``. "public": neighbours differ in an image of
        the same class, and class sizes are public. "private": neighbours differ in an image and its
        label; class sizes are released with the means, at little or no cost.
    classes : array-like of shape (n_classes,) or None, default=None
        The public labels, at least two; required for private labels. None takes those that occur
        in ``y``, which are then public, as stated in ``privacy_``.
    label_proportions : array-like of shape (n_classes,) or None, default=None
        Public shares of the classes, in the order of ``classes_``. Class sizes are then not
        released for private labels.
    n_frequencies : int, default=10
        Number of the lowest frequencies to release along each side, or all if a side is shorter.
        The dimension of the moments is its square, times the channels.
    contrast : float, default=3.0
        At least 1. Factor by which pixels are steeper than their coefficients before clipping.
        With a larger one, more pixels are black or white.
    deformation : float, default=0.08
        Typical size of a random affine deformation of each image: a rotation in radians, a shear,
        a change of size, and three times a shift as a share of the sides. It is public knowledge
        of what the images of a class have in common; 0 for none.
    second_order_weight : float or "auto", default="auto"
        Weight of the second moments relative to the first, in units of the radius. A larger one
        puts less noise on covariances and more on means. "auto" is √½, up to which second moments
        are free, if the noise on the covariance of a class exceeds a quarter of its trace; else 2.
    public : array-like of shape (n_public, n_pixels) or tuple (X, y), default=None
        Public images of the same shape and range, or with labels that include each class, towards
        whose moments the released ones are shrunk. They cost nothing, and must not be made from
        the private images: see :ref:`public_tables`. None uses no public images.
    max_iter : int, default=30
        Steps in which the distribution of the coefficients is fitted to the moments.
    ledger : PrivacyLedger, path or None, default=None
        Ledger that a fit charges before anything is released. BudgetExceededError is raised if too
        little is left. None charges no ledger.
    unit : str or None, default=None
        Name of the column of X, a data frame, that identifies the person of a row. A person is then
        protected with all their rows: one row of each person is drawn, once and secretly, and the
        others are not read, so the distribution is that of a random row of a random person. The
        column is not learned. None protects single rows.
    random_state : int, RandomState or None, default=None
        None draws noise from the operating system's entropy. An int repeats the fit, and voids the
        guarantee against anybody who knows or guesses it.
    device : str or torch.device, default="auto"
        "auto" makes images on a GPU if there is one. The releases do not depend on it.
    verbose : int, default=0
        1 shows a progress bar.

    Attributes
    ----------
    means_ : ndarray of shape (n_classes, d)
        Released means of cosine coefficients of images with pixels in [0, 1].
    covariances_ : ndarray of shape (n_classes, d, d)
        Their covariances after removal of noise, positive definite.
    latent_means_, latent_factors_ : ndarray of shape (n_classes, d) and (n_classes, d, d)
        Mean, and root of the covariance, of the normal coefficients from which images are made.
    loss_curve_ : list of float
        At each step, the distance of the covariances of the images to the released ones, relative
        to the norm of these; the mean over the classes.
    classes_, label_proportions_ : ndarray of shape (n_classes,)
        Present if fitted with labels.
    privacy_ : PrivacyReport
        The guarantee of the fit.
    noise_multiplier_ : float
        Standard deviation of the noise relative to the sensitivity.
    n_iter_ : int
        Number of steps.
    n_features_in_ : int
        Number of pixels, times the channels.

    See Also
    --------
    MomentSampler : The same releases for vectors.

    Notes
    -----
    **Formal guarantee**

    :Promise: Central (ε, δ)-differential privacy of all that ``fit`` stores, and of all that is
        computed from it.
    :Neighbours: Replace one record; the number of records is public. With ``labels="public"``:
        replace one record by another of the same class; the sizes of the classes are public. With
        ``labels="private"``: replace one record and its label; the number of records is public.
        With ``unit``: a person with all their rows in place of a record.
    :Public: ``n_samples``; names of the columns; ``shape`` and ``pixel_range``; the images of
        ``public``. With labels their set of labels or ``classes``, the class sizes where labels are
        public, and ``label_proportions``. With ``unit``: numbers of persons, and not those of their
        rows.
    :Bounded by: A public ball of coefficients, around the grey of half the range, that holds all
        images: pixels are clipped to their range, and coefficients outside are moved to the ball.
    :Noise: Gaussian, by :class:`~sklearn_dpgen.mechanisms.ClassSumMechanism`, in floating point,
        from the operating system's entropy.
    :Priced by: The privacy profile of the Gaussian mechanism, in closed form; no sampling.
    :Not covered: What was fitted on the same records before, such as a scaler or an embedding;
        other fits of the same records, which a ``ledger`` adds up; errors of a fit; a
        ``random_state`` that others know or guess.
    :Proof: :ref:`moments_sensitivity`, Theorems 3 and 4.

    The releases, and the use of ``public``, are those of :class:`MomentSampler`, for coefficients
    in the public ball.

    Pixels of normal coefficients leave the range, and clipping changes their moments. Here the
    moments after clipping are fitted: in each step the residual of mean and covariance is added to
    the moments of the normal distribution. With deformations, the latter needs less of the spread
    of a class, and images are sharper.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn_dpgen.moments import MomentImageSampler
    >>> X, y = load_digits(return_X_y=True)
    >>> sampler = MomentImageSampler(
    ...     10.0, shape=(8, 8), pixel_range=(0, 16), labels="public", n_frequencies=6
    ... )
    >>> sampler.fit(X, y).sample(3, y=8).shape
    (3, 64)
    """

    _saved_state: dict = {
        "_model": "ImageModel",
        "_pixel_range": tuple[float, float],
        "loss_curve_": list[float],
        "n_iter_": int,
        "latent_means_": Array("f", 2),
        "latent_factors_": Array("f", 3),
    }
    _parameter_constraints: dict = BaseMomentSampler._parameter_constraints | {
        "shape": [tuple, list],
        "pixel_range": [tuple, list],
        "n_frequencies": [Interval(Integral, 1, None, closed="left")],
        "contrast": [Interval(Real, 1, 100, closed="both")],
        "deformation": [Interval(Real, 0, 0.5, closed="both")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "device": [str, object],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | str = "auto",
        *,
        shape: Sequence[int],
        pixel_range: Sequence[float],
        labels: str | None = None,
        classes: ArrayLike | None = None,
        label_proportions: ArrayLike | None = None,
        n_frequencies: int = 10,
        contrast: float = 3.0,
        deformation: float = 0.08,
        second_order_weight: float | str = "auto",
        public: ArrayLike | tuple | None = None,
        max_iter: int = 30,
        ledger: LedgerLike = None,
        unit: str | None = None,
        random_state: int | np.random.RandomState | None = None,
        device: "str | torch.device" = "auto",
        verbose: int = 0,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.shape = shape
        self.pixel_range = pixel_range
        self.labels = labels
        self.classes = classes
        self.label_proportions = label_proportions
        self.n_frequencies = n_frequencies
        self.contrast = contrast
        self.deformation = deformation
        self.second_order_weight = second_order_weight
        self.public = public
        self.max_iter = max_iter
        self.ledger = ledger
        self.unit = unit
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Release the moments of each class, and fit a distribution of images to them.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_pixels)
            Private images, flattened.
        y : array-like of shape (n_samples,) or None, default=None
            Labels; with them, ``sample`` makes images of a given class.

        Returns
        -------
        self : object

        Raises
        ------
        PublicValueError
            ``shape`` does not fit the width of ``X`` or ``pixel_range`` is invalid, labels do not
            fit the declarations, private labels without ``classes``, a public class without an
            image, or moments that do not fit in memory.
        """
        return self._fit(X, y)

    def _read(self, X, y, *, seed):
        from sklearn_dpgen.utils._torch import resolve_device

        # An unavailable device is refused before the ledger is charged.
        resolve_device(self.device)
        self._check_label_parameters(y)
        self._check_labels_are_given(y)
        low, high, shape = check_images(self.shape, self.pixel_range)
        if getattr(X, "ndim", 2) > 2:
            raise PublicValueError("X must hold one flattened image a row: X.reshape(len(X), -1).")
        X, y = self._one_labelled_row_each(X, y, seed)
        X = validate_data(self, X, dtype=[np.float64, np.float32])
        check_width(X, shape)
        codes = self._encode_labels(y, len(X))
        basis, ball = self._frequencies(shape)
        records = coefficients(X, basis, low, high), codes
        return records, self._facts(len(X), codes, y is not None, ball)

    def _learn(self, plan, released, seed):
        """Match a distribution of images to the released moments of each class."""
        import torch

        from sklearn_dpgen.moments._image_laws import match_moments
        from sklearn_dpgen.utils._random import torch_generator
        from sklearn_dpgen.utils._torch import as_array, as_tensor, resolve_device

        super()._learn(plan, released, seed)
        device, generator = resolve_device(self.device), torch_generator(seed)
        low, high, shape = check_images(self.shape, self.pixel_range)
        self._model = self._image_model(self._frequencies(shape)[0], shape, device)
        laws = zip(self.means_, self.covariances_, strict=True)
        bar = tqdm(laws, total=len(self.means_), desc="classes", disable=not self.verbose)
        with torch.no_grad():
            fits = [
                match_moments(
                    self._model,
                    as_tensor(mean, device=device),
                    as_tensor(covariance, device=device),
                    n_draws=_N_DRAWS,
                    n_iter=self.max_iter,
                    generator=generator,
                )
                for mean, covariance in bar
            ]
        self._pixel_range = low, high
        self.n_iter_ = self.max_iter
        self.loss_curve_ = np.mean([errors for *_, errors in fits], axis=0).tolist()
        self.latent_means_ = as_array(torch.stack([mean for mean, *_ in fits]))
        self.latent_factors_ = as_array(torch.stack([factor for _, factor, _ in fits]))

    def _encode_public(self, X, labels, ball, classes):
        low, high, shape = check_images(self.shape, self.pixel_range)
        X, *others = encode_public_array(X, labels, math.prod(shape), classes)
        return coefficients(X, self._frequencies(shape)[0], low, high), *others

    def _declared_ball(self, n_features):
        _, _, shape = check_images(self.shape, self.pixel_range)
        width = math.prod(shape)
        if n_features not in (None, width):
            raise PublicValueError(f"n_features must be {width}, the pixels of shape {shape}.")
        return self._frequencies(shape)[1], width

    def _frequencies(self, shape):
        """Return the released cosines, and the ball of their coefficients."""
        sides = [min(side, self.n_frequencies) for side in shape[:2]]
        d, n_pixels = math.prod(sides) * math.prod(shape[2:]), math.prod(shape)
        check_fits(24 * d * n_pixels, f"Cosines of {d} frequencies")
        basis = low_cosines(shape, self.n_frequencies)
        # No image is further from mid-grey.
        return basis, Ball(0.5 * math.sqrt(n_pixels), center=0.5 * basis.sum(axis=1))

    def _declared(self):
        return ["shape", "pixel_range"]

    def _image_model(self, basis, shape, device):
        from sklearn_dpgen.moments._image_laws import ImageModel
        from sklearn_dpgen.utils._torch import as_tensor

        return ImageModel(as_tensor(basis, device=device), shape, self.contrast, self.deformation)

    def check(self, X: ArrayLike) -> float:
        """Return the share of images with a pixel outside the declared range, which is clipped.

        Not private: it is computed from private images without noise, for the curator only. A
        range chosen by it is not public.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_pixels)

        Returns
        -------
        float
        """
        self._validate_params()
        low, high, shape = check_images(self.shape, self.pixel_range)
        X = check_array(X, dtype=[np.float64, np.float32])
        check_width(X, shape)
        return float(np.mean(((low > X) | (high < X)).any(axis=1)))

    def sample(
        self,
        n_samples: int = 1,
        *,
        y: ArrayLike | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> np.ndarray:
        """Draw synthetic images, at no cost in privacy.

        Parameters
        ----------
        n_samples : int, default=1
            Number of images.
        y : label, array-like of shape (n_samples,) or None, default=None
            The class of all images, or of each. None draws classes as ``sample_labels`` does.
        random_state : int, RandomState or None, default=None
            Seed of the draw.

        Returns
        -------
        X : ndarray of float32 of shape (n_samples, n_pixels)
            With pixels in the declared range.

        Raises
        ------
        PublicValueError
            A label is not in ``classes_``, or is given after a fit without labels.
        """
        from sklearn_dpgen.utils._random import torch_generator
        from sklearn_dpgen.utils._torch import as_array, as_tensor

        check_is_fitted(self)
        n_samples = check_n_samples(n_samples, width=4 * self.n_features_in_)
        label_seed, draw_seed = split_random_state(random_state, 2)
        codes = self._sample_codes(n_samples, y, label_seed)
        generator, device = torch_generator(draw_seed), self._model.basis.device
        X = np.empty((n_samples, self.n_features_in_), dtype=np.float32)
        laws = zip(self.latent_means_, self.latent_factors_, strict=True)
        for code, (mean, factor) in enumerate(laws):
            own = np.flatnonzero(codes == code)
            mean, factor = as_tensor(mean, device=device), as_tensor(factor, device=device)
            images = self._model.images(mean, factor, len(own), generator)
            X[own] = as_array(images, dtype=np.float32)
        low, high = self._pixel_range
        return (low + (high - low) * X).clip(low, high).astype(np.float32)

    def score(self, X: ArrayLike, y: ArrayLike | None = None) -> float:
        """Return minus the sliced Wasserstein distance between images and samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_pixels)
            Images; the score of private images is not private.
        y : array-like of shape (n_samples,) or None, default=None
            Their labels, after a fit with labels; the comparison is then class by class.

        Returns
        -------
        float
            Of order 2, in the units of the pixels, with fixed public directions and samples. It
            does not measure the gain of classifiers by ``deformation``.

        Warns
        -----
        UnpaidScoreWarning
            After a private fit, as the score charges no ledger.
        """
        from sklearn_dpgen.ot._sliced import held_out_distance

        check_is_fitted(self)
        self._warn_of_score()
        X = validate_data(self, self._without_unit(X), dtype=np.float64, reset=False)
        if y is None:
            n = max(len(X), _FEWEST_GENERATED)
            return -held_out_distance([(X, self.sample(n, random_state=_SCORE_SEED))])
        codes, groups = self._sample_codes(len(X), y, None), []
        for code in np.unique(codes):
            own = X[codes == code]
            n = max(len(own), _FEWEST_GENERATED)
            made = self.sample(n, y=self.classes_[code], random_state=_SCORE_SEED)
            groups.append((own, made))
        return -held_out_distance(groups)

    def __sklearn_is_fitted__(self):
        return hasattr(self, "latent_factors_")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.random_state is None
        return tags

    def _check_saved_state(self):
        super()._check_saved_state()
        basis, shape, n_classes = self._model.basis, self._model.shape, len(self.means_)
        demand(basis.ndim == 2 and str(basis.dtype) == "torch.float32", "There are no cosines.")
        d, n_pixels = basis.shape
        demand(len(shape) in (2, 3) and min(shape) > 0, "Images have no shape.")
        demand(math.prod(shape) == n_pixels == self.n_features_in_, "Images have other pixels.")
        demand(self.latent_means_.shape == (n_classes, d), "Images have other cosines.")
        demand(self.latent_factors_.shape == (n_classes, d, d), "Images have other cosines.")
