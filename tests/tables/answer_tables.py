"""Joint answers on small tables, their populations, and quick samplers of them."""

from itertools import product

import numpy as np
import pandas as pd
import torch
from sampler_tables import SCHEMA

from sklearn_dpgen.mechanisms import JointRandomizedResponse
from sklearn_dpgen.schema import Categorical, Ordinal, Schema
from sklearn_dpgen.tables import LocalTableSampler

CPU = torch.device("cpu")


def schema_of(sizes):
    """Return columns of labels from 0, of which every other one is ordered."""
    kinds = (Categorical, Ordinal)
    return Schema({f"x{j}": kinds[j % 2](range(size)) for j, size in enumerate(sizes)})


def ask(sizes, epsilon, n=60, *, n_asked=(2,), codes=None, seed=0):
    """Return a fitted mechanism and encoded answers, as many for each number of asked columns."""
    schema, rng = schema_of(sizes), np.random.default_rng(seed)
    parts = []
    for count in n_asked:
        options = {"schema": schema, "n_asked": count, "random_state": seed}
        mechanism = JointRandomizedResponse(epsilon, **options).fit()
        drawn = rng.integers(sizes, size=(n, len(sizes))) if codes is None else codes
        parts.append(mechanism.transform(pd.DataFrame(drawn, columns=list(schema))))
    return mechanism, mechanism.encode_release(pd.concat(parts, ignore_index=True))


def soft_rows(sizes, n_rows=5, seed=0):
    """Return a population, a tensor of doubles of shape (D, n_rows)."""
    rng = np.random.default_rng(seed)
    blocks = [rng.dirichlet(np.full(size, 0.5), size=n_rows) for size in sizes]
    return torch.tensor(np.hstack(blocks).T.copy())


def mixture_log_likelihood(mechanism, encoded, P):
    """Return the log-likelihood of answers under a population of shape (D, n_rows)."""
    joint = mechanism.log_likelihood(P.T, torch.as_tensor(encoded, dtype=P.dtype))
    return torch.logsumexp(joint, dim=0) - np.log(P.shape[1])


def enumerated_log_likelihood(mechanism, encoded, P, sizes):
    """Return the same by the sum over all records that there are."""
    records = np.array(list(product(*map(range, sizes))))
    one_hot = np.hstack([np.eye(size)[c] for size, c in zip(sizes, records.T, strict=True)])
    blocks = [block.numpy() for block in P.split(list(sizes))]
    chances = np.prod([b[c] for b, c in zip(blocks, records.T, strict=True)], axis=0).mean(axis=1)
    given = mechanism.log_likelihood(torch.tensor(one_hot), torch.as_tensor(encoded)).exp()
    return np.log(chances @ given.numpy())


def make(mechanism=None, **options):
    """Return a sampler that runs through in milliseconds."""
    if mechanism is None:
        mechanism = JointRandomizedResponse(3.0, schema=SCHEMA, n_bins=4, random_state=0)
    small = {"population_size": 12, "max_iter": 6, "random_state": 0, "device": "cpu"}
    return LocalTableSampler(mechanism, **(small | options))
