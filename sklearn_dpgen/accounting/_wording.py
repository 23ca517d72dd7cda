"""Guarantees in English: the only module that makes sentences of them.

These sentences are for people; code reads the fields of a Guarantee.
"""

import math
from collections.abc import Iterator

from sklearn_dpgen.accounting._composition import ComposedProfile
from sklearn_dpgen.accounting._guarantee import (
    Bound,
    BoundKind,
    Caveat,
    Event,
    Guarantee,
    Neighbours,
    Protected,
    Public,
    Released,
    Shared,
)
from sklearn_dpgen.accounting._profiles import (
    ApproximateProfile,
    CatastrophicFailureProfile,
    GaussianProfile,
    LaplaceProfile,
    MaximumProfile,
    MixtureProfile,
    PrivacyProfile,
    RandomizedResponseProfile,
    SampledProfile,
)
from sklearn_dpgen.accounting._selection import BoundedRangeProfile, RandomStoppingProfile
from sklearn_dpgen.utils._html import percent, percent_up

__all__ = [
    "accountant_text",
    "bounds_text",
    "caveat_texts",
    "count_words",
    "events_text",
    "identification_rows",
    "ledger_text",
    "mixed_units_texts",
    "number_words",
    "protected_text",
    "public_tables_text",
    "public_texts",
    "relation_text",
    "report_rows",
    "review_rows",
    "sampler_text",
    "spending_rows",
]

