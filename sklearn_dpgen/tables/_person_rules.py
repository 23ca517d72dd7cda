"""Draws of persons and their rows under conditions and rules."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.schema import RelationalSchema, Schema
from sklearn_dpgen.schema._binned import Binned
from sklearn_dpgen.schema._rules import Rule
from sklearn_dpgen.tables._conditional_sampling import Condition, read_conditions
from sklearn_dpgen.tables._distributions import RARE, draw_weighted
from sklearn_dpgen.tables._person_distribution import PersonSimulator, StageRows
from sklearn_dpgen.tables._person_rows import _named
from sklearn_dpgen.tables._table_rules import (
    TableRules,
    ValueSet,
    _columns_of,
    barred_pairs,
    barred_term,
)
from sklearn_dpgen.utils._validation import warn_user

__all__ = ["PersonBars", "PersonConditions", "RuledSimulator", "StageRules", "rules_of_stages"]

# The prefix of the columns of the row before.
_PREVIOUS = "previous"
# How often a row that breaks a rule is redrawn within its blocks, then from the distribution of
# rows, and how often all rows of a parent row are: tries, and how many of them at once.
_WITHIN, _ROWS, _RESTARTS, _AT_ONCE = 4, 32, 8, 4
# The most persons per batch under conditions or rules, and the persons that estimate the effective
# size of conditions and the acceptance rate.
_PILOT = 5_000
# The least acceptance rate, and the one below which a warning is shown.
_LEAST, _FEW_KEPT = 1e-3, 1e-2
# The least effective size without a warning, and the most persons drawn for one that is kept.
_FEW, _MOST = 10, 64
_HOPELESS = (
    "constraints are fulfilled by {kept:.0f} of {drawn} drawn persons{under}, fewer than one in "
    f"{round(1 / _LEAST)}."
)
_RARE = (
    "constraints are fulfilled by {kept:.0f} of {drawn} drawn persons{under}: samples are from a "
    "small part of the fitted distribution, which may be inaccurate there."
)
_FEW_MESSAGE = (
    "Conditions on {names} have an effective size of {size:.1f} persons: most samples repeat these "
    "persons."
)


class StageRules:
    """Rules of the rows of one table, with columns of the rows above and of the row before.

    Parameters
    ----------
    rules : list of Rule
    declared : sequence of Stage
    stage : int
    is_panel : bool

    Attributes
    ----------
    first, later : TableRules or None
        The rules of a first row, which has no row before it, and those of a later one.
    index_first, index_later : TableRules or None
        Those of them that depend on the index and the rows above alone.
    ahead : TableRules or None
        Rules between a row and the index of the next row, which is known when the row is drawn.
    used : set of str
        The columns in the rules.
    above : dict of str to (int, str)
        The table and the column that a name of a column of a row above stands for.

    Raises
    ------
    ValueError
        Rules that do not fit the schema or contradict one another.
    """

    def __init__(self, rules, declared, stage, *, is_panel):
        own = declared[stage]
        self.columns, self.above, self.before = list(own.columns), {}, {}
        columns = dict(own.columns)
        upper = own.parent
        while upper is not None:
            for name, column in declared[upper].columns.items():
                full = name if is_panel else f"{declared[upper].name}.{name}"
                self._add(columns, full, column)
                self.above[full] = upper, name
            upper = declared[upper].parent
        if own.index is not None:
            for name, column in own.columns.items():
                self._add(columns, f"{_PREVIOUS}.{name}", column)
                self.before[f"{_PREVIOUS}.{name}"] = name
        self.used = {name for rule in rules for name in _columns_of(rule)}
        if own.index is None and (lagged := _lagged(self.used - {*columns})):
            raise PublicValueError(
                f"constraints on the row before must be of a table with sequence_index, got "
                f"{lagged[0]!r}."
            )
        self.all = TableRules(rules, Schema(columns))
        for name in self.all.derived:
            if name not in self.columns or name == own.index:
                raise PublicValueError(
                    "constraints must compute columns of the row itself other than "
                    f"sequence_index, got {name!r}."
                )
        names, index = {*self.columns}, {own.index}
        lagged_index = {f"{_PREVIOUS}.{own.index}"}

        def chosen(keep):
            kept = [rule for rule in rules if keep({*_columns_of(rule)})]
            return TableRules(kept, Schema(columns)) if kept else None

        self.first = chosen(lambda used: not used & {*self.before})
        self.later = self.all
        self.index_first = chosen(
            lambda used: used & index and not used & (names - index | {*self.before})
        )
        self.index_later = chosen(
            lambda used: (
                used & (index | lagged_index)
                and not used & (names - index | {*self.before} - lagged_index)
            )
        )
        self.ahead = chosen(
            lambda used: used & ({*self.before} - lagged_index) and not used & (names - index)
        )

    @staticmethod
    def _add(columns, name, column):
        if name in columns:
            raise PublicValueError(
                f"constraints have two columns of the name {name!r}: rename one, or the table."
            )
        columns[name] = column

    @property
    def derived(self):
        """The computed columns, a list."""
        return list(self.all.derived)


def _lagged(names):
    return sorted(name for name in names if name.startswith(f"{_PREVIOUS}."))


def rules_of_stages(constraints, schema, declared):
    """Return the StageRules of each stage, None for stages without rules.

    Parameters
    ----------
    constraints : mapping of str to list of rules, list of rules for a panel, or None
    schema : RelationalSchema or Table
    declared : sequence of Stage

    Raises
    ------
    ValueError
        Unknown tables, or rules that do not fit the schema or contradict one another.
    """
    found: list[StageRules | None] = [None] * len(declared)
    given = _by_table("constraints", constraints, schema, declared, "rules")
    for name, rules in given.items():
        if isinstance(rules, str | Mapping) or not hasattr(rules, "__len__"):
            raise PublicValueError(
                f"constraints must have a list of rules for each table, got "
                f"{type(rules).__name__} for {name!r}."
            )
        rules = list(rules)
        stages = [i for i, stage in enumerate(declared) if stage.name == name]
        is_panel = len(stages) > 1
        with _named(name):
            for i, rule in enumerate(rules):
                if not isinstance(rule, Rule):
                    raise PublicValueError(
                        f"constraints[{i}] must be a rule, got {type(rule).__name__}."
                    )
            if is_panel:
                # Rules of static columns are those of the person. All are checked together.
                static, varying = declared[0].columns, declared[1].columns
                before = {f"{_PREVIOUS}.{n}": column for n, column in varying.items()}
                TableRules(rules, Schema(before | static | varying))
                own = [rule for rule in rules if static.keys() >= {*_columns_of(rule)}]
                rules = [rule for rule in rules if rule not in own]
                if own:
                    found[0] = StageRules(own, declared, 0, is_panel=True)
            if rules:
                found[stages[-1]] = StageRules(rules, declared, stages[-1], is_panel=is_panel)
    return found


def _by_table(parameter, given, schema, declared, what):
    """Return a parameter as a mapping of tables; that of a panel is of its only table."""
    if given is None:
        return {}
    if not isinstance(schema, RelationalSchema):
        return {declared[0].name: given}
    if not isinstance(given, Mapping):
        raise PublicValueError(
            f"{parameter} must map tables to {what}, got {type(given).__name__}."
        )
    names = list(dict.fromkeys(stage.name for stage in declared))
    for name in given:
        if name not in names:
            raise PublicValueError(f"{parameter} must name tables among {names}, got {name!r}.")
    return given


class PersonBars:
    """Terms of the distribution that exclude pairs of blocks that rules make impossible.

    Parameters
    ----------
    simulator : PersonSimulator
    encoders : list of TabularEncoder or None
        Encoders with the bins of the fit.
    rules : list of StageRules or None

    Attributes
    ----------
    terms : dict of int to list of LogLinearTerm
        For each variable, terms of pairs with one that is drawn earlier.
    """

    def __init__(self, simulator, encoders, rules):
        self._simulator, self._encoders = simulator, encoders
        self._layout, self._distribution = simulator.layout, simulator.distribution
        self.terms: dict[int, list] = {}
        for stage, own in enumerate(rules):
            if own is not None:
                self._add_stage(stage, own)

    def _add_stage(self, stage, rules):
        own, distribution = self._layout.stages[stage], self._distribution
        variables, columns, blocks = self._names(stage, rules)
        self._add(rules.all, variables, columns, blocks, own.own)
        if rules.index_first is None:
            return
        index = self._layout.declared[stage].index
        fine = self._layout.encoders[stage].columns_[index]
        starts = distribution.starts[own.first]
        columns[index] = fine.merged(starts) if isinstance(fine, Binned) else fine
        # The last category of the index of the first row is null.
        variables[index], blocks[index] = own.first, distribution.blocks[own.first][:-1]
        self._add(rules.index_first, variables, columns, blocks, [own.first])

    def _names(self, stage, rules):
        """Return the variable, the column and the blocks of each name in the rules of a stage."""
        variables, columns, blocks = {}, {}, {}
        own = self._layout.stages[stage]
        places = {name: (stage, name) for name in rules.columns} | rules.above
        for name, (where, column) in places.items():
            position = list(self._layout.encoders[where].columns_).index(column)
            variables[name] = self._layout.stages[where].columns[position]
            columns[name] = self._encoders[where].columns_[column]
            blocks[name] = self._distribution.blocks[variables[name]]
        for name, column in rules.before.items():
            # Constants have no memory.
            if variables[column] in own.memories:
                variables[name] = own.memories[variables[column]]
                columns[name], blocks[name] = columns[column], blocks[column]
        return variables, columns, blocks

    def _add(self, rules, variables, columns, blocks, drawn):
        """Add the terms of the pairs of variables, the later one of which is in ``drawn``."""
        known = [rule for rule in rules.rules if columns.keys() >= {*_columns_of(rule)}]
        rules = TableRules(known, rules.declared)
        names, encoder = list(columns), SimpleNamespace(columns_=columns)
        pairs = barred_pairs(rules, encoder, [blocks[name] for name in names])
        for pair, barred in pairs.items():
            both = tuple(variables[names[i]] for i in pair)
            later = [j for j in drawn if j in both]
            if later:
                # Further blocks, such as that of no row before, are possible.
                sizes = zip(both, barred.shape, strict=True)
                barred = np.pad(barred, [(0, self._simulator.n_blocks(j) - n) for j, n in sizes])
                term = barred_term(barred, both, later[-1])
                self.terms.setdefault(later[-1], []).append(term)

    def of(self, variable, known):
        """Return the terms of a variable with known ones, a tuple."""
        terms = self.terms.get(variable, ())
        return tuple(term for term in terms if known.issuperset(term.parents))


@dataclass(frozen=True, eq=False)
class PersonConditions:
    """Conditions on persons, and on the first rows of child tables of the root.

    Parameters
    ----------
    columns : list of dict of str to Condition
        For each stage, conditions on columns other than the index.
    index : dict of int to (Condition, ValueSet)
        For each stage with a condition on the index.
    names : list of str
        The columns, for messages.
    """

    columns: list[dict[str, Condition]]
    index: dict[int, tuple[Condition, ValueSet]]
    names: list[str]

    @classmethod
    def read(cls, conditions, schema, layout, encoders, rules):
        """Return conditions on encoded persons and rows.

        Parameters
        ----------
        conditions : mapping of str to mapping, mapping for a panel, or None
        schema : RelationalSchema or Table
        layout : PersonLayout
        encoders : list of TabularEncoder or None
        rules : list of StageRules or None

        Raises
        ------
        ValueError
            Unknown tables or columns, tables whose parent is not the root, computed columns, and
            as :func:`read_conditions`.
        """
        declared = layout.declared
        found = cls([{} for _ in declared], {}, [])
        given = _by_table("conditions", conditions, schema, declared, "mappings of columns")
        for table, own in given.items():
            if not isinstance(own, Mapping):
                raise PublicValueError(
                    f"conditions must map columns to values, got {type(own).__name__}."
                )
            with _named(table):
                found._read_table(table, own, layout, encoders, rules)
            found.names.extend(own)
        return found

    def _read_table(self, table, given, layout, encoders, rules):
        stages = [i for i, stage in enumerate(layout.declared) if stage.name == table]
        if layout.declared[stages[-1]].parent not in (None, 0):
            raise PublicValueError(
                "conditions must be on the root or on tables whose parent is the root."
            )
        for name, value in given.items():
            holding = [i for i in stages if name in layout.declared[i].columns]
            if not holding:
                raise PublicValueError(f"conditions must name columns of the schema, got {name!r}.")
            (stage,) = holding
            if rules[stage] is not None and name in rules[stage].derived:
                raise PublicValueError(
                    f"conditions must not name columns that constraints compute, got {name!r}."
                )
            if name == layout.declared[stage].index:
                encoder = layout.encoders[stage]
                condition = read_conditions(encoder, {name: value})[name]
                self.index[stage] = condition, ValueSet.read(encoder, name, value)
            else:
                self.columns[stage] |= read_conditions(encoders[stage], {name: value})

    @property
    def stages(self):
        """The stages with conditions, ascending."""
        return [i for i, own in enumerate(self.columns) if own or i in self.index]


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
        sizes = np.bincount(self.parent, minlength=len(self.kept))
        starts, n_rows = (np.cumsum(sizes) - sizes)[parents], sizes[parents]
        shifts = starts - (np.cumsum(n_rows) - n_rows)
        rows = np.repeat(shifts, n_rows) + np.arange(n_rows.sum())
        taken = _Rows(
            np.asfortranarray(self.codes[rows]),
            np.repeat(np.arange(len(parents)), n_rows),
            self.frame.iloc[rows].reset_index(drop=True),
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


class RuledSimulator(PersonSimulator):
    """Draws of decoded persons and rows under conditions and rules.

    Parameters
    ----------
    layout : PersonLayout
    distribution : PersonDistribution
    encoders : list of TabularEncoder or None
        Encoders with the bins of the fit.
    rules : list of StageRules or None
    conditions : PersonConditions

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
        # The block, and the unnormalized probability, of each category or leaf under a condition.
        self._leaves: dict[int, tuple] = {}
        self._categories: dict[int, tuple] = {}
        self._allowed: dict[int, np.ndarray] = {}
        for stage in conditions.stages:
            self._restrict(stage)

    def _restrict(self, stage):
        """Set the conditions of a stage, and require a first row of a child table."""
        own, distribution = self.layout.stages[stage], self.distribution
        names = list(self.layout.encoders[stage].columns_)
        for name, condition in self.conditions.columns[stage].items():
            j = own.columns[names.index(name)]
            weights = distribution.shares[j] * condition.shares()
            self._categories[j] = distribution.blocks[j], weights
        if stage > 0:
            at_least_one = np.ones(self.layout.variables[own.count].tree.n_values)
            at_least_one[0] = 0
            self._leaves[own.count] = self._leaf_weights(own.count, at_least_one)
        if stage in self.conditions.index:
            shares = self.conditions.index[stage][0].shares()
            # A first row is not null.
            n_values = self.layout.variables[own.first].tree.n_values
            self._leaves[own.first] = self._leaf_weights(own.first, np.append(shares[:n_values], 0))
        for j, (blocks, weights) in (self._categories | self._leaves).items():
            kept = np.bincount(blocks, weights, minlength=self.n_blocks(j))
            if kept.max() <= 0:
                raise self._impossible()
            self._allowed[j] = kept.astype(np.float32)

    def _impossible(self):
        return PublicValueError(
            f"conditions on {self.conditions.names} are impossible: their probability under the "
            "fitted distribution is below one in a billion."
        )

    def _leaf_weights(self, variable, fractions):
        """Return the block of each leaf, and its share of the block times an allowed fraction."""
        starts, blocks = self.distribution.starts[variable], self.distribution.blocks[variable]
        tree = self.layout.variables[variable].tree
        leaves = np.arange(len(fractions))
        categories = np.searchsorted(starts, leaves, side="right") - 1
        categories[leaves >= tree.n_values] = len(starts)
        widths = np.bincount(categories, minlength=len(blocks))[categories]
        shares = self.distribution.shares[variable][categories]
        return blocks[categories], shares / widths * fractions

    def leaves(self, variable, blocks, rng):
        """Draw a leaf in each of some blocks, under the condition on the variable."""
        if variable in self._leaves:
            of_block, weights = self._leaves[variable]
            return draw_weighted(of_block, weights, blocks, rng)
        return super().leaves(variable, blocks, rng)

    def acceptance_rate(self, rng):
        """Return the acceptance rate of 5000 persons."""
        if all(own is None for own in self.rules):
            return 1.0
        *_, rate = self._batch(_PILOT, _PILOT, rng)
        return rate

    def draw_persons(self, n, rng):
        """Draw persons and all their rows.

        Returns
        -------
        list of _Rows
            For each stage.

        Raises
        ------
        ValueError
            Impossible conditions, or fewer than one in 1000 of at least 5000 drawn persons fulfil
            the rules.

        Warns
        -----
        UserWarning
            The effective size of the conditions is below 10, or fewer than one in 100 drawn
            persons fulfil the rules.
        """
        conditions = self.conditions
        is_free = not conditions.names and all(own is None for own in self.rules)
        under = f" under the conditions on {conditions.names}" if conditions.names else ""
        found: list[list[_Rows]] = []
        n_kept, n_drawn, n_passed = 0, 0, 0.0
        while n_kept < n:
            left, size = n - n_kept, n - n_kept
            if not is_free:
                wanted = math.ceil(1.1 * left * (n_drawn + 1) / (n_kept + 1)) + 16
                size = min(wanted, _PILOT)
            if conditions.names:
                size = _PILOT
            rows, effective, rate = self._batch(size, left, rng)
            if conditions.names and not found and 0 < effective < _FEW:
                message = _FEW_MESSAGE.format(names=conditions.names, size=effective)
                warn_user(message, UserWarning)
            n_drawn, n_passed = n_drawn + size, n_passed + rate * size
            kept = np.flatnonzero(_of_persons(rows, "kept", self.layout))[:left]
            found.append(_taken(rows, kept, self.layout))
            n_kept += len(kept)
            counts = {"kept": n_passed, "drawn": n_drawn, "under": under}
            if n_drawn >= _PILOT and n_passed < _LEAST * n_drawn:
                raise PublicValueError(_HOPELESS.format(**counts))
        if n_passed < _FEW_KEPT * n_drawn:
            warn_user(_RARE.format(**counts), UserWarning)
        return _joined(found, self.layout)

    def _batch(self, n, most, rng):
        """Draw persons with all rows, of which some may break rules.

        Parameters
        ----------
        n : int
            Persons drawn.
        most : int
            About as many are resampled under conditions.
        rng : numpy.random.Generator

        Returns
        -------
        rows : list of _Rows
        effective : float
            Effective size of the conditions.
        rate : float
            The estimated acceptance rate of the rules.
        """
        rows, n_stages = [self._persons(n, rng)], len(self.layout.stages)
        effective, rate = float(n), 1.0
        last = max(self.conditions.stages, default=-1)
        for stage in range(n_stages):
            if stage:
                rows.append(self._stage(stage, rows, rng))
            if stage == last:
                weights, kept = (
                    _of_persons(rows, name, self.layout) for name in ("chances", "kept")
                )
                if weights.mean() < RARE:
                    raise self._impossible()
                rate = float(kept.mean())
                chosen, effective = _resampled(weights * kept, 2 * most + 16, rng)
                rows = _taken(rows, chosen, self.layout)
        n_left = len(rows[0].codes)
        rate *= float(_of_persons(rows, "kept", self.layout).mean()) if n_left else 0.0
        return rows, effective, rate

    def _persons(self, n, rng):
        """Draw persons without their rows."""
        codes = np.zeros((n, len(self.layout.variables)), dtype=np.int32, order="F")
        whole = np.arange(n)
        rows = StageRows(codes, whole, whole, np.zeros(n, dtype=np.int64), np.ones(n, dtype=int))
        draw = _Turns(self, 0, rows, pd.DataFrame(index=whole), rng)
        draw(whole, codes)
        return draw.found()

    def _stage(self, stage, rows, rng):
        """Draw the rows of a child table, and redraw those of parent rows that break a rule."""
        codes = rows[self.layout.stages[stage].parent].codes
        above = self._above(stage, rows)
        found = self._drawn(stage, codes, above, rng)
        for _ in range(_RESTARTS // _AT_ONCE):
            bad = np.repeat(np.flatnonzero(~found.kept), _AT_ONCE)
            if not len(bad):
                break
            again = self._drawn(stage, np.asfortranarray(codes[bad]), above.iloc[bad], rng)
            order, chosen = np.arange(len(codes)), _first_kept(again.kept, bad)
            order[bad[chosen]] = len(codes) + chosen
            found, _ = _Rows.joined([found, again]).take(order)
        return found

    def _above(self, stage, rows):
        """Return the columns of the rows above, in the rules of a stage, of each parent row."""
        rules, parent = self.rules[stage], self.layout.stages[stage].parent
        n = len(rows[parent].codes)
        columns = {}
        for name, (where, column) in (rules.above if rules else {}).items():
            if name not in rules.used:
                continue
            place, upper = np.arange(n), parent
            while upper != where:
                place, upper = rows[upper].parent[place], self.layout.stages[upper].parent
            columns[name] = rows[where].frame[column].iloc[place].reset_index(drop=True)
        return pd.DataFrame(columns, index=range(n))

    def _drawn(self, stage, codes, above, rng):
        """Draw rows of some parent rows."""
        rows = self.positions(stage, codes, self.numbers(stage, codes, rng), rng)
        draw = _Turns(self, stage, rows, above, rng)
        self.values(stage, rows, rng, draw if draw.is_ruled else None)
        return draw.found()

    def draw_allowed(self, variables, codes, rng, *, is_first):
        """Draw variables in place, those of persons and first rows under their conditions.

        Returns
        -------
        ndarray of shape (n,)
            The probability of the conditions.
        """
        chances = np.ones(len(codes))
        for j in variables:
            if j not in self.conditionals:
                continue
            allowed = self._allowed.get(j) if is_first else None
            codes[:, j], chance = self.conditionals[j].draw(codes, rng, allowed)
            if allowed is not None:
                codes[chance == 0, j] = np.argmax(allowed)
                chances *= chance
        return chances

    def decoded(self, stage, codes, index, rng, *, is_first):
        """Return the columns of rows as a data frame; the index is decoded already."""
        own, encoder = self.layout.stages[stage], self.encoders[stage]
        if encoder is None:
            return pd.DataFrame(index=range(len(codes)))
        columns: dict[str, Any] = {}
        conditions = self.conditions.columns[stage] if is_first else {}
        fine_columns = self.layout.encoders[stage].columns_
        for (name, fine), j in zip(fine_columns.items(), own.columns, strict=True):
            if j == own.index:
                columns[name] = index.reset_index(drop=True)
                continue
            is_constant = self.layout.variables[j].is_constant
            if name in conditions:
                of_block, weights = self._categories[j]
                drawn = draw_weighted(of_block, weights, codes[:, j], rng)
                columns[name] = conditions[name].draw(drawn, rng).reset_index(drop=True)
            elif is_constant:
                zeros = np.zeros(len(codes), dtype=np.int64)
                columns[name] = fine.decode_codes(zeros, name=name, rng=rng)
            else:
                drawn = self.categories(j, codes[:, j], rng)
                columns[name] = encoder.columns_[name].decode_codes(drawn, name=name, rng=rng)
        return pd.DataFrame(columns)

    def decoded_index(self, stage, rows, rng):
        """Return the ascending values of the index of each row, and the mask of parent rows.

        The mask is of those whose first row fulfils the condition on the index.
        """
        kept = np.ones(len(rows.starts), dtype=bool)
        if rows.index is None:
            return None, kept
        name = self.layout.declared[stage].index
        column = self.layout.encoders[stage].columns_[name]
        values = column.decode_codes(rows.index, name=name, rng=rng)
        has_rows = np.bincount(rows.parent, minlength=len(kept)) > 0
        first = rows.starts[has_rows]
        if stage in self.conditions.index:
            condition, _ = self.conditions.index[stage]
            inside = first[condition.shares()[rows.index[first]] > 0]
            if len(inside):
                given = condition.draw(rows.index[inside], rng)
                values.iloc[inside] = given.array
        if isinstance(column, Binned):
            # Values inside a leaf of the index are in no order.
            order = np.lexsort((values.to_numpy(), rows.parent))
            values = values.iloc[order].reset_index(drop=True)
        if stage in self.conditions.index:
            _, allowed = self.conditions.index[stage]
            kept[has_rows] = allowed.holds(values.iloc[first])
            kept[~has_rows] = False
        return values, kept


class _Turns:
    """Draws of the rows of one table turn by turn, each until it fulfils the rules.

    Parameters
    ----------
    simulator : RuledSimulator
    stage : int
    rows : StageRows
        Rows with positions; their codes are drawn in place.
    above : data frame
        Columns of the rows above, for each parent row.
    rng : numpy.random.Generator
    """

    def __init__(self, simulator, stage, rows, above, rng):
        self._simulator, self._stage, self._rows = simulator, stage, rows
        self._own, self._rules = simulator.layout.stages[stage], simulator.rules[stage]
        self._above, self._rng = above, rng
        self._index, self._kept = simulator.decoded_index(stage, rows, rng)
        self._chances = np.ones(len(self._kept))
        self._frames: list[pd.DataFrame] = []
        if self._rules is not None and self._index is not None:
            self._check_index()

    @property
    def is_ruled(self):
        """Whether rows must be decoded in turn."""
        return self._rules is not None or bool(self._simulator.conditions.columns[self._stage])

    def found(self):
        """Return the drawn rows, decoded."""
        rows = self._rows
        if self._frames:
            frame = (
                pd.concat(self._frames).sort_index() if len(self._frames) > 1 else self._frames[0]
            )
            frame = frame.reset_index(drop=True)
        else:
            frame = self._simulator.decoded(
                self._stage, rows.codes, self._index, self._rng, is_first=False
            )
        return _Rows(rows.codes, rows.parent, frame, self._chances, self._kept)

    def __call__(self, now, part):
        """Draw the codes ``part`` of the rows ``now``, all of the same turn."""
        simulator, rows = self._simulator, self._rows
        is_first = bool(rows.turns[now[0]] == 0) if len(now) else True
        parent = rows.parent[now]

        def draw(codes):
            return simulator.draw_allowed(self._own.own, codes, self._rng, is_first=is_first)

        def decode(codes, chosen):
            index = None if self._index is None else self._index.iloc[chosen]
            return simulator.decoded(self._stage, codes, index, self._rng, is_first=is_first)

        chances, frame = draw(part), decode(part, now)
        if self._rules is not None:
            last = None if is_first else self._frames[-1]
            kept = self._check(now, frame, last)
            for n_tries in (_WITHIN, _ROWS):
                # All tries of a row are drawn at once, which saves calls, and the first that
                # fulfils the rules is used.
                bad = np.repeat(np.flatnonzero(~kept & self._kept[parent]), n_tries)
                if not len(bad):
                    break
                codes = np.asfortranarray(part[bad])
                again = draw(codes) if n_tries == _ROWS else chances[bad]
                redrawn = decode(codes, now[bad])
                chosen = _first_kept(self._check(now[bad], redrawn, last), bad)
                if len(chosen):
                    order = np.arange(len(frame))
                    order[bad[chosen]] = len(frame) + chosen
                    frame = pd.concat([frame, redrawn], ignore_index=True).iloc[order]
                    frame = frame.reset_index(drop=True)
                    part[bad[chosen]] = codes[chosen]
                    chances[bad[chosen]], kept[bad[chosen]] = again[chosen], True
            self._kept[parent] &= kept
            self._recode(part, frame, kept)
        self._chances[parent] *= chances
        self._frames.append(frame.set_axis(now))

    def _check(self, now, frame, last):
        """Compute derived columns in place, and return the mask of the rows that fulfil rules."""
        rules, rows = self._rules, self._rows
        own = rules.first if last is None else rules.later
        kept = np.ones(len(frame), dtype=bool)
        if own is not None:
            before = None if last is None else last.loc[now - 1]
            whole = self._whole(frame, rows.parent[now], before)
            kept &= own.project(whole)
            for name in own.derived:
                frame[name] = whole[name].array
        if rules.ahead is not None:
            (has_next,) = np.nonzero(rows.turns[now] + 1 < rows.sizes[now])
            later = now[has_next] + 1
            index = pd.DataFrame({self._index.name: self._index.iloc[later].reset_index(drop=True)})
            whole = self._whole(index, rows.parent[later], frame.iloc[has_next])
            kept[has_next] &= rules.ahead.project(whole)
        return kept

    def _check_index(self):
        """Find the parent rows whose rows break rules of the index and the rows above alone."""
        rules, rows = self._rules, self._rows
        index = pd.DataFrame({self._index.name: self._index})
        every = np.arange(len(index))
        for own, chosen in (
            (rules.index_first, every[rows.turns == 0]),
            (rules.index_later, every[rows.turns > 0]),
        ):
            if own is not None:
                before = None if own is rules.index_first else index.iloc[chosen - 1]
                whole = self._whole(index.iloc[chosen], rows.parent[chosen], before)
                self._kept[rows.parent[chosen[~own.project(whole)]]] = False

    def _whole(self, frame, parent, before):
        """Return columns of rows, of the rows above, and of the rows before them."""
        used = self._rules.used
        parts = {name: frame[name].array for name in frame if name in used}
        for name in self._above:
            parts[name] = self._above[name].array[parent]
        for name, column in (self._rules.before if before is not None else {}).items():
            if column in before and name in used:
                parts[name] = before[column].array
        return pd.DataFrame(parts, index=range(len(parent)))

    def _recode(self, part, frame, kept):
        """Set the blocks of the computed columns, which later rows depend on."""
        encoder = self._simulator.encoders[self._stage]
        names = list(encoder.columns_) if encoder is not None else []
        for name in self._rules.derived:
            j = self._own.columns[names.index(name)]
            if j in self._simulator.conditionals:
                # A value that is computed in a rejected row may not be declared.
                codes = encoder.columns_[name].codes(frame[name][kept])
                part[kept, j] = self._simulator.distribution.blocks[j][codes]


def _first_kept(kept, labels):
    """Return the position of the first that is kept of those with each label."""
    places = np.flatnonzero(kept)
    return places[np.unique(labels[places], return_index=True)[1]]


def _of_persons(rows, name, layout):
    """Return the product of the chances, or of the masks, of the rows of each person."""
    persons = [np.arange(len(rows[0].codes))]
    found = getattr(rows[0], name).astype(np.float64)
    for own, part in zip(layout.stages[1:], rows[1:], strict=False):
        np.multiply.at(found, persons[own.parent], getattr(part, name))
        persons.append(persons[own.parent][part.parent])
    return found > 0 if name == "kept" else found


def _taken(rows, persons, layout):
    """Return the rows of some persons, who may be repeated."""
    found: list[_Rows] = []
    places: list[np.ndarray] = []
    for own, part in zip(layout.stages, rows, strict=False):
        taken, place = part.take(persons if own.parent is None else places[own.parent])
        found.append(taken)
        places.append(place)
    return found


def _joined(batches, layout):
    """Return the rows of several batches of persons as one."""
    if len(batches) == 1:
        return batches[0]
    return [_Rows.joined([batch[s] for batch in batches]) for s in range(len(layout.stages))]


def _resampled(weights, most, rng):
    """Return persons resampled by weight, and the effective size.

    As many are drawn that none is repeated, or that four times the effective size is.
    """
    if weights.max(initial=0) <= 0:
        return np.zeros(0, dtype=np.int64), 0.0
    n, mean = len(weights), weights.mean()
    size = weights.sum() ** 2 / (weights**2).sum()
    per_kept = min(weights.max() / mean, max(1.0, 4 * n / size), _MOST)
    count = max(1, min(most, int(n / per_kept)))
    edges = np.cumsum(weights)
    points = (np.arange(count) + rng.uniform()) * (edges[-1] / count)
    points = np.minimum(points, np.nextafter(edges[-1], 0))
    return rng.permutation(np.searchsorted(edges, points, side="right")), float(size)
