"""Joint answers keep their budget, whatever is asked, and the same checks catch broken ones."""

import math

import numpy as np
import pytest
from joint_cases import (
    KEYS,
    RECORDS,
    AsksByRecord,
    FewKeys,
    GroupsByRecord,
    KeysByRecord,
    by_definition,
    is_private,
    mechanism,
    misfit,
    n_cells,
    questions,
    release_counts,
    release_law,
    responses,
)
from local_privacy import log_likelihood, vertices
from scipy.stats import beta

import sklearn_dpgen.mechanisms._joint_questions as core
import sklearn_dpgen.mechanisms._joint_response as module

BUDGETS = [0.3, 1.0, 2.5, 8.0]
each_budget = pytest.mark.parametrize("epsilon", BUDGETS)
each_number = pytest.mark.parametrize("n_asked", [1, 2, 3])
P_VALUE = 1e-4


@each_budget
@each_number
def test_all_answers_of_all_records_keep_the_budget(epsilon, n_asked):
    fitted = mechanism(epsilon, n_asked=n_asked)
    for question in questions(n_asked):
        table = responses(fitted, *question)
        assert is_private(table, epsilon)
        covered = table > math.sqrt(table.min() * table.max())
        np.testing.assert_allclose(table, by_definition(covered, epsilon), rtol=1e-12)
        # Every record is covered by as many answers, about 1 in e^ε + 1 of them.
        (m,) = np.unique(covered.sum(axis=1))
        assert m == 1 or abs(m - table.shape[1] / (math.exp(epsilon) + 1)) < 1
        # The budget is used up, but for a claim of a lower one.
        assert not is_private(table, 0.999 * epsilon)


def test_some_questions_group_and_others_do_not():
    # The checks are only as good as the questions that they try.
    assert n_cells('["a", "b", "c"]', 8.0) == 30
    assert n_cells('["a", "b", "c"]', 2.5) == 24
    assert n_cells('["a", "b", "c"]', 1.0) == 8


@pytest.mark.parametrize(
    ("epsilon", "n_asked"), [(0.3, 2), (0.3, 3), (1.0, 1), (1.0, 3), (2.5, 2), (2.5, 3), (8.0, 2)]
)
def test_releases_follow_the_likelihood(epsilon, n_asked):
    fitted = mechanism(epsilon, FewKeys, n_asked=n_asked)
    law = release_law(fitted, n_asked)
    assert is_private(np.array(list(law.values())).T, epsilon)
    counts = release_counts(fitted, 1000)
    assert misfit(counts, law) > P_VALUE
    # A budget that is a little another one is not followed.
    assert misfit(counts, release_law(mechanism(1.5 * epsilon, n_asked=n_asked), n_asked)) < P_VALUE


@pytest.mark.parametrize(("epsilon", "n_asked"), [(2.5, 3), (8.0, 2), (8.0, 3)])
def test_frequencies_tell_what_answers_cover(epsilon, n_asked):
    fitted = mechanism(epsilon, FewKeys, n_asked=n_asked)
    counts = release_counts(fitted, 1500)
    for question in questions(n_asked):
        table = responses(fitted, *question)
        none = np.zeros(len(RECORDS))
        seen = np.array([counts.get((*question, a), none) for a in range(table.shape[1])]).T
        covered = seen > seen.max(axis=1, keepdims=True) / 3
        np.testing.assert_allclose(table, by_definition(covered, epsilon), rtol=1e-12)


@pytest.mark.slow
def test_a_question_that_depends_on_the_record_is_caught():
    for kind, n_asked in ((AsksByRecord, 1), (KeysByRecord, 2), (GroupsByRecord, 3)):
        law = release_law(mechanism(2.5, n_asked=n_asked), n_asked)
        assert misfit(release_counts(mechanism(2.5, FewKeys, n_asked=n_asked), 300), law) > P_VALUE
        assert misfit(release_counts(mechanism(2.5, kind, n_asked=n_asked), 300), law) < P_VALUE


def release_table(fitted, n_asked, may_ask):
    """Return the law of releases where a record is asked those questions that it may be."""
    tables = {question: responses(fitted, *question) for question in questions(n_asked)}
    chances = np.array([[may_ask(x, *q) for q in tables] for x in RECORDS.itertuples()], float)
    chances /= chances.sum(axis=1, keepdims=True)
    return np.hstack([chances[:, [i]] * tables[q] for i, q in enumerate(tables)])


def test_a_question_that_depends_on_the_record_costs_more():
    fitted = mechanism(1.0, n_asked=1)
    assert is_private(release_table(fitted, 1, lambda x, asked, key: True), 1.0)
    by_column = release_table(fitted, 1, lambda x, asked, key: ("a" in asked) == (x.a == "x"))
    by_key = release_table(fitted, 1, lambda x, asked, key: key == KEYS[x.b])
    for table in (by_column, by_key):
        np.testing.assert_allclose(table.sum(axis=1), 1, rtol=1e-12)
        assert not is_private(table, 1.0)
        assert not is_private(table, 100.0)


def test_two_answers_cost_twice():
    fitted = mechanism(1.0, n_asked=2)
    first, second = (responses(fitted, *question) for question in questions(2)[:2])
    both = np.einsum("xa,xb->xab", first, second).reshape(len(RECORDS), -1)
    assert is_private(first, 1.0)
    assert not is_private(both, 1.0)
    assert is_private(both, 2.0)
    same = np.einsum("xa,xb->xab", first, first).reshape(len(RECORDS), -1)
    assert not is_private(same, 2.0 - 1e-6)


