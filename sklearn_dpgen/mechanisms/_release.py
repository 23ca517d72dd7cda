"""Privatized records that name the mechanism which released them."""

import functools
import hashlib
import json
from dataclasses import fields, is_dataclass
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import TransformerMixin

__all__ = [
    "ReleasedArray",
    "ReleaseMixin",
    "check_release",
    "release_digest",
    "release_of",
    "settings_text",
]

# Where a data frame keeps its label; it goes along into Parquet files.
_ATTRIBUTE = "sklearn_dpgen.release"


class ReleasedArray(np.ndarray):
    """An array of privatized records whose ``release`` names the mechanism.

    Rows taken from it, copies and pickles keep the name; what is joined from several arrays or read
    from a file is a plain array, which is accepted anywhere without a check. The name helps against
    mistakes and proves nothing: what is changed in place keeps it.
    """

    def __array_finalize__(self, obj):
        self.release = getattr(obj, "release", None)

    def __array_wrap__(self, array, context=None, return_scalar=False):
        array = np.asarray(array)
        return array[()] if return_scalar else array

    def __reduce__(self):
        return _released_array, (np.asarray(self), self.release)


class ReleaseMixin(TransformerMixin):
    """Mixin of mechanisms: what ``transform`` returns, array or data frame, is labelled."""

    def __init_subclass__(cls, **kwargs):
        # scikit-learn's own comes first and makes data frames where ``set_output`` asks for them.
        super().__init_subclass__(**kwargs)
        if "transform" in vars(cls):
            cls.transform = _labelled(cls.transform)


def release_of(Y: object) -> dict | None:
    """Return the mechanism that released some records, if they carry its name.

    Parameters
    ----------
    Y : array-like or data frame

    Returns
    -------
    dict or None
        ``mechanism``, the name of its class; ``epsilon``, in nats; ``delta``; and ``settings``, a
        digest of its domain or columns and its noise scales. None for records without a label,
        such as those that came as a plain array or from a file.

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
    raise ValueError(
        f"The records were released by {both[0]}{settings}, but mechanism is {both[1]}: the noise "
        "to remove would be the wrong one. Give the mechanism that released them. To search over "
        "its budget, give raw records to one estimator with privatize=True and search over "
        "mechanism__epsilon; a pipeline parts the two mechanisms."
    )


def _labelled(transform):
    @functools.wraps(transform)
    def labelled(self, X, *args, **kwargs):
        release = release_of(X)
        if release is not None:
            raise ValueError(
                f"{release['mechanism']} released these records with epsilon="
                f"{release['epsilon']:g} already. {type(self).__name__} takes raw ones."
            )
        Y = transform(self, X, *args, **kwargs)
        if isinstance(Y, pd.DataFrame):
            Y.attrs[_ATTRIBUTE] = _label(self)
        elif isinstance(Y, np.ndarray):
            Y = _released_array(Y, _label(self))
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