_PROTECTED: dict[str, str] = {
    Protected.RECORD: "one {unit}",
    Protected.LABELLED_RECORD: "one {unit} and its label",
    Protected.RECORD_OR_LATENT: "one {unit} or one latent by another",
    Protected.SOURCE_RECORD: "one source {unit}",
    Protected.TARGET_RECORD: "one target {unit}",
    Protected.SOURCE_OR_TARGET_RECORD: "one source or one target {unit}",
}
_BY_DOMAIN = (
    Protected.SOURCE_RECORD,
    Protected.TARGET_RECORD,
    Protected.SOURCE_OR_TARGET_RECORD,
)
_PUBLIC: dict[str, str] = {
    Public.N_LATENTS: "number of latents",
    Public.COLUMN_NAMES: "names of the columns",
    Public.LABEL_SET: "set of labels",
    Public.CLASS_SIZES: "class sizes",
    Public.GROUP_SET: "values of the sensitive features",
    Public.GROUP_SIZES: "sizes of the groups",
    Public.GROUP_AND_LABEL_SIZES: "sizes of the groups by label",
    Public.DOMAIN_SIZES: "numbers of source and target {units}",
    Public.SOURCE: "source records and their labels",
    Public.TARGET: "target records",
    Public.ORDER: "order of the records",
    Public.ORDER_AND_INDEX: "order and index of the records",
    Public.COMPARED_SAMPLE: "the sample compared with",
    Public.FITTED_ESTIMATOR: "the fitted estimator",
    Public.VALIDATION_ROWS: "X_val and y_val",
}
_RELEASED: dict[str, str] = {
    Released.NOTHING: "trained on the source alone",
    Released.EXACT: "without noise, for public or synthetic rows",
    Released.VALUES: "noisy values",
    Released.COUNTS: "noisy counts",
    Released.SUMS: "noisy sums",
    Released.GAUSSIAN_RECORDS: "Gaussian noise on each record",
    Released.LAPLACE_RECORDS: "Laplace noise on each record",
    Released.RANDOMIZED_RESPONSE: "randomized response on {times} categories",
    Released.NULL_FLAG_RESPONSE: "randomized response on the null flag",
    Released.GAUSSIAN_COLUMN: "Gaussian noise",
    Released.LAPLACE_COLUMN: "Laplace noise",
    Released.CERTIFIED_LAPLACE_COLUMN: "certified Laplace noise",
    Released.RANDOMIZED_COLUMNS: "local randomization of {times} columns",
    Released.JOINT_ANSWER: "joint randomized response on {times} of {among} columns",
    Released.OPEN_LABELS: "labels of open columns whose noisy counts pass a threshold ({times})",
    Released.COLUMN_COUNTS: "noisy counts of single columns",
    # This text follows the counts of single columns.
    Released.MARGINAL_COUNTS: "of {times} marginals",
    Released.START_MOMENTS: "noisy moments for the first candidates",
    Released.VOTES: "noisy votes of the records for public candidates",
    Released.DISTANCE: "noisy distance of the records to the result",
    Released.CLASS_MEANS: "noisy means by class",
    Released.CLASS_SIZES: "noisy class sizes",
    Released.SECOND_MOMENTS: "noisy second moments about the means",
    Released.LABEL_COUNTS: "noisy label counts",
    Released.RECORDS: "noisy records, from which the network is trained",
    Released.PROJECTIONS: "noisy projections of the records, with their directions",
    Released.MOMENTS: "noisy moments of the records",
    Released.PROJECTED_COUNTS: "noisy counts in cells of projections of the records",
    Released.BATCH_PROJECTIONS: (
        "noisy projections of a secret batch at each training step, with their directions"
    ),
    Released.TARGET_FEATURES: "noisy features of target records",
    Released.TARGET_PROJECTIONS: (
        "noisy projections of features of target records at each training step"
    ),
    Released.GRADIENTS: "all iterates of noisy clipped gradient descent",
    Released.GROUP_COUNTS: "noisy counts of predictions by group",
    Released.GROUP_SUMS: "noisy sums of transported predictions by group",
    Released.GROUP_MEANS: "noisy mean predictions by group, of each step and after the last",
    Released.FITS: "private fits of estimators",
    Released.BEST_OF_RUNS: "best of a random number of fits",
}
_BOUNDS: dict[str, str] = {
    BoundKind.L1_DIAMETER: "l1 diameter {value} of the declared domain",
    BoundKind.L2_DIAMETER: "l2 diameter {value} of the declared domain",
    BoundKind.BALL_RADIUS: "records projected on a ball of radius {value}",
    BoundKind.FEATURE_RADIUS: "features clipped to radius {value}, row by row",
    BoundKind.OUTPUT_RADIUS: "outputs in a ball of radius {value}",
    BoundKind.SCHEMA: "bounds and categories declared in the schema",
    BoundKind.CATEGORIES: "any two declared categories; probabilities differ by at most e^ε",
    BoundKind.DECLARED_RECORDS: (
        "any two declared records; probabilities of an answer differ by at most e^ε"
    ),
    BoundKind.ONE_CELL: (
        "a record counts once in each weighted table, and the vector of weights has norm 1"
    ),
    BoundKind.ONE_OPEN_LABEL: "a {unit} counts for one label of each open column",
    BoundKind.ONE_CELL_OF_EACH_DIRECTION: (
        "a record is in one cell of each of {value} directions, so twice as many counts change by 1"
    ),
    BoundKind.ONE_VOTE: "a record has one vote, so two counts change by one",
    BoundKind.ONE_LABEL: "one label for another changes two counts by one",
    BoundKind.ONE_BIN: (
        "a record is in one bin of one group on each level, with weights of norm 1, and adds at "
        "most 1 to the sums of one group"
    ),
    BoundKind.ROWS_OF_PERSON: "the rows of a person count for at most {value}",
    BoundKind.SCORE_RANGE: "scores are l1 distances of tables",
    BoundKind.SCALED_MOMENTS: "sums of moments are scaled to the same sensitivity",
    BoundKind.OWN_SENSITIVITIES: "each release is divided by its own sensitivity",
    BoundKind.TASK_CLIP: "gradients of the task clipped to {value}",
    BoundKind.SOURCE_LOSS_CLIP: "gradients of the loss on the source clipped to {value}",
    BoundKind.WEIGHT_CLIP: "weights of records clipped to [0, {value}]",
    BoundKind.SPECTRAL_CLIP: "Jacobians clipped to spectral norm {value}",
    BoundKind.COMPONENT_CLIP: "Jacobians clipped to {value}, component by component",
    BoundKind.FEATURE_JACOBIAN_CLIP: "Jacobians of features clipped to {value}",
    BoundKind.POINT_JACOBIAN_CLIP: "Jacobians of generated points clipped to {value}",
    BoundKind.ORTHONORMAL_DIRECTIONS: "directions in orthonormal blocks",
    BoundKind.DIRECTIONS_AVERAGED: "the privacy profile is averaged over random directions",
    BoundKind.VALIDATION_MEAN: "the score is a mean over validation {units} in [0, 1]",
    BoundKind.VALIDATION_GAP: (
        "{value} times the largest difference of two groups' means in [0, 1] is subtracted"
    ),
    BoundKind.VALIDATION_FREQUENCIES: (
        "the score is 1 minus a total variation distance to the frequencies of validation {units}"
    ),
    BoundKind.DECLARED: "declared bounds",
}
_UNPAID = "Earlier fits on the same records, such as a scaler{more}, are not covered"
_CAVEATS: dict[str, str] = {
    Caveat.FLOATING_POINT: (
        "The noise is drawn in floating point, from 52 random bits a draw. The guarantee is for "
        "exact draws, from which all values together differ by at most the rounding, in total "
        "variation."
    ),
    Caveat.CERTIFIED_NOISE: (
        "Values are computed in floating point before noise is added, and assumed to be within a "
        "quarter of a step of the grid of the noise, 2**-28 of its scale, of the result of exact "
        "arithmetic. The duration of a draw is not protected."
    ),
    Caveat.LOCAL_FLOATING_POINT: (
        "The noise is drawn in floating point, from 52 random bits a draw. The guarantee is for "
        "exact draws, and is not meaningful above about 36 nats a draw."
    ),
    Caveat.EARLIER_FITS: f"{_UNPAID.format(more='')}.",
    Caveat.EARLIER_EMBEDDINGS: f"{_UNPAID.format(more=' or an embedding')}.",
    Caveat.CANDIDATES_AND_EMBEDDING: (
        f"{_UNPAID.format(more=' or an embedding')}, nor is the source of the candidates. An "
        "embedding or a metric that reads more than one record at a time voids the guarantee."
    ),
    Caveat.EACH_CALL: "Each call is a further release of the records it is given.",
    Caveat.EACH_FIT_AND_SCORE: (
        "Every fit and score with privatize=True is a further release of its records."
    ),
    Caveat.NOTHING_PRIVATIZED: (
        "fit assumes that its records are the output of the mechanism and privatizes nothing: it "
        "is post-processing, and charges no ledger."
    ),
    Caveat.FREE_DISTANCES: (
        "Distances of one release to further public samples are free; each call is a further "
        "release."
    ),
    Caveat.COMPARED_SAMPLES: "The samples compared with are not protected.",
    Caveat.GROUP_MEMBERSHIP: (
        "Neighbours share the sensitive feature: the group of a record is protected no more than "
        "the sizes of the groups."
    ),
    Caveat.ROWWISE_ESTIMATOR: "The estimator is assumed to predict each record by itself.",
    Caveat.FROZEN_ESTIMATOR: "The fit of a frozen estimator is not covered.",
    Caveat.BEST_RUN_ALONE: (
        "The best candidate, its parameters and its noisy score are released. The number of runs, "
        "all other candidates, and the duration of the search, which reveals both, are not."
    ),
    Caveat.ROWWISE_SCORES: "A score is a mean over rows: predict must treat each row by itself.",
    Caveat.FAILING_FITS: "A fit that fails because of a record reveals it.",
    Caveat.PERSONS_COUNT_ONCE: (
        "The fit learns the distribution of a random row of a random person: each person counts "
        "once."
    ),
    Caveat.ROWS_COUNT: (
        "The fit learns the distribution of rows: a person with {max_rows} rows or more counts "
        "{max_rows} times as much as one with a single row. If a person has m rows and m is "
        "larger, each counts {max_rows}/m."
    ),
    Caveat.MOST_RECORDS: "Scores are computed exactly enough for at most {max_records} records.",
    Caveat.PUBLIC_TABLES: (
        "Public tables are not protected. The guarantee holds only if they were not made from the "
        "private records, or only by releases that are paid for: the cost of these is not part of "
        "epsilon, and adds to it."
    ),
}
# Caveats that answer the questions of reviewers about draws, and about what else shows records.
_ON_DRAWS = (Caveat.FLOATING_POINT, Caveat.CERTIFIED_NOISE, Caveat.LOCAL_FLOATING_POINT)
_ON_CHANNELS = (Caveat.BEST_RUN_ALONE, Caveat.FAILING_FITS)
_ON_CALLS = (Caveat.EACH_CALL, Caveat.EACH_FIT_AND_SCORE)
_ON_EARLIER = (
    Caveat.EARLIER_FITS,
    Caveat.EARLIER_EMBEDDINGS,
    Caveat.CANDIDATES_AND_EMBEDDING,
    Caveat.FROZEN_ESTIMATOR,
)
_SHARED: dict[str, str] = {
    Shared.CLASS: "class",
    Shared.GROUP: "sensitive feature",
    Shared.LABEL: "label",
    Shared.DOMAIN: "domain",
}
_PROFILES = {
    GaussianProfile: "Gaussian mechanism",
    LaplaceProfile: "Laplace mechanism",
    RandomizedResponseProfile: "randomized response",
    ApproximateProfile: "(ε, δ)-mechanism",
    CatastrophicFailureProfile: "part of delta for a failure",
    BoundedRangeProfile: "exponential mechanism",
}


