"""A privacy guarantee as data: enumerations and numbers for code, without sentences.

`_wording.py` is the only module that converts one to English.
"""

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from numbers import Real
from typing import Any, Self

from sklearn_dpgen.accounting._composition import ComposedProfile
from sklearn_dpgen.accounting._profiles import ApproximateProfile, PrivacyProfile
from sklearn_dpgen.exceptions import PublicTypeError, PublicValueError
from sklearn_dpgen.utils._checks import check_count, set_fields

__all__ = [
    "Bound",
    "BoundKind",
    "Caveat",
    "Event",
    "Guarantee",
    "Neighbours",
    "Protected",
    "Public",
    "Released",
    "Shared",
]


class _Term(StrEnum):
    """Base of the enumerations: an error lists the values."""

    @classmethod
    def _missing_(cls, value):
        raise PublicValueError(
            f"{cls.__name__} must be one of {list(map(str, cls))}, got {value!r}."
        )


class Neighbours(_Term):
    """Neighbouring relation of data sets. Guarantees with different ones are not composed."""

    REPLACE_ONE = "replace_one"
    ADD_OR_REMOVE = "add_or_remove"


class Protected(_Term):
    """Unit of protection: what is replaced, added or removed."""

    RECORD = "record"
    LABELLED_RECORD = "record_and_label"
    RECORD_OR_LATENT = "record_or_latent"
    SOURCE_RECORD = "source_record"
    TARGET_RECORD = "target_record"
    SOURCE_OR_TARGET_RECORD = "source_or_target_record"
    # In the local model: the record of one person, without a trusted curator.
    OWN_RECORD = "own_record"


class Shared(_Term):
    """Property that a record shares with its replacement."""

    CLASS = "class"
    GROUP = "group"
    LABEL = "label"
    DOMAIN = "domain"


class Public(_Term):
    """Facts that a guarantee treats as public; public parameters are given by their names.

    ``N_SAMPLES`` counts records, or persons if these are the unit of protection.
    """

    N_SAMPLES = "n_samples"
    N_LATENTS = "n_latents"
    COLUMN_NAMES = "column_names"
    LABEL_SET = "label_set"
    CLASS_SIZES = "class_sizes"
    GROUP_SET = "group_set"
    GROUP_SIZES = "group_sizes"
    GROUP_AND_LABEL_SIZES = "group_and_label_sizes"
    DOMAIN_SIZES = "domain_sizes"
    SOURCE = "source"
    TARGET = "target_records"
    ORDER = "order"
    ORDER_AND_INDEX = "order_and_index"
    COMPARED_SAMPLE = "compared_sample"
    FITTED_ESTIMATOR = "fitted_estimator"
    VALIDATION_ROWS = "validation_rows"


class Released(_Term):
    """Content of a release."""

    NOTHING = "nothing"
    EXACT = "exact"
    VALUES = "values"
    COUNTS = "counts"
    SUMS = "sums"
    GAUSSIAN_RECORDS = "gaussian_records"
    LAPLACE_RECORDS = "laplace_records"
    RANDOMIZED_RESPONSE = "randomized_response"
    NULL_FLAG_RESPONSE = "null_flag_response"
    GAUSSIAN_COLUMN = "gaussian_column"
    LAPLACE_COLUMN = "laplace_column"
    CERTIFIED_LAPLACE_COLUMN = "certified_laplace_column"
    RANDOMIZED_COLUMNS = "randomized_columns"
    JOINT_ANSWER = "joint_answer"
    OPEN_LABELS = "open_labels"
    COLUMN_COUNTS = "column_counts"
    MARGINAL_COUNTS = "marginal_counts"
    START_MOMENTS = "start_moments"
    VOTES = "votes"
    DISTANCE = "distance"
    CLASS_MEANS = "class_means"
    CLASS_SIZES = "class_sizes"
    SECOND_MOMENTS = "second_moments"
    LABEL_COUNTS = "label_counts"
    RECORDS = "records"
    PROJECTIONS = "projections"
    MOMENTS = "moments"
    PROJECTED_COUNTS = "projected_counts"
    BATCH_PROJECTIONS = "batch_projections"
    TARGET_FEATURES = "target_features"
    TARGET_PROJECTIONS = "target_projections"
    GRADIENTS = "gradients"
    GROUP_COUNTS = "group_counts"
    GROUP_SUMS = "group_sums"
    GROUP_MEANS = "group_means"
    FITS = "fits"
    BEST_OF_RUNS = "best_of_runs"


