"""The closed list of objects that a file may hold, and what is expected of each."""

import datetime
import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from zoneinfo import available_timezones

import numpy as np
import pandas as pd
import torch

from sklearn_dpgen.deconvolution._model import GeneratorModel
from sklearn_dpgen.domains import Ball, Box, Domain, OneHot, Product
from sklearn_dpgen.evolution import EuclideanVariation, TabularVariation
from sklearn_dpgen.evolution._voting_sampler import ClassVotes
from sklearn_dpgen.exceptions import InvalidFileError
from sklearn_dpgen.moments._image_laws import ImageModel
from sklearn_dpgen.persistence._checks import (
    check_binned,
    check_chain,
    check_mixture,
    check_noisy_marginal,
    check_votes,
    demand,
)
from sklearn_dpgen.persistence._hints import Array, OneOf, check_fields, list_of, tuple_of
from sklearn_dpgen.preprocessing import DCTTransformer, TabularEncoder
from sklearn_dpgen.schema import (
    Categorical,
    Datetime,
    FunctionalDependency,
    Identifier,
    Implication,
    Inequality,
    Numeric,
    Ordinal,
    Schema,
    Sum,
)
from sklearn_dpgen.schema._binned import Binned
from sklearn_dpgen.schema._column import Column
from sklearn_dpgen.schema._made_up import Derived
from sklearn_dpgen.schema._rules import Rule
from sklearn_dpgen.tables._log_linear_chain import (
    LogLinearChain,
    LogLinearConditional,
    LogLinearTerm,
)
from sklearn_dpgen.tables._measurements import NoisyMarginal
from sklearn_dpgen.tables._product_mixture import ProductMixture
from sklearn_dpgen.tables._table_rules import TableRules

__all__ = ["KINDS", "Kind"]

# Of a transform, whose matrices have the squares of the sides.
_MOST_PIXELS = 1 << 20

_OFFSET = re.compile(r"UTC|(UTC)?[+-][0-9]{2}:[0-9]{2}")

_VECTOR = Array("f", 1)
_CODES = Array("i", 1, low=0)


@dataclass(frozen=True)
class Kind:
    """A kind of objects: how one is described, and built again through its constructor.

    Parameters
    ----------
    type : type
    describe : callable
        From an object to a dict of its fields.
    build : callable
        From such a dict to an object, or an InvalidFileError.
    cost : int, default=512
        Bytes that an object takes beside its fields, roughly.
    """

    type: type
    describe: Callable
    build: Callable
    cost: int = 512


def _declared(kind, hints=None, check=None):
    """Return the kind of a dataclass, whose fields are the arguments of its constructor.

    Parameters
    ----------
    kind : type
    hints : dict or None, default=None
        Of the fields; None where the constructor checks them.
    check : callable or None, default=None
        Raises InvalidFileError for an object whose fields do not fit each other.
    """
    names = [field.name for field in fields(kind) if field.init]

    def describe(value):
        return {name: getattr(value, name) for name in names}

    def build(found):
        check_fields(found, hints or dict.fromkeys(names, object), kind.__name__)
        value = kind(**found)
        if check is not None:
            check(value)
        return value

    return Kind(kind, describe, build)


def _of_attributes(kind, hints):
    """Return a kind whose attributes are the arguments of its constructor."""

    def describe(value):
        return {name: getattr(value, name) for name in hints}

    return Kind(kind, describe, partial(_construct, kind, hints))


def _construct(kind, hints, found):
    check_fields(found, hints, getattr(kind, "__name__", "An object"))
    return kind(**found)


def _describe_encoder(encoder):
    binned = {n: c for n, c in encoder.columns_.items() if isinstance(c, Binned)}
    edges = {name: column.edges for name, column in binned.items()}
    names = list(encoder.dtypes_)
    return {"schema": encoder.schema, "bins": encoder.bins, "edges": edges, "names": names}


def _build_encoder(found):
    hints = {
        "schema": Schema,
        "bins": object,
        "edges": dict[str, tuple[float, ...]],
        "names": list[str],
    }
    check_fields(found, hints, "TabularEncoder")
    schema, names = found["schema"], found["names"]
    if sorted(names) != sorted(schema) or not found["edges"].keys() <= schema.keys():
        raise InvalidFileError("An encoder has other columns than its schema.")
    binned = {name: Binned(schema[name], edges) for name, edges in found["edges"].items()}
    for column in binned.values():
        check_binned(column)
    # Of a row of nulls, of which it reads no more than the names.
    encoder = TabularEncoder(schema, bins=binned).fit(pd.DataFrame(index=[0], columns=names))
    # What the columns came from: they are as they were, whatever a number of bins gives today.
    encoder.bins = found["bins"]
    return encoder


def _describe_dct(transform):
    names = ("shape", "mask", "n_features_in_")
    return {name: getattr(transform, name) for name in names}


