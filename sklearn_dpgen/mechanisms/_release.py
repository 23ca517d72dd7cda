"""Privatized records that carry the mechanism which released them."""

import functools
import hashlib
import json
import pickle
from dataclasses import fields, is_dataclass, replace
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import TransformerMixin, clone

from sklearn_dpgen.exceptions import PublicValueError

__all__ = [
    "Card",
    "ReleasedArray",
    "ReleaseMixin",
    "check_release",
    "drawn_by",
    "release_digest",
    "release_of",
    "settings_text",
]

# Where a data frame keeps its card; the name on it goes along into Parquet files.
_ATTRIBUTE = "sklearn_dpgen.release"


class Card(dict):
    """The name of a mechanism, as JSON, and how to make the mechanism again.

    It holds the parameters of the mechanism without ``random_state`` and ``ledger``, the names of
    its columns, and where its noise was from: what is public, and nothing that a fit or a release
    computed. A file holds the name alone.

    Parameters
    ----------
    label : dict
        As :func:`release_of` returns it.
    recipe : tuple or None
        Class, parameters, names of columns or None, and source of noise.
    """

    def __init__(self, label, recipe=None):
        super().__init__(label)
        self._recipe = recipe

    @classmethod
    def of(cls, mechanism):
        """Return the card of a fitted mechanism."""
        parameters = mechanism.get_params(deep=False)
        parameters |= dict.fromkeys({"random_state", "ledger"} & parameters.keys())
        if "domain" in parameters:
            # A function of the width is often one that cannot be pickled.
            parameters["domain"] = mechanism.domain_
        names = getattr(mechanism, "feature_names_in_", None)
        source = mechanism.privacy_.noise_source
        return cls(_label(mechanism), (type(mechanism), parameters, names, source))

    def mechanism(self):
        """Return the mechanism, fitted anew, or None after a file."""
        if self._recipe is None:
            return None
        kind, parameters, names, source = self._recipe
        mechanism = clone(kind(**parameters))
        width = None if names is None else pd.DataFrame(np.zeros((1, len(names))), columns=names)
        mechanism.fit(width)
        mechanism.privacy_ = drawn_by(mechanism.privacy_, source)
        return mechanism

    def __deepcopy__(self, memo):
        # Of each frame that pandas makes of another one.
        return Card(self, self._recipe)

    def __reduce__(self):
        recipe = self._recipe
        try:
            pickle.dumps(recipe)
        except (pickle.PicklingError, AttributeError, TypeError):
            # Of a class or a function of a notebook the name is left, and records are not lost.
            recipe = None
        return Card, (dict(self), recipe)


def drawn_by(report, source):
    """Return the report of a mechanism that drew its noise from some source."""
    parts = tuple(drawn_by(part, source) for part in report.parts)
    return replace(report, noise_source=source, parts=parts)


class ReleasedArray(np.ndarray):
    """An array of privatized records whose ``release`` is the card of its mechanism.

    Rows taken from it, copies and pickles keep the card; what is joined from several arrays or read
    from a file is a plain array. The card helps against mistakes and proves nothing: what is
    changed in place keeps it.
    """

    def __array_finalize__(self, obj):
        self.release = getattr(obj, "release", None)

    def __array_wrap__(self, array, context=None, return_scalar=False):
        array = np.asarray(array)
        return array[()] if return_scalar else array

    def __reduce__(self):
        return _released_array, (np.asarray(self), self.release)


class ReleaseMixin(TransformerMixin):
    """Mixin of mechanisms: what ``transform`` returns, array or data frame, has their card."""

    def __init_subclass__(cls, **kwargs):
        # scikit-learn's own comes first and makes data frames where ``set_output`` asks for them.
        super().__init_subclass__(**kwargs)
        if "transform" in vars(cls):
            cls.transform = _labelled(cls.transform)


