"""JAM-PGM of Fuentes, Mullins, McKenna, Miklau and Sheldon, written anew for its algorithm.

"Joint Selection: Adaptively Incorporating Public Information for Private Synthetic Data" (2024).
mbi has the estimation alone. Each of T rounds spends a share of what is left of the budget: the
exponential mechanism chooses a marginal and whether its noisy private counts or the scaled public
ones are measured, by how much the expected error would shrink in l1. Public counts cost nothing but
the choice. The model is then estimated anew. Constants are the authors': all marginals up to three
columns, 30 rounds, a fifth of a round's budget for its choice, models of at most 80 MB. The
estimation goes on from the last one, with 200 steps between rounds and 1000 at the end, not with
1000 each time: that is four times as fast.

The number of records is given. With it, adding a record changes one count of a marginal by 1, and a
score by at most 2, since the error of the model and that of the public counts change by 1 each; the
authors replace a record, and have the square root of 2 and 4.
"""

from dataclasses import dataclass
from itertools import combinations

import mbi
import networkx as nx
import numpy as np
from _budget import rho_of
from _fitting import main
from mbi import junction_tree, marginal_oracles
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
    np.random.seed(task["seed"])  # noqa: NPY002, it is what mbi draws from
    sizes = {name: size for name, (size, _) in task["sizes"].items()}
    domain = mbi.Domain(tuple(sizes), tuple(sizes.values()))
    candidates = [
        names
        for order in range(1, settings.degree + 1)
        for names in combinations(sizes, order)
        if np.prod([sizes[name] for name in names]) * 8 / 2**20 <= settings.most_megabytes
    ]
    private = {names: counts(codes, names, sizes) for names in candidates}
    scaled = len(codes) / len(public)
    public = {names: counts(public, names, sizes) * scaled for names in candidates}
    public_errors = {names: np.abs(private[names] - public[names]).sum() for names in candidates}
    budget = left = rho_of(task["epsilon"], task["delta"])
    model, measured = None, []
    for turn in range(settings.rounds):
        share = left / (settings.rounds - turn)
        for_choice = settings.share_of_choices * share
        noise = COUNT_SENSITIVITY / np.sqrt(2 * (share - for_choice))
        largest = settings.most_megabytes * (
            (budget - left) / budget if turn else 1 / settings.rounds
        )
        cliques = [measurement.clique for measurement in measured]
        fitting = [
            names
            for names in candidates
            if junction_tree.hypothetical_model_size(domain, [*cliques, names]) <= largest
        ]
        errors = model_errors(model, {names: private[names] for names in fitting})
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
        # The authors give all measurements the same weight, whatever their noise.
        measured.append(mbi.LinearMeasurement(values.ravel(), names, stddev=1.0))
        model = mbi.estimation.mirror_descent(
            domain,
            measured,
            known_total=float(len(codes)),
            potentials=model.potentials if model else None,
            iters=settings.iterations_between
            if turn + 1 < settings.rounds
            else settings.iterations,
        )
    return model.synthetic_data(rows=task["made"]).df[list(codes)], settings


def counts(codes, names, sizes):
    shape = [sizes[name] for name in names]
    cells = np.ravel_multi_index([codes[name].to_numpy() for name in names], shape)
    return np.bincount(cells, minlength=np.prod(shape)).reshape(shape).astype(float)


def model_errors(model, tables):
    """Return how far the model is from each table in l1; without a model, no error is known."""
    if model is None:
        return dict.fromkeys(tables, 0.0)
    tree = CalibratedTree(model)
    return {names: np.abs(table - tree.table(names)).sum() for names, table in tables.items()}


class CalibratedTree:
    """The expected counts of the cliques of a junction tree; others are products along its edges.

    mbi would compile a program for each marginal and model.
    """

    def __init__(self, model):
        domain = model.potentials.domain
        self.total = float(model.total)
        tree, _ = junction_tree.make_junction_tree(domain, model.potentials.cliques)
        nodes = list(tree.nodes)
        beliefs = marginal_oracles.message_passing_stable(model.potentials.expand(nodes))
        shares = {
            node: (beliefs[node].domain.attributes, np.asarray(beliefs[node].values, dtype=float))
            for node in nodes
        }
        self.parts = [
            {node: shares[node] for node in part} for part in nx.connected_components(tree)
        ]
        self.tree = tree

    def table(self, names):
        """Return the expected counts of some columns."""
        operands = []
        for part in self.parts:
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
        while True:
            for node in list(tree.nodes):
                around = list(tree.neighbors(node))
                if len(around) > 1 or len(tree) == 1:
                    continue
                if not wanted & (set(node) - set(around[0])):
                    tree.remove_node(node)
                    break
            else:
                break
        factors = [part[node] for node in tree.nodes]
        for first, second in tree.edges:
            columns, values = part[first]
            shared = [name for name in columns if name in second]
            away = tuple(i for i, name in enumerate(columns) if name not in second)
            common = values.sum(axis=away)
            inverse = np.divide(1, common, out=np.zeros_like(common), where=common > 0)
            factors.append((shared, inverse))
        return factors


if __name__ == "__main__":
    main(fit)
