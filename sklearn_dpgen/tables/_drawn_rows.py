"""Draws of records that fulfil rules: drawn again until they do, up to a limit."""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.utils._validation import warn_user

__all__ = ["DrawnRows", "draw_kept"]

# How often a record that breaks a rule is drawn again in its blocks.
_TRIES = 8
# Rows that tell how many are kept; of fewer kept ones than the least, drawing ends, and of fewer
# than a few it warns.
PILOT = 20_000
_LEAST, _FEW = 1e-4, 1e-2
_HOPELESS = (
    "constraints are fulfilled by {kept} of {drawn} drawn records{under}, fewer than one in "
    f"{round(1 / _LEAST)}: they are hardly ever fulfilled by the fitted law."
)
_RARE = (
    "constraints are fulfilled by {kept} of {drawn} drawn records{under}: what is drawn is a small "
    "part of the fitted law, which may know little of it."
)


@dataclass(frozen=True, eq=False)
class DrawnRows:
    """Draws of a law, decoded.

    Parameters
    ----------
    law, encoder
        As of ConditionalSamplerMixin, the law under the conditions.
    found : dict of str to Condition
        The conditions.
    rules : TableRules or None
    wanted : dict of str to ValueSet
        What columns that rules compute are to hold.
    """

    law: Any
    encoder: TabularEncoder
    found: dict
    rules: Any
    wanted: dict

    def sample(self, n, rng, *, most, under=""):
        """Return records, all of which fulfil the rules.

        Parameters
        ----------
        n : int
        rng : numpy.random.Generator
        most : int
            Records that are drawn at a time.
        under : str
            Conditions, as messages of :func:`draw_kept` name them.

        Returns
        -------
        data frame of shape (n, n_features)
        """
        if self.rules is not None:
            return draw_kept(partial(self.draw_with_rules, rng=rng), n, most, under)
        sizes = (min(most, n - start) for start in range(0, n, most))
        return pd.concat([self.draw(size, rng) for size in sizes], ignore_index=True)

    def acceptance_rate(self):
        """Return the share of 20000 records, always the same ones, that are kept."""
        if self.rules is None:
            return 1.0
        _, kept = self.draw_with_rules(PILOT, np.random.default_rng(0))
        return float(kept.mean())

    def draw(self, n, rng):
        """Return ``n`` records, a data frame, whatever the rules."""
        return self._decoded(self.law.sample(n, rng), rng)

    def draw_with_rules(self, n, rng):
        """Return ``n`` records with what rules compute, and the mask of those to keep.

        What breaks a rule is drawn again in its own blocks first: the law knows how many records
        are in these, and the records that it was fitted to fulfil the rules.
        """
        codes = self.law.sample(n, rng)
        frame = self._decoded(codes, rng)
        kept = self.rules.project(frame)
        for _ in range(_TRIES):
            (places,) = np.nonzero(~kept)
            if not len(places):
                break
            again = self._decoded(self.law.redraw(codes[places], rng), rng)
            better = self.rules.project(again)
            if better.any():
                frame, kept[places] = _replaced(frame, places[better], again[better]), better
        for name, values in self.wanted.items():
            kept &= values.holds(frame[name])
        return frame, kept

    def _decoded(self, codes, rng):
        names = list(self.encoder.columns_)
        frame = self.encoder.decode_codes(codes, rng=rng)
        for name, condition in self.found.items():
            frame[name] = condition.draw(codes[:, names.index(name)], rng).array
        return frame


def _replaced(frame, places, rows):
    """Return a frame with other rows in some places."""
    order = np.arange(len(frame))
    order[places] = len(frame) + np.arange(len(rows))
    return pd.concat([frame, rows], ignore_index=True).take(order).reset_index(drop=True)


def draw_kept(draw, n, most, under=""):
    """Return records that are kept.

    Parameters
    ----------
    draw : callable
        ``draw(m)`` returns ``m`` records, a data frame, and the mask of those to keep.
    n : int
    most : int
        Records that are drawn at a time.
    under : str
        Conditions, as messages name them.

    Returns
    -------
    data frame of shape (n, n_features)

    Raises
    ------
    ValueError
        Where of 20000 records or more fewer than one in 10000 are kept: no more than about
        20000 + 10000 n are ever drawn.

    Warns
    -----
    UserWarning
        Where fewer than one in 100 are.
    """
    parts, n_kept, n_drawn = [], 0, 0
    while n_kept < n:
        rate = (n_kept + 1) / (n_drawn + 1)
        frame, kept = draw(min(most, math.ceil(1.1 * (n - n_kept) / rate) + 16))
        (places,) = np.nonzero(kept)
        parts.append(frame.iloc[places[: n - n_kept]])
        n_kept, n_drawn = n_kept + len(places), n_drawn + len(frame)
        counts = {"kept": n_kept, "drawn": n_drawn, "under": under}
        if n_drawn >= PILOT and n_kept < _LEAST * n_drawn:
            raise PublicValueError(_HOPELESS.format(**counts))
    if n_kept < _FEW * n_drawn:
        warn_user(_RARE.format(**counts), UserWarning)
    return pd.concat(parts, ignore_index=True)
