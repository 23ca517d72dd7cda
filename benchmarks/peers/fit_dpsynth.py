"""Relational synthesis of dpsynth, of parents and one child table; see `_fitting.py`.

The codes are of rows with their person and the columns of the person; a person without rows has a
row with -1 in the columns of rows. The task has the name of the column of the ``person``, the names
of the ``static`` columns and of those of the ``rows``, and the public ``max_rows`` of a person.
"MST" has all rows of a person in its slots, the default is AIM with two.
"""

import numpy as np
from _fitting import main
from dpsynth.discrete_mechanisms import MSTConfig
from dpsynth.domain import CategoricalAttribute
from dpsynth.relational.domain import ForeignKeyRelation, RelationalSchema
from dpsynth.relational.synthesizer import MultiTableConfig


def fit(codes, task):
    person, static, rows = task["person"], task["static"], task["rows"]
    parents = codes.drop_duplicates(person)[[person, *static]].reset_index(drop=True)
    children = codes.loc[codes[rows[0]] >= 0, [person, *rows]].reset_index(drop=True)
    columns = {
        name: CategoricalAttribute(possible_values=list(range(size)))
        for name, (size, _) in task["sizes"].items()
    }
    schema = RelationalSchema(
        tables={
            "parents": {name: columns[name] for name in static},
            "children": {name: columns[name] for name in rows},
        },
        foreign_keys=[ForeignKeyRelation("parents", person, "children", person, task["max_rows"])],
    )
    options = {}
    if task["model"] == "MST":
        options = {"discrete_mechanism": MSTConfig(), "num_permutation_slots": task["max_rows"]}
    config = MultiTableConfig(**options)
    mechanism = config.calibrate(schema, epsilon=task["epsilon"], delta=task["delta"])
    tables = {"parents": parents, "children": children}
    made = mechanism(np.random.default_rng(task["seed"]), tables).synthetic_tables
    joined = made["parents"].merge(made["children"], how="left", on=person).fillna(-1)
    return joined[[person, *static, *rows]].astype(int), config


if __name__ == "__main__":
    main(fit)
