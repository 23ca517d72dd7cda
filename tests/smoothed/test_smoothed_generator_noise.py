"""The noise on the releases of the smoothed generator: its law, and what a seed repeats."""

import math
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from generator_cases import KINDS, of_records, train
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_dpgen.domains import Box
from sklearn_dpgen.utils._random import NoiseSource


def standard(noise):
    """Whether values have the moments of independent standard normals, to 5 sigma."""
    n = noise.size
    return bool(
        abs(noise.mean()) * math.sqrt(n) < 5
        and abs((noise**2).mean() - 1) * math.sqrt(n / 2) < 5
        and abs((noise**4).mean() - 3) * math.sqrt(n / 96) < 5
        and abs((noise[:-1] * noise[1:]).mean()) * math.sqrt(n) < 5
    )


def noise_of(generator, table, kind, released):
    """Return the noise on the records in units of what the report states."""
    released.clear()
    train(generator, table, kind)
    pairs = zip(*of_records(released, kind), strict=True)
    values, outputs = (np.concatenate(column) for column in pairs)
    return (outputs - values) / generator.privacy_.noise_scale


class Halved(NoiseSource):
    def normal(self, size):
        return super().normal(size) / 2


class Repeated(NoiseSource):
    def normal(self, size):
        return np.full(size, super().normal(1))


@pytest.mark.parametrize("kind", KINDS)
def test_the_noise_is_what_the_report_states(tiny_generator, released, monkeypatch, kind):
    constant = SimpleNamespace(X=np.full((40, 5), 0.5), y=np.array(["a", "b"] * 20))
    options = {"release__n_epochs": 20.0, "domain": partial(Box, 0, 1)}
    noise = noise_of(tiny_generator(**options), constant, kind, released)
    assert noise.size == 20 * 40 * 5 * (2 if kind == "private" else 1)
    assert standard(noise)
    # Nothing but noise is released of records in the center.
    assert not any(value.any() for value, _ in of_records(released, kind))
    for broken in (Halved, Repeated):
        monkeypatch.setattr(
            "sklearn_dpgen.ledger._base.noise_source", lambda *a, b=broken, **k: b()
        )
        assert not standard(noise_of(tiny_generator(**options), constant, kind, released))


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_budget_there_is_no_noise(tiny_generator, labelled, released, kind):
    generator = train(tiny_generator(epsilon=np.inf), labelled, kind)
    assert all(np.array_equal(value, out) for value, out in released)
    assert (generator.noise_multiplier_, generator.privacy_.noise_scale) == (0, 0)
    assert (generator.privacy_.epsilon, generator.privacy_.delta) == (np.inf, 0)
    if kind != "none":
        assert_allclose(generator.label_proportions_, [0.4, 0.6])


@pytest.mark.slow
def test_label_counts_are_noisy_where_labels_are_private(
    tiny_generator, labelled, released, monkeypatch
):
    assert_allclose(train(tiny_generator(), labelled, "public").label_proportions_, [0.4, 0.6])

    def count_noise():
        noise = []
        for seed in range(60):
            released.clear()
            generator = train(tiny_generator(random_state=seed, epsilon=30.0), labelled, "private")
            counts, out = released[0]
            assert_array_equal(counts, [16, 24])
            shares = np.clip(out, 0.5, None)
            assert_allclose(generator.label_proportions_, shares / shares.sum())
            noise.append((out - counts) / generator.privacy_.parts[1].noise_scale)
        return np.concatenate(noise)

    assert standard(count_noise())
    monkeypatch.setattr(
        "sklearn_dpgen.ledger._base.noise_source", lambda seed, *a, **k: Halved(seed)
    )
    assert not standard(count_noise())


def test_noise_is_for_one_layout(tiny_generator, labelled, released):
    """Records without labels, and with one private label for all, share codes but not noise."""
    options = {
        "domain": partial(Box, -4, 4),
        "labels": "private",
        "classes": ["a", "b"],
        "label_proportions": [1.0, 0.0],
        "random_state": 0,
    }

    def noise(y):
        released.clear()
        tiny_generator(**options).fit(labelled.X, y)
        return np.concatenate([np.ravel(out) - np.ravel(value) for value, out in released])

    plain, slots = noise(None), noise(np.full(len(labelled.X), "a"))
    n = min(plain.size, slots.size)
    assert abs(np.corrcoef(plain[:n], slots[:n])[0, 1]) < 5 / math.sqrt(n)


def test_noise_without_a_seed_is_never_repeated(tiny_generator, labelled, released):
    options = {"release__n_epochs": 10.0, "random_state": None}
    first, second = (noise_of(tiny_generator(**options), labelled, "none", released) for _ in "ab")
    assert abs(np.corrcoef(first, second)[0, 1]) < 7 / math.sqrt(first.size)
