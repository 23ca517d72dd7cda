"""The verdict of a report: what a synthetic table is fit for, in plain words."""

import itertools
import math
from typing import Any

import numpy as np
import pandas as pd

from sklearn_dpgen.evolution._weight_projections import project_simplex
from sklearn_dpgen.reporting._columns import subsample
from sklearn_dpgen.reporting._measures import downstream_scores
from sklearn_dpgen.utils._html import percent, shorten

__all__ = [
    "associations",
    "constant_words",
    "joined",
    "least_count",
    "least_counts",
    "predictability",
    "rule_sentences",
    "table_words",
    "verdict_of_release",
    "verdict_of_tables",
]

# Noise that moves a larger share of the records hides the shares of a column.
_NOISY = 0.1
# Rows that are farther from released shares than noise and their draw explain, by more than this.
_FAR = 0.1
# Columns or pairs that are named; draws of noise that a pair must exceed, and groups of its values.
_MOST_NAMED, _N_DRAWS, _N_GROUPS = 8, 199, 4
# Standard deviations of a count that noise and drawing do not exceed, but once in 740 counts.
_SURE = 3
# Rows of models, and the smallest gain over a constant prediction that is one.
_MOST_ROWS, _GAIN = 10_000, 0.02
# Classifiers below the first area under the ROC curve hardly separate two tables, and above the
# second easily.
_HARDLY, _EASILY = 0.6, 0.8
# A copied record is in another fold than its original, which the classifier mistakes it for.
_COPIED = 0.4
# A distance of tables that a reader need not mind, and the share of a gain that is most of it.
_CLOSE, _MOST_OF = 0.05, 0.8


def least_count(error, n_rows):
    """Return the smallest count of published rows that noise and drawing hardly make alone.

    Parameters
    ----------
    error : float
        Standard deviation of the noise of a released share.
    n_rows : float
        Number of published rows.

    Returns
    -------
    int
        The least N with N ≥ 3 √(σ² + N), as a share of N / n has the noise σ = n · error and
        a count of about N drawn rows has the variance N.
    """
    square = _SURE**2
    noise = (error * n_rows) ** 2
    return math.ceil((square + math.sqrt(square**2 + 4 * square * noise)) / 2)


def associations(marginals, seed=0):
    """Return, for each pair of columns of released marginals, whether noise explains its counts.

    Parameters
    ----------
    marginals : list of NoisyMarginal
        Of two or more columns; larger ones are summed to pairs.
    seed : int, default=0
        Of the simulated noise, which is compared with the released counts at no privacy cost.

    Returns
    -------
    list of dict
        ``"columns"``, and ``"is_clear"``: whether the counts are farther from those of independent
        columns than in each of 199 draws of the noise around independent ones, cell by cell or in
        four by four groups of cells. At most one in about a hundred pairs of independent columns
        is. Of several marginals the one with the least noise counts.
    """
    best: dict[frozenset, Any] = {}
    for part in marginals:
        variances = np.broadcast_to(np.square(part.noise_scale), part.counts.shape)
        for i, j in itertools.combinations(range(part.counts.ndim), 2):
            others = tuple(k for k in range(part.counts.ndim) if k not in (i, j))
            counts, squares = part.counts.sum(axis=others), variances.sum(axis=others)
            names = part.columns[i], part.columns[j]
            noise = float(np.sqrt(squares).sum())
            if frozenset(names) not in best or noise < best[frozenset(names)][0]:
                best[frozenset(names)] = noise, names, counts, np.sqrt(squares)
    rng = np.random.default_rng(seed)
    return [
        {"columns": names, "is_clear": _is_clear(counts, scales, rng)}
        for _, names, counts, scales in best.values()
    ]


