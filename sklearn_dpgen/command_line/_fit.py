"""The sampler that options ask for, and what its report says."""

from typing import TYPE_CHECKING

from sklearn_dpgen.accounting import PrivacyReport
from sklearn_dpgen.budget._base import PrivateEstimator
from sklearn_dpgen.command_line._errors import CommandError
from sklearn_dpgen.tables import PrivateMixtureSampler, SlicedMeasureSampler

if TYPE_CHECKING:
    from sklearn_dpgen.budget import PrivacyLedger
    from sklearn_dpgen.schema import Schema

__all__ = ["make_sampler", "needs_rows", "risk_of"]

_SAMPLERS: dict[str, type[PrivateEstimator]] = {
    "sliced": SlicedMeasureSampler,
    "mixture": PrivateMixtureSampler,
}


def make_sampler(arguments, schema: "Schema", *, ledger: "PrivacyLedger | None" = None):
    """Return an estimator that is not fitted yet.

    Parameters
    ----------
    arguments : namespace
        Of the options of budgets and samplers.
    schema : Schema
    ledger : PrivacyLedger or None, default=None

    Raises
    ------
    CommandError
        Options that the sampler does not have.
    """
    kind = _SAMPLERS[arguments.sampler]
    known = set(kind._get_param_names())
    options = {
        "epsilon": arguments.epsilon,
        "delta": arguments.delta,
        "schema": schema,
        "unit": arguments.unit,
        "ledger": ledger,
    }
    target = arguments.target
    if target is not None:
        target = target[0] if len(target) == 1 else target
    asked = {
        "neighbouring": ("neighbours", arguments.neighbouring, "replace_one"),
        "target": ("target", target, None),
        "noise": ("noise", arguments.noise, "float"),
        "max-rows": ("max_rows", arguments.max_rows, None),
    }
    for option, (name, value, default) in asked.items():
        if value == default:
            continue
        if name not in known:
            raise CommandError(f"--{option} {value}: --sampler {arguments.sampler} has none such.")
        options[name] = value
    if arguments.max_rows is not None:
        if arguments.unit is None:
            raise CommandError("--max-rows is of persons: it needs --unit.")
        options["unit_weights"] = "rows"
    return kind(**options)


def needs_rows(arguments) -> bool:
    """Return whether a plan depends on the number of rows."""
    return arguments.neighbouring == "replace_one" and arguments.max_rows is None


def risk_of(report: PrivacyReport) -> dict:
    """Return what a release allows an attacker."""
    risk = report.attack_risk()
    return {
        "true_positive_rates": risk.true_positive_rates,
        "advantage": risk.advantage,
        "posterior_of_an_even_guess": risk.posterior(),
        "mu": risk.mu,
    }
