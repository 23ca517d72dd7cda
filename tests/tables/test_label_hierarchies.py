"""Hierarchies of labels: their counts and sensitivity, estimates of labels, and groups of pairs."""

import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from column_tables import reproducibly
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sampler_breaches import tell_bins
from sampler_tables import law_parts, listen, make
from sklearn.dummy import DummyClassifier

import sklearn_dpgen
from sklearn_dpgen.mechanisms import JointRandomizedResponse
from sklearn_dpgen.schema import Categorical, Numeric, RelationalSchema, Schema, Table
from sklearn_dpgen.tables import (
    LocalTableSampler,
    RelationalSampler,
    SyntheticDataClassifier,
    TableSampler,
    _column_counts,
    _column_trees,
)
from sklearn_dpgen.tables._column_trees import ColumnTree
from sklearn_dpgen.tables._marginals import MAX_BLOCKS, ColumnBlocks, group_hierarchy
from sklearn_dpgen.tables._releases import release_singles, total_records

# 12 chapters, of 1 to 12 groups of 1 to 7 codes, and null.
LABELS = [
    f"{letter}{i:02d}.{j}"
    for k, letter in enumerate("ABCDEFGHIJKL")
    for i in range(1 + k)
    for j in range(1 + (3 * k + i) % 7)
]
COLUMN = Categorical(LABELS, hierarchy=[1, 3], nullable=True)
NULL = len(LABELS)
# The weights of codes, groups and chapters, by the documentation.
RATIO = np.array([1, 0.6, 0.36])
WEIGHTS = RATIO * math.sqrt(3 / (1 + 0.36 + 0.36**2))


def tree_of(column=COLUMN):
    return ColumnTree(column.n_categories, is_flat=True, groups=column.groups)


def expected_counts(codes):
    """Return the weighted counts of codes, groups and chapters with null, by their names."""
    names = [*LABELS, None]
    given = [names[code] for code in codes]
    parts = []
    for weight, length in zip(WEIGHTS, (5, 3, 1), strict=True):
        nodes = list(dict.fromkeys(name and name[:length] for name in names))
        own = [name and name[:length] for name in given]
        parts.append(weight * np.array([own.count(node) for node in nodes]))
    return np.concatenate(parts)


def leaves_of(codes, column=COLUMN):
    return np.bincount(codes, minlength=column.n_categories).astype(float)


# Counts, and what a record changes.


def test_counts_of_each_level():
    tree, rng = tree_of(), np.random.default_rng(0)
    assert [len(level) for level in tree.levels] == [NULL + 1, 79, 13]
    assert tree.n_levels == 3
    codes = rng.integers(NULL + 1, size=700)
    assert_allclose(tree.counts(leaves_of(codes)), expected_counts(codes), rtol=1e-12)
    # Columns of numbers have equal weights.
    assert_array_equal(ColumnTree(5000).weights, np.ones(3))
    assert_array_equal(ColumnTree(5000, is_flat=True).weights, [1])


def largest_change(tree):
    """Return the largest l2 norm of what a record of any label adds."""
    records = np.eye(tree.n_values + tree.nullable)
    return max(np.linalg.norm(tree.counts(record)) for record in records)


class ForgetsWeights(ColumnTree):
    def counts(self, leaves):
        return super().counts(leaves) + self.n_levels * (leaves[0] > 0)


class CountsTheNullTwice(ColumnTree):
    def counts(self, leaves):
        counts = super().counts(leaves)
        counts[0] += leaves[-1]
        return counts


@reproducibly
@given(st.lists(st.text("abc", min_size=1, max_size=5), min_size=2, max_size=40, unique=True))
def test_a_record_adds_the_root_of_the_levels(labels):
    """Ragged hierarchies too: a label without a group at a level is counted alone there."""
    column = Categorical(labels, hierarchy=[1, 2, 4], nullable=True)
    tree = tree_of(column)
    assert tree.n_levels == 1 + len(column.groups)
    assert largest_change(tree) == pytest.approx(math.sqrt(1 + len(column.groups)))
    # And replaces at most √2 of that.
    rows = np.array([tree.counts(row) for row in np.eye(tree.n_values)])
    changes = np.linalg.norm(rows[:, None] - rows, axis=2)
    assert changes.max() <= math.sqrt(2 * tree.n_levels) * (1 + 1e-9)