def _units(guarantee):
    many = "records" if guarantee.unit is None else "persons"
    return {"unit": many[:-1], "units": many}


def relation_text(guarantee: Guarantee) -> str:
    """Return the neighbouring relation, with its public facts."""
    if guarantee.is_local:
        return "local model: any two values of one person's record"
    names = _units(guarantee)
    many, one = names["units"], _PROTECTED[guarantee.protected].format(**names)
    by_rows = guarantee.max_rows is not None
    if guarantee.neighbours is Neighbours.ADD_OR_REMOVE:
        if by_rows:
            return (
                f"add or remove {one}, of at least two, with all rows, which count for at most "
                f"{guarantee.max_rows}; the numbers of persons and of rows are not public"
            )
        return f"add or remove {one} of at least two; the number of {many} is not public"
    if by_rows:
        return (
            f"replace {one} with all rows, which count for at most {guarantee.max_rows}; the "
            "number of persons is public, that of rows is not"
        )
    sizes = f"the number of {many} is public"
    kept = [f"of the same {shared}" for shared in guarantee.shared if shared != Shared.LABEL]
    if Shared.LABEL in guarantee.shared:
        kept.append("with the same label")
    if guarantee.protected in _BY_DOMAIN:
        sizes = f"the numbers of source and target {many} are public"
    elif guarantee.protected is Protected.RECORD_OR_LATENT:
        sizes = "the numbers of them are public"
    elif Shared.CLASS in guarantee.shared:
        sizes = "the sizes of the classes are public"
    elif Shared.GROUP in guarantee.shared:
        by_label = " by label" if Shared.LABEL in guarantee.shared else ""
        sizes = f"sizes of the groups{by_label} are public"
    another = f" by another {' and '.join(kept)}" if kept else ""
    return f"replace {one}{another}; {sizes}"


