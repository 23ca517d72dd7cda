"""Training of the adapter: what is public of it, and the gradients that are released."""

from itertools import accumulate, pairwise

import torch
from torch.nn import functional

from sklearn_dpgen.accounting import Bound, Event, PrivacyReport
from sklearn_dpgen.nn._training import fit_module
from sklearn_dpgen.sliced._base import CAVEATS
from sklearn_dpgen.sliced._objective import fair_gradient, penalty_gradient, softmax_residuals

__all__ = [
    "SIDES",
    "adaptation_guarantee",
    "batch_rows",
    "public_loss",
    "released_gradient",
    "source_report",
    "train_on_source",
]

# The two domains, in the order of the strata.
SIDES = ("source", "target")
_PUBLIC = ("sample_domain", "column_names", "domain_sizes")
_PROTECTED = {(0,): "source_record", (1,): "target_record", (0, 1): "source_or_target_record"}

# Rows of a public source a step.
_BATCH_SIZE = 512


def public_loss(module, source, labels, generator):
    """Return the mean log loss on a batch of a public source.

    Parameters
    ----------
    module : torch.nn.Module
        From records to logits.
    source : Tensor of shape (n, n_features)
    labels : Tensor of int of shape (n,)
    generator : torch.Generator
        Draws the rows, with replacement.

    Returns
    -------
    Tensor
        A scalar.
    """
    rows = torch.randint(len(source), (_BATCH_SIZE,), generator=generator, device=source.device)
    return functional.cross_entropy(module(source[rows]), labels[rows])


def train_on_source(module, source, labels, generator, **options):
    """Train on a public source alone.

    Parameters
    ----------
    module, source, labels, generator
        As in :func:`public_loss`.
    **options
        Of ``fit_module``.
    """
    fit_module(module, lambda step: public_loss(module, source, labels, generator), **options)


def released_gradient(objective, module, sides, labels, directions):
    """Return the part of a step's gradient that sees private records, of known sensitivity.

    Parameters
    ----------
    objective : FairObjective
        Of one or of two domains, the source first.
    module : torch.nn.Sequential
        Features, and the classifier on them.
    sides : list of Tensor of shape (n_i, n_features)
        The batch of each domain.
    labels : Tensor of int of shape (n_0,) or None
        Of the source. None where the source is public, so that its loss needs no release.
    directions : Tensor of shape (k, feature_dim)

    Returns
    -------
    list of Tensor
        One for each parameter of the module; where the source is public, of the features alone.
    """
    X = torch.cat(sides)
    batch = [slice(a, b) for a, b in pairwise([0, *accumulate(map(len, sides))])]
    if labels is None:
        return penalty_gradient(objective, module[0], X, batch, directions)
    return fair_gradient(
        objective,
        module,
        module[0],
        lambda logits: softmax_residuals(logits, labels),
        X,
        batch,
        directions,
    )


def batch_rows(drawn, private, sizes, batch_sizes, rng):
    """Return the rows of a step in each domain: those drawn in secret, and public ones.

    Parameters
    ----------
    drawn : list of ndarray of int
        Of the private domains.
    private : tuple of int
        Which they are.
    sizes, batch_sizes : list of int
        Of all domains.
    rng : Generator
        Draws public rows, without replacement.

    Returns
    -------
    list of ndarray of int
    """
    secret = iter(drawn)
    return [
        next(secret) if position in private else rng.choice(size, batch_size, replace=False)
        for position, (size, batch_size) in enumerate(zip(sizes, batch_sizes, strict=True))
    ]


def adaptation_guarantee(objective, private):
    """Return the neighbouring relation, public facts, bounds and caveats.

    Parameters
    ----------
    objective : FairObjective
    private : tuple of int
        Which of its domains are private.

    Returns
    -------
    dict of fields of a Guarantee
    """
    public = ("label_set",) if 0 in private else ("source",)
    bounds = []
    if 0 in private and objective.alpha < 1:
        bounds.append(Bound("source_loss_clip", objective.task_clip))
    if objective.alpha > 0:
        bounds.append(Bound("feature_jacobian_clip", objective.jacobian_clip))
        bounds.append(Bound("feature_radius", objective.ball.radius))
        if 1 not in private:
            public += ("target_records",)
    return {
        "protected": _PROTECTED[private],
        "shared": ("domain",),
        "public": (*public, *_PUBLIC),
        "norm": "l2",
        "bounds": tuple(bounds),
        "caveats": CAVEATS,
    }


def source_report(name):
    """Return the report of a fit that reads no private record: of a public source alone."""
    return PrivacyReport(
        name=name,
        events=(Event("nothing"),),
        epsilon=0.0,
        delta=0.0,
        protected="target_record",
        public=("source", *_PUBLIC),
        n_releases=0,
        rounding=0.0,
    )