@pytest.mark.parametrize("broken", [ForgetsWeights, CountsTheNullTwice])
def test_a_record_that_adds_more_would_be_seen(broken):
    assert largest_change(tree_of()) == pytest.approx(math.sqrt(3))
    tree = broken(COLUMN.n_categories, is_flat=True, groups=COLUMN.groups)
    assert largest_change(tree) > 1.1 * math.sqrt(3)


SCHEMA = Schema({"code": COLUMN, "age": Numeric(0, 100, integer=True), "sex": Categorical([0, 1])})


def records(n=400, seed=0):
    rng = np.random.default_rng(seed)
    codes = np.array([*LABELS, None], dtype=object)[rng.integers(NULL + 1, size=n)]
    frame = {"code": codes, "age": rng.integers(1, 100, n), "sex": rng.integers(2, size=n)}
    return pd.DataFrame(frame)


def change_of_singles(record, neighbours):
    """Return the l2 change of the first release, between neighbours, of a fit with n_bins=4."""
    first = records()
    other = first.iloc[1:]
    if neighbours == "replace_one":
        other = pd.concat([pd.DataFrame([record], columns=list(first)), other])
    else:
        first = pd.concat([pd.DataFrame([record], columns=list(first)), other])
    fits = []
    for frame in (first, other):
        sampler = make(schema=SCHEMA, neighbours=neighbours)
        fits.append(listen(sampler, frame.reset_index(drop=True)).steps[0])
    return np.linalg.norm(fits[0].value - fits[1].value)


@pytest.mark.parametrize("code", [None, "A00.0", "L11.0"])
def test_the_sensitivity_by_replay(monkeypatch, code):
    """Single columns with the weight 1 have 3 + 1 + 1 counts of a record, divided by √5."""
    record = [code, 0, int(records()["sex"][0] == 0)]
    assert change_of_singles(record, "add_or_remove") == pytest.approx(1)
    assert change_of_singles(record, "replace_one") <= math.sqrt(2) * (1 + 1e-9)
    counts = ColumnTree.counts
    with monkeypatch.context() as patch:
        # As if the widest groups were counted in all levels.
        patch.setattr(
            ColumnTree,
            "counts",
            lambda self, leaves: counts(self, leaves) * (1 + 0.2 * (self.n_levels > 1)),
        )
        assert change_of_singles(record, "add_or_remove") > 1.1


def test_noise_of_the_counts_by_level():
    """The released marginals state the noise of each level, as it is."""
    tree, leaves = tree_of(), leaves_of(np.arange(NULL + 1).repeat(3))
    rng, found = np.random.default_rng(0), []
    for _ in range(400):
        (noisy,), (factor,) = release_singles(
            [leaves], [tree], np.ones(1), lambda v: v + rng.normal(size=v.shape)
        )
        assert factor == pytest.approx(math.sqrt(3))
        tables = tree.tables(noisy, np.arange(NULL + 1))
        found.append([counts - np.bincount(g, leaves) for g, counts, _ in tables])
        stated = [factor * np.sqrt(sizes) for *_, sizes in tables]
    for level, weight in enumerate(WEIGHTS):
        errors = np.array([part[level] for part in found])
        expected = math.sqrt(3) / weight
        assert_allclose(stated[level], expected)
        # 5σ of the standard deviation of so many normal errors.
        assert abs(errors.std() / expected - 1) < 5 / math.sqrt(2 * errors.size)
    assert total_records([tree.counts(leaves)], [tree], np.ones(1)) == pytest.approx(leaves.sum())


