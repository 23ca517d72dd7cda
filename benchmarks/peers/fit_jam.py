"""JAM-PGM of Fuentes, Mullins, McKenna, Miklau and Sheldon, written anew for its algorithm.

"Joint Selection: Adaptively Incorporating Public Information for Private Synthetic Data" (2024).
Each of T rounds spends a share of what is left of the budget: the exponential mechanism chooses a
marginal and whether its noisy private counts or the scaled public ones are measured, by how much
the expected error would shrink in l1. Public counts cost nothing but the choice. The model is then
estimated anew. Constants are the authors': all marginals up to three columns, 30 rounds, a fifth of
a round's budget for its choice, models of at most 80 MB, measurements of equal weight.

No package has it. Junction trees are mbi's. So is the way to estimate, mirror descent with a line
search, but not its program: it would be compiled in every round, for minutes. It goes on from the
last model, with 200 steps between rounds and 1000 at the end.

The number of records is given. With it, adding a record changes one count of a marginal by 1, and a
score by at most 2, since the error of the model and that of the public counts change by 1 each; the
authors replace a record, and have the square root of 2 and 4.
"""

import math
from dataclasses import dataclass
from itertools import combinations

import mbi
import networkx as nx
import numpy as np
import pandas as pd
from _fitting import main
from mbi import junction_tree
from mbi.clique_utils import maximal_subset
from scipy.optimize import brentq, minimize_scalar
from scipy.special import softmax

COUNT_SENSITIVITY = 1.0
SCORE_SENSITIVITY = 2.0


@dataclass
class Settings:
    degree: int = 3
    rounds: int = 30
    share_of_choices: float = 0.2
    most_megabytes: float = 80.0
    iterations: int = 1000
    iterations_between: int = 200


def fit(codes, task, public):
    settings = Settings()
    rng = np.random.default_rng(task["seed"])
    sizes = {name: size for name, (size, _) in task["sizes"].items()}
    domain = mbi.Domain(tuple(sizes), tuple(sizes.values()))
    candidates = [
        names
        for order in range(1, settings.degree + 1)
        for names in combinations(sizes, order)
        if domain.size(names) * 8 / 2**20 <= settings.most_megabytes
    ]
    private = {names: counts(codes, names, sizes) for names in candidates}
    scaled = len(codes) / len(public)
    public = {names: counts(public, names, sizes) * scaled for names in candidates}
    public_errors = {names: np.abs(private[names] - public[names]).sum() for names in candidates}
    budget = left = rho_of(task["epsilon"], task["delta"])
    model, measured = Model(domain, len(codes)), []
    for turn in range(settings.rounds):
        share = left / (settings.rounds - turn)
        for_choice = settings.share_of_choices * share
        noise = COUNT_SENSITIVITY / np.sqrt(2 * (share - for_choice))
        grown = (budget - left) / budget if turn else 1 / settings.rounds
        fitting = [
            names for names in candidates if model.size(names) <= grown * settings.most_megabytes
        ]
        # No model is known to be wrong before there is one.
        errors = {
            names: np.abs(private[names] - model.table(names)).sum() if turn else 0.0
            for names in fitting
        }
        gains = [
            errors[names] - np.sqrt(2 / np.pi) * noise * private[names].size for names in fitting
        ]
        gains += [errors[names] - public_errors[names] for names in fitting]
        # The exponential mechanism with epsilon is epsilon^2 / 8 of zCDP.
        sharpness = np.sqrt(8 * for_choice) / (2 * SCORE_SENSITIVITY)
        chosen = rng.choice(len(gains), p=softmax(sharpness * np.array(gains)))
        left -= for_choice
        names = fitting[chosen % len(fitting)]
        if chosen < len(fitting):
            values = private[names] + noise * rng.standard_normal(private[names].shape)
            left -= share - for_choice
        else:
            values = public[names]
        measured.append((names, values))
        last = turn + 1 == settings.rounds
        model = model.with_clique(names)
        model.estimate(measured, settings.iterations if last else settings.iterations_between)
    return model.records(task["made"], rng)[list(codes)], settings


