"""Names of the parameters of a budget, in estimators that hold others."""

__all__ = ["named_parameters", "outermost_parameters"]


def named_parameters(estimator, name):
    """Return the names of all parameters that end in one, at any depth, such as sampler__epsilon.

    Parameters
    ----------
    estimator : estimator
    name : str

    Returns
    -------
    list of str
    """
    return [key for key in estimator.get_params() if key.rpartition("__")[2] == name]


def outermost_parameters(estimator, name):
    """Return those of the least depth: a budget within another one is a part of it."""
    names = named_parameters(estimator, name)
    depth = min((key.count("__") for key in names), default=0)
    return [key for key in names if key.count("__") == depth]