def outputs_decide(sampler, first, other):
    """Whether another table, of which the same is released, gives the same fit."""
    fit = listen(sampler(), first)
    again = listen(sampler(), other, fit.steps)
    assert not np.array_equal(fit.steps[0].value, again.steps[0].value)
    parts = [
        [*law_parts(one.sampler), one.sampler.sample(30, random_state=0)] for one in (fit, again)
    ]
    return all(
        a.equals(b) if isinstance(a, pd.DataFrame) else np.array_equal(a, b)
        for a, b in zip(*parts, strict=True)
    )


def test_only_releases_decide_a_fit(monkeypatch):
    def sampler():
        return make(schema=SCHEMA, neighbours="add_or_remove")

    first, other = records(), records(300, seed=3)
    assert outputs_decide(sampler, first, other)
    with monkeypatch.context() as patch:
        tell_bins(patch)
        assert not outputs_decide(sampler, first, other)


# Estimates of the labels.


def test_the_estimate_is_that_of_weighted_least_squares():
    tree = tree_of()
    rows = np.array([tree.counts(row) for row in np.eye(tree.n_values)]).T
    noisy = np.random.default_rng(0).normal(5, 9, tree.n_cells)
    solution = np.linalg.lstsq(rows, noisy, rcond=None)[0]
    levels, nulls, variance = tree.estimate(noisy)
    assert_allclose(levels[0], solution, atol=1e-9)
    assert len(nulls) == 0
    assert variance == pytest.approx(np.linalg.inv(rows.T @ rows).sum())


def test_without_noise_counts_are_exact():
    tree = tree_of()
    leaves = leaves_of(np.random.default_rng(0).integers(NULL + 1, size=300))
    starts, shares, variances = tree.cells(tree.counts(leaves), 0.0, 300)
    assert_array_equal(starts, np.arange(NULL + 1))
    assert_allclose(shares, leaves / 300, atol=1e-12)
    assert_array_equal(variances, 0)


def zipf(seed=0, n=10_000):
    """Return codes of chapters of very different sizes, one of them with a single record."""
    rng = np.random.default_rng(seed)
    chapters = COLUMN.groups[0][:NULL]
    sizes = np.bincount(chapters)
    weights = np.concatenate([rng.permutation(1.0 / np.arange(1, k + 1)) for k in sizes])
    weights *= (rng.dirichlet(np.ones(12)) / np.bincount(chapters, weights))[chapters]
    weights[chapters == 3] = 0
    codes = rng.choice(NULL, n - 1, p=weights / weights.sum())
    return np.append(codes, np.flatnonzero(chapters == 3)[0])


def cells_of(noise_scale, seed=0, tree=None):
    tree, leaves = tree or tree_of(), leaves_of(zipf(seed))
    noise = np.random.default_rng([seed, 1]).normal(size=tree.n_cells)
    return leaves, tree.cells(tree.counts(leaves) + noise_scale * noise, noise_scale, leaves.sum())


@pytest.mark.parametrize("noise_scale", [1.0, 30.0, 1000.0])
def test_shares_of_labels(noise_scale):
    leaves, (_, shares, variances) = cells_of(noise_scale)
    assert shares.min() >= 0
    assert shares.sum() == pytest.approx(1)
    assert (variances >= 0).all()
    # The sum of the codes of a chapter has no more variance than its own count.
    sums = np.bincount(COLUMN.groups[0], variances)
    assert (sums <= (1.001 * noise_scale / WEIGHTS[2] / leaves.sum()) ** 2).all()


@pytest.mark.parametrize("seed", range(5))
def test_labels_below_the_noise_share_their_group_evenly(monkeypatch, seed):
    """Only the counts of chapters are above the noise, as if almost all weight were theirs."""
    tree, chapters = tree_of(), COLUMN.groups[0]
    tree.weights = np.array([1e-2, 1e-2, math.sqrt(3)])

    def unevenness():
        leaves, (_, shares, _) = cells_of(30.0, seed, tree)
        sums, found = (np.bincount(chapters, v) for v in (leaves / leaves.sum(), shares))
        assert np.abs(found - sums).sum() / 2 < 0.03
        even = (found / np.bincount(chapters))[chapters]
        return np.abs(shares - even).sum() / 2

    assert unevenness() < 0.1
    # With an even share for each group of a chapter, whatever its number of codes.
    counts = _column_trees.posterior_counts
    monkeypatch.setattr(_column_trees, "posterior_counts", lambda *given: counts(*given[:4]))
    assert unevenness() > 0.12