class BoundKind(_Term):
    """Source of a bound on a sensitivity: a declaration, or code that enforces it."""

    L1_DIAMETER = "l1_diameter"
    L2_DIAMETER = "l2_diameter"
    BALL_RADIUS = "ball_radius"
    FEATURE_RADIUS = "feature_radius"
    OUTPUT_RADIUS = "output_radius"
    SCHEMA = "schema"
    CATEGORIES = "categories"
    DECLARED_RECORDS = "declared_records"
    ONE_CELL = "one_cell"
    ONE_CELL_OF_EACH_DIRECTION = "one_cell_of_each_direction"
    ONE_VOTE = "one_vote"
    ONE_LABEL = "one_label"
    ONE_OPEN_LABEL = "one_open_label"
    ONE_BIN = "one_bin"
    ROWS_OF_PERSON = "rows_of_person"
    SCORE_RANGE = "score_range"
    SCALED_MOMENTS = "scaled_moments"
    OWN_SENSITIVITIES = "own_sensitivities"
    TASK_CLIP = "task_clip"
    SOURCE_LOSS_CLIP = "source_loss_clip"
    WEIGHT_CLIP = "weight_clip"
    SPECTRAL_CLIP = "spectral_clip"
    COMPONENT_CLIP = "component_clip"
    FEATURE_JACOBIAN_CLIP = "feature_jacobian_clip"
    POINT_JACOBIAN_CLIP = "point_jacobian_clip"
    ORTHONORMAL_DIRECTIONS = "orthonormal_directions"
    DIRECTIONS_AVERAGED = "directions_averaged"
    VALIDATION_MEAN = "validation_mean"
    VALIDATION_GAP = "validation_gap"
    VALIDATION_FREQUENCIES = "validation_frequencies"
    DECLARED = "declared"


class Caveat(_Term):
    """Limit of a guarantee."""

    FLOATING_POINT = "floating_point"
    CERTIFIED_NOISE = "certified_noise"
    LOCAL_FLOATING_POINT = "local_floating_point"
    EARLIER_FITS = "earlier_fits"
    EARLIER_EMBEDDINGS = "earlier_embeddings"
    CANDIDATES_AND_EMBEDDING = "candidates_and_embedding"
    EACH_CALL = "each_call"
    EACH_FIT_AND_SCORE = "each_fit_and_score"
    NOTHING_PRIVATIZED = "nothing_privatized"
    FREE_DISTANCES = "free_distances"
    COMPARED_SAMPLES = "compared_samples"
    GROUP_MEMBERSHIP = "group_membership"
    ROWWISE_ESTIMATOR = "rowwise_estimator"
    FROZEN_ESTIMATOR = "frozen_estimator"
    BEST_RUN_ALONE = "best_run_alone"
    ROWWISE_SCORES = "rowwise_scores"
    FAILING_FITS = "failing_fits"
    PERSONS_COUNT_ONCE = "persons_count_once"
    ROWS_COUNT = "rows_count"
    MOST_RECORDS = "most_records"
    PUBLIC_TABLES = "public_tables"


# Caveats that state a number, and the field with it.
_NUMBERED = {Caveat.ROWS_COUNT: "max_rows", Caveat.MOST_RECORDS: "max_records"}


@dataclass(frozen=True)
class Event:
    """One kind of release of a mechanism.

    Parameters
    ----------
    what : Released
    times : int or None, default=None
        Number of these releases, or of categories of a randomized response.
    among : int or None, default=None
        Number of candidates from which they are selected: privately, except for questions of a
        local model.
    """

    what: str
    times: int | None = None
    among: int | None = None

    def __post_init__(self):
        set_fields(self, what=Released(self.what))
        for name in ("times", "among"):
            if getattr(self, name) is not None:
                set_fields(self, **{name: check_count(getattr(self, name), name)})


