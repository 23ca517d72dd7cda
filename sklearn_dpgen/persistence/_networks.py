"""Networks as kinds: modules of the package and the layers of PyTorch that they are made of."""

import torch
from torch import nn

from sklearn_dpgen.domains import Domain, Product
from sklearn_dpgen.exceptions import InvalidFileError
from sklearn_dpgen.nn import DomainHead, DrawnGenerator, GeneratorMixture
from sklearn_dpgen.persistence._checks import demand
from sklearn_dpgen.persistence._hints import check_fields
from sklearn_dpgen.persistence._kinds import Kind
from sklearn_dpgen.smoothed._features import AdaptedNetwork, AffineMove

__all__ = ["NETWORKS"]

# What a module of PyTorch takes beside its weights, roughly.
_MODULE_BYTES = 1 << 13
_MOST_LAYERS = 256

_PAIR = int | tuple[int, int]
_BATCH_NORM = {"num_features": int, "eps": float, "momentum": float | None}
_CONVOLUTION = {
    "in_channels": int,
    "out_channels": int,
    "kernel_size": _PAIR,
    "stride": _PAIR,
    "padding": _PAIR,
}
_LAYERS = {
    nn.Linear: {"in_features": int, "out_features": int},
    nn.BatchNorm1d: _BATCH_NORM,
    nn.BatchNorm2d: _BATCH_NORM,
    nn.Conv2d: _CONVOLUTION,
    nn.ConvTranspose2d: _CONVOLUTION | {"output_padding": _PAIR},
    nn.Flatten: {"start_dim": int, "end_dim": int},
    nn.Unflatten: {"dim": int, "unflattened_size": tuple[int, ...]},
    nn.Upsample: {"scale_factor": float, "mode": str},
    nn.ReLU: {},
    nn.SiLU: {},
    nn.Tanh: {},
    nn.Sigmoid: {},
    DomainHead: {"domain": Domain},
    AffineMove: {"scale": float, "gain": float},
}
_DENSE = {"hidden_layer_sizes": tuple[int, ...], "activation": str}


def _network(kind, hints, arguments=None, build=None):
    """Return the kind of a network.

    Parameters
    ----------
    kind : type
    hints : dict
        Of the arguments of its constructor.
    arguments : callable or None, default=None
        From a network to these; None takes its attributes of these names.
    build : callable or None, default=None
        From arguments and weights to a network; None calls the constructor.
    """

    def describe(network):
        found = {n: getattr(network, n) for n in hints} if arguments is None else arguments(network)
        modes = [module.training for module in network.modules()]
        return found | {"training": modes, "weights": dict(network.state_dict())}

    def rebuild(found):
        check_fields(
            found,
            hints | {"training": list[bool], "weights": dict[str, torch.Tensor]},
            kind.__name__,
        )
        weights, modes = found.pop("weights"), found.pop("training")
        # Sizes that the weights do not have would take memory before anybody compares them.
        with torch.device("meta"):
            network = kind(**found) if build is None else build(weights, **found)
        network.load_state_dict(weights, strict=True, assign=True)
        for module, mode in zip(network.modules(), modes, strict=True):
            module.training = mode
        return network

    return Kind(kind, describe, rebuild, cost=_MODULE_BYTES)


def _of_parts(kind, name):
    """Return the kind of a network of others, each with its own weights."""

    def describe(network):
        return {name: list(network if name == "modules" else getattr(network, name))}

    def build(found):
        check_fields(found, {name: list[nn.Module]}, kind.__name__)
        parts = found[name]
        demand(len(parts) <= _MOST_LAYERS, "A network has too many layers.")
        return kind(*parts) if name == "modules" else kind(parts)

    return Kind(kind, describe, build, cost=_MODULE_BYTES)


def _layer(kind, hints):
    if kind not in (nn.Linear, nn.Conv2d, nn.ConvTranspose2d):
        return _network(kind, hints, build=_center_of if kind is AffineMove else None)

    def build(weights, **found):
        return kind(**found, bias="bias" in weights)

    return _network(kind, hints, build=build)


def _center_of(weights, **found):
    if "center" not in weights or weights["center"].ndim != 1:
        raise InvalidFileError("A map has no center.")
    return AffineMove(weights["center"], **found)


def _dense(layers):
    """Return the widths and the activation of a stack of linear layers."""
    widths = [layer.out_features for layer in layers if isinstance(layer, nn.Linear)]
    names = {type(layer).__name__.lower() for layer in layers} - {"linear"}
    return {
        "hidden_layer_sizes": tuple(widths[:-1]),
        "activation": next(iter(names), "relu"),
    }


def _drawn_arguments(network):
    domain = Product(network.head.domains)
    return {"latent_dim": network.hidden[0].in_features, "domain": domain} | _dense(network.hidden)


def _build_drawn(weights, **found):
    demand(len(found["hidden_layer_sizes"]) <= _MOST_LAYERS, "A network has too many layers.")
    return DrawnGenerator(**found)


def _adapted_arguments(network):
    return {
        "n_inputs": network.body[0].in_features,
        "feature_dim": network.classifier.in_features,
        "n_classes": network.classifier.out_features,
        "transport": network.transport,
    } | _dense(network.body)


def _build_adapted(weights, **found):
    demand(len(found["hidden_layer_sizes"]) <= _MOST_LAYERS, "A network has too many layers.")
    return AdaptedNetwork(**found)


_ALL = [
    *(_layer(kind, hints) for kind, hints in _LAYERS.items()),
    _of_parts(nn.Sequential, "modules"),
    _of_parts(GeneratorMixture, "members"),
    _network(
        DrawnGenerator,
        {"latent_dim": int, "domain": Domain} | _DENSE,
        _drawn_arguments,
        _build_drawn,
    ),
    _network(
        AdaptedNetwork,
        {"n_inputs": int, "feature_dim": int, "n_classes": int, "transport": AffineMove} | _DENSE,
        _adapted_arguments,
        _build_adapted,
    ),
]

NETWORKS = {kind.type.__name__: kind for kind in _ALL}
