"""Draws of persons and their rows under conditions and rules."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.schema import RelationalSchema, Schema
from sklearn_dpgen.schema._binned import Binned
from sklearn_dpgen.schema._rules import columns_of
from sklearn_dpgen.tables._conditional_sampling import (
    FEW_MESSAGE,
    IMPOSSIBLE,
    draw_kept,
    read_conditions,
)
from sklearn_dpgen.tables._distributions import RARE, draw_weighted, resampled, weighted_size
from sklearn_dpgen.tables._person_distribution import PersonSimulator, StageRows
from sklearn_dpgen.tables._person_rows import named_table
from sklearn_dpgen.tables._table_rules import TableRules, barred_pairs, barred_term
from sklearn_dpgen.utils._validation import warn_user

__all__ = [
    "RuledSimulator",
    "StageRules",
    "barred_terms",
    "conditions_of_stages",
    "rules_of_stages",
]

# How often a row that breaks a rule is redrawn within its blocks, then from the distribution of
# rows, and how often all rows of a parent row are: tries, and how many of them at once.
_WITHIN, _ROWS, _RESTARTS, _AT_ONCE = 4, 32, 8, 4
# The most persons per batch, as many as conditions weight, and the least acceptance rate of them.
_PILOT, _LEAST = 5_000, 1e-3
# The least effective size without a warning.
_FEW = 10


class StageRules:
    """Rules of the rows of one table, with columns of the rows above and of the row before.

    Parameters
    ----------
    rules : list of Rule
    declared : sequence of Stage
    stage : int

    Attributes
    ----------
    rules : TableRules
    used : set of str
        The columns in the rules.
    places : dict of str to (int, str)
        The table and the column of each name of a column of the row or of a row above.
    before : dict of str to str
        The column of each name of a column of the row before.
    looks_back : bool
        Whether there are rules of the row before.
    """

    def __init__(self, rules, declared, stage):
        own, upper = declared[stage], stage
        places = []
        while upper is not None:
            table = declared[upper]
            # Static columns of a panel are columns of the same table.
            prefix = "" if table.name == own.name else f"{table.name}."
            places += [(prefix + name, (upper, name)) for name in table.columns]
            upper = table.parent
        self.places = dict(places)
        self.before = {f"previous.{name}": name for name in own.columns}
        if own.index is None:
            self.before = {n: name for n, name in self.before.items() if n not in self.places}
        names = [*(name for name, _ in places), *self.before]
        if len({*names}) < len(names):
            raise PublicValueError(
                f"constraints have two columns of the name {max(names, key=names.count)!r}: rename "
                "one, or the table."
            )
        columns = {n: declared[where].columns[name] for n, (where, name) in self.places.items()}
        columns |= {n: own.columns[name] for n, name in self.before.items()}
        self.rules = TableRules(rules, Schema(columns))
        self.used = {name for rule in rules for name in columns_of(rule)}
        lagged = self.used & {*self.before}
        if own.index is None and lagged:
            raise PublicValueError(
                "constraints on the row before must be of a table with sequence_index, got "
                f"{min(lagged)!r}."
            )
        self.looks_back = bool(lagged)

    def project(self, frame, above, before=None):
        """Apply the rules whose columns are all given, as :meth:`TableRules.project`.

        Parameters
        ----------
        frame, above, before : data frame
            Columns of rows, of which those that are computed are replaced, and of the rows above
            and before each of them.
        """
        given = {name: frame[name].array for name in frame} | {n: above[n].array for n in above}
        if before is not None:
            given |= {n: before[name].array for n, name in self.before.items() if name in before}
        given = {name: values for name, values in given.items() if name in self.used}
        whole, rules = pd.DataFrame(given, index=range(len(frame))), self.rules.among(given)
        kept = rules.project(whole)
        for name in rules.derived:
            frame[name] = whole[name].array
        return kept


def rules_of_stages(constraints, schema, declared):
    """Return the StageRules of each stage, None for stages without rules.

    Parameters
    ----------
    constraints : mapping of str to list of rules, list of rules for a panel, or None
    schema : RelationalSchema or Table
    declared : sequence of Stage
    """
    found: list[StageRules | None] = [None] * len(declared)
    for table, stages, rules in _by_table("constraints", constraints, schema, declared, "rules"):
        if isinstance(rules, str | Mapping) or not hasattr(rules, "__len__"):
            raise PublicValueError(
                f"constraints must have a list of rules for each table, got "
                f"{type(rules).__name__} for {table!r}."
            )
        with named_table(table):
            # All are checked together, and then those of static columns are of the person.
            if rules:
                found[stages[-1]] = StageRules(rules, declared, stages[-1])
            if len(stages) > 1:
                static = declared[stages[0]].columns
                of_rows = [rule for rule in rules if not static.keys() >= {*columns_of(rule)}]
                of_persons = [rule for rule in rules if rule not in of_rows]
                for stage, part in zip(stages, (of_persons, of_rows), strict=True):
                    found[stage] = StageRules(part, declared, stage) if part else None
            for stage in stages:
                for name in found[stage].rules.derived if found[stage] else ():
                    own = declared[stage]
                    if name not in own.columns or name == own.index:
                        raise PublicValueError(
                            "constraints must compute columns of the row itself other than "
                            f"sequence_index, got {name!r}."
                        )
    return found


def _by_table(parameter, given, schema, declared, what):
    """Return the name, the stages and the value of each table in a parameter."""
    if given is None:
        return []
    if not isinstance(schema, RelationalSchema):
        given = {declared[0].name: given}
    if not isinstance(given, Mapping):
        raise PublicValueError(
            f"{parameter} must map tables to {what}, got {type(given).__name__}."
        )
    stages: dict[str, list] = {}
    for i, stage in enumerate(declared):
        stages.setdefault(stage.name, []).append(i)
    for name in given:
        if name not in stages:
            raise PublicValueError(f"{parameter} must name tables among {[*stages]}, got {name!r}.")
    return [(name, stages[name], value) for name, value in given.items()]


def barred_terms(simulator, encoders, rules):
    """Return the terms that exclude pairs of blocks that rules make impossible.

    Parameters
    ----------
    simulator : PersonSimulator
    encoders : list of TabularEncoder or None
        Encoders with the bins of the fit.
    rules : list of StageRules or None

    Returns
    -------
    dict of int to list of LogLinearTerm
        For each variable, terms of pairs with one that is drawn earlier.
    """
    layout, distribution = simulator.layout, simulator.distribution
    terms: dict[int, list] = {}

    def add(rules, known, drawn):
        variables, columns, blocks = zip(*known.values(), strict=True)
        encoder = SimpleNamespace(columns_=dict(zip(known, columns, strict=True)))
        for pair, barred in barred_pairs(rules.among(known), encoder, blocks).items():
            both = tuple(variables[i] for i in pair)
            if later := [j for j in drawn if j in both]:
                # Further blocks, such as that of no row before, are possible.
                sizes = zip(both, barred.shape, strict=True)
                barred = np.pad(barred, [(0, simulator.n_blocks(j) - n) for j, n in sizes])
                terms.setdefault(later[-1], []).append(barred_term(barred, both, later[-1]))

    for stage, (own, variables) in enumerate(zip(rules, layout.stages, strict=True)):
        if own is None:
            continue
        # The variable, the column and the blocks of each name.
        known: dict[str, tuple] = {}
        for name, (where, column) in own.places.items():
            j = layout.variable(where, column)
            known[name] = j, encoders[where].columns_[column], distribution.blocks[j]
        for name, source in own.before.items():
            j, *rest = known[source]
            # Constants have no memory.
            if j in variables.memories:
                known[name] = (variables.memories[j], *rest)
        add(own.rules, known, variables.own)
        if variables.index is not None:
            index, first = layout.declared[stage].index, variables.first
            column = layout.encoders[stage].columns_[index]
            if isinstance(column, Binned):
                column = column.merged(distribution.starts[first])
            # The last category of the index of the first row is null.
            known[index] = first, column, distribution.blocks[first][:-1]
            add(own.rules, known, [first])
    return terms


def conditions_of_stages(conditions, schema, layout, encoders, rules):
    """Return the conditions on persons, and on the first rows of child tables of the root.

    Parameters
    ----------
    conditions : mapping of str to mapping, mapping for a panel, or None
    schema : RelationalSchema or Table
    layout : PersonLayout
    encoders : list of TabularEncoder or None
        Encoders with the bins of the fit.
    rules : list of StageRules or None

    Returns
    -------
    list of dict of str to Condition
        For each stage. Conditions on the index are on its leaves.
    """
    declared = layout.declared
    found: list[dict] = [{} for _ in declared]
    given = _by_table("conditions", conditions, schema, declared, "mappings of columns")
    for table, stages, own in given:
        with named_table(table):
            if declared[stages[-1]].parent not in (None, 0):
                raise PublicValueError(
                    "conditions must be on the root or on tables whose parent is the root."
                )
            stage_of = {name: stage for stage in stages for name in declared[stage].columns}
            columns = {
                name: (layout.encoders if name == declared[s].index else encoders)[s].columns_[name]
                for name, s in stage_of.items()
            }
            for name, condition in read_conditions(SimpleNamespace(columns_=columns), own).items():
                stage = stage_of[name]
                if rules[stage] is not None and name in rules[stage].rules.derived:
                    raise PublicValueError(
                        f"conditions must not name columns that constraints compute, got {name!r}."
                    )
                found[stage][name] = condition
    return found


@dataclass(frozen=True, eq=False)
class _Rows:
    """Drawn rows of one stage, in ascending order of their parents.

    ``chances`` are the probabilities of the conditions, and ``kept`` whether all rules hold, of
    each parent row. The parent of a person is the person.
    """

    codes: np.ndarray
    parent: np.ndarray
    frame: pd.DataFrame
    chances: np.ndarray
    kept: np.ndarray

    def take(self, parents):
        """Return the rows of some parent rows in this order, and their positions."""
        starts = np.searchsorted(self.parent, parents)
        sizes = np.searchsorted(self.parent, parents, side="right") - starts
        rows = np.repeat(starts - (np.cumsum(sizes) - sizes), sizes) + np.arange(sizes.sum())
        taken = _Rows(
            np.asfortranarray(self.codes[rows]),
            np.repeat(np.arange(len(parents)), sizes),
            self.frame.take(rows).reset_index(drop=True),
            self.chances[parents],
            self.kept[parents],
        )
        return taken, rows

    @classmethod
    def joined(cls, parts):
        """Return several rows as one; the parent rows are numbered on."""
        starts = np.cumsum([0, *(len(part.kept) for part in parts)])
        return cls(
            np.concatenate([part.codes for part in parts]),
            np.concatenate([p.parent + start for p, start in zip(parts, starts, strict=False)]),
            pd.concat([part.frame for part in parts], ignore_index=True),
            np.concatenate([part.chances for part in parts]),
            np.concatenate([part.kept for part in parts]),
        )

    def redrawn(self, draw, n_tries):
        """Return rows where those of a parent row that break a rule are drawn again.

        ``draw(parents)`` returns new rows of some parent rows. All tries are drawn at once, which
        saves calls, and the first one that breaks no rule is used.
        """
        bad = np.repeat(np.flatnonzero(~self.kept), n_tries)
        if not len(bad):
            return self
        again = draw(bad)
        kept = np.flatnonzero(again.kept)
        replaced, first = np.unique(bad[kept], return_index=True)
        order = np.arange(len(self.kept))
        order[replaced] = len(order) + np.arange(len(replaced))
        again, _ = again.take(kept[first])
        return _Rows.joined([self, again]).take(order)[0]


@dataclass(frozen=True, eq=False)
class _Persons:
    """Drawn persons: the rows of each stage that is drawn yet, and the parents of the stages."""

    rows: list[_Rows]
    parents: list[int | None]

    def product(self, name):
        """Return the product of the chances, or of the masks, of the rows of each person."""
        n = len(self.rows[0].kept)
        found = np.ones(n)
        persons: dict[int | None, np.ndarray] = {None: np.arange(n)}
        for stage, rows in enumerate(self.rows):
            above = persons[self.parents[stage]]
            np.multiply.at(found, above, getattr(rows, name))
            persons[stage] = above[rows.parent]
        return found

    def take(self, persons):
        """Return some persons, who may be repeated."""
        found: list[_Rows] = []
        places: dict[int | None, np.ndarray] = {None: persons}
        for stage, rows in enumerate(self.rows):
            taken, places[stage] = rows.take(places[self.parents[stage]])
            found.append(taken)
        return _Persons(found, self.parents)

    @classmethod
    def joined(cls, parts):
        """Return the persons of several batches."""
        stages = zip(*(part.rows for part in parts), strict=True)
        return cls([_Rows.joined(rows) for rows in stages], parts[0].parents)


class RuledSimulator(PersonSimulator):
    """Draws of decoded persons and rows under conditions and rules.

    Parameters
    ----------
    layout : PersonLayout
    distribution : PersonDistribution
    encoders : list of TabularEncoder or None
        Encoders with the bins of the fit.
    rules : list of StageRules or None
    conditions : list of dict of str to Condition

    Attributes
    ----------
    allowed : dict of int to ndarray of shape (n_blocks,)
        The allowed fraction of each block of a variable with a condition.

    Notes
    -----
    Conditions are met by importance sampling, as by
    :class:`~sklearn_dpgen.tables._distributions.LogLinearChain`: persons and their first rows are
    drawn under the conditions, and persons are resampled by the probabilities of the conditions
    given what was drawn before.

    A row that breaks a rule is redrawn within its blocks, then given the same rows above and the
    same row before; then all rows of the parent row are redrawn. A person with a row that still
    breaks a rule is rejected.
    """

    def __init__(self, layout, distribution, encoders, rules, conditions):
        super().__init__(layout, distribution)
        self.encoders, self.rules, self.conditions = encoders, rules, conditions
        self._names = [name for own in conditions for name in own]
        self._is_ruled = any(own is not None for own in rules)
        # The block, and the unnormalized probability, of each category or leaf under a condition.
        self._within: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        for stage, own in enumerate(layout.stages):
            if conditions[stage]:
                self._restrict(stage, own)
        self.allowed = {}
        for j, (blocks, weights) in self._within.items():
            self.allowed[j] = np.bincount(blocks, weights, self.n_blocks(j)).astype(np.float32)
            if not self.allowed[j].any():
                raise self._impossible()

    def _restrict(self, stage, own):
        """Set the conditions of a stage, and require a first row of a child table."""
        for name, condition in self.conditions[stage].items():
            shares, j = condition.shares(), self.layout.variable(stage, name)
            if j == own.index:
                # A first row is not null.
                shares = np.append(shares[: self.layout.variables[j].tree.n_values], 0)
                self._restrict_leaves(own.first, shares)
            else:
                weights = self.distribution.shares[j] * shares
                self._within[j] = self.distribution.blocks[j], weights
        if own.count is not None:
            sizes = np.arange(self.layout.variables[own.count].tree.n_values)
            self._restrict_leaves(own.count, sizes > 0)

    def _restrict_leaves(self, variable, fractions):
        """Set the allowed fraction of each leaf of a variable."""
        bins = self.layout.variables[variable].tree.bins(self.distribution.starts[variable])
        shares = (self.distribution.shares[variable] / np.bincount(bins))[bins]
        self._within[variable] = self.distribution.blocks[variable][bins], shares * fractions

    def _impossible(self):
        return PublicValueError(IMPOSSIBLE.format(names=self._names))

    def leaves(self, variable, blocks, rng):
        """Draw a leaf in each of some blocks, under the condition on the variable."""
        if variable in self._within:
            return draw_weighted(*self._within[variable], blocks, rng)
        return super().leaves(variable, blocks, rng)

    def acceptance_rate(self):
        """Return the acceptance rate of 5000 persons drawn with a fixed seed."""
        if not self._is_ruled:
            return 1.0
        _, kept, _ = self._batch(_PILOT, np.random.default_rng(0))
        return float(kept.mean())

    def sample(self, n, rng):
        """Draw persons and all their rows, a list of rows of each stage."""
        if not self._is_ruled and not self._names:
            return self._batch(n, rng)[0].rows
        sizes = []

        def draw(m):
            persons, kept, size = self._batch(m, rng)
            sizes.append(size)
            return persons, kept

        under = f" under the conditions on {self._names}" if self._names else ""
        bounds = {"unit": "persons", "pilot": _PILOT, "least": _LEAST}
        found = draw_kept(draw, n, _PILOT, under, join=_Persons.joined, **bounds)
        if self._names and sizes[0] < _FEW:
            message = FEW_MESSAGE.format(names=self._names, size=sizes[0], unit="persons")
            warn_user(message, UserWarning)
        return found.rows

    def _batch(self, n, rng):
        """Draw at most ``n`` persons; return the mask of those to keep, and the effective size."""
        size, n_drawn = float(n), _PILOT if self._names else n
        persons = _Persons([], [own.parent for own in self.layout.stages])
        last = max((stage for stage, own in enumerate(self.conditions) if own), default=None)
        for stage, parent in enumerate(persons.parents):
            codes = self.blank(n_drawn, rng) if parent is None else persons.rows[parent].codes
            above = self._above(stage, persons.rows, len(codes))
            persons.rows.append(self._stage(stage, codes, above, rng))
            if stage == last:
                weights = persons.product("chances")
                if weights.mean() < RARE:
                    raise self._impossible()
                size, per_kept = weighted_size(weights)
                count = max(1, min(n, int(n_drawn / per_kept)))
                persons = persons.take(resampled(weights, count, rng))
        return persons, persons.product("kept") > 0, size

    def _above(self, stage, rows, n):
        """Return the columns of the rows above ``n`` parent rows that are in rules of a stage."""
        rules, upper = self.rules[stage], self.layout.stages[stage].parent
        place, columns = np.arange(n), {}
        while rules is not None and upper is not None:
            for name, (where, column) in rules.places.items():
                if where == upper and name in rules.used:
                    columns[name] = rows[upper].frame[column].array[place]
            place, upper = rows[upper].parent[place], self.layout.stages[upper].parent
        return pd.DataFrame(columns, index=range(n))

    def _stage(self, stage, codes, above, rng):
        """Draw the rows of a table, given the codes of their parent rows."""

        def draw(parents):
            given = np.asfortranarray(codes[parents]), above.take(parents)
            return _Turns(self, stage, *given, rng).rows()

        found = draw(np.arange(len(codes)))
        if stage:
            for _ in range(_RESTARTS // _AT_ONCE):
                found = found.redrawn(draw, _AT_ONCE)
        return found

    def decoded(self, stage, codes, index, rng, *, is_first):
        """Return the columns of rows as a data frame; ``index`` is decoded already."""
        encoder, columns = self.encoders[stage], {}
        conditions = self.conditions[stage] if is_first else {}
        for name, column in encoder.columns_.items() if encoder is not None else ():
            j = self.layout.variable(stage, name)
            if name in index:
                columns[name] = index[name].array
            elif name in conditions:
                drawn = draw_weighted(*self._within[j], codes[:, j], rng)
                columns[name] = conditions[name].draw(drawn, rng).array
            else:
                drawn = self.categories(j, codes[:, j], rng)
                columns[name] = column.decode_codes(drawn, name=name, rng=rng)
        return pd.DataFrame(columns, index=range(len(codes)))

    def decoded_index(self, stage, rows, rng):
        """Return the ascending index of the rows, a data frame, and a mask of the parent rows.

        The mask is of those whose first row fulfils the condition on the index.
        """
        kept, first = np.ones(len(rows.starts), dtype=bool), rows.starts
        if rows.index is None:
            return pd.DataFrame(index=range(len(rows.codes))), kept
        name = self.layout.declared[stage].index
        column = self.layout.encoders[stage].columns_[name]
        condition = self.conditions[stage].get(name)
        values = column.decode_codes(rows.index, name=name, rng=rng)
        if condition is not None:
            # Each person has a first row, which may have been moved to leave room for others.
            kept = condition.shares()[rows.index[first]] > 0
            inside = first[kept]
            values.iloc[inside] = condition.draw(rows.index[inside], rng).array
        if isinstance(column, Binned):
            # Values inside a leaf of the index are in no order.
            order = np.lexsort((values.to_numpy(), rows.parent))
            values = values.iloc[order].reset_index(drop=True)
            if condition is not None:
                kept &= order[first] == first
        return pd.DataFrame({name: values}), kept


class _Turns:
    """Draws of the rows of one table turn by turn, each until it fulfils the rules.

    Parameters
    ----------
    simulator : RuledSimulator
    stage : int
    codes : ndarray of int of shape (n, n_variables)
        Blocks of the parent rows; of no variable yet for persons.
    above : data frame
        Columns of the rows above, for each parent row.
    rng : numpy.random.Generator
    """

    def __init__(self, simulator, stage, codes, above, rng):
        self._simulator, self._stage, self._above, self._rng = simulator, stage, above, rng
        self._own, self._rules = simulator.layout.stages[stage], simulator.rules[stage]
        # Positions and indices of the rows; a person is the only row of its own.
        every = np.arange(len(codes))
        self._drawn: Any = StageRows(codes, every, every, 0 * every, 0 * every + 1)
        if stage:
            sizes = simulator.numbers(stage, codes, rng)
            self._drawn = simulator.positions(stage, codes, sizes, rng)
        self._chances = np.ones(len(codes))
        self._index, self._kept = simulator.decoded_index(stage, self._drawn, rng)
        # The decoded rows of each turn.
        self._frames: list[pd.DataFrame] = []

    def rows(self):
        """Draw the rows, a _Rows."""
        drawn, simulator = self._drawn, self._simulator
        if self._rules is not None:
            # Rules of the index and the rows above alone reject all rows of a parent row.
            for now in (np.flatnonzero(drawn.turns == 0), np.flatnonzero(drawn.turns > 0)):
                before = self._index.iloc[now - 1] if drawn.turns[now].any() else None
                kept = self._fulfilled(now, self._index.iloc[now], before)
                self._kept[drawn.parent[now[~kept]]] = False
        is_free = self._rules is None and simulator.allowed.keys().isdisjoint(self._own.own)
        simulator.values(self._stage, drawn, self._rng, None if is_free else self._draw)
        if self._frames:
            frame = pd.concat(self._frames).sort_index()
        else:
            frame = simulator.decoded(
                self._stage, drawn.codes, self._index, self._rng, is_first=False
            )
        return _Rows(drawn.codes, drawn.parent, frame, self._chances, self._kept)

    def _draw(self, now, part):
        """Draw the codes ``part`` of the rows ``now``, all of the same turn."""
        parent, allowed = self._drawn.parent[now], {} if self._frames else self._simulator.allowed

        def draw(chosen):
            codes = np.asfortranarray(part[chosen])
            chances = self._simulator.draw(self._own.own, codes, self._rng, allowed)
            return self._decoded(now[chosen], codes, chances)

        def redraw(chosen):
            return self._decoded(now[chosen], found.codes[chosen], found.chances[chosen])

        found = draw(np.arange(len(now)))
        found = found.redrawn(redraw, _WITHIN).redrawn(draw, _ROWS)
        part[:] = found.codes
        self._kept[parent] &= found.kept
        self._chances[parent] *= found.chances
        self._recode(part, found.frame, self._kept[parent])
        self._frames.append(found.frame.set_axis(now))

    def _decoded(self, now, codes, chances):
        """Return decoded rows, to be kept if they fulfil the rules or are rejected already."""
        rules, drawn, is_first = self._rules, self._drawn, not self._frames
        index, kept = self._index.iloc[now], np.ones(len(now), dtype=bool)
        frame = self._simulator.decoded(self._stage, codes, index, self._rng, is_first=is_first)
        if rules is not None:
            before = None if is_first else self._frames[-1].loc[now - 1]
            kept = self._fulfilled(now, frame, before)
            if rules.looks_back:
                # The index of the next row is known.
                (has_next,) = np.nonzero(drawn.turns[now] + 1 < drawn.sizes[now])
                later = now[has_next] + 1
                kept[has_next] &= self._fulfilled(
                    later, self._index.iloc[later], frame.iloc[has_next]
                )
        kept |= ~self._kept[drawn.parent[now]]
        return _Rows(codes, np.arange(len(now)), frame, chances, kept)

    def _fulfilled(self, now, frame, before):
        """Return the mask of the rows that fulfil the rules of the columns that are given."""
        return self._rules.project(frame, self._above.iloc[self._drawn.parent[now]], before)

    def _recode(self, part, frame, kept):
        """Set the blocks of the computed columns, which later rows depend on."""
        simulator = self._simulator
        for name in self._rules.rules.derived if self._rules is not None else ():
            j = simulator.layout.variable(self._stage, name)
            if j in simulator.conditionals:
                # A value that is computed in a rejected row may not be declared.
                column = simulator.encoders[self._stage].columns_[name]
                part[kept, j] = simulator.distribution.blocks[j][column.codes(frame[name][kept])]