def public_texts(guarantee: Guarantee) -> list[str]:
    """Return each public fact; a parameter is given by its name."""
    names = _units(guarantee)
    words = _PUBLIC | {
        Public.N_SAMPLES: "n_samples" if guarantee.unit is None else "number of persons"
    }
    return [words.get(fact, fact).format(**names) for fact in guarantee.public]


def events_text(guarantee: Guarantee) -> str:
    """Return the class or column that states the guarantee, and its releases."""
    texts = [_event_text(event) for event in guarantee.events]
    return f"{guarantee.name}: {', then '.join(texts)}" if texts else guarantee.name


def _event_text(event: Event):
    if event.what is Released.MARGINAL_COUNTS and event.among is not None:
        return f"of {event.times} of {event.among} marginals, selected privately"
    return _RELEASED[event.what].format(times=event.times, among=event.among)


def bounds_text(guarantee: Guarantee) -> str:
    """Return the source of the sensitivity, with its norm."""
    texts = [_bound_text(bound, guarantee) for bound in guarantee.bounds]
    return "; ".join(filter(None, [guarantee.norm, ", ".join(texts)]))


def _bound_text(bound: Bound, guarantee):
    value = "" if bound.value is None else f"{bound.value:g}"
    return _BOUNDS[bound.kind].format(value=value, **_units(guarantee))


def sampler_text(guarantee: Guarantee) -> str:
    """Return how the records of one release are sampled."""
    if guarantee.is_local:
        return "each record is released once"
    if guarantee.n_releases == 0:
        return f"no {_PROTECTED[guarantee.protected].format(**_units(guarantee))[4:]}"
    names = _units(guarantee)
    if not guarantee.batches:
        return f"every {names['unit']}, in every release"
    if len(guarantee.batches) == 1:
        ((batch, size),) = guarantee.batches
        return (
            f"a secret batch of {batch} of {size} {names['units']}, drawn without replacement "
            "anew for every release"
        )
    batches = ", ".join(f"{batch} of {size}" for batch, size in guarantee.batches)
    return (
        "secret batches, drawn without replacement anew for every release from each stratum "
        f"({batches}); rate and sensitivity are those of the worst stratum"
    )


def accountant_text(guarantee: Guarantee, *, grid: float | None = None) -> str:
    """Return how ε is computed from the releases; ``grid`` is the step of the composition."""
    if guarantee.n_releases == 0:
        return "none: nothing is released"
    if math.isinf(guarantee.epsilon):
        return "none: there is no noise"
    if not guarantee.releases:
        return "closed form"
    kinds = dict.fromkeys(_profile_text(profile) for profile, _ in guarantee.releases)
    how = "in closed form" if grid is None else f"composed numerically (grid {grid:.3g})"
    return f"privacy profile of {', '.join(kinds)}, {how}"


