"""What private evolution does, from its parameters and public numbers alone."""

import math
from dataclasses import dataclass

from sklearn_dpgen.evolution._class_settings import (
    check_threshold,
    class_settings,
    first_degrees,
    warn_of_noise,
)
from sklearn_dpgen.evolution._moment_start import start_queries
from sklearn_dpgen.evolution._tabular_variation import TabularVariation
from sklearn_dpgen.evolution._variation_interface import EuclideanVariation, check_candidates
from sklearn_dpgen.evolution._votes_plan import VotesPlan

__all__ = ["EvolutionPlan", "make_interface", "plan_evolution"]


@dataclass(frozen=True)
class EvolutionPlan:
    """The steps of a fit.

    Parameters
    ----------
    settings : list of AnnealedParameters or of TheoryParameters
        Of each class.
    queries : tuple of two ClassSums or None
        What is released before the first step.
    votes : VotesPlan
    report : PrivacyReport
    """

    settings: list
    queries: tuple | None
    votes: VotesPlan
    report: object


def make_interface(sampler, domain):
    """Return where candidates come from.

    Parameters
    ----------
    sampler : PrivateEvolutionSampler
    domain : Domain or None
    """
    if sampler.interface is not None:
        return sampler.interface
    if sampler.schema is not None:
        return TabularVariation(sampler.schema)
    if domain is None:
        raise ValueError("Declare schema or domain: the public set of the records.")
    return EuclideanVariation(domain)


def plan_evolution(sampler, voters, interface, rng):
    """Return the plan of a fit, and warn where noise drowns the votes.

    Parameters
    ----------
    sampler : PrivateEvolutionSampler
    voters : Voters
    interface : VariationInterface
    rng : numpy.random.Generator
        For a first candidate, of which the width is read.

    Returns
    -------
    EvolutionPlan
    """
    width = check_candidates(interface.random(1, rng), 1, None, None, interface).shape[1]
    settings = _settings(sampler, voters, width)
    most = [s.n_samples * (1 + len(first_degrees(sampler.schedule, s))) for s in settings]
    sampler._check_sizes("n_samples", sum(most), width, voters.width)
    queries = start_queries(sampler, voters)
    shares = settings[0].shares
    start_share = None if queries is None else sampler.start_share
    n_moments = sum(query.size for query in queries or ())
    plan = sampler._votes_plan(voters, shares, sum(most), start_share, n_moments)
    noise = plan.last_noise_scale
    copies = sampler.variant == "theory" and sampler.postprocess == "threshold"
    if copies and sampler.histogram == "gaussian":
        check_threshold(
            sampler.threshold, sampler.multiplicity, noise, voters.sizes, settings, most
        )
    if math.isfinite(sampler.epsilon):
        warn_of_noise(noise, voters.sizes, settings, sampler.epsilon)
    n_candidates = [setting.n_samples for setting in settings]
    report = sampler._report(
        plan,
        voters,
        precision=plan.precision(voters.sizes, n_candidates),
    )
    return EvolutionPlan(settings, queries, plan, report)


def _settings(sampler, voters, dimension):
    """Return the settings of each class."""
    if sampler.schedule == "theory":
        if not math.isfinite(sampler.epsilon):
            raise ValueError("schedule='theory' needs a finite epsilon.")
        if voters.domain is None:
            raise ValueError("schedule='theory' needs a domain: its scales are absolute.")
    n_samples = [None if sampler.n_samples == "auto" else sampler.n_samples] * len(voters.sizes)
    if sampler.n_samples == "auto" and sampler.variant == "theory":
        n_samples = voters.sizes
    return class_settings(
        sampler.schedule,
        voters.sizes,
        dimension,
        voters.domain.diameter(2) if sampler.schedule == "theory" else None,
        sampler.epsilon,
        sampler._delta(voters.n_samples),
        n_iter=None if sampler.n_iter == "auto" else sampler.n_iter,
        n_samples=n_samples,
    )
