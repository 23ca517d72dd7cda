"""How long votes take, and how much memory, from public numbers: within a factor of 3."""

from sklearn_dpgen.evolution._votes import TREE_DIMENSIONS

__all__ = ["votes_forecast"]

# Seconds on two cores, fitted to fits of 10000 and 100000 records of 2 to 24 features by
# benchmarks/bench_forecast.py. What each is of is beside it.
_STEP = 8e-3  # a step
_RECORD = 8e-7  # a record that goes down a tree
_PAIR, _ENTRY = 2.2e-10, 1.5e-11  # a record and a candidate, and a feature of them
_VARIED = 2.5e-7  # an entry of a candidate that is made
_PROJECTED = 4e-8  # two candidates in a projection on Lipschitz functions
# Bytes of distances at a time, and of what is beside.
_DISTANCES, _BLOCK = 1e8, 1.2e7


def votes_forecast(sampler, voters, n_iter, n_candidates):
    """Return the forecast of a fit that counts votes.

    Parameters
    ----------
    sampler : VotingSampler
    voters : Voters
    n_iter : int
        Releases.
    n_candidates : list of int
        Of each class.

    Returns
    -------
    dict of str to float
        Without seconds where an interface, a metric or an embedding of the caller takes its own.
    """
    width, most = voters.width, sum(n_candidates)
    in_tree = sampler.schema is None and width <= TREE_DIMENSIONS.get(sampler.metric, 0)
    pairs = sum(size * n for size, n in zip(voters.sizes, n_candidates, strict=True))
    n_bytes = 16 * (voters.n_samples * (not in_tree) + 2 * most) * width + _BLOCK
    n_bytes += 0 if in_tree else min(8 * pairs, _DISTANCES)
    squares = 0
    if sampler.postprocess == "bounded_lipschitz":
        squares = sum(n**2 for n in n_candidates)
        n_bytes += 8 * max(n_candidates) ** 2
    own = sampler.metric, sampler.embedding, getattr(sampler, "interface", None)
    if any(part is not None and not isinstance(part, str) for part in own):
        return {"bytes": n_bytes}
    step = voters.n_samples * _RECORD if in_tree else pairs * (_PAIR + _ENTRY * width)
    step += _STEP + _VARIED * most * width + _PROJECTED * squares
    return {"seconds": 0.02 + n_iter * step, "bytes": n_bytes}
