"""The networks that a generator may be, by name."""

from collections.abc import Callable

from sklearn_dpgen.nn import dcgan_generator, mlp_generator, upsampling_generator
from sklearn_dpgen.nn._generators import DrawnGenerator
from sklearn_dpgen.utils._validation import check_widths

__all__ = ["NETWORKS", "build_network"]

_PERCEPTRONS: dict[str, Callable] = {"auto": DrawnGenerator, "mlp": mlp_generator}
_IMAGES: dict[str, Callable] = {"dcgan": dcgan_generator, "upsampling": upsampling_generator}
NETWORKS = {*_PERCEPTRONS, *_IMAGES}


def build_network(generator, n_inputs, domain, *, hidden_layer_sizes, activation):
    """Return an untrained network.

    Parameters
    ----------
    generator : str or callable
        One of ``NETWORKS``, or a function of ``n_inputs`` and ``domain``.
    n_inputs : int
    domain : Domain
        Where its output lies.
    hidden_layer_sizes, activation
        Of a multilayer perceptron.

    Returns
    -------
    torch.nn.Module
    """
    if callable(generator):
        return generator(n_inputs, domain)
    if generator in _IMAGES:
        return _IMAGES[generator](n_inputs, domain)
    return _PERCEPTRONS[generator](n_inputs, domain, check_widths(hidden_layer_sizes), activation)