@dataclass(frozen=True)
class Bound:
    """A bound from which a sensitivity is computed.

    Parameters
    ----------
    kind : BoundKind
    value : float or None, default=None
        In the units of the bounded quantity.
    """

    kind: str
    value: float | None = None

    def __post_init__(self):
        set_fields(self, kind=BoundKind(self.kind))
        if self.value is not None:
            set_fields(self, value=as_number(self.value, f"{self.kind} bound"))


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """One privacy guarantee: neighbouring relation, releases and cost.

    It holds public quantities only.

    Parameters
    ----------
    name : str
        Name of the class or column that states it.
    events : tuple of Event
        The releases.
    epsilon : float
        Privacy budget spent, in nats; ``inf`` without a guarantee.
    delta : float
        Failure probability of the guarantee, in [0, 1]; 0 for pure differential privacy.
    neighbours : Neighbours, default="replace_one"
        Neighbouring relation of data sets.
    protected : Protected, default="record"
        Unit of protection.
    shared : tuple of Shared
        Properties that a record shares with its replacement; the sizes of such strata are public.
    unit : str or None
        Column that identifies persons: all rows with one value in it are protected together. None
        protects each row by itself.
    max_rows : int or None
        Largest number of rows for which a person counts, if each row counts. None if each person
        counts once.
    max_records : int or None
        Largest number of records for which the guarantee holds. None for any number.
    public : tuple of Public or str
        Facts treated as public, and names of parameters.
    sensitivity : float or None
        Largest change of the released value over neighbours.
    norm : {"l1", "l2"} or None
        Norm of the sensitivity.
    bounds : tuple of Bound
        Bounds from which the sensitivity is computed.
    batches : tuple of (int, int)
        Number of records in one release, and in its stratum, for each stratum, drawn without
        replacement anew for each release. Empty if every record is in every release.
    sampling_rate : float
        Share of the records in one release, in (0, 1]: that of the worst stratum.
    n_releases : int
        Number of releases composed in ``epsilon``.
    releases : tuple of (PrivacyProfile, int)
        All profiles composed in ``epsilon``, with their multiplicities, by which the release is
        composed with others without loss. Empty without noise, or if they are not known.
    caveats : tuple of Caveat
        Limits of the guarantee.
    """

    name: str
    events: tuple[Event, ...]
    epsilon: float
    delta: float
    neighbours: str = Neighbours.REPLACE_ONE
    protected: str = Protected.RECORD
    shared: tuple[str, ...] = ()
    unit: str | None = None
    max_rows: int | None = None
    max_records: int | None = None
    public: tuple[str, ...] = (Public.N_SAMPLES,)
    sensitivity: float | None = None
    norm: str | None = None
    bounds: tuple[Bound, ...] = ()
    batches: tuple[tuple[int, int], ...] = ()
    sampling_rate: float = 1.0
    n_releases: int = 1
    releases: tuple[tuple[PrivacyProfile, int], ...] = ()
    caveats: tuple[str, ...] = ()

    def __post_init__(self):
        if not isinstance(self.name, str):
            raise PublicTypeError(f"name must be a str, got {type(self.name).__name__}.")
        for name in ("epsilon", "delta", "sampling_rate"):
            set_fields(self, **{name: as_number(getattr(self, name), name)})
        if self.sensitivity is not None:
            set_fields(self, sensitivity=as_number(self.sensitivity, "sensitivity"))
        if self.delta > 1:
            raise PublicValueError(f"delta must be in [0, 1], got {self.delta}.")
        if not 0 < self.sampling_rate <= 1:
            raise PublicValueError(f"sampling_rate must be in (0, 1], got {self.sampling_rate}.")
        if self.norm not in ("l1", "l2", None):
            raise PublicValueError(f"norm must be 'l1', 'l2' or None, got {self.norm!r}.")
        if not isinstance(self.unit, str | None):
            raise PublicTypeError(f"unit must be a str or None, got {type(self.unit).__name__}.")
        for name in ("events", "shared", "public", "bounds", "batches", "releases", "caveats"):
            if isinstance(getattr(self, name), str):
                raise PublicTypeError(f"{name} must be a sequence, got a single str.")
        set_fields(
            self,
            neighbours=Neighbours(self.neighbours),
            protected=Protected(self.protected),
            shared=tuple(sorted(map(Shared, self.shared))),
            caveats=tuple(map(Caveat, self.caveats)),
            public=tuple(dict.fromkeys(map(_public, self.public))),
            events=tuple(self.events),
            bounds=tuple(self.bounds),
            batches=tuple(
                (check_count(b, "batch"), check_count(n, "stratum")) for b, n in self.batches
            ),
            releases=tuple(map(tuple, self.releases)),
            n_releases=int(self.n_releases),
        )
        for name, kind in (("events", Event), ("bounds", Bound)):
            if not all(isinstance(part, kind) for part in getattr(self, name)):
                raise PublicTypeError(f"{name} must hold instances of {kind.__name__}.")
        for profile, times in self.releases:
            check_count(times, "the number of times of a release")
            if not isinstance(profile, PrivacyProfile):
                raise PublicTypeError(f"releases must be of privacy profiles, got {profile!r}.")
        for name in ("max_rows", "max_records"):
            if getattr(self, name) is not None:
                set_fields(self, **{name: check_count(getattr(self, name), name)})
        for caveat, name in _NUMBERED.items():
            if caveat in self.caveats and getattr(self, name) is None:
                raise PublicValueError(f"The caveat {str(caveat)!r} needs {name}.")

    def for_persons(self, unit: str, *, max_rows: int | None = None, **changes: Any) -> Self:
        """Return the guarantee with a person and all their rows as the unit of protection.

        Parameters
        ----------
        unit : str
            Column that identifies persons.
        max_rows : int or None, default=None
            Largest number of rows for which a person counts. None if each person counts once.
        **changes
            Other fields.
        """
        caveat = Caveat.PERSONS_COUNT_ONCE if max_rows is None else Caveat.ROWS_COUNT
        return replace(
            self, unit=unit, max_rows=max_rows, caveats=(*self.caveats, caveat), **changes
        )

    @property
    def is_local(self) -> bool:
        """Whether each record is protected without a trusted curator, in the local model."""
        return self.protected is Protected.OWN_RECORD

    @property
    def relation(self) -> tuple:
        """The fields of the neighbouring relation; only guarantees with equal ones compare."""
        return self.neighbours, self.protected, self.shared, self.unit, self.max_rows

    def composable(self) -> tuple[tuple[PrivacyProfile, int], ...]:
        """Return the releases to compose with others by :func:`compose_epsilon`.

        They must be for the same neighbours, as an addition costs less than a replacement.

        Returns
        -------
        tuple of (PrivacyProfile, int)
            ``releases``, or if they are not known the loosest profile with (ε, δ).

        Raises
        ------
        PublicValueError
            There is no guarantee.
        """
        if self.releases:
            return self.releases
        if math.isinf(self.epsilon):
            raise PublicValueError(f"{self.name} has no guarantee, and cannot be composed.")
        return ((ApproximateProfile(self.epsilon, self.delta), 1),)

    def profile(self) -> PrivacyProfile:
        """Return the privacy profile of the whole release, δ as a function of ε.

        Raises
        ------
        PublicValueError
            There is no guarantee.
        """
        return ComposedProfile(self.composable())