def _profile_text(profile: PrivacyProfile):
    if isinstance(profile, SampledProfile):
        return f"{_profile_text(profile.profile)} under sampling without replacement"
    if isinstance(profile, MixtureProfile):
        return f"{_profile_text(profile.profiles[0])} averaged over random directions"
    if isinstance(profile, MaximumProfile):
        kinds = dict.fromkeys(map(_profile_text, profile.profiles))
        return f"worst stratum of {', '.join(kinds)}"
    if isinstance(profile, ComposedProfile):
        return ", ".join(dict.fromkeys(_profile_text(part) for part, _ in profile.releases))
    if isinstance(profile, RandomStoppingProfile):
        return f"best of {profile.n_runs}, {profile.n_runs.mean:.3g} on average"
    return _PROFILES.get(type(profile), type(profile).__name__)


def caveat_texts(guarantee: Guarantee) -> list[str]:
    """Return a sentence for each caveat."""
    numbers = {"max_rows": guarantee.max_rows, "max_records": guarantee.max_records}
    return [_CAVEATS[caveat].format(**numbers) for caveat in guarantee.caveats]


def public_tables_text(report) -> str:
    """Return the name, the hash and the standing of each public table of a PrivacyReport."""
    releases = report.ledger.get("public_tables", {})
    standing = {
        name: f"release of charge {number} of the ledger" for name, number in releases.items()
    }
    return "; ".join(
        f"{name} (SHA-256 {sha256}): {standing.get(name, 'claimed to be public')}"
        for name, sha256 in report.public_tables.items()
    )


def ledger_text(report) -> str:
    """Return the text of a PrivacyReport on the ledger that was charged."""
    ledger = report.ledger
    holds, exceptions = mixed_units_texts(_charges_by_unit(report), report.neighbours)
    return (
        f"charge {ledger['charge']} of {ledger['dataset']!r}; all its charges together: "
        f"epsilon {float(ledger['epsilon']):.4g} at delta {ledger['delta']:.3g}"
        + f", for {holds}" * bool(holds)
        + "".join(f"; {text}" for text in exceptions)
    )


def _charges_by_unit(report):
    """Return the numbers of the charges of the ledger by unit, where there are several units."""
    others = {other["unit"]: other["charges"] for other in report.ledger.get("other_units", ())}
    if not others:
        return {}
    named = {number for numbers in others.values() for number in numbers}
    own = [n for n in range(1, report.ledger["charge"] + 1) if n not in named]
    return others | {report.unit: own}


def mixed_units_texts(charges: dict[str | None, list[int]], neighbours) -> tuple[str, list[str]]:
    """Return what the total of charges of several units holds for.

    Parameters
    ----------
    charges : dict of str or None to list of int
        The numbers of the charges by unit; None for single rows.
    neighbours : Neighbours

    Returns
    -------
    holds : str
        What the total protects; empty if there is one unit.
    exceptions : list of str
        The charges that protect no person as a whole, or persons of one of several columns.
    """
    if len(charges) < 2:
        return "", []
    units = [unit for unit in charges if unit is not None]
    columns = " and ".join(map(repr, units))
    holds = f"one row, replaced by another with the same value of {columns}"
    if neighbours is Neighbours.ADD_OR_REMOVE:
        holds = f"one row, the only one with its value of {columns}"
    exceptions = []
    for unit, numbers in charges.items():
        if unit is None:
            one = len(numbers) == 1
            exceptions.append(f"{_charges_words(numbers)} protect{'s' * one} no person as a whole")
        elif len(units) > 1:
            exceptions.append(f"{_charges_words(numbers)}: persons by {unit!r} alone")
    return holds, exceptions


