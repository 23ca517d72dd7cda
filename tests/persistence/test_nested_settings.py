"""Nested settings in files: they are saved by value, and checked as parameters are."""

import pytest
from contract_cases import CASES, FRAME, SIDE
from hostile_files import join, split
from sklearn.base import clone

import sklearn_dpgen
from sklearn_dpgen.exceptions import InvalidFileError

NAMES = ["sliced generator", "fair classifier", "fair regressor", "fair encoder", "sliced adapter"]
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def fitted(name, **params):
    case = CASES[name]
    estimator = clone(case.estimator).set_params(gradient__n_projections=3).set_params(**params)
    return case.fit(FRAME[list(case.columns)], SIDE, estimator)


@pytest.mark.parametrize("name", NAMES)
def test_settings_are_saved(name, tmp_path):
    estimator = fitted(name, training__learning_rate=0.01)
    estimator.save(tmp_path / "file")
    loaded = sklearn_dpgen.load(tmp_path / "file")
    for holder in ("training", "gradient"):
        assert getattr(loaded, holder).get_params() == getattr(estimator, holder).get_params()
    fitted(name, gradient=None).save(tmp_path / "plain")
    assert sklearn_dpgen.load(tmp_path / "plain").gradient is None


def edited(path, edit):
    """Change the document of a file, and seal it again."""
    document, tensors = split(path.read_bytes())
    edit(document["model"]["fields"])
    path.write_bytes(join(document, tensors))


EDITS = {
    "a wrong value": lambda found: found["training"]["fields"].update(max_iter=-1),
    "a name of no setting": lambda found: found["training"]["fields"].update(code="print(1)"),
    "a setting that is absent": lambda found: found["training"]["fields"].pop("solver"),
    "another object": lambda found: found.update(training=found["gradient"]),
    "no object": lambda found: found.update(training=3),
    "a place for none": lambda found: found.update(classes=found["gradient"]),
    "what the estimator lacks": lambda found: found["gradient"]["fields"].update(released_clip=1.0),
    "settings within settings": lambda found: found["training"]["fields"].update(
        activation=found["gradient"]
    ),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_wrong_settings_in_a_file_are_refused(edit, tmp_path):
    path = tmp_path / "file"
    fitted("fair classifier").save(path)
    edited(path, lambda found: None)
    sklearn_dpgen.load(path)
    edited(path, edit)
    with pytest.raises(InvalidFileError):
        sklearn_dpgen.load(path)


def test_a_callback_is_not_saved(tmp_path):
    estimator = fitted("fair classifier", training__callback=lambda step, module: None)
    hint = r"training__callback holds .* set_params\(training__callback=\.\.\.\)"
    with pytest.raises(TypeError, match=hint):
        estimator.save(tmp_path / "file")
    estimator.set_params(training__callback=None).save(tmp_path / "file")