def distance(noise_scale, tree=None):
    """Return the mean total variation distances of codes and of chapters."""
    found = []
    for seed in range(5):
        leaves, (_, shares, _) = cells_of(noise_scale, seed, tree)
        gaps = shares - leaves / leaves.sum()
        found.append(
            [np.abs(gaps).sum() / 2, np.abs(np.bincount(COLUMN.groups[0], gaps)).sum() / 2]
        )
    return np.mean(found, axis=0)


def test_a_hierarchy_carries_what_single_labels_do_not():
    flat = ColumnTree(COLUMN.n_categories, is_flat=True)
    deep, single = distance(60.0), distance(60.0, flat)
    assert deep[0] < 0.85 * single[0]
    assert deep[1] < 0.5 * single[1]


def test_blocks_of_rows_give_the_same(monkeypatch):
    whole = cells_of(30.0)[1].shares
    monkeypatch.setattr(_column_counts, "_ROWS", 7)
    assert_allclose(cells_of(30.0)[1].shares, whole, rtol=1e-9)


# Groups of marginals.


def check_nodes(groups, column=COLUMN):
    """Check that a group is made of whole nodes with one parent, at some level."""
    levels = [np.zeros(column.n_categories, int), *column.groups, np.arange(column.n_categories)]
    for group in range(int(groups.max()) + 1):
        inside = groups == group
        fits = []
        for above, below in zip(levels, levels[1:], strict=False):
            nodes = np.unique(below[inside])
            is_whole = np.array_equal(np.isin(below, nodes), inside)
            fits.append(is_whole and len(np.unique(above[inside])) == 1)
        assert any(fits)


def blocks_of(shares, column=COLUMN):
    encoder = SimpleNamespace(columns_={"code": column})
    return ColumnBlocks.of(encoder, [shares])


@pytest.mark.parametrize("n_groups", [2, 3, 7, 13, 14, 20, 50, 90, 300])
def test_groups_of_marginals_are_nodes(n_groups):
    shares = cells_of(30.0)[1].shares
    blocks = blocks_of(shares)
    assert blocks.sizes == [MAX_BLOCKS]
    check_nodes(blocks.blocks[0])
    groups = blocks.marginal((0,), n_groups).groups[0][blocks.blocks[0]]
    check_nodes(groups)
    assert groups.max() + 1 == min(n_groups, MAX_BLOCKS)
    # Null is alone, and with enough groups no two chapters are in one.
    if n_groups > 2:
        assert (groups == groups[NULL]).sum() == 1
    if n_groups >= 13:
        chapters = pd.Series(COLUMN.groups[0]).groupby(groups).nunique()
        assert (chapters == 1).all()


