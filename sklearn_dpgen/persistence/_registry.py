"""The estimators that can be saved, and what is saved of each."""

from typing import Literal

from torch import nn

from sklearn_dpgen.accounting import PrivacyReport
from sklearn_dpgen.deconvolution import DeconvolutionEM, EntropicDeconvGAN
from sklearn_dpgen.deconvolution._model import GeneratorModel
from sklearn_dpgen.domains import Domain
from sklearn_dpgen.evolution import (
    EuclideanVariation,
    PrivateEvolutionSampler,
    PrivateSignedMeasureSampler,
    TabularVariation,
)
from sklearn_dpgen.evolution._voting_sampler import ClassVotes
from sklearn_dpgen.ledger._base import PrivateEstimator
from sklearn_dpgen.mechanisms import (
    GaussianMechanism,
    JointRandomizedResponse,
    LaplaceMechanism,
    Mechanism,
    RandomizedResponse,
    TabularMechanism,
)
from sklearn_dpgen.moments import MomentImageSampler, MomentSampler
from sklearn_dpgen.moments._image_laws import ImageModel
from sklearn_dpgen.persistence import _state_checks as checks
from sklearn_dpgen.persistence._estimators import State, estimator_kind
from sklearn_dpgen.persistence._hints import Array, Maybe, list_of
from sklearn_dpgen.persistence._kinds import KINDS
from sklearn_dpgen.persistence._mechanisms import check_mechanism
from sklearn_dpgen.persistence._networks import NETWORKS
from sklearn_dpgen.preprocessing import DCTTransformer, TabularEncoder
from sklearn_dpgen.sliced import (
    DPSlicedWassersteinAdapter,
    DPSlicedWassersteinFairClassifier,
    DPSlicedWassersteinFairEncoder,
    DPSlicedWassersteinFairRegressor,
    DPSlicedWassersteinGenerator,
)
from sklearn_dpgen.smoothed import (
    SmoothedSlicedWassersteinAdapter,
    SmoothedSlicedWassersteinGenerator,
)
from sklearn_dpgen.smoothed._features import AdaptedNetwork
from sklearn_dpgen.tables import LocalTableSampler, TableSampler
from sklearn_dpgen.tables._log_linear_chain import LogLinearChain
from sklearn_dpgen.tables._measurements import NoisyMarginal
from sklearn_dpgen.tables._product_mixture import ProductMixture
from sklearn_dpgen.tables._table_rules import TableRules

__all__ = ["ALL_KINDS", "STATES"]

_FITTED = {
    "privacy_": PrivacyReport,
    "n_features_in_": int,
    "feature_names_in_": Maybe(Array("O", 1)),
}
_PAID = _FITTED | {"noise_multiplier_": float | None}
_FRAMES = {
    "_frame_kind": Maybe(Literal["pandas", "polars", "pyarrow"]),
    "_sklearn_output_config": Maybe(dict[str, str]),
}
_LABELS = {
    "classes_": Maybe(Array("biufUO", 1)),
    "label_proportions_": Maybe(Array("f", 1, low=0)),
}
_DOMAIN = {"domain_": Maybe(Domain), "encoder_": Maybe(TabularEncoder)}
_CANDIDATES = {
    "candidates_": list_of(Array("f", 2)),
    "weights_": list_of(Array("f", 1, low=0)),
    "history_": list[list[ClassVotes]],
}
_MOMENTS = {"means_": Array("f", 2), "covariances_": Array("f", 3)}
_TRAINED = {"n_iter_": int, "module_": nn.Module}
_CURVE = {"loss_curve_": list[float]}

_COUNTS = dict.fromkeys(("_n_samples", "_sizes"), "Numbers of records, which a fit alone needs.")
_PRICE = {"mechanism_": "The price of a fit, which plan() tells of: privacy_ says what was paid."}
_ANEW = "It follows from the parameters, by which a mechanism is made anew."

_MECHANISM = State(
    _FITTED | {"_sklearn_output_config": Maybe(dict[str, str])},
    check_mechanism,
    {
        "_seed": "A seed voids the guarantee for whoever knows it.",
        **dict.fromkeys(
            [
                *("domain_", "scale_", "epsilon_", "encoder_", "table_"),
                *("n_asked_", "design_", "_index", "_parts", "_sizes", "_ordered"),
                *("_limit", "_always", "_weights", "_certified"),
            ],
            _ANEW,
        ),
    },
)
_FAIR = _PAID | _TRAINED | {"groups_": list | None}