def rho_of(epsilon, delta):
    """Return the most rho of which rho-zCDP is (epsilon, delta)-DP.

    By Proposition 7 of Canonne, Kamath and Steinke, "The discrete Gaussian for differential
    privacy" (2020).
    """

    def log_delta(rho):
        def bound(log_order):  # of order 1 + exp(log_order)
            excess = np.exp(log_order)
            order = 1 + excess
            return excess * (order * rho - epsilon) + order * np.log1p(-1 / order) - log_order

        return minimize_scalar(bound, bounds=(-5, 12), method="bounded").fun

    return brentq(lambda rho: log_delta(rho) - np.log(delta), 1e-8, epsilon + 10, xtol=1e-10)


def counts(codes, names, sizes):
    shape = [sizes[name] for name in names]
    cells = np.ravel_multi_index([codes[name].to_numpy() for name in names], shape)
    return np.bincount(cells, minlength=np.prod(shape)).reshape(shape).astype(float)


class Model:
    """A graphical model: potentials of cliques, on a junction tree.

    Columns of a clique are in the order of the domain, and so are those which two cliques share.
    """

    def __init__(self, domain, total, cliques=(), potentials=None):
        self.domain, self.total, self.cliques = domain, total, list(cliques)
        self.potentials = potentials or {}
        self.tree, _ = junction_tree.make_junction_tree(domain, self.cliques)
        self.nodes = {clique: self._node(clique) for clique in self.cliques}
        self.parts = [
            (part, list(nx.bfs_edges(self.tree, min(part))))
            for part in nx.connected_components(self.tree)
        ]
        self.beliefs = self._calibrated(self.potentials)

    def _node(self, clique):
        return next(node for node in self.tree.nodes if set(clique) <= set(node))

    def size(self, names):
        """Return the megabytes of the model with one more clique."""
        if any(set(names) <= set(node) for node in self.tree.nodes):
            return 0.0
        return junction_tree.hypothetical_model_size(self.domain, [*self.cliques, names])

    def with_clique(self, names):
        """Return a model of the same distribution that has a clique more."""
        cliques = maximal_subset([*self.cliques, names])
        potentials = {clique: np.zeros(self.domain.project(clique).shape) for clique in cliques}
        for clique, values in self.potentials.items():
            home = next(other for other in cliques if set(clique) <= set(other))
            potentials[home] = potentials[home] + widened(values, clique, home)
        return Model(self.domain, self.total, cliques, potentials)

    def estimate(self, measured, steps):
        """Fit the model to counts, by least squares, with mirror descent."""
        homes = [
            next(clique for clique in self.cliques if set(names) <= set(clique))
            for names, _ in measured
        ]

        def loss(beliefs):
            """Return the loss and its gradient, by clique."""
            value, slopes = 0.0, dict.fromkeys(self.cliques, 0.0)
            for (names, counted), home in zip(measured, homes, strict=True):
                expected = beliefs[self.nodes[home]].sum(axis=others(self.nodes[home], names))
                gap = self.total * expected - counted
                value += (gap**2).sum() / 2
                slopes[home] = slopes[home] + widened(gap, names, home)
            return value, slopes

        step = 2 / self.total
        value, slopes = loss(self.beliefs)
        for _ in range(steps):
            trial = {clique: self.potentials[clique] - step * slopes[clique] for clique in slopes}
            beliefs = self._calibrated(trial)
            found, next_slopes = loss(beliefs)
            gain = sum(
                (slopes[clique] * self._change(clique, beliefs)).sum() for clique in self.cliques
            )
            # mbi's rule: half of what the slope promises, or half of the step.
            if value - found >= step * gain / 2:
                self.potentials, self.beliefs = trial, beliefs
                value, slopes, step = found, next_slopes, 1.01 * step
            else:
                step /= 2

    def _change(self, clique, beliefs):
        """Return how many more records the present model has in each cell of a clique."""
        node = self.nodes[clique]
        return self.total * (self.beliefs[node] - beliefs[node]).sum(axis=others(node, clique))

    def _calibrated(self, potentials):
        """Return the shares of the cells of each node of the tree."""
        logits = {node: np.zeros(self.domain.project(node).shape) for node in self.tree.nodes}
        for clique, values in potentials.items():
            node = self.nodes[clique]
            logits[node] = logits[node] + widened(values, clique, node)
        for _, edges in self.parts:
            sent = {}
            for parent, child in reversed(edges):
                sent[child] = log_sum(logits[child], others(child, parent))
                logits[parent] = logits[parent] + widened(sent[child], child, parent)
            for parent, child in edges:
                message = log_sum(logits[parent], others(parent, child)) - sent[child]
                logits[child] = logits[child] + widened(message, parent, child)
        return {node: np.exp(values - log_sum(values, None)) for node, values in logits.items()}

    def table(self, names):
        """Return the expected counts of some columns."""
        operands = []
        for part, _ in self.parts:
            wanted = set(names) & {name for node in part for name in node}
            if wanted:
                operands += self._factors(part, wanted)
        letters = {}
        for columns, _ in operands:
            for name in columns:
                letters.setdefault(name, len(letters))
        inputs = [
            x for columns, values in operands for x in (values, [letters[c] for c in columns])
        ]
        return self.total * np.einsum(*inputs, [letters[name] for name in names], optimize="greedy")

    def _factors(self, part, wanted):
        """Return the factors of the smallest subtree of a component with the wanted columns."""
        tree = self.tree.subgraph(part).copy()
        idle = True
        while idle:
            idle = [
                node
                for node in tree.nodes
                if tree.degree[node] == 1
                and not wanted & (set(node) - set(next(tree.neighbors(node))))
            ][:1]
            tree.remove_nodes_from(idle)
        factors = [(node, self.beliefs[node]) for node in tree.nodes]
        for first, second in tree.edges:
            common = self.beliefs[first].sum(axis=others(first, second))
            inverse = np.divide(1, common, out=np.zeros_like(common), where=common > 0)
            factors.append(([name for name in first if name in second], inverse))
        return factors

    def records(self, n, rng):
        """Draw records, node by node of the tree; mbi's float32 underflows for large tables."""
        codes = {}
        for part, edges in self.parts:
            for parent, node in [((), min(part)), *edges]:
                known = [name for name in node if name in parent]
                new = [name for name in node if name not in parent]
                axes = [node.index(name) for name in (*known, *new)]
                sizes = [self.beliefs[node].shape[axis] for axis in axes]
                given = sizes[: len(known)]
                table = self.beliefs[node].transpose(axes).reshape(math.prod(given), -1)
                rows = np.zeros(n, dtype=int)
                if known:
                    rows = np.ravel_multi_index(
                        [codes[name] for name in known], sizes[: len(known)]
                    )
                cells = np.empty(n, dtype=int)
                for row in np.unique(rows):
                    (here,) = np.nonzero(rows == row)
                    cells[here] = rng.choice(
                        table.shape[1], len(here), p=table[row] / table[row].sum()
                    )
                drawn = np.unravel_index(cells, sizes[len(known) :])
                codes |= dict(zip(new, drawn, strict=True))
        return pd.DataFrame(codes)


def others(clique, near):
    """Return the axes of a clique's columns that another one does not have."""
    return tuple(i for i, name in enumerate(clique) if name not in near)


def widened(values, clique, node):
    """Return values of a clique with axes for the other columns of a node."""
    return np.expand_dims(values, others(node, clique))


def log_sum(values, axes):
    """Return the logarithm of the sum of exponentials."""
    largest = values.max(axis=axes, keepdims=True)
    total = np.log(np.exp(values - largest).sum(axis=axes, keepdims=True)) + largest
    return np.squeeze(total, axis=axes)


if __name__ == "__main__":
    main(fit)
