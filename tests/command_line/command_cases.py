"""A small made-up table and its schema."""

import numpy as np
import pandas as pd

SCHEMA = """\
age: {type: numeric, low: 18, high: 100, integer: true}
smoker: {type: categorical, categories: ['no', 'yes'], nullable: true}
grade: {type: ordinal, values: [1, 2, 3]}
"""


def made_up(n=200):
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": rng.integers(18, 90, n),
            "smoker": rng.choice(["no", "yes"], n),
            "grade": rng.integers(1, 4, n),
        }
    )
