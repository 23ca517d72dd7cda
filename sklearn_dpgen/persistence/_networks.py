"""Networks in files: modules of the package, and the layers of PyTorch that they are made of.

The values of weights are read from tensors; everything else of a network follows from the
arguments of its constructor.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.func import functional_call

from sklearn_dpgen.persistence._declarations import SavedClass, check_fields, demand, register

__all__ = [
    "check_classifier",
    "check_network",
    "dense_arguments",
    "output_shape",
    "saved_network",
    "saved_parts",
]

# Rough memory of a module of PyTorch besides its weights.
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
_LAYERS: dict[type[nn.Module], dict] = {
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
    nn.Softmax: {"dim": int},
}
_WITH_BIAS = (nn.Linear, nn.Conv2d, nn.ConvTranspose2d)


def saved_network(kind: type) -> Any:
    """Declare a network that a file may hold: a class decorator.

    Parameters
    ----------
    kind : type
        A subclass of :class:`torch.nn.Module`, whose ``_saved_state`` maps the arguments of its
        constructor to hints. Optional: ``_to_saved(self)``, where these are not its attributes, and
        the class method ``_from_saved(cls, fields, weights)``, where some follow from the weights.

    Returns
    -------
    type
        The same class.
    """
    _register(kind, kind._saved_state)  # type: ignore[attr-defined]
    return kind


def _register(kind, hints):
    def describe(network):
        if hasattr(kind, "_to_saved"):
            found = network._to_saved()
        else:
            found = {name: getattr(network, name) for name in hints}
        modes = [module.training for module in network.modules()]
        return found | {"training": modes, "weights": dict(network.state_dict())}

    def build(found):
        expected = {"training": list[bool], "weights": dict[str, torch.Tensor]}
        check_fields(found, hints | expected, kind.__name__)
        weights, modes = found.pop("weights"), found.pop("training")
        for value in found.values():
            is_short = not isinstance(value, tuple) or len(value) <= _MOST_LAYERS
            demand(is_short, "A network has too many layers.")
        # Over another dimension, outputs of one row would depend on other rows.
        over_rows = kind is nn.Softmax and found["dim"] != 1
        demand(not over_rows, "A network has a softmax over rows.")
        # Sizes that the weights do not have would take memory before anything compares them.
        with torch.device("meta"):
            network = _construct(kind, found, weights)
        network.load_state_dict(weights, strict=True, assign=True)
        for module, mode in zip(network.modules(), modes, strict=True):
            module.training = mode
        return network

    register(SavedClass(kind, describe, build, _MODULE_BYTES))


def _construct(kind, found, weights):
    if hasattr(kind, "_from_saved"):
        return kind._from_saved(found, weights)
    return kind(**found, bias="bias" in weights) if kind in _WITH_BIAS else kind(**found)


def saved_parts(kind: type, name: str, unpack: bool = False) -> Any:
    """Declare a network that is made of others, each with weights of its own.

    Parameters
    ----------
    kind : type
        Its constructor takes the parts, as one sequence or one by one.
    name : str
        The field of the parts in a file.
    unpack : bool, default=False
        Whether the constructor takes the parts one by one, and iteration returns them.

    Returns
    -------
    type
        The same class.
    """

    def describe(network):
        return {name: list(network if unpack else getattr(network, name))}

    def build(found):
        check_fields(found, {name: list[nn.Module]}, kind.__name__)
        parts = found[name]
        demand(len(parts) <= _MOST_LAYERS, "A network has too many layers.")
        return kind(*parts) if unpack else kind(parts)

    register(SavedClass(kind, describe, build, _MODULE_BYTES))
    return kind


for _kind, _hints in _LAYERS.items():
    _register(_kind, _hints)
saved_parts(nn.Sequential, "modules", unpack=True)


def dense_arguments(layers: nn.Sequential) -> Mapping[str, Any]:
    """Return the hidden widths and the activation of a stack of linear layers, as arguments."""
    widths = [layer.out_features for layer in layers if isinstance(layer, nn.Linear)]
    names = {type(layer).__name__.lower() for layer in layers} - {"linear"}
    return {"hidden_layer_sizes": tuple(widths[:-1]), "activation": next(iter(names), "relu")}


def output_shape(network: nn.Module, n_inputs: int, dtype: torch.dtype) -> tuple[int, ...]:
    """Return the shape of the output for two rows, computed without memory for any layer.

    Raises
    ------
    InvalidFileError
        If a weight or a statistic has another dtype.
    """
    kinds = {weight.dtype for weight in network.parameters()}
    demand(kinds == {dtype}, "A network has weights of another dtype.")
    weights = {**dict(network.named_parameters()), **dict(network.named_buffers())}
    statistics = {weights[name].dtype for name in weights if "running_" in name}
    demand(statistics <= {dtype}, "A network has statistics of another dtype.")
    weights = {name: weight.to("meta") for name, weight in weights.items()}
    rows = torch.empty(2, n_inputs, dtype=dtype, device="meta")
    with torch.no_grad():
        return tuple(functional_call(network, weights, (rows,)).shape)


def check_network(
    network: nn.Module, n_inputs: int, n_outputs: int, dtype: torch.dtype = torch.float32
) -> None:
    """Raise InvalidFileError unless a network takes and returns rows of these widths."""
    has_widths = output_shape(network, n_inputs, dtype) == (2, n_outputs)
    demand(has_widths, "A network returns rows of another width.")


def check_classifier(network: nn.Module, n_inputs: int, n_classes: int) -> None:
    """Raise InvalidFileError unless a network of float64 returns a logit for each class.

    Two classes may share one logit.
    """
    widths = (1, 2) if n_classes == 2 else (n_classes,)
    shape = output_shape(network, n_inputs, torch.float64)
    demand(shape in [(2, width) for width in widths], "A network returns rows of another width.")
