"""The top of a report: a few scores, and sentences about them."""

import math

from sklearn_dpgen.reporting._certificate import percent_up
from sklearn_dpgen.reporting._svg import percent
from sklearn_dpgen.utils._html import element, shorten

__all__ = ["privacy_card", "privacy_words", "score_card", "table_cards", "table_words"]

_ORDERS = {1: "Columns", 2: "Pairs", 3: "Triples"}
# A classifier that tells records apart so well does so easily; hardly, below the first.
_HARDLY, _EASILY = 0.6, 0.8
# Copies of a record are in other folds, where they are taken for what the record is.
_COPIED = 0.4


def score_card(what, big, than, *, share=None, mark=None):
    """Return a card with one figure.

    Parameters
    ----------
    what, big, than : str
        What it is, the figure, and what it is to be compared with.
    share : float or None
        In [0, 1], the length of a bar.
    mark : float or None
        Where the bar would end at best.
    """
    bar = share is not None and element(
        "div",
        element("i", style=f"width:{_width(share)}"),
        mark is not None and element("b", style=f"left:{_width(mark)}") or None,
        class_="meter",
    )
    return element(
        "div",
        element("div", what, class_="what"),
        element("div", big, class_="big"),
        bar or None,
        element("div", than, class_="than"),
        class_="card score",
    )


def _width(share):
    return f"{100 * min(max(share, 0.0), 1.0):.3g}%"


def table_cards(found):
    """Return the cards of what was measured on two tables."""
    cards = []
    for order, part in found["marginals"].items():
        kept, best = 1 - part["mean"], 1 - part["floor"]
        cards.append(
            score_card(
                f"{_ORDERS[order]} agree",
                f"{100 * kept:.1f}%",
                f"two halves of the real table: {100 * best:.1f}%",
                share=kept,
                mark=best,
            )
        )
    if found.get("downstream"):
        name, synthetic, real = found["downstream"]["models"][0]
        cards.append(
            score_card(
                "Trained on synthetic",
                f"{synthetic:.3f}",
                f"trained on real: {real:.3f} ({name}, {found['downstream']['score']})",
                share=synthetic,
                mark=real,
            )
        )
    auc = found["detection"]["auc"]
    cards.append(
        score_card(
            "Told apart",
            f"{auc:.2f}",
            "0.5 by guessing, 1 always (gradient boosting)",
            share=auc,
            mark=0.5,
        )
    )
    return cards


def privacy_card(report):
    """Return the card of a guarantee."""
    if math.isinf(report.epsilon):
        return score_card("Privacy", "none", "there is no guarantee")
    risk = report.attack_risk()
    return score_card(
        "Privacy budget",
        f"ε = {report.epsilon:.3g}",
        f"δ = {report.delta:.2g}; an attacker is right about an even guess with at most "
        f"{percent_up(risk.posterior())}",
    )


def table_words(found):
    """Return sentences about what was measured on two tables."""
    singles = found["marginals"][1]
    (worst,), distance = singles["worst"][0]
    yield (
        f"Shares of a single column differ by {percent(singles['mean'])} of the records on "
        f"average; farthest apart is {shorten(worst)}, with {percent(distance)}."
    )
    if "correlations" in found:
        yield (
            "The association of two columns differs by "
            f"{found['correlations']['mean']:.2g} on average, on a scale from 0 to 1."
        )
    if found.get("downstream"):
        name, synthetic, real = found["downstream"]["models"][0]
        constant = found["downstream"]["constant"]
        gain = real - constant
        kept = f", {percent(max(synthetic - constant, 0) / gain)} of what is to be gained" * (
            gain > 0.01
        )
        yield (
            f"A model of {shorten(found['downstream']['target'])} that learned from synthetic "
            f"records scores {synthetic:.3f}, and one that learned from real ones {real:.3f}{kept}."
        )
    auc = found["detection"]["auc"]
    how = "hardly" if auc < _HARDLY else "easily" if auc > _EASILY else "partly"
    yield f"A classifier {how} tells synthetic records from real ones."
    if auc < _COPIED:
        yield (
            "It errs more often than by chance, as it does where synthetic records are copies of "
            "real ones."
        )
    for rule in found.get("rules") or ():
        if rule["synthetic"] > 0:
            yield (
                f"The rule {shorten(rule['rule'], 80)} is broken by {percent(rule['synthetic'])} "
                "of the synthetic records."
            )


def privacy_words(report):
    """Return a sentence about a guarantee."""
    if report is None:
        return "No privacy guarantee was given with this report."
    if math.isinf(report.epsilon):
        return "There is no privacy guarantee."
    seeded = " The noise was seeded: this is void for whoever knows the seed." * report.is_seeded
    return (
        f"The release is ({report.epsilon:.3g}, {report.delta:.2g})-differentially private: an "
        "attacker who knows all other records is right about an even guess with at most "
        f"{percent_up(report.attack_risk().posterior())}.{seeded}"
    )
