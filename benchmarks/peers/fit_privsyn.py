"""PrivSyn of `privsyn-core`; see `_fitting.py`.

Its releases are Gaussian: scores of the pairs, a tenth of rho, counts of the columns, another, and
those of the chosen tables. A null is one of the public codes. Tables are chosen until the expected
error falls no more, as published; by the default of the package, for large tables, it would have to
fall by 20,000 records. It writes what it chose to a folder for temporary files, here the task's.
"""

import os
import sys

os.environ["PRIVSYN_CORE_DATA_ROOT"] = sys.argv[1]

import pandas as pd  # noqa: E402
from _fitting import main  # noqa: E402
from privsyn import PrivSynModel  # noqa: E402
from privsyn.lib_synthesize.GUM import GUM_Mechanism  # noqa: E402
from privsyn.lib_synthesize.records_update import RecordUpdate  # noqa: E402

initialize, update = RecordUpdate.initialize_records, GUM_Mechanism._update_records


def initialize_records(self, *args, **kwargs):
    initialize(self, *args, **kwargs)
    self.records = self.df.to_numpy(copy=True)


def update_records(self, keys):
    done = update(self, keys)
    done.update.df = pd.DataFrame(done.update.records, columns=done.update.df.columns)
    return done


def fit(codes, task):
    model = PrivSynModel(
        epsilon=task["epsilon"],
        delta=task["delta"],
        rho=task["rho"],
        random_state=task["seed"],
        extra_params={"marg_sel_threshold": 0},
    )
    model.fit(codes, {name: size for name, (size, _) in task["sizes"].items()})
    return model.sample(len(codes))[list(codes)], model


if __name__ == "__main__":
    # Version 0.1.1 starts from columns drawn alone, updates another array, of zeros, and returns
    # the columns as they were drawn.
    RecordUpdate.initialize_records = initialize_records
    GUM_Mechanism._update_records = update_records
    main(fit)
