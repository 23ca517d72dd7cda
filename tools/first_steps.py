"""What somebody does first after an installation: run it outside of a checkout."""

import subprocess
import sys
from importlib import import_module, metadata, resources
from pathlib import Path
from pkgutil import iter_modules

import numpy as np
import pandas as pd

import sklearn_dpgen
from sklearn_dpgen.reporting import model_card
from sklearn_dpgen.schema import Categorical, Numeric, Schema
from sklearn_dpgen.tables import TableSampler


def check(condition, message):
    if not condition:
        raise SystemExit(message)


def main():
    package = Path(sklearn_dpgen.__file__)
    check(package.is_relative_to(sys.prefix), f"{package} is not of this environment")
    for module in iter_modules(sklearn_dpgen.__path__, "sklearn_dpgen."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    check(resources.files("sklearn_dpgen").joinpath("py.typed").is_file(), "py.typed is missing")
    installed = metadata.distribution("sklearn-dpgen")
    check(installed.version == sklearn_dpgen.__version__, "the version is not that of the package")
    check(installed.metadata["License-Expression"] == "BSD-3-Clause", "the licence is not stated")
    licences = [path for path in installed.files if path.name == "LICENSE"]
    check(licences and "Redistribution" in licences[0].read_text(), "the licence is missing")

    rng = np.random.default_rng(0)
    group = rng.choice(["a", "b"], size=2000)
    frame = pd.DataFrame({"group": group, "score": rng.normal(5 + (group == "b"), 1).clip(0, 10)})
    schema = Schema({"group": Categorical(["a", "b"]), "score": Numeric(0, 10)})
    sampler = TableSampler(epsilon=1.0, delta=1e-6, schema=schema).fit(frame)
    rows = sampler.sample(1000)
    check(list(rows) == ["group", "score"] and len(rows) == 1000, "rows are missing")
    check(rows["score"].between(0, 10).all(), "a value is out of its bounds")
    check("<h2>Guarantee</h2>" in model_card(sampler).to_html(), "a page has no guarantee")
    check("(ε, δ)" in sampler.privacy_._repr_html_(), "a notebook shows no guarantee")
    sampler.save("model.safetensors")
    loaded = sklearn_dpgen.load("model.safetensors")
    check(loaded.privacy_ == sampler.privacy_, "a loaded model has another report")
    same = [model.sample(100, random_state=0) for model in (sampler, loaded)]
    pd.testing.assert_frame_equal(*same)

    command = [sys.executable, "-m", "sklearn_dpgen", "inspect", "model.safetensors"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    check("epsilon" in done.stdout.casefold(), "the command shows no report")
    print(f"sklearn-dpgen {installed.version} works in {sys.prefix}")


if __name__ == "__main__":
    main()
