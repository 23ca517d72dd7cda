"""Nested settings in files: they are saved by value, and checked as parameters are."""

import pytest
from contract_cases import CASES, FRAME, SIDE
from hostile_files import join, split
from sklearn.base import clone

import sklearn_dpgen
from sklearn_dpgen.exceptions import InvalidFileError

SLICED = ["sliced generator", "fair classifier", "fair regressor", "fair encoder", "sliced adapter"]
SMOOTHED = ["smoothed generator", "smoothed moments", "smoothed adapter"]
NAMES = [*((name, "gradient") for name in SLICED), *((name, "release") for name in SMOOTHED)]
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def fitted(name, **params):
    case = CASES[name]
    holder = dict(NAMES)[name]
    estimator = clone(case.estimator).set_params(**{f"{holder}__n_projections": 3})
    estimator.set_params(**params)
    return case.fit(FRAME[list(case.columns)], SIDE, estimator)


@pytest.mark.parametrize(("name", "other"), NAMES)
def test_settings_are_saved(name, other, tmp_path):
    estimator = fitted(name, training__learning_rate=0.01)
    estimator.save(tmp_path / "file")
    loaded = sklearn_dpgen.load(tmp_path / "file")
    for holder in ("training", other):
        assert getattr(loaded, holder).get_params() == getattr(estimator, holder).get_params()
    fitted(name, **{other: None}).save(tmp_path / "plain")
    assert getattr(sklearn_dpgen.load(tmp_path / "plain"), other) is None


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


RELEASE_EDITS = {
    "a wrong kind": lambda found: found["release"]["fields"].update(kind="features"),
    "a wrong size": lambda found: found["release"]["fields"].update(batch_size=0),
    "what the estimator lacks": lambda found: found["training"]["fields"].update(solver="sgd"),
    "another object": lambda found: found.update(release=found["training"]),
}


@pytest.mark.parametrize(
    ("name", "edit"),
    [
        *(("fair classifier", edit) for edit in EDITS.values()),
        *(("smoothed generator", edit) for edit in RELEASE_EDITS.values()),
    ],
    ids=[*EDITS, *(f"release: {name}" for name in RELEASE_EDITS)],
)
def test_wrong_settings_in_a_file_are_refused(name, edit, tmp_path):
    path = tmp_path / "file"
    fitted(name).save(path)
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


@pytest.mark.parametrize("name", ["evolution", "signed measures"])
def test_settings_of_votes_are_saved(name, tmp_path):
    case, path = CASES[name], tmp_path / "file"
    sampler = clone(case.estimator).set_params(votes__postprocess="threshold")
    case.fit(FRAME[list(case.columns)], SIDE, sampler).save(path)
    assert sklearn_dpgen.load(path).votes.get_params() == sampler.votes.get_params()
    edited(path, lambda found: found["votes"]["fields"].update(postprocess="clip"))
    with pytest.raises(InvalidFileError):
        sklearn_dpgen.load(path)