def release_of(Y: object) -> dict | None:
    """Return the name of the mechanism that released some records, if they carry it.

    Parameters
    ----------
    Y : array-like or data frame

    Returns
    -------
    dict or None
        ``mechanism``, the name of its class; ``epsilon``, in nats; ``delta``; and ``settings``, a
        digest of its domain or columns and its noise scales. None for records without it, such as
        those that came as a plain array or from a text file.

    Notes
    -----
    Estimators that learn from privatized records, such as
    :class:`~sklearn_dpgen.deconvolution.EntropicDeconvGAN`, take the mechanism itself from them,
    without its seed and its ledger. Rows, folds, copies and pickles keep it; a Parquet file of a
    table keeps the name alone; text files, ``np.save``, arrays that are joined or computed, and
    frames of Polars keep neither.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_dpgen.domains import Box
    >>> from sklearn_dpgen.mechanisms import LaplaceMechanism, release_of
    >>> Y = LaplaceMechanism(2.0, domain=Box(0, 1)).fit_transform(np.zeros((9, 1)))
    >>> release_of(Y[:3])["epsilon"]
    2.0
    >>> release_of(np.asarray(Y)) is None
    True
    """
    if isinstance(Y, pd.DataFrame):
        return Y.attrs.get(_ATTRIBUTE)
    return getattr(Y, "release", None) if isinstance(Y, ReleasedArray) else None


def check_release(Y, mechanism):
    """Refuse privatized records that name another mechanism; without a name they pass.

    Parameters
    ----------
    Y : array-like or data frame
    mechanism : Mechanism
        Fitted: the one whose likelihood is about to be used.

    Raises
    ------
    ValueError
        Naming both budgets.
    """
    released, expected = release_of(Y), _label(mechanism)
    if released is None or released == expected:
        return
    both = [
        f"{label['mechanism']} with epsilon={label['epsilon']:g}, delta={label['delta']:g}"
        for label in (released, expected)
    ]
    settings = " and other settings (domain, columns or noise)" if both[0] == both[1] else ""
    raise PublicValueError(
        f"The records were released by {both[0]}{settings}, but mechanism is {both[1]}: the noise "
        "to remove would be the wrong one. Leave mechanism out, as in a pipeline or a search: the "
        "records carry the one that released them."
    )


def _labelled(transform):
    @functools.wraps(transform)
    def labelled(self, X, *args, **kwargs):
        release = release_of(X)
        if release is not None:
            raise PublicValueError(
                f"{release['mechanism']} released these records with epsilon="
                f"{release['epsilon']:g} already. {type(self).__name__} takes raw ones."
            )
        Y = transform(self, X, *args, **kwargs)
        if isinstance(Y, pd.DataFrame):
            Y.attrs[_ATTRIBUTE] = Card.of(self)
        elif isinstance(Y, np.ndarray):
            Y = _released_array(Y, Card.of(self))
        return Y

    return labelled


def _released_array(array, release):
    released: Any = np.asarray(array).view(ReleasedArray)
    released.release = release
    return released


def settings_text(mechanism):
    """Return the domain or the columns of a fitted mechanism as JSON, exactly."""
    return json.dumps([_plain(value) for value in mechanism._release_settings()])


def _label(mechanism):
    """Return what tells the likelihood of a fitted mechanism from another one, as JSON."""
    report = mechanism.privacy_
    return {
        "mechanism": type(mechanism).__qualname__,
        "epsilon": report.epsilon,
        "delta": report.delta,
        "settings": release_digest(mechanism),
    }


def release_digest(mechanism):
    """Return a digest of what the likelihood of a fitted mechanism depends on beside the budget."""
    scale = mechanism.privacy_.noise_scale
    scales = scale if isinstance(scale, dict) else {"": scale}
    # A scale may differ in its last digits from one machine to another.
    scales = {name: None if value is None else f"{value:.6g}" for name, value in scales.items()}
    settings = settings_text(mechanism) + json.dumps(scales, sort_keys=True)
    return hashlib.blake2b(settings.encode(), digest_size=8).hexdigest()


def _plain(value):
    """Return a domain, a column or what it holds as lists, strings and numbers, exactly."""
    if is_dataclass(value):
        return [type(value).__name__, *(_plain(getattr(value, f.name)) for f in fields(value))]
    if isinstance(value, dict):
        return [[name, _plain(item)] for name, item in value.items()]
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if not isinstance(value, bool) and isinstance(value, Real):
        return float(value)
    return value if isinstance(value, bool | str | None) else repr(value)