def _build_dct(found):
    hints = {"shape": tuple[int, ...] | None, "mask": object, "n_features_in_": int}
    check_fields(found, hints, "DCTTransformer")
    width = found.pop("n_features_in_")
    sides = found["shape"] or (width,)
    demand(0 < width <= _MOST_PIXELS, "An image has too many pixels.")
    demand(sum(side**2 for side in sides) <= 2 * _MOST_PIXELS, "An image has too long a side.")
    return DCTTransformer(**found).fit(np.zeros((1, width)))


class _Zone:
    """The name of a time zone that is installed: of others, files are opened and modules tried."""

    def holds(self, value):
        if not isinstance(value, str):
            return False
        return bool(_OFFSET.fullmatch(value)) or value in available_timezones()


_VARIATION = {
    "schema": Schema,
    "public_sampler": None,
    "n_columns": int | str,
    "null_probability": float,
    "categorical_weight": float,
    "column_weights": OneOf((None, dict[str, float])),
}

_DOMAINS = [
    # Of scalars and a width, a short file would make long vectors.
    _declared(Box, {"low": _VECTOR, "high": _VECTOR, "n_features": int}),
    _declared(Ball, {"radius": float, "p": float, "center": _VECTOR, "n_features": int}),
    _declared(OneHot),
    _declared(Product, {"domains": tuple[Domain, ...]}),
]
_COLUMNS = [
    *map(_declared, (Categorical, Identifier, Numeric, Ordinal)),
    _declared(
        Datetime,
        {
            "low": datetime.datetime,
            "high": datetime.datetime,
            "resolution": str,
            "nullable": bool,
            "zone": OneOf((None, _Zone())),
        },
    ),
]
_RULES = [_declared(kind) for kind in (FunctionalDependency, Implication, Inequality, Sum)]
_LAWS = [
    _declared(
        LogLinearTerm,
        {
            "parents": tuple[int, ...],
            "groups": tuple_of(_CODES),
            "logits": Array("f"),
        },
    ),
    _declared(
        LogLinearConditional,
        {
            "column": int,
            "base": Array("f", 1, low=-np.inf),
            "terms": tuple[LogLinearTerm, ...],
        },
    ),
    _declared(
        LogLinearChain,
        {
            "domain": Product,
            "blocks": list_of(_CODES),
            "shares": list_of(Array("f", 1, low=0)),
            "conditionals": tuple[LogLinearConditional, ...],
            "conditioned": frozenset[int],
        },
        check_chain,
    ),
    _declared(
        ProductMixture,
        {
            "domain": Product,
            "shares": Array("f", 1, low=0),
            "probabilities": Array("f", 2, low=0),
        },
        check_mixture,
    ),
    _declared(
        NoisyMarginal,
        {
            "columns": tuple[str, ...],
            "groups": tuple_of(_CODES),
            "counts": Array("f"),
            "noise_scale": OneOf((float, Array("f", low=0))),
        },
        check_noisy_marginal,
    ),
    _declared(
        ClassVotes,
        {
            "degrees": tuple[float, ...],
            "candidates": Array("f", 2),
            "votes": _VECTOR,
            "weights": Array("f", 1, low=0),
        },
        check_votes,
    ),
]

_OTHERS = [
    Kind(
        Schema,
        lambda schema: {"columns": dict(schema)},
        partial(_construct, Schema, {"columns": dict[str, Column]}),
    ),
    Kind(
        TableRules,
        lambda rules: {"rules": rules.rules, "schema": rules.declared},
        partial(_construct, TableRules, {"rules": list[Rule], "schema": Schema}),
    ),
    _declared(Derived, {"column": Column}),
    _declared(Binned, {"column": Numeric | Datetime, "edges": tuple[float, ...]}, check_binned),
    Kind(TabularEncoder, _describe_encoder, _build_encoder, cost=1 << 14),
    Kind(DCTTransformer, _describe_dct, _build_dct),
    _of_attributes(TabularVariation, _VARIATION),
    _declared(
        ImageModel,
        {"basis": torch.Tensor, "shape": tuple[int, ...], "contrast": float, "deformation": float},
    ),
    _of_attributes(EuclideanVariation, {"domain": Domain}),
]

# Its network and its mechanism are attributes of the estimator, which joins them.
_MODEL = {"latent_dim": int, "output_domain": Domain | None, "output_transform": object}
_OTHERS.append(
    Kind(
        GeneratorModel,
        lambda model: {name: getattr(model, name) for name in _MODEL},
        partial(
            _construct,
            partial(GeneratorModel, None, mechanism=None),  # type: ignore[arg-type]
            _MODEL,
        ),
    )
)

KINDS: dict[str, Kind] = {
    kind.type.__name__: kind for kind in (*_DOMAINS, *_COLUMNS, *_RULES, *_LAWS, *_OTHERS)
}