@pytest.mark.parametrize(
    ("n_cells", "shape"),
    [(13 * 5, (13, 5)), (13 * 5 - 1, (12, 5)), (13 * 7 + 6, (13, 7)), (30, (6, 5)), (16, (4, 4))],
)
def test_widest_groups_are_kept_beside_ordered_columns(n_cells, shape):
    """There are 12 chapters and null, and 96 values of an ordered column."""
    shares = [cells_of(30.0)[1].shares, np.full(96, 1 / 96), np.full(8, 1 / 8)]
    ordered = [False, True, False]
    blocks = ColumnBlocks(shares, ordered, [1, 0, 0], [0] * 3, levels={0: COLUMN.groups})
    assert blocks.marginal((0, 1), n_cells).shape == shape
    # Other labels without an order are not joined for that.
    assert blocks.marginal((0, 2), n_cells).shape[1] == min(8, math.isqrt(n_cells))
    # Two hierarchies are alike.
    levels = {0: COLUMN.groups, 1: COLUMN.groups}
    two = ColumnBlocks(shares[:1] * 2, [False] * 2, [1, 1], [0, 0], levels=levels)
    even = math.isqrt(n_cells)
    assert two.marginal((0, 1), n_cells).shape == (even, n_cells // even)


def test_groups_of_single_labels_would_be_seen():
    shares = cells_of(30.0)[1].shares
    flat = blocks_of(shares, Categorical(LABELS, nullable=True))
    groups = flat.marginal((0,), 20).groups[0][flat.blocks[0]]
    with pytest.raises(AssertionError):
        check_nodes(groups)


@reproducibly
@given(st.integers(1, 60), st.integers(0, 2**32 - 1))
def test_any_number_of_groups(n_groups, seed):
    rng = np.random.default_rng(seed)
    shares = rng.uniform(size=NULL + 1) * (rng.uniform(size=NULL + 1) < rng.uniform())
    groups = group_hierarchy(shares, COLUMN.groups, n_groups)
    assert groups.max() + 1 <= n_groups
    assert len(np.unique(groups)) == groups.max() + 1
    check_nodes(groups)


# Samplers.


def hospital(n=4000, seed=0):
    """Return records whose age depends on the chapter of the code."""
    rng = np.random.default_rng(seed)
    codes = zipf(seed, n)
    age = np.clip(8 * COLUMN.groups[0][codes] + rng.integers(0, 10, n), 0, 100)
    names = np.array(LABELS, dtype=object)[codes]
    names[rng.uniform(size=n) < 0.05] = None
    return pd.DataFrame({"code": names, "age": age, "sex": rng.integers(2, size=n)})


def chapters_by_age(frame):
    return pd.crosstab(frame["code"].str[:1].fillna("none"), frame["age"] // 20, normalize=True)


def sampler_of(schema=SCHEMA, **options):
    small = {"epsilon": 1.0, "delta": 1e-5, "population_size": 2000, "device": "cpu"}
    small |= {"neighbours": "add_or_remove", "random_state": 0}
    return TableSampler(schema=schema, **(small | options))


@pytest.fixture(scope="module")
def fitted():
    return sampler_of().fit(hospital())


def error_of(drawn):
    first, second = chapters_by_age(hospital()).align(chapters_by_age(drawn), fill_value=0)
    return np.abs(first - second).to_numpy().sum() / 2


def test_dependence_at_the_level_of_chapters(fitted):
    drawn = fitted.sample(4000, random_state=1)
    assert set(drawn["code"].dropna()) <= {*LABELS}
    assert 0.02 < drawn["code"].isna().mean() < 0.1
    flat = sampler_of(Schema(dict(SCHEMA) | {"code": Categorical(LABELS, nullable=True)}))
    worse = error_of(flat.fit(hospital()).sample(4000, random_state=1))
    # Single fits have .16 ± .04, and .49 without chapters.
    others = [sampler_of(random_state=seed).fit(hospital()) for seed in (1, 2)]
    errors = [error_of(fit.sample(4000, random_state=1)) for fit in (fitted, *others)]
    assert np.mean(errors) < 0.2
    assert max(errors) < 0.8 * worse
    # Chapters do depend on the age.
    shuffled = hospital().assign(age=hospital(seed=1)["age"].sample(frac=1, random_state=0).array)
    assert error_of(shuffled) > 0.4


def test_the_report_states_the_noise_of_codes(fitted):
    """The first release has 3 + 2 + 1 counts of a record. Codes are more, and so have a weight."""
    assert fitted.privacy_ == sampler_of().plan()
    scale = fitted.privacy_.noise_scale
    first = next(iter(scale.values()))
    levels = [part for part in fitted.one_way_marginals_ if part.columns == ("code",)]
    weight = ((len(LABELS) + 1) / 32) ** (1 / 3)
    expected = first * math.sqrt(3 * weight**2 + 2 + 1) / weight / WEIGHTS
    assert_allclose([part.noise_scale[0] for part in levels], expected)


def test_labels_outside_are_refused(fitted):
    frame = hospital()
    frame.loc[7, "code"] = "Z99.9"
    with pytest.raises(ValueError, match="'code' holds a value outside") as error:
        sampler_of().fit(frame)
    assert "Z99" not in str(error.value)
    frame["code"] = None
    assert sampler_of().fit(frame).sample(50, random_state=0)["code"].isna().mean() > 0.5
    strict = Schema(dict(SCHEMA) | {"code": Categorical(LABELS, hierarchy=[1, 3])})
    with pytest.raises(ValueError, match="'code' has missing values"):
        sampler_of(strict).fit(hospital())


def test_a_saved_model_draws_the_same(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    loaded = sklearn_dpgen.load(tmp_path / "model")
    assert loaded.schema == SCHEMA
    pd.testing.assert_frame_equal(
        loaded.sample(50, random_state=3), fitted.sample(50, random_state=3)
    )


@pytest.mark.slow
def test_conditions_and_scores(fitted):
    drawn = fitted.sample(100, conditions={"code": LABELS[-3:], "sex": 1}, random_state=0)
    assert set(drawn["code"]) <= {*LABELS[-3:]}
    with pytest.warns(UserWarning, match="score"):
        assert -0.5 < fitted.score(hospital()) < 0


@pytest.mark.parametrize(
    "options",
    [
        {"epsilon": 1e-3},
        {"neighbours": "replace_one"},
        {"noise": "certified", "random_state": None},
        {"epsilon": np.inf},
        {"target": "code"},
        {"public": hospital(500, seed=4)[["code", "age"]]},
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_other_settings(options):
    drawn = sampler_of(**options).fit(hospital(1000)).sample(300)
    assert set(drawn["code"].dropna()) <= {*LABELS}


def test_local_answers_use_the_labels_alone():
    mechanism = JointRandomizedResponse(epsilon=3.0, schema=SCHEMA)
    local = LocalTableSampler(mechanism, privatize=True, max_iter=3, random_state=0)
    drawn = local.fit(hospital(1000)).sample(50)
    assert set(drawn["code"].dropna()) <= {*LABELS}


def test_rows_of_persons_have_codes():
    stays = Schema({"code": COLUMN, "age": SCHEMA["age"]})
    schema = RelationalSchema(
        {
            "patients": Table(Schema({"sex": SCHEMA["sex"]}), primary_key="patient"),
            "stays": Table(
                stays, foreign_key={"patient": "patients"}, max_rows=5, aggregates=["code"]
            ),
        }
    )
    rows = hospital(1500).drop(columns="sex").assign(patient=np.arange(1500) // 3)
    patients = pd.DataFrame({"patient": np.arange(500), "sex": np.arange(500) % 2})
    sampler = RelationalSampler(
        schema=schema, epsilon=2.0, delta=1e-5, random_state=0, population_size=500, device="cpu"
    ).fit({"patients": patients, "stays": rows})
    drawn = sampler.sample(100, random_state=0)["stays"]
    assert set(drawn["code"].dropna()) <= {*LABELS}
    levels = [part for part in sampler.one_way_marginals_ if part.columns == ("stays.code",)]
    assert [len(part.counts) for part in levels] == [NULL + 1, 79, 13]


@pytest.mark.slow
def test_too_many_features_of_a_predictor_are_refused():
    labels = [f"{i:05d}" for i in range(5000)]
    schema = Schema(dict(SCHEMA) | {"code": Categorical(labels, hierarchy=[2])})
    frame = hospital(200).assign(code=labels[:200])

    class Unread(pd.DataFrame):
        """A frame whose values nobody reads."""

        def __getitem__(self, key):
            raise AssertionError

    model = SyntheticDataClassifier(sampler_of(schema, target="sex"))
    with pytest.raises(ValueError, match="at most 4096 encoded features .* 'code'"):
        model.fit(Unread(frame))
    plain = SyntheticDataClassifier(
        sampler_of(schema, target="sex", epsilon=50.0),
        DummyClassifier(),
        encode=False,
        n_draws=1,
    )
    assert set(plain.fit(frame).predict(frame.drop(columns="sex"))) <= {0, 1}