def least_counts(marginals, n_records, n_rows, rows_per_unit=1.0):
    """Return the smallest counts of published rows that can be read, by what is counted.

    Parameters
    ----------
    marginals : list of NoisyMarginal
        Of one and more columns.
    n_records : float
        Noisy or public number of records.
    n_rows : float
        Number of published rows, or of persons if each has several rows.
    rows_per_unit : float, default=1.0
        Mean number of published rows of one of them.

    Returns
    -------
    dict of str to int
        Numbers of rows, by :func:`least_count`, for the cell with the least noise of each column
        or pair, and for the column or pair where that is largest. Sums of cells have more noise.
    """
    scales: dict[int, dict] = {1: {}, 2: {}}
    for part in marginals:
        order, scale = len(part.columns), float(np.min(part.noise_scale))
        if order in scales:
            scales[order][part.columns] = min(scale, scales[order].get(part.columns, math.inf))
    return {
        what: math.ceil(least_count(max(own.values()) / n_records, n_rows) * rows_per_unit)
        for what, own in zip(
            ("of one column", "of a pair of columns"), scales.values(), strict=True
        )
        if own
    }


def _is_clear(counts, scales, rng):
    expected = _independent(counts)
    if not scales.all():
        return bool(np.abs(counts - expected).max() > 1e-9 * np.abs(counts).max())
    groups = _groups(counts, axis=0), _groups(counts, axis=1)
    # Few groups have the power to show a trend, and single cells that to show an exception.
    found = _departures(counts, scales, groups)
    drawn = np.array(
        [
            _departures(expected + scales * rng.standard_normal(counts.shape), scales, groups)
            for _ in range(_N_DRAWS)
        ]
    )
    return bool((found > drawn.max(axis=0)).any())


def _groups(counts, axis):
    """Return the matrix that sums neighbouring entries of an axis to groups of like counts."""
    sums = np.maximum(counts.sum(axis=1 - axis), 0)
    middles = (np.cumsum(sums) - sums / 2) / max(sums.sum(), 1.0)
    places = np.minimum(_N_GROUPS * middles, _N_GROUPS - 1).astype(int)
    return np.eye(_N_GROUPS)[places].T


def _independent(counts):
    """Return the counts of independent columns with the same sums."""
    rows, columns = (np.maximum(counts.sum(axis=axis), 0) for axis in (1, 0))
    return np.outer(rows, columns) / max(rows.sum(), columns.sum(), 1.0)


def _departures(counts, scales, groups):
    """Return how far counts are from independence, cell by cell and in groups of cells."""
    residuals = counts - _independent(counts)
    first, second = groups
    sums, variances = first @ residuals @ second.T, first @ np.square(scales) @ second.T
    known = variances > 0
    return (
        float(np.square(residuals / scales).sum()),
        float((np.square(sums[known]) / variances[known]).sum()),
    )