def _charges_words(numbers):
    """Return numbers of charges in words, consecutive ones as a range."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    words = [f"{run[0]} to {run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs]
    return f"charge{'s' * (len(numbers) > 1)} {', '.join(words)}"


def spending_rows(report, *, seed: int | None = None) -> list[tuple[str, str]]:
    """Return what was spent, chosen and drawn for a release, as pairs of a label and its text.

    Parameters
    ----------
    report : PrivacyReport
    seed : int or None
        Seed of the published rows, which cost no privacy.

    Returns
    -------
    list of tuple of str
    """
    if math.isinf(report.epsilon):
        spent = "no budget: there is no guarantee"
    else:
        spent = f"epsilon {report.epsilon:.4g} at delta {report.delta:.3g}"
    total = (
        "not known: no ledger was charged. The losses of all releases from the same records add "
        "up, and those of others are not counted here"
    )
    if report.ledger:
        charge, delta = report.ledger["charge"], report.ledger["delta"]
        charges = "the only charge" if charge == 1 else f"charges 1 to {charge} together"
        holds, exceptions = mixed_units_texts(_charges_by_unit(report), report.neighbours)
        total = (
            f"epsilon {float(report.ledger['epsilon']):.4g} at delta {delta:.3g}"
            + f", for {holds}" * bool(holds)
            + f": {charges} of the ledger of {report.ledger['dataset']!r}, up to this release"
            + "".join(f"; {text}" for text in exceptions)
            + ". Later ones add to it"
        )
    many = _units(report)["units"]
    public = public_texts(report)
    free = f". Taken as public: {', '.join(public)}" if public else ""
    rows = [
        ("spent by this release", spent),
        ("spent by all releases", total),
        (
            "chosen at no cost",
            "the budget, the bounds and labels of the schema, rules, the target and all other "
            "settings, which the guarantee takes as chosen without the " + many + free,
        ),
        ("chosen without being paid", _unpaid_text(report)),
    ]
    if report.public_tables:
        rows.append(("public tables", public_tables_text(report)))
    if report.is_seeded:
        noise = "SEEDED: whoever knows or guesses the seed can subtract the noise"
    else:
        noise = f"none: {report.noise_source}"
    rows.append(("seed of the noise", noise))
    if seed is not None:
        text = f"{seed}; the model, this seed and these versions give the same rows, at no cost"
        rows.append(("seed of the rows", text))
    return rows


def _unpaid_text(report):
    """Return what is known of choices that read the records and were not charged."""
    many = _units(report)["units"]
    charge = report.ledger["charge"] if report.ledger else None
    if charge is None:
        text = (
            "not known: no ledger was charged, so this statement cannot know of other fits, of "
            "searches, or of a budget that was chosen by their results"
        )
    elif charge == 1:
        text = (
            "nothing that the ledger knows: it has no earlier charge. It cannot know of fits that "
            "did not charge it"
        )
    else:
        text = (
            f"nothing that the ledger knows: its {charge - 1} earlier "
            f"{'charge is' if charge == 2 else 'charges are'} paid for and in the total, whatever "
            "was chosen by their results. It cannot know of fits that did not charge it"
        )
    looked = (
        f"Whoever chose a setting by looking at the {many}, or at scores that were not paid for, "
        "has a larger loss than is stated"
    )
    searched = any(event.what is Released.BEST_OF_RUNS for event in report.events)
    parts = [text, *(["The search for the best fit is paid for by this release"] * searched)]
    return (
        ". ".join([*parts, looked])
        + "."
        + "".join(f" {sentence}" for sentence in _found(report, _ON_EARLIER))
    )


def protected_text(guarantee: Guarantee) -> str:
    """Return the unit of protection: a record, or a person with all rows."""
    if guarantee.unit is not None:
        return f"a person: all rows with one value in column {guarantee.unit!r}"
    if guarantee.is_local:
        return "one person's record, before it leaves the person"
    return (
        "a record: a person with several records is not protected as a whole, as their losses "
        "add up"
    )


def review_rows(report, audit: dict | None = None) -> list[tuple[str, str]]:
    """Return answers to the questions of reviewers, as pairs of a question and its answer.

    Parameters
    ----------
    report : PrivacyReport
    audit : dict or None
        The result of an audit, as plain containers.

    Returns
    -------
    list of tuple of str
    """
    spent = dict(spending_rows(report))
    budget = f"{spent['spent by this release']}. All releases: {spent['spent by all releases']}"
    noise = [f"{name} {scale:.4g}" for name, scale in _scales(report)]
    mechanism = "; ".join(
        [report.title, sampler_text(report), *(["noise scale: " + ", ".join(noise)] * bool(noise))]
    )
    bounds = bounds_text(report) or "not stated"
    if report.sensitivity is not None:
        bounds = f"{report.sensitivity:.6g} ({bounds})"
    if report.is_local:
        trust = "nobody: each record is randomized by its person before anybody else sees it"
        exposure = "randomized answers alone are collected"
        access = "to the records, their persons alone. Randomized answers may be seen by anybody"
    else:
        trust = (
            "the curator, who holds the records, computes the releases from them and keeps the "
            "draws of the noise secret; nobody who receives a release"
        )
        exposure = (
            "the curator collects and stores the records as they are. The guarantee is about the "
            "releases, and does not cover collection, transfer or storage"
        )
        access = (
            "to the releases, anybody. Who may read the records is not known here, and is for the "
            "publisher to answer"
        )
    draws = [report.noise_source]
    if report.is_seeded:
        draws.append("SEEDED: the guarantee is void for whoever knows or guesses the seed")
    if report.rounding:
        draws.append(f"draws differ from exact ones by {report.rounding:.2g} in total variation")
    channels = "the duration and the use of memory of a fit, and its messages on the machine"
    where = "the devices of the persons" if report.is_local else "a machine that is not shared"
    queries = "not answered: the release is what it is, and what is computed from it is free"
    return [
        ("unit of privacy", protected_text(report)),
        ("neighbouring data sets", relation_text(report)),
        ("not protected", _unprotected_text(report)),
        ("budget", budget),
        ("parties that are trusted", trust),
        ("mechanisms", mechanism),
        ("sensitivity", bounds),
        ("accounting", accountant_text(report, grid=report.discretization)),
        ("data collection exposure", exposure),
        ("floating point", "; ".join(draws) + ". " + " ".join(_found(report, _ON_DRAWS))),
        (
            "side channels",
            " ".join(
                [f"{channels}, are not covered: fit on {where}.", *_found(report, _ON_CHANNELS)]
            ),
        ),
        ("access control", access),
        ("interactive queries", " ".join(_found(report, _ON_CALLS)) or queries),
        ("utility", "; ".join(f"{name}: {text}" for name, text in report.precision.items())
         or "not stated by the guarantee"),
        ("correctness", _audit_text(audit)),
    ]  # fmt: skip


def _scales(report):
    if isinstance(report.noise_scale, dict):
        return list(report.noise_scale.items())
    return [] if report.noise_scale is None else [("of each value", report.noise_scale)]


def _found(guarantee, kinds):
    """Return the sentences of some kinds of caveats that a guarantee has."""
    return [_CAVEATS[caveat] for caveat in guarantee.caveats if caveat in kinds]


def _unprotected_text(report):
    public = [*public_texts(report), *(f"table {name}" for name in report.public_tables)]
    shared = [_SHARED[name] for name in report.shared]
    parts = [f"public: {', '.join(public)}"] if public else []
    if shared:
        parts.append(f"a record by its {' and '.join(shared)}, which neighbours share")
    parts.append("what follows from the records of others, such as a common association")
    return "; ".join(parts)


def _audit_text(audit):
    if audit is None:
        return "no audit is part of this statement"
    if not {"is_violation", "epsilon_lower", "claimed", "confidence"} <= audit.keys():
        return "an audit is part of this statement"
    found = "VIOLATION found" if audit["is_violation"] else "no violation found"
    lower, claimed = audit["epsilon_lower"], audit["claimed"]["epsilon"]
    return (
        f"an audit by attacks: {found}; epsilon is at least {_number(lower)} of {_number(claimed)} "
        f"claimed, with confidence {float(audit['confidence']):.6g}"
    )


def _number(value):
    return "an unknown number" if value is None else f"{float(value):.4g}"


def identification_rows(report, risk: dict, audit: dict | None = None) -> list[tuple[str, str]]:
    """Return bounds on singling out, linkability and inference, and what an intruder knows.

    Parameters
    ----------
    report : PrivacyReport
    risk : dict
        Its attack risk, as :func:`~sklearn_dpgen.reporting._model_card.risk_facts` returns it.
    audit : dict or None
        The result of an audit, as plain containers.

    Returns
    -------
    list of tuple of str
    """
    one = "record" if report.unit is None and not report.is_local else "person"
    known = "all other records" if report.unit is None else "the records of all other persons"
    public = public_texts(report)
    used = "has a given record" if report.is_local else "is in the data"
    rates = ", ".join(
        f"{percent_up(rate)} at {100 * float(fpr):g}% false alarms"
        for fpr, rate in risk["true_positive_rates"].items()
    )
    values, records = (_named_rightly(risk[key]) for key in ("guess_among", "guess_among_records"))
    kept = unprotected = ""
    if report.shared:
        shared = " and ".join(_SHARED[name] for name in report.shared)
        # Neighbours share it: candidates that differ in it are not bounded.
        kept = f" of the same {shared}"
        unprotected = f". The {shared} of a record is not protected"
    is_removed = report.neighbours is Neighbours.ADD_OR_REMOVE
    instead = "" if is_removed else f" rather than another{kept}"
    rows = [
        (
            "motivated intruder",
            f"knows {known}, the method with all settings, everything that was released"
            + (f", and what is public ({', '.join(public)})" if public else "")
            + "; computes without limit; does not know the draws of the noise",
        ),
        ("singling out", f"whether a given {one} {used}{instead} is found in at most {rates}"),
        (
            "linkability",
            f"which of several equally likely {one}s{kept} {used} is named rightly in at most "
            + "; ".join(records[1:]),
        ),
        (
            "inference",
            f"a value of an attribute of one {one}, of several equally likely ones, is named "
            f"rightly in at most {'; '.join(values[:2])}{unprotected}",
        ),
        *_odds_rows(risk, one, is_removed, unprotected),
        (
            "measured attack",
            "none is part of this statement"
            if audit is None
            else _audit_text(audit)
            + (f". It compares {audit['neighbours']}" if audit.get("neighbours") else ""),
        ),
    ]
    if report.is_seeded:
        rows.insert(
            0, ("SEEDED", "whoever knows or guesses the seed is not bound by these figures")
        )
    return rows


def _named_rightly(shares):
    """Return the text of each number of candidates, in increasing order."""
    return [
        f"{percent_up(shares[n])} among {n}, and {percent(1 / int(n))} without the release"
        for n in sorted(shares, key=int)
    ]


def _odds_rows(risk, one, is_removed, unprotected):
    """Return how often odds grow, for a value apart if it takes a removal and an addition."""
    value, presence = (
        ", ".join(
            f"more than {float(factor):g} times in {_rare(share)} of the cases"
            for factor, share in risk[key].items()
        )
        for key in ("odds_exceed", "odds_of_presence_exceed")
    )
    rule = "by Bayes' rule the odds"
    if not is_removed:
        return [("evidence", f"{rule} of a guess about one {one} grow {value}{unprotected}")]
    return [
        ("evidence of presence", f"{rule} that a given {one} is in the data grow {presence}"),
        (
            "evidence of a value",
            f"{rule} of a value of one {one}, against others, grow {value}{unprotected}",
        ),
    ]


def _rare(share):
    return "less than 0.1%" if share < 1e-3 else f"at most {percent_up(share)}"


def report_rows(report) -> Iterator[tuple[str, str]]:
    """Yield the rows of a PrivacyReport, as pairs of a label and its text."""
    yield "neighbours", relation_text(report)
    if report.unit is not None:
        yield "unit", f"all rows with one value in column {report.unit!r}"
    if report.public:
        yield "public", ", ".join(public_texts(report))
    if report.public_tables:
        yield "public tables", public_tables_text(report)
    source = bounds_text(report)
    if report.sensitivity is not None:
        yield "sensitivity", f"{report.sensitivity:.6g}{f' ({source})' if source else ''}"
    elif report.bounds:
        yield "bounds", source
    if isinstance(report.noise_scale, dict):
        scales = (f"{name}: {scale:.6g}" for name, scale in report.noise_scale.items())
        yield "noise scale", ", ".join(scales) or "none"
    elif report.noise_scale is not None:
        yield "noise scale", f"{report.noise_scale:.6g}"
    if report.noise_multiplier is not None:
        yield "noise multiplier", f"{report.noise_multiplier:.6g}"
    if report.split:
        yield "split", ", ".join(f"{name}: {part:.1%}" for name, part in report.split.items())
    yield from report.precision.items()
    yield "sampler", f"{sampler_text(report)} (rate {report.sampling_rate:.6g})"
    yield "releases", str(report.n_releases)
    if report.ledger:
        yield "ledger", ledger_text(report)
    yield "accountant", accountant_text(report, grid=report.discretization)
    yield "noise source", report.noise_source
    if report.rounding is not None:
        exact = "none: exact draws"
        rounding = f"{report.rounding:.2g} in total variation" if report.rounding else exact
        yield "rounding", rounding
    yield "versions", ", ".join(f"{name} {version}" for name, version in report.versions.items())
    for i, caveat in enumerate(caveat_texts(report), start=1):
        yield f"caveat {i}", caveat


def number_words(value):
    """Return a number with two significant digits."""
    value = float(f"{value:.2g}")
    return f"{value:,.0f}" if value >= 10 else f"{value:g}"


def count_words(scales, n_records=None, unit="records"):
    """Return the precision of a noisy count, in words.

    Parameters
    ----------
    scales : sequence of float
        Standard deviations of the noise of counts of one kind.
    n_records : float or None, default=None
        Public number of records, of which the counts are parts.
    unit : str, default="records"

    Returns
    -------
    str
        One standard deviation, and the smallest count of at least two of them.
    """
    low, high = min(scales), max(scales)
    if high == 0:
        return "exact: there is no noise"

    def between(factor):
        ends = dict.fromkeys(number_words(factor * end) for end in (low, high))
        text = f"{' to '.join(ends)}"
        if n_records is None:
            return text, ""
        shares = dict.fromkeys(f"{factor * end / n_records:.2g}" for end in (low, high))
        # A share is at most all; more says only that the noise exceeds the records.
        percents = (
            f"{100 * float(share):g}" if float(share) < 1 else "over 100" for share in shares
        )
        return text, f" ({' to '.join(dict.fromkeys(percents))} percent)"

    (one, share), (two, double) = between(1), between(2)
    return f"± {one} {unit}{share}; distinguishable from zero above {two}{double}"