def test_groups_that_depend_on_the_record_cost_more():
    # Another number of cells, from the record, to the same question.
    question = questions(3)[0]
    table = responses(mechanism(2.5, n_asked=3), *question)
    mixed = np.where((RECORDS["c"] == "t").to_numpy()[:, None], table, 1.0 / 12)
    mixed[(RECORDS["c"] != "t").to_numpy(), 12:] = 0.0
    np.testing.assert_allclose(mixed.sum(axis=1), 1, rtol=1e-12)
    assert is_private(table, 2.5)
    assert not is_private(mixed, 100.0)


@pytest.mark.parametrize("extra", [-1, 1])
def test_a_wrong_number_of_covered_cells_is_caught(monkeypatch, extra):
    epsilon, n_asked = 0.3, 2
    law = release_law(mechanism(epsilon, n_asked=n_asked), n_asked)

    odds = module.answer_odds

    def wrong_odds(covered, epsilon):
        object.__setattr__(covered, "coverage", covered.coverage + extra)
        return odds(covered, epsilon)

    def wrong_respond(cells, asked, epsilon, noise):
        uniform = noise.uniform

        def shifted(n):
            noise.uniform = uniform
            m, K = asked.coverage, asked.n_cells
            right, wrong = (k / (k + (K - k) * math.exp(-epsilon)) for k in (m, m + extra))
            return uniform(n) * right / wrong

        noise.uniform = shifted
        return core.respond(cells, asked, epsilon, noise)

    question = questions(n_asked)[0]
    assert is_private(responses(mechanism(epsilon, n_asked=n_asked), *question), epsilon)
    fitted = mechanism(epsilon, FewKeys, n_asked=n_asked)
    assert misfit(release_counts(fitted, 1000), law) > P_VALUE
    monkeypatch.setattr(module, "respond", wrong_respond)
    assert misfit(release_counts(fitted, 1000), law) < P_VALUE
    monkeypatch.setattr(module, "answer_odds", wrong_odds)
    assert not is_private(responses(mechanism(epsilon, n_asked=n_asked), *question), epsilon)


class Windows(core.Questions):
    """A broken variant: answers stand for windows that end with the last cell."""

    def offsets(self):
        offsets = super().offsets()
        return np.where(offsets < self.n_cells[:, None], np.arange(offsets.shape[1]), offsets)

    def covered(self, answers):
        # Without the modulo a window is cut off; the last cell stands for what is beyond.
        self.offsets = lambda: np.minimum(
            Windows.offsets(self), (self.n_cells - 1 - answers)[:, None]
        )
        return super().covered(answers)


def test_offsets_that_do_not_cover_each_cell_equally_often_are_caught(monkeypatch):
    epsilon, question = 0.3, questions(2)[0]
    table = responses(mechanism(epsilon, n_asked=2), *question)
    assert is_private(table, epsilon)
    monkeypatch.setattr(module, "Questions", Windows)
    cut = responses(mechanism(epsilon, n_asked=2), *question)
    assert not is_private(cut, epsilon)
    # Nor are the answers private that such windows would be given as.
    windows = np.arange(6)[:, None] - np.arange(6)
    covered = (windows >= 0) & (windows < 3)
    assert len(np.unique(covered.sum(axis=1))) > 1
    assert not is_private(by_definition(covered, epsilon), epsilon)
    assert is_private(by_definition(windows % 6 < 3, epsilon), epsilon)


def doubled(cells, asked, epsilon, noise):
    """A broken variant: answers as with twice the budget."""
    return core.respond(cells, asked, 2 * epsilon, noise)


def test_a_sampler_with_another_budget_is_caught(monkeypatch):
    fitted = mechanism(1.0, FewKeys, n_asked=2)
    law = release_law(fitted, 2)
    assert misfit(release_counts(fitted, 300), law) > P_VALUE
    monkeypatch.setattr(module, "respond", doubled)
    assert misfit(release_counts(fitted, 300), law) < P_VALUE


def audited_epsilon(fitted, n=30_000, confidence=1 - 1e-6):
    """Return a lower bound of the budget from what two extreme records release."""
    ends = RECORDS.iloc[[0, -1]]
    points = vertices(fitted.domain_)[[0, -1]]
    counts = []
    for i in range(2):
        Y = fitted.transform(ends.iloc[np.full(n, i)])
        log_p = log_likelihood(fitted, points, fitted.encode_release(Y))
        covers_first = log_p[0] > log_p[1]
        is_asked = Y["asked"].str.contains('"c"').to_numpy()
        counts.append((covers_first & is_asked).sum())
    at_least = beta.ppf((1 - confidence) / 2, counts[0], n - counts[0] + 1)
    at_most = beta.ppf((1 + confidence) / 2, counts[1] + 1, n - counts[1])
    return math.log(at_least / at_most)


@pytest.mark.slow
@pytest.mark.parametrize("n_asked", [2, "auto"])
def test_an_audit_from_outside(monkeypatch, n_asked):
    fitted = mechanism(1.0, n_asked=n_asked, random_state=0)
    assert 0.8 < audited_epsilon(fitted) <= 1.0
    monkeypatch.setattr(module, "respond", doubled)
    assert audited_epsilon(fitted) > 1.0


def test_the_misfit_of_right_counts_is_small_seldom():
    rng = np.random.default_rng(0)
    law = release_law(mechanism(1.0, n_asked=2), 2)
    rows = np.array(list(law.values())).T
    p_values = []
    for _ in range(30):
        counts = np.array([rng.multinomial(500, row / row.sum()) for row in rows])
        p_values.append(misfit(dict(zip(law, counts.T, strict=True)), law))
    assert 0.2 < np.mean(p_values) < 0.8
    assert min(p_values) > 1e-3
