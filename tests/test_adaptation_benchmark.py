"""The tasks and the peers of the benchmark of domain adaptation."""

import ast
import bz2
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.io import savemat

import sklearn_dpgen
from sklearn_dpgen.mechanisms._sampled import StratifiedGaussianRun
from sklearn_dpgen.nn import Training
from sklearn_dpgen.smoothed import SmoothedSlicedWassersteinAdapter

BENCHMARKS = Path(sklearn_dpgen.__file__).parents[1] / "benchmarks"
pytestmark = pytest.mark.skipif(not BENCHMARKS.exists(), reason="needs a checkout, not a wheel")


@pytest.fixture
def domains(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    return pytest.importorskip("_domains")


@pytest.fixture
def peers(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    return pytest.importorskip("_dann")


# Tasks.


def test_settings_are_chosen_on_tasks_that_are_not_reported(domains):
    assert domains.CHOICE_TASKS == ("contrast", "noise", "shear")
    assert len(domains.REPORTED_TASKS) == 9
    assert not set(domains.CHOICE_TASKS) & set(domains.REPORTED_TASKS)
    names = [change.__name__ for change in domains.TRANSFORMATIONS]
    assert names == sorted(names)


def test_transformations(domains):
    images = np.random.default_rng(0).uniform(size=(3, 28, 28))
    images[:, :8] = images[:, 20:] = images[:, :, :8] = images[:, :, 20:] = 0
    for change in domains.TRANSFORMATIONS:
        changed = change(images)
        assert changed.shape == images.shape
        assert (changed.min() >= 0, changed.max() <= 1) == (True, True)
        assert abs(changed - images).mean() > 0.01
        # Each image by itself.
        if change is not domains.noise:
            assert_allclose(change(images[1:2])[0], changed[1], atol=1e-12)
    assert_array_equal(domains.translate(images)[:, 3:, 3:], images[:, :-3, :-3])
    # A quarter turn by three rotations.
    turned = domains._warped(images, domains._rotation(90))
    assert_allclose(turned, np.rot90(images, k=-1, axes=(1, 2)), atol=1e-9)


def usps_line(label, pixels):
    return f"{label} " + " ".join(f"{i + 1}:{v:g}" for i, v in enumerate(pixels)) + "\n"


def test_usps_is_read_from_the_data_home(domains, tmp_path, monkeypatch):
    monkeypatch.setenv("SKLEARN_DPGEN_DATA", str(tmp_path))
    with pytest.raises(OSError, match=r"usps\.bz2 does not exist"):
        domains.load_usps()
    pixels = np.random.default_rng(0).uniform(-1, 1, (6, 256)).round(3)
    for name, rows in (("usps.bz2", range(4)), ("usps.t.bz2", range(4, 6))):
        text = "".join(usps_line(row + 1, pixels[row]) for row in rows)
        (tmp_path / name).write_bytes(bz2.compress(text.encode()))
    X, y, X_test, y_test = domains.load_usps()
    assert_allclose(np.concatenate([X, X_test]), (pixels + 1) / 2, atol=1e-12)
    assert_array_equal(np.concatenate([y, y_test]), range(6))


def test_features_are_read_from_the_data_home(domains, tmp_path, monkeypatch):
    monkeypatch.setenv("SKLEARN_DPGEN_DATA", str(tmp_path))
    for name in ("D-W", "VisDA"):
        with pytest.raises(OSError, match=r"(dslr|train)\.csv does not exist"):
            domains.load_task(name)
    (tmp_path / "office31").mkdir()
    X, y = np.random.default_rng(0).normal(size=(4, 3)).round(3), np.array([3, 1, 2, 1])
    savemat(tmp_path / "office31" / "webcam.mat", {"fts": X, "labels": y[:, None]})
    np.savetxt(tmp_path / "office31" / "dslr.csv", np.column_stack([X, y]), "%g", delimiter=",")
    task = domains.load_task("D-W")
    for part in (task.source[0], task.target, task.test[0]):
        assert_allclose(part, X / np.linalg.norm(X, axis=1)[:, None], atol=1e-12)
    assert task.domain(n_features=3).radius == 1.0
    assert_array_equal([task.source[1], task.test[1]], [y, y])


# Peers.


@pytest.fixture
def start(domains):
    """Return a task of points, and a network that was trained on its source."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(80, 3)), np.arange(80) % 2
    X[:, 0] += 3 * y
    ball = partial(domains.Ball, 2.0)
    task = domains.Task((X[:40], y[:40]), X[40:], (X[40:], y[40:]), ball)
    adapter = SmoothedSlicedWassersteinAdapter(
        training=Training(hidden_layer_sizes=(5,)),
        feature_dim=4,
        adaptation_weight=0.0,
        source_iter=30,
    )
    adapter.fit(X, np.where(np.arange(80) < 40, y, -1))
    return task, adapter.module_


def test_clipped_gradients_are_those_of_each_record(peers, start):
    task, module = start
    discriminator = peers._discriminator(4).double()
    X = torch.from_numpy(task.target[:7])
    trained = [*module.body.parameters(), *discriminator.parameters()]
    rows = []
    for x in X:
        loss = peers._domain_loss(module, discriminator, module.features(x[None]), 0.3, True).sum()
        gradient = torch.cat([g.ravel() for g in torch.autograd.grad(loss, trained)])
        rows.append(gradient)
    norms = torch.stack([row.norm() for row in rows])
    clip = float(norms.median())
    expected = sum(row * min(1.0, clip / float(row.norm())) for row in rows)
    found = peers.clipped_sum(module, discriminator, X, 0.3, clip)
    assert_allclose(found.detach(), expected.detach(), rtol=1e-9, atol=1e-12)
    # Without clipping it is another sum, that one record may move by more than twice the bound.
    assert abs(peers.clipped_sum(module, discriminator, X, 0.3, 1e9) - found).max() > 1e-6
    assert norms.max() > clip


def test_peers_run_and_release_once_a_step(peers, start, monkeypatch):
    task, module = start
    released = []
    release = StratifiedGaussianRun.release

    def watch(self, value):
        released.append((value, self._mechanism))
        return release(self, value)

    monkeypatch.setattr(StratifiedGaussianRun, "release", watch)
    options = {"n_iter": 4, "batch_size": 8, "learning_rate": 1e-3}
    budget = {"epsilon": 3.0, "delta": 1e-3}
    for peer, more, sensitivity, n_releases in (
        (peers.dann, {"weight": 0.1}, None, 0),
        (peers.private_dann, {"weight": 0.1, "clip": 0.2, **budget}, 0.4, 4),
        (peers.algorithm_2, {"weight": 0.1, **budget}, 1.0, 4),
        (peers.recentered, budget, 4.0 / 40, 1),
    ):
        released.clear()
        assert 0 <= peer(module, task, **options, **more) <= 1
        assert len(released) == n_releases
        for value, mechanism in released:
            assert mechanism.n_releases == n_releases
            assert mechanism.sensitivity == pytest.approx(sensitivity)
            assert np.isfinite(value).all()
    with pytest.raises(ValueError, match="not covered"):
        peers.algorithm_2(module, task, weight=0.1, sides=2, **options, **budget)


# Imports between benchmarks.


def missing_imports(sources):
    """Return the names that a module imports from another one which does not define them."""
    defined = {}
    for module, source in sources.items():
        names = defined[module] = set()
        for node in ast.parse(source).body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                names.add(node.name)
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                names.update(alias.asname or alias.name for alias in node.names)
            else:
                names.update(n.id for n in ast.walk(node) if isinstance(n, ast.Name))
    return [
        (module, node.module, alias.name)
        for module, source in sources.items()
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and node.module in sources
        for alias in node.names
        if alias.name not in defined[node.module]
    ]


@pytest.mark.slow
def test_benchmarks_import_names_that_exist():
    sources = {path.stem: path.read_text(encoding="utf-8") for path in BENCHMARKS.glob("*.py")}
    assert missing_imports(sources) == []
    sources["bench_broken"] = "from _domains import load_domains"
    assert missing_imports(sources) == [("bench_broken", "_domains", "load_domains")]
