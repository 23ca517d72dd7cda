"""Files of the present format, for the tests of all later releases to open.

Run ``python tests/persistence/make_fixtures.py`` once for a new format; the files of a format
that was released are never made again.
"""

import json
import sys
import warnings
from pathlib import Path

FIXTURES = Path(__file__).parent / "fixtures"
_NAMES = {
    "tables": "rules",
    "classes": "moments of tables",
    "evolution": "evolution of tables",
    "moments": "moments of public classes",
    "images": "images of classes",
    "network": "smoothed, by a convolution",
    "classifier": "fair classifier",
    "adapter": "smoothed adapter",
    "mechanism": "tables in bins",
    "answers": "laws of answers",
    "deconvolution": "deconvolution of images",
}


def fixture_estimators():
    """Return functions that fit the estimators of the fixtures, by the names of the files."""
    from saved_cases import FITS

    return {name: FITS[case] for name, case in _NAMES.items()}


def main():
    """Write a file, and what is expected of it, for each."""
    from sklearn_dpgen.persistence._files import FORMAT

    folder = FIXTURES / f"format_{FORMAT}"
    folder.mkdir(parents=True)
    for name, fit in fixture_estimators().items():
        estimator = fit()
        estimator.save(folder / f"{name}.safetensors")
        has_sample = hasattr(estimator, "sample")
        sample = estimator.sample(5, random_state=0) if has_sample else None
        rows = getattr(sample, "to_numpy", lambda sample=sample: sample)() if has_sample else None
        expected = {
            "class": type(estimator).__name__,
            "epsilon": estimator.privacy_.epsilon,
            "sample": rows.tolist() if has_sample else None,
        }
        text = json.dumps(expected, default=str, indent=1)
        (folder / f"{name}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parents[1] / "ledger"))
    warnings.simplefilter("ignore")
    main()
