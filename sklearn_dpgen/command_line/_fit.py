"""The sampler that options ask for, and what its report says."""

from typing import TYPE_CHECKING

from sklearn_dpgen.accounting import PrivacyReport
from sklearn_dpgen.ledger._base import PrivateEstimator
from sklearn_dpgen.tables import TableSampler

if TYPE_CHECKING:
    from sklearn_dpgen.ledger import PrivacyLedger
    from sklearn_dpgen.schema import Schema

__all__ = ["make_sampler", "risk_of"]

_SAMPLERS: dict[str, type[PrivateEstimator]] = {
    "sliced": TableSampler,
}


def make_sampler(arguments, schema: "Schema", *, ledger: "PrivacyLedger | None" = None):
    """Return an estimator that is not fitted yet.

    Parameters
    ----------
    arguments : namespace
        Of the options of budgets and samplers, which `check_options` passed.
    schema : Schema
    ledger : PrivacyLedger or None, default=None
    """
    kind = _SAMPLERS[arguments.sampler]
    options = {
        "epsilon": arguments.epsilon,
        "delta": arguments.delta,
        "schema": schema,
        "unit": arguments.unit,
        "ledger": ledger,
        "noise": arguments.noise,
    }
    target = arguments.target
    if target is not None:
        target = target[0] if len(target) == 1 else target
    if arguments.sampler == "sliced":
        options |= {"target": target, "max_rows": arguments.max_rows}
        options["neighbours"] = arguments.neighbouring
    if arguments.max_rows is not None:
        options["unit_weights"] = "rows"
    return kind(**options)


def risk_of(report: PrivacyReport) -> dict:
    """Return what a release allows an attacker."""
    risk = report.attack_risk()
    return {
        "true_positive_rates": risk.true_positive_rates,
        "advantage": risk.advantage,
        "posterior_of_an_even_guess": risk.posterior(),
        "mu": risk.mu,
    }
