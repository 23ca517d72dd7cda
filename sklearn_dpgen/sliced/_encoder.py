"""DPSlicedWassersteinFairEncoder: private and group-fair representations."""

from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from torch import nn

from sklearn_dpgen.accounting import PrivacyReport
from sklearn_dpgen.domains import Ball
from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.ledger._ledger import LedgerLike
from sklearn_dpgen.nn import Training
from sklearn_dpgen.nn._generators import DomainHead
from sklearn_dpgen.persistence._declarations import Maybe
from sklearn_dpgen.persistence._networks import check_network
from sklearn_dpgen.sliced._base import DTYPE, ClippedGradient, linear_layers, setting_defaults
from sklearn_dpgen.sliced._fair import FairEstimator
from sklearn_dpgen.utils._torch import resolve_device
from sklearn_dpgen.utils._validation import (
    Integral,
    Interval,
    StrOptions,
    check_array,
    check_count,
    check_is_fitted,
    fit_context,
    validate_data,
)

__all__ = ["DPSlicedWassersteinFairEncoder"]


class DPSlicedWassersteinFairEncoder(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, FairEstimator
):
    """Private fair representation: codes with similar distributions in all groups.

    An autoencoder minimizes (1 - alpha) times the mean squared reconstruction error plus alpha
    times a squared sliced Wasserstein distance between the distributions of the codes in the groups
    of a sensitive feature. Training descends noisy clipped gradients. A model that is trained on
    the codes can infer little about the sensitive feature.

    Parameters
    ----------
    alpha : float, default=0.5
        Weight of the penalty, in [0, 1].
    n_components : int, default=2
        Dimension of the codes.
    code_law : {"uniform", "free"}, default="uniform"
        Distribution of the codes. "uniform" compares the codes of each group with the uniform
        distribution on a ball, which fixes their scale and halves the sensitivity. "free" compares
        the groups with each other (eq. 23 of [1]_), so an autoencoder may shrink its codes instead
        of mixing the groups.
    groups : array-like of shape (n_groups,) or (n_groups, n_columns), or None, default=None
        The public groups, at least two: values of ``sensitive_features``, or rows of them. None
        takes the groups that occur, which are then public (:ref:`fair_groups`).
    protect_groups : bool, default=False
        Whether the group of a record is protected too, and with it the sizes of the groups
        (:ref:`protected_groups`). ``groups`` must then be declared, and the noise is larger: with
        the defaults by nine tenths.
    epsilon : float, default=1.0
        Privacy budget of the whole fit, in nats; ``np.inf`` trains without noise.
    delta : float or "auto", default="auto"
        Failure probability, in (0, 1). "auto" is 0.1 / n_samples.
    training : Training or None, default=None
        Network and optimizer (:ref:`training_settings`). ``epsilon`` covers all steps.
        Defaults: ``hidden_layer_sizes=(64,)`` for the encoder, reversed for the decoder,
        ``activation="relu"``, ``max_iter=500``, ``solver="adam"``, ``learning_rate=0.01``,
        ``schedule="cosine"``, ``averaging=0.2``.
    gradient : ClippedGradient or None, default=None
        Clips and batches (:ref:`training_settings`). Defaults: ``task_clip=1.0`` for the
        reconstruction error, ``output_bound=2.0``, the radius of the ball of the codes,
        ``jacobian_clip=1.0`` for the codes, ``jacobian_clipping="spectral"``, ``n_projections=50``
        for more than one component, ``batch_fraction=0.2``, ``group_weights="size"``. The
        sensitivity of a step: :ref:`sensitivity`.
    ledger : PrivacyLedger, path or None, default=None
        Ledger that a fit charges before it releases anything. BudgetExceededError is raised if too
        little is left. None charges no ledger.
    unit : str or None, default=None
        Name of the column of X, a data frame, that identifies the person of a row
        (:ref:`budget_persons`). A person then counts as one record, and each step draws one row of
        each person in its batch. All rows of a person must have the same group, unless groups are
        protected. The column is not learned from. None protects single rows.
    random_state : int, RandomState or None, default=None
        None draws noise and batches from the operating system's entropy. An int repeats the fit,
        and voids the guarantee against anybody who knows or guesses it.

    Attributes
    ----------
    module_ : torch.nn.Module
        The autoencoder, in double precision: ``module_[0]`` encodes and ``module_[1]`` decodes.
    privacy_ : PrivacyReport
        The guarantee of the fit.
    noise_multiplier_ : float
        Standard deviation of the noise divided by the sensitivity.
    mechanism_ : StratifiedGaussianMechanism
        The mechanism of a step; ``mechanism_.epsilons(t)`` is the cost of t steps for each stratum.
    groups_ : list or None
        The groups, in order; None if the fit had no ``sensitive_features``.
    n_iter_ : int
        Number of steps.
    n_features_in_ : int
        Number of features.

    Notes
    -----
    **Formal guarantee**

    :Promise: Central (ε, δ)-differential privacy of all iterates of the training, and so of the
        encoder and the decoder.
    :Neighbours: Replace one record by another of the same group; sizes of the groups are public.
        With ``protect_groups``, or without sensitive features: replace one record; the number of
        records is public. With ``unit``: a person with all their rows in place of a record.
    :Public: ``n_samples``; names of the columns; without ``protect_groups`` sizes of the groups,
        and values of the sensitive features, where ``groups`` does not declare them. With ``unit``:
        numbers of persons, and not those of their rows.
    :Bounded by: Clips: gradients of the loss to ``task_clip``, Jacobians to ``jacobian_clip``,
        outputs to ``output_bound``. Features need no bound.
    :Noise: Gaussian on the summed gradients of secret batches, by
        :class:`~sklearn_dpgen.mechanisms.StratifiedGaussianMechanism`, which also draws the
        batches, in floating point, from the operating system's entropy.
    :Priced by: The privacy profile of the Gaussian mechanism under sampling without replacement,
        composed numerically over all steps.
    :Not covered: Codes of private records, which are private records still: a predictor that is
        trained on them has to pay for itself; without ``protect_groups`` which group a record is
        in, beyond the sizes of the groups; what was fitted on the same records before, such as a
        scaler; other fits of the same records, which a ``ledger`` adds up; errors of a fit; a
        ``random_state`` that others know or guess.
    :Proof: :ref:`sensitivity`, with ``protect_groups`` :ref:`protected_sensitivity`; of the
        training :ref:`central-training`.

    Scale features by public bounds, with ``TabularEncoder(schema)`` in a pipeline. A scaler that is
    fitted on the private records is an unpaid release.

    References
    ----------
    .. [1] D. Rodríguez-Vítores, C. Lalanne, J.-M. Loubes, "Learning with differentially private
       (sliced) Wasserstein gradients", 2025, appendix B.3. There codes are unbounded and projected
       on the ball when compared; here a smooth map takes them into the ball.

    Examples
    --------
    >>> from sklearn_dpgen.datasets import make_biased_labels
    >>> from sklearn_dpgen.nn import Training
    >>> from sklearn_dpgen.sliced import DPSlicedWassersteinFairEncoder
    >>> data = make_biased_labels(10000, random_state=0)
    >>> encoder = DPSlicedWassersteinFairEncoder(alpha=0.25, training=Training(max_iter=50))
    >>> codes = encoder.fit_transform(data.X, sensitive_features=data.sensitive)
    >>> codes.shape, encoder.inverse_transform(codes).shape
    ((10000, 2), (10000, 16))
    """

    _saved_state: dict = {"_sklearn_output_config": Maybe(dict[str, str])}
    _parameter_constraints: dict = {
        **FairEstimator._parameter_constraints,
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "code_law": [StrOptions({"uniform", "free"})],
    }
    _setting_defaults: dict = setting_defaults(
        {"hidden_layer_sizes": (64,), "max_iter": 500, "learning_rate": 0.01},
        {
            "task_clip": 1.0,
            "output_bound": 2.0,
            "jacobian_clip": 1.0,
            "jacobian_clipping": "spectral",
            "group_weights": "size",
        },
    )

    def __init__(
        self,
        alpha: float = 0.5,
        *,
        n_components: int = 2,
        code_law: str = "uniform",
        groups: ArrayLike | None = None,
        protect_groups: bool = False,
        epsilon: float = 1.0,
        delta: float | str = "auto",
        training: Training | None = None,
        gradient: ClippedGradient | None = None,
        ledger: LedgerLike = None,
        unit: str | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.alpha = alpha
        self.n_components = n_components
        self.code_law = code_law
        self.groups = groups
        self.protect_groups = protect_groups
        self.epsilon = epsilon
        self.delta = delta
        self.training = training
        self.gradient = gradient
        self.ledger = ledger
        self.unit = unit
        self.random_state = random_state

    @fit_context(prefer_skip_nested_validation=True)
    def plan(
        self, n_samples: int, n_features: int, *, group_sizes: ArrayLike | None = None
    ) -> PrivacyReport:
        """Return the privacy report of a fit, from public sizes alone.

        Parameters
        ----------
        n_samples : int
            Number of records; with ``unit`` all sizes are numbers of persons.
        n_features : int
            Number of features.
        group_sizes : array-like of int of shape (n_groups,), or None, default=None
            Numbers of records of each group, in the order of the groups. None is a fit without
            groups and without penalty, and with ``protect_groups`` one with groups of any sizes.

        Returns
        -------
        PrivacyReport
            Equal to ``privacy_`` of a fit on records of these sizes.

        Raises
        ------
        PublicValueError
            Sizes are inconsistent, or ``fit`` would refuse them.

        Warns
        -----
        NoisyGradientsWarning
            The noise is too large to learn the task; ``fit`` warns too.
        SmallGroupWarning
            Groups are so unequal that codes hardly depend on the penalty; ``fit`` warns too.
        """
        strata = self._strata_of_sizes(n_samples, group_sizes)
        return self._plan(strata, n_features).report

    def _plan(self, strata, n_features, groups=None):
        ball = Ball(self._gradient.output_bound, n_features=self.n_components)
        widths = self._layer_widths(check_count(n_features, "n_features"), self.n_components)
        return self._fair_plan(
            strata,
            n_features,
            groups,
            ball=ball,
            layer_widths=[widths, widths[::-1]],
            reference=ball.sample if self.code_law == "uniform" else None,
        )

    @fit_context(prefer_skip_nested_validation=True)
    def fit(
        self, X: ArrayLike, y: object = None, *, sensitive_features: ArrayLike | None = None
    ) -> Self:
        """Train the autoencoder on private records.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Records.
        y : Ignored
        sensitive_features : array-like of shape (n_samples,) or (n_samples, n_columns), or None
            The sensitive feature, whose distinct values are the groups; with several columns, the
            combinations that occur (:ref:`fair_groups`). None fits without the penalty, and warns
            unless ``alpha`` is 0.

        Returns
        -------
        self : object

        Raises
        ------
        TrainingDivergedError
            A noisy gradient or a parameter is not finite.
        """
        return self._fit(X, sensitive_features=sensitive_features)

    def _read(self, X, *, seed, sensitive_features):
        resolve_device(self._training.device)
        X, persons = self._split_unit(X)
        X = validate_data(self, X, dtype=np.float64)
        return self._stratified(X, X, persons, sensitive_features)

    def _network(self, descent):
        encoder, decoder = (
            linear_layers(widths, self._training.activation) for widths in descent.layer_widths
        )
        return nn.Sequential(nn.Sequential(encoder, DomainHead(descent.objective.ball)), decoder)

    def _task_and_compared(self, module):
        return module, module[0]

    def _residuals(self, module, outputs, targets):
        return 2 * (outputs - targets)

    def transform(self, X: ArrayLike) -> np.ndarray:
        """Return the codes of records.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_components)
            In the ball of radius ``output_bound``.
        """
        return self._outputs(X, first_module=True)

    def inverse_transform(self, X: ArrayLike) -> np.ndarray:
        """Return the decoded records of codes.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_components)
            Codes.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
        """
        check_is_fitted(self)
        X = check_array(X, dtype=np.float64)
        if X.shape[1] != self._n_features_out:
            raise PublicValueError(
                f"X must have a column for each of the {self._n_features_out} components, got "
                f"{X.shape[1]}."
            )
        return self._forward(self.module_[1], X)

    @property
    def _n_features_out(self):
        return self.module_[1][0].in_features

    def _check_saved_state(self):
        super()._check_saved_state()
        check_network(self.module_, self.n_features_in_, self.n_features_in_, dtype=DTYPE)