def common_guarantee(guarantees) -> dict:
    """Return the fields of a neighbouring relation for which all guarantees hold.

    A guarantee for the replacement of any record also holds for one of the same stratum. One for
    single rows does not hold for persons, whose number of rows is not bounded. One for persons
    covers all of their rows, whatever these count for.

    Parameters
    ----------
    guarantees : sequence of Guarantee

    Returns
    -------
    dict
        ``neighbours``, ``protected`` and ``shared``; ``max_rows``, the largest of any; and
        ``max_records``, the smallest of any.

    Raises
    ------
    PublicValueError
        There is no such relation, for example for added and for replaced records, or for rows and
        for persons.
    """
    # Without max_rows, the last field.
    found = list(dict.fromkeys(g.relation[:-1] for g in guarantees))
    narrow = [relation for relation in found if not _is_any_replacement(relation)]
    kinds = {(neighbours, unit) for neighbours, *_, unit in found}
    if len(narrow) > 1 or len(kinds) > 1:
        names = (":".join([*r[:2], *r[2], *filter(None, r[3:])]) for r in found)
        raise PublicValueError(
            "Fits for different neighbouring relations have no common guarantee: "
            f"{', '.join(names)}."
        )
    neighbours, protected, shared, *_ = (narrow or found)[0]
    rows = [g.max_rows for g in guarantees if g.max_rows is not None]
    records = [g.max_records for g in guarantees if g.max_records is not None]
    return {
        "neighbours": neighbours,
        "protected": protected,
        "shared": shared,
        "max_rows": max(rows, default=None),
        "max_records": min(records, default=None),
    }


def _is_any_replacement(relation):
    neighbours, protected, shared, *_ = relation
    is_whole = protected in (Protected.RECORD, Protected.LABELLED_RECORD)
    return neighbours is Neighbours.REPLACE_ONE and is_whole and not shared


def _public(fact):
    """Return a fact, or the name of a parameter."""
    try:
        return Public(fact)
    except ValueError:
        if isinstance(fact, str) and fact.isidentifier():
            return fact
    raise PublicValueError(f"public must hold facts and names of parameters, got {fact!r}.")


def as_number(value: object, name: str) -> float:
    """Return a non-negative float; the text "inf" of JSON is infinity."""
    if isinstance(value, bool) or not (isinstance(value, Real) or value == "inf"):
        raise PublicTypeError(f"{name} must be a real number, got {type(value).__name__}.")
    number = float(value)
    if math.isnan(number) or number < 0:
        raise PublicValueError(f"{name} must be a non-negative number, got {number}.")
    return number