def predictability(synthetic, schema, target, random_state, persons=None):
    """Return how well models of some published rows predict others, beside a constant.

    Parameters
    ----------
    synthetic : DataFrame
    schema : Schema
    target : str
    random_state : int
    persons : ndarray or None, default=None
        The person of each row: rows of one person do not predict one another.

    Returns
    -------
    dict or None
        ``"target"``, ``"score"``, the name of the score, ``"model"``, that of the better one of
        two models, and ``"constant"``, that of a constant prediction. None for too few rows.
    """
    if persons is None:
        rows = subsample(synthetic, _MOST_ROWS, random_state)
        first, second = (rows.iloc[i::2].reset_index(drop=True) for i in (0, 1))
    else:
        halves = pd.factorize(persons)[0] % 2
        first, second = (
            subsample(synthetic[halves == i], _MOST_ROWS // 2, random_state) for i in (0, 1)
        )
    scores = downstream_scores(first, second, schema, target, random_state=random_state)
    if scores is None:
        return None
    return {
        "target": target,
        "score": scores["score"],
        "model": max(score for _, score, _ in scores["models"]),
        "constant": scores["constant"],
    }


def verdict_of_release(measures, *, is_void):
    """Return what published rows are fit for, from released counts and from the rows alone.

    Parameters
    ----------
    measures : dict
        Of one table, by :func:`~sklearn_dpgen.reporting._released.measure_released`.
    is_void : bool
        Whether there is no guarantee.

    Returns
    -------
    dict
        ``"fit"`` and ``"not_fit"``, lists of sentences.
    """
    fit: list[str] = []
    not_fit: list[str] = []
    if is_void:
        not_fit.append("Publication: there is no guarantee.")
    if not measures["n_samples"]:
        return {"fit": fit, "not_fit": not_fit}
    if "marginals" in measures:
        _judge_columns(measures, fit, not_fit)
        _judge_pairs(measures, fit, not_fit)
        _judge_counts(measures, not_fit)
    else:
        not_fit.append(
            "Statements about the real records: no counts were released with which these rows "
            "could be compared."
        )
    for part in measures.get("predictability") or ():
        _judge_models(part, measures.get("associations"), fit, not_fit)
    _judge_rules(measures, fit, not_fit)
    not_fit.append(
        "Statements about single persons: no row is the record of a person, even where it looks "
        "like one."
    )
    return {"fit": fit, "not_fit": not_fit}


def _judge_columns(measures, fit, not_fit):
    far = [c for c in measures["columns"] if _is_far(c)]
    noisy = [c["name"] for c in measures["columns"] if c["noise"] > _NOISY and not _is_far(c)]
    clear = [c for c in measures["columns"] if c["noise"] <= _NOISY and not _is_far(c)]
    if clear:
        noise, distance = (max(c[key] for c in clear) for key in ("noise", "distance"))
        fit.append(
            f"Shares of single columns, in {len(clear)} of {len(measures['columns'])}: noise moves "
            f"at most {percent(noise)} of the {measures['counted']}, and the rows differ from the "
            f"released shares by at most {percent(distance)}."
        )
    if far:
        names = [c["name"] for c in far]
        not_fit.append(_far_text(f"Shares of {_named(names)}", far, "shares", measures))
    if noisy:
        not_fit.append(
            f"Shares of {_named(noisy)}: noise alone moves more than {percent(_NOISY)} of the "
            f"{measures['counted']}."
        )


def _is_far(part):
    """Return whether rows differ from released shares by clearly more than chance explains."""
    return part.get("distance", 0.0) > part.get("noise", 0.0) + part.get("draw", 0.0) + _FAR


def _far_text(what, parts, counted, measures):
    distance, noise = (max(part[key] for part in parts) for key in ("distance", "noise"))
    rule = " A declared rule may not fit the records." if measures.get("rules") else ""
    return (
        f"{what}: the rows differ from the released {counted} by up to {percent(distance)}, of "
        f"which noise explains at most {percent(noise)}.{rule}"
    )


def _judge_pairs(measures, fit, not_fit):
    found = measures.get("associations") or []
    far = [p for p in found if p["is_clear"] and _is_far(p)]
    clear = [p["columns"] for p in found if p["is_clear"] and not _is_far(p)]
    noise = [p["columns"] for p in found if not p["is_clear"]]
    if far:
        names = [p["columns"] for p in far]
        not_fit.append(_far_text(f"Associations of {_named(names)}", far, "counts", measures))
    if clear:
        fit.append(f"Associations of {_named(clear)}: their counts are above the noise.")
    if noise:
        not_fit.append(
            f"Associations of {_named(noise)}: noise alone makes such counts, and the rows may "
            "show an association that the records lack, or lack one that they have."
        )
    names = [column["name"] for column in measures["columns"]]
    n_pairs = math.comb(len(names), 2)
    n_open = n_pairs - sum({*p["columns"]} <= {*names} for p in found)
    if n_open > 0:
        not_fit.append(
            f"Associations of the other {n_open} of {n_pairs} pairs of columns: they were not "
            "counted, and follow from the counted ones alone."
        )


def _judge_counts(measures, not_fit):
    limits = measures.get("least_counts") or {}
    words = [f"{least:,} {what}" for what, least in limits.items()]
    # Noise is in persons, whose numbers of rows differ.
    about = "about " if measures.get("rows_per_unit", 1.0) > 1 else ""
    if words:
        not_fit.append(
            f"Counts of rows below {about}{' and '.join(words)}: noise and the draw "
            "of the rows alone make counts of this size."
        )


def _judge_models(part, found, fit, not_fit):
    gain = part["model"] - part["constant"]
    words = (
        f"Models of {shorten(part['target'])}: trained on some of these rows they score "
        f"{part['model']:.3f} on others ({part['score']}), where a constant predictor scores "
        f"{part['constant']:.3f}"
    )
    pairs_of_target = [pair for pair in found or () if part["target"] in pair["columns"]]
    own = [pair["is_clear"] for pair in pairs_of_target]
    far = [pair["columns"] for pair in pairs_of_target if pair["is_clear"] and _is_far(pair)]
    if far:
        not_fit.append(f"{words}. But the rows do not follow the released counts of {_named(far)}.")
    elif gain < _GAIN:
        not_fit.append(f"{words}: there is nothing to learn from these rows.")
    elif own and not any(own):
        not_fit.append(
            f"{words}. But none of the {len(own)} counted associations with it is above the noise, "
            "which is what they learn."
        )
    else:
        pairs = f", and of its {len(own)} counted associations {sum(own)} are above the noise"
        fit.append(
            f"{words}{pairs * bool(own)}. On real records they may score less, because they learn "
            "noise too."
        )


def _judge_rules(measures, fit, not_fit):
    rules = measures.get("rules") or []
    broken = [r for r in rules if r["synthetic"] > 0]
    if broken:
        words = "; ".join(
            f"{shorten(r['rule'], 80)} (broken by {percent(r['synthetic'])})" for r in broken
        )
        not_fit.append(f"Programs that rely on these rules: {words}.")
    kept = [shorten(r["rule"], 80) for r in rules if r["synthetic"] == 0]
    if kept:
        fit.append(
            f"Trying out programs and queries: each value is a declared one, and in each row "
            f"{'; '.join(kept[:_MOST_NAMED])}"
            + f"; and {len(kept) - _MOST_NAMED} more rules hold" * (len(kept) > _MOST_NAMED)
            + "."
        )
    else:
        fit.append(
            "Trying out programs and queries: each value is a declared one. No rule between "
            "columns was declared, so that a row may be impossible."
            if not rules
            else "Trying out programs and queries: each value is a declared one."
        )


def verdict_of_tables(measures):
    """Return what a synthetic table is fit for, compared with the real one: not private.

    Parameters
    ----------
    measures : dict
        Of one table, by :func:`~sklearn_dpgen.reporting._measures.measure_tables`.

    Returns
    -------
    dict
        ``"fit"`` and ``"not_fit"``, lists of sentences.
    """
    fit: list[str] = []
    not_fit: list[str] = []
    if not measures["columns"]:
        return {"fit": fit, "not_fit": not_fit}
    singles = measures["marginals"][1]["distances"]
    far = [name for name, distance in singles.items() if distance > _CLOSE]
    if len(far) < len(singles):
        fit.append(
            f"Shares of single columns, in {len(singles) - len(far)} of {len(singles)}: at most "
            f"{percent(_CLOSE)} of the records differ."
        )
    if far:
        not_fit.append(
            f"Shares of {_named(far)}: more than {percent(_CLOSE)} of the records differ."
        )
    if 2 in measures["marginals"]:
        pairs = measures["marginals"][2]
        text = (
            f"Shares of pairs of columns: {percent(pairs['mean'])} of the records differ on "
            f"average, and {percent(pairs['floor'])} between two halves of the real table."
        )
        (fit if pairs["mean"] <= max(2 * pairs["floor"], _CLOSE) else not_fit).append(text)
    if measures.get("downstream"):
        part = measures["downstream"]
        _, synthetic, real = max(part["models"], key=lambda model: model[1])
        gain, kept = real - part["constant"], synthetic - part["constant"]
        text = (
            f"Models of {shorten(part['target'])}: {part['score']} {synthetic:.3f} if trained "
            f"on synthetic records, {real:.3f} on real ones, and {part['constant']:.3f} for a "
            "constant predictor."
        )
        is_fit = kept >= _GAIN and kept >= _MOST_OF * gain
        (fit if is_fit else not_fit).append(text)
    _judge_rules(measures, fit, not_fit)
    return {"fit": fit, "not_fit": not_fit}


def joined(verdicts):
    """Return the verdicts of all tables in one; what holds for every table is stated once.

    Parameters
    ----------
    verdicts : dict of str to dict
        By the prefix of the lines of a table.

    Returns
    -------
    dict
        ``"fit"`` and ``"not_fit"``, lists of sentences.
    """
    found: dict[str, list[str]] = {}
    for key in ("fit", "not_fit"):
        shared = set.intersection(*(set(part[key]) for part in verdicts.values()))
        lines = (
            line if line in shared else prefix + line
            for prefix, part in verdicts.items()
            for line in part[key]
        )
        found[key] = [*dict.fromkeys(lines)]
    return found


def table_words(measures):
    """Yield sentences about the figures of a real and a synthetic table."""
    for name, found, floor in measures.get("persons", {}).get("distances", ()):
        if name == "sizes":
            yield (
                f"The numbers of rows of a person differ by {percent(found)} of the persons, and "
                f"between two random halves of the real persons by {percent(floor)}."
            )
    if not measures["columns"]:
        return
    singles = measures["marginals"][1]
    (worst,), distance = singles["worst"][0]
    yield (
        f"Shares of single columns differ by {percent(singles['mean'])} of the records on average, "
        f"and most for {shorten(worst)}, by {percent(distance)}."
    )
    if "correlations" in measures:
        yield (
            "The association of two columns differs by "
            f"{measures['correlations']['mean']:.2g} on average, on a scale from 0 to 1."
        )
    if measures.get("downstream"):
        name, synthetic, real = measures["downstream"]["models"][0]
        constant = measures["downstream"]["constant"]
        gain = real - constant
        kept = (
            f": {percent(min(max(synthetic - constant, 0) / gain, 1))} of the gain over a constant "
            "prediction is kept"
        ) * (gain > 0.01)
        yield (
            f"A model of {shorten(measures['downstream']['target'])} that was trained on synthetic "
            f"records scores {synthetic:.3f}, and on real records {real:.3f}{kept}."
        )
    auc = measures["detection"]["auc"]
    how = "hardly" if auc < _HARDLY else "easily" if auc > _EASILY else "partly"
    yield f"A classifier {how} distinguishes synthetic records from real ones."
    if auc < _COPIED:
        yield (
            "It errs more often than by chance, which happens if synthetic records are copies of "
            "real ones."
        )
    yield from rule_sentences(measures)


def rule_sentences(measures):
    """Yield a sentence for each rule that published rows break."""
    for rule in measures.get("rules") or ():
        if rule["synthetic"] > 0:
            yield (
                f"{percent(rule['synthetic'])} of the synthetic records break the rule "
                f"{shorten(rule['rule'], 80)}."
            )


def constant_words(measures, target):
    """Return a sentence about a constant predictor of labels, from released shares; or None."""
    for column in measures["columns"]:
        if column["name"] == target and column["kind"] in ("label", "ordered"):
            shares = project_simplex(np.asarray(column["released"], dtype=float))
            # The last of many labels stands for all others.
            n_named = len(shares) - str(column["labels"][-1]).endswith(" others")
            best = int(shares[:n_named].argmax())
            return (
                f"A constant predictor of {shorten(target)} that always says "
                f"{shorten(column['labels'][best])} is right for about {percent(shares[best])} of "
                f"the {measures['counted']}."
            )
    return None


def _named(names):
    """Return the first of some names of columns, or of tuples of them, and how many are left."""
    parts = ([n] if isinstance(n, str) else n for n in names)
    words = [" × ".join(map(shorten, part)) for part in parts]
    more = len(words) - _MOST_NAMED
    shown = ", ".join(words[:_MOST_NAMED])
    return shown + (f" and {more} more" if more > 0 else "")