STATES: dict[type[PrivateEstimator], State] = {
    TableSampler: State(
        _PAID
        | _FRAMES
        | {
            "n_records_": float,
            "encoder_": TabularEncoder,
            "one_way_marginals_": list[NoisyMarginal],
            "marginals_": list[NoisyMarginal],
            "law_": LogLinearChain,
            "_rules_": Maybe(TableRules),
        },
        checks.check_sliced_sampler,
    ),
    LocalTableSampler: State(
        _FITTED
        | _FRAMES
        | _CURVE
        | {
            "mechanism_": JointRandomizedResponse,
            "law_": ProductMixture,
            "n_iter_": int,
            "_privatizes": bool,
            "_device": str,
        },
        checks.check_local_sampler,
        {"encoder_": "It is that of mechanism_."},
    ),
    PrivateEvolutionSampler: State(
        _PAID
        | _FRAMES
        | _LABELS
        | _DOMAIN
        | _CANDIDATES
        | {"interface_": EuclideanVariation | TabularVariation, "n_iter_": int},
        checks.check_evolution_sampler,
        _COUNTS,
    ),
    PrivateSignedMeasureSampler: State(
        _PAID | _FRAMES | _LABELS | _DOMAIN | _CANDIDATES, checks.check_voting_sampler, _COUNTS
    ),
    MomentSampler: State(
        _PAID | _FRAMES | _LABELS | _DOMAIN | _MOMENTS, checks.check_moment_sampler
    ),
    MomentImageSampler: State(
        _PAID
        | _FRAMES
        | _LABELS
        | _MOMENTS
        | _CURVE
        | {
            "_model": ImageModel,
            "_pixel_range": tuple[float, float],
            "n_iter_": int,
            "latent_means_": Array("f", 2),
            "latent_factors_": Array("f", 3),
        },
        checks.check_image_sampler,
    ),
    DPSlicedWassersteinGenerator: State(
        _PAID | _FRAMES | _DOMAIN | _TRAINED, checks.check_sliced_generator, _PRICE
    ),
    DPSlicedWassersteinFairClassifier: State(
        _FAIR | {"classes_": Array("biufUO", 1)}, checks.check_predictor, _PRICE
    ),
    DPSlicedWassersteinFairRegressor: State(
        _FAIR | {"y_domain_": Domain, "_single_output": bool}, checks.check_predictor, _PRICE
    ),
    DPSlicedWassersteinFairEncoder: State(
        _FAIR | {"_sklearn_output_config": Maybe(dict[str, str])}, checks.check_predictor, _PRICE
    ),
    DPSlicedWassersteinAdapter: State(
        _PAID | _TRAINED | {"classes_": Array("biufUO", 1)}, checks.check_predictor, _PRICE
    ),
    SmoothedSlicedWassersteinGenerator: State(
        _PAID
        | _FRAMES
        | _LABELS
        | _DOMAIN
        | _CURVE
        | {
            "generator_": nn.Module,
            "n_iter_": int,
            "_n_normals": int,
            "_output_domain": Domain,
            "_output_transform": DCTTransformer | None,
        },
        checks.check_smoothed_generator,
    ),
    SmoothedSlicedWassersteinAdapter: State(
        _PAID
        | _CURVE
        | {
            "module_": AdaptedNetwork,
            "n_iter_": int,
            "classes_": Array("biufUO", 1),
            "domain_": Maybe(Domain),
        },
        checks.check_predictor,
    ),
    EntropicDeconvGAN: State(
        _FITTED
        | _FRAMES
        | _CURVE
        | {
            "mechanism_": Mechanism,
            "generator_": nn.Module,
            "n_iter_": int,
            "_privatizes": bool,
            "_model": GeneratorModel,
        },
        checks.check_gan,
    ),
    DeconvolutionEM: State(
        _FITTED
        | {
            "mechanism_": Mechanism,
            "points_": Array("f", 2),
            "weights_": Array("f", 1, low=0),
            "n_iter_": int,
        },
        checks.check_em,
    ),
    LaplaceMechanism: _MECHANISM,
    GaussianMechanism: _MECHANISM,
    RandomizedResponse: _MECHANISM,
    TabularMechanism: _MECHANISM,
    JointRandomizedResponse: _MECHANISM,
}

_ESTIMATORS = {kind.__name__: estimator_kind(kind, state) for kind, state in STATES.items()}
ALL_KINDS = KINDS | NETWORKS | _ESTIMATORS
