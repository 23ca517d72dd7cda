"""Write the tables of figures of the pages from the results of the benchmarks.

``make figures`` makes each block of a page, between ``.. begin figures NAME`` and ``.. end figures
NAME``, from ``benchmarks/results``. No figure in them is typed: the best cheap method and the best
method of others are the best in the files. What others print is in ``printed.json``, with its
source. ``tests/test_figures.py`` compares pages and files.
"""

import csv
import io
import json
import math
import re
import statistics
import textwrap
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Results", "blocks", "differences", "main", "tasks", "write_page"]

ROOT = Path(__file__).parents[1]
PAGES = ("README.rst", "doc/index.rst", "doc/measured.rst", "doc/comparison.rst", "doc/release.rst")
BLOCK = r"^\.\. begin figures ([a-z -]+)\n(.*?)^\.\. end figures \1$"

OURS = "TableSampler"
NO_TARGET = f"{OURS}, without a target"
PEERS = (
    "OpenDP MST",
    "SmartNoise MST",
    "dpmm MST",
    "dpmm PrivBayes",
    "PrivSyn",
    "OpenDP AIM",
    "SmartNoise AIM",
    "dpmm AIM",
)
TOLD = ("OpenDP AIM, target named", "dpmm AIM, target named")
TITLES = {"adult": "Adult", "rand health": "RAND health"}
TARGETS = {"adult": "``income``", "rand health": "``mdvis``"}
BUDGETS = (0.3, 1.0, 3.0, 10.0)
_THREADS = {"all": "all threads", "default": "default", "one": "``OMP_NUM_THREADS=1``"}
NEVER = "not run"


class Results:
    """The results of the benchmarks, each file read once.

    Parameters
    ----------
    folder : Path
    """

    def __init__(self, folder=ROOT / "benchmarks" / "results"):
        self._folder, self._files = Path(folder), {}

    def file(self, name):
        if name not in self._files:
            self._files[name] = json.loads((self._folder / f"{name}.json").read_text())
        return self._files[name]

    def rows(self, name, **wanted):
        """Return the rows of a file that have the values that are wanted, at least one."""
        content = self.file(name)
        rows = content["rows"]
        if "columns" in content:  # a list for each fit
            rows = [dict(zip(content["columns"], row, strict=True)) for row in rows]
        found = [row for row in rows if all(row.get(k) == v for k, v in wanted.items())]
        if not found:
            raise LookupError(f"{name}.json has no row with {wanted}.")
        return found

    def row(self, name, **wanted):
        (row,) = self.rows(name, **wanted)
        return row


# ---- figures ----


@dataclass(frozen=True)
class Figure:
    """A mean over seeds, with its standard deviation, or with a range where the file has that."""

    mean: float
    sd: float = 0.0
    seeds: int = 1
    least: float | None = None
    most: float | None = None
    note: str = ""

    @property
    def error(self):
        """The standard error; none of one seed."""
        return self.sd / math.sqrt(self.seeds - 1) if self.seeds > 1 else math.nan

    def text(self, digits):
        found = f"{self.mean:.{digits}f}"
        if self.least is not None:
            found += f" ({self.least:.{digits}f} to {self.most:.{digits}f})"
        elif self.seeds > 1:
            found += f" ± {self.sd:.{digits}f}"
        return found + (f", {self.note}" if self.note else "")


@dataclass(frozen=True)
class Score:
    """What is measured, in how many digits it is shown, and under which name in the README."""

    label: str
    digits: int = 3
    sign: int = 1
    short: str = ""

    @property
    def arrow(self):
        return "↑" if self.sign > 0 else "↓"

    @property
    def name(self):
        return self.short or self.label


AUC = Score("AUC of boosting on real rows", short="AUC")
PAIRS = Score("total variation of pairs of columns", sign=-1, short="TV")
KEYS = {AUC: "AUC boosting", PAIRS: "2-way TV"}

# What a method is in a comparison. A variant is this package's, and no row of the README.
HERE, CHEAP, OTHER, REAL, VARIANT = "here", "cheap", "other", "not private", "variant"


@dataclass(frozen=True)
class Entry:
    """A method, its guarantee, and its figures by score."""

    role: str
    method: str
    guarantee: str
    figures: dict[Score, Figure]

    @property
    def seeds(self):
        return max(figure.seeds for figure in self.figures.values())


@dataclass(frozen=True)
class Task:
    """A comparison: one row of the README a score, and one table of the page of figures.

    Attributes
    ----------
    name, title : str
        Of the table, and of the rows.
    guarantee : str
        Of the figures of this package.
    chosen : str
        On what the settings were chosen.
    sources : str
        Scripts.
    entries : list of Entry
    remarks : str
    scores : tuple of Score
    n_headlines : int
        How many of the scores are in the README.
    missing : dict of str to str
        Methods without an entry, and why.
    """

    name: str
    title: str
    guarantee: str
    chosen: str
    sources: str
    entries: list[Entry]
    remarks: str = ""
    scores: tuple[Score, ...] = (AUC, PAIRS)
    n_headlines: int = 2
    missing: dict[str, str] = field(default_factory=dict)

    def best(self, role, score):
        """Return the best entry of a role in a score, or None."""
        found = [e for e in self.entries if e.role == role and score in e.figures]
        return max(found, key=lambda e: score.sign * e.figures[score].mean, default=None)

    def leaders(self, score):
        """Return the roles of which a private entry is best, or within one standard error."""
        found = {role: self.best(role, score) for role in (HERE, CHEAP, OTHER)}
        found = {role: e.figures[score] for role, e in found.items() if e is not None}
        return near_best(found, score.sign, HERE)

    def losses(self):
        """Return sentences on the scores in which a method that is not this package's is better."""
        found = []
        for score in self.scores:
            leaders = self.leaders(score)
            if HERE not in leaders:
                names = [
                    self.best(role, score).method for role in (CHEAP, OTHER) if role in leaders
                ]
                found.append(f"**Better than this package in {score.label}: {', '.join(names)}.**")
        return " ".join(found)


def near_best(figures, sign, ours):
    """Return the keys of the best figure, and of those within one standard error of the difference.

    One seed has no spread: its error is that of a single seed of ours.
    """
    best = max(figures, key=lambda key: sign * figures[key].mean)
    single = figures[ours].error * math.sqrt(figures[ours].seeds)

    def near(key):
        errors = (figures[k].error for k in (best, key))
        errors = (error if math.isfinite(error) else single for error in errors)
        return sign * (figures[best].mean - figures[key].mean) <= math.hypot(*errors)

    return {best} | {key for key in figures if near(key)}


def spread(values):
    """Return the figure of values, one a seed."""
    values = list(values)
    return Figure(statistics.fmean(values), statistics.pstdev(values), len(values))


# ---- tables with a trusted curator, and without ----


def entry(row, role, method=None, scores=KEYS):
    """Return an entry of a row of `bench_tables.py` or `bench_local_tables.py`."""
    figures = {
        score: Figure(row[key], row.get(f"{key} sd", 0.0), row.get("seeds", 1))
        for score, key in scores.items()
        if row.get(key) is not None
    }
    return Entry(role, method or row["model"], relation(row), figures)


def relation(row):
    kind = row.get("guarantee", "central, add or remove")
    if kind.startswith("central"):
        return "one record added or removed" if "add or remove" in kind else "one record replaced"
    return {"local": "local", "none": "none"}[kind]


def of_peers(results, table, *, told):
    """Return the entries of others, one a model, and what came of the models that have none."""
    fits = defaultdict(list)
    for row in results.rows("table_peers", table=table, epsilon=1.0):
        if told or row["model"] not in TOLD:
            fits[row["model"]].append(row)
    failed = {
        row["model"]: row["failure"]
        for row in results.file("table_peers")["failures"]
        if (row["table"], row["epsilon"]) == (table, 1.0)
    }
    names = [*PEERS, *TOLD] if told else PEERS
    missing = {name: failed.get(name, NEVER) for name in names if name not in fits}
    return [merged(rows) for rows in fits.values()], missing


def merged(rows, scores=KEYS):
    """Return the entry of rows of one fit each, or of one row of means."""
    if len(rows) == 1:
        return entry(rows[0], OTHER, scores=scores)
    figures = {score: spread(row[key] for row in rows) for score, key in scores.items()}
    return Entry(OTHER, rows[0]["model"], relation(rows[0]), figures)


def named_target(results, table):
    def either(name, **wanted):
        return results.rows(name, table=table, epsilon=1.0, **wanted)

    entries = [entry(row, HERE) for row in either("compare_replace")]
    entries += [entry(row, VARIANT) for row in either("compare_ours")]
    for row in either("tables_target_unknown", model="pairs with the target"):
        role = CHEAP if "replace" in row["guarantee"] else VARIANT
        name = "noisy pairs with the target, columns independent given it"
        entries.append(entry(row, role, name))
    if table == "adult":
        row = results.row(
            "synthetic_learners", table="Adult", method="naive Bayes of noisy histograms"
        )
        figure = Figure(row["AUC"], row["sd of AUC"], row["seeds"])
        entries.append(
            Entry(
                CHEAP,
                "noisy naive Bayes, without a table",
                "one record replaced",
                {AUC: figure},
            )
        )
    entries += [entry(row, CHEAP, "independent columns") for row in either("compare_independent")]
    others, missing = of_peers(results, table, told=True)
    entries += others
    real = results.row("compare_real", table=table)
    entries.append(entry(real, REAL, "real rows"))
    return Task(
        name=f"{TITLES[table]}, target named",
        title=f"{TITLES[table]}, ε = 1, {TARGETS[table]} named as the target",
        guarantee="one record replaced (the default), δ = 1e-5",
        chosen="other tables, and splits of the training rows of this one",
        sources="``bench_tables.py``, ``bench_table_peers.py``, ``bench_synthetic_learners.py``",
        remarks="Other methods know the target only where their name says so. Their guarantee is "
        "weaker, and needs less noise. Some have more noise than they need (:doc:`comparison`).",
        entries=entries,
        missing=missing,
        n_headlines=2 if table == "adult" else 1,
    )


def unknown_target(results, table):
    rows = results.rows("tables_target_unknown", table=table, model=NO_TARGET, epsilon=1.0)
    entries = [entry(r, HERE if "add" in r["guarantee"] else VARIANT, OURS) for r in rows]
    found = results.row("compare_independent", table=table)
    entries.append(entry(found, CHEAP, "independent columns"))
    others, missing = of_peers(results, table, told=False)
    entries += others
    entries.append(entry(results.row("compare_real", table=table), REAL, "real rows"))
    return Task(
        name=f"{TITLES[table]}, target not named",
        title=f"{TITLES[table]}, ε = 1, target not named",
        guarantee="one record added or removed, δ = 1e-5",
        chosen="other tables, and splits of the training rows of this one",
        sources="the same scripts",
        remarks="All methods get the same information and have the same guarantee, except "
        "independent columns; methods that know the target are left out.",
        entries=entries,
        missing=missing,
        n_headlines=1,
    )


LEAST_SQUARES = "least squares of pairs, from the same answers"


def local_defaults(results, name):
    rows = results.rows("local_tables_snippet", table=name, epsilon=4.0)
    roles = {
        "LocalTableSampler, equal bins": (HERE, "LocalTableSampler"),
        "least squares of pairs, equal bins": (CHEAP, LEAST_SQUARES),
    }
    entries = [entry(row, *roles[row["model"]]) for row in rows]
    entries.append(entry(results.row("compare_real", table=name), REAL, "real rows"))
    return Task(
        name=f"{TITLES[name]}, local privacy, defaults",
        title=f"{TITLES[name]}, ε = 4, local privacy, all defaults",
        guarantee="each record by itself, δ = 0",
        chosen="splits of the training rows of Adult, of the least squares too",
        sources="``bench_local_tables.py``",
        entries=entries,
        n_headlines=1 if name == "adult" else 0,
    )


def local_asked(results):
    wanted = {"table": "adult", "epsilon": 4.0}
    entries = []
    for row in results.rows("local_tables_adult", **wanted):
        role = HERE if row["model"] == "LocalTableSampler, target always" else VARIANT
        entries.append(entry(row, role))
    names = {
        "least squares of pairs, target always": LEAST_SQUARES,
        "split budget, naive Bayes": "split budget, naive Bayes",
        "split budget, independent columns": "split budget, independent columns",
    }
    for model, name in names.items():
        row = results.row("local_tables_adult_others", model=model, **wanted)
        entries.append(entry(row, CHEAP, name))
    entries.append(entry(results.row("compare_real", table="adult"), REAL, "real rows"))
    return Task(
        name="Adult, local privacy, income asked of everybody",
        title="Adult, ε = 4, local privacy, income asked of everybody, public bins",
        guarantee="each record by itself, δ = 0",
        chosen="splits of the training rows of Adult, of the least squares too",
        sources="``bench_local_tables.py``",
        remarks="The public bins follow the distribution of the numbers; the default bins have "
        "equal width.",
        entries=entries,
        n_headlines=1,
    )


# ---- others ----

RATE = 0.75
FAIR = {
    "synthetic rows, barycentre": (HERE, "barycentre of synthetic rows", "one record replaced"),
    "synthetic rows, barycentre, more for counts": (
        VARIANT,
        "the same, .3 of ε for the counts",
        "one record replaced",
    ),
    "gradient penalty": (VARIANT, "gradient penalty", "one record replaced, same group"),
    "DP-FERMI": (OTHER, "DP-FERMI", "one record added or removed"),
    "opacus": (OTHER, "opacus and DP-postprocessing", "one record added or removed"),
    "diffprivlib": (OTHER, "diffprivlib and DP-postprocessing", "one record replaced"),
    "logistic, reduction by fairlearn": (
        REAL,
        "logistic regression, fairlearn's reduction",
        "none",
    ),
    "logistic, thresholds by fairlearn": (
        REAL,
        "logistic regression, fairlearn's thresholds",
        "none",
    ),
    "boosting, thresholds by fairlearn": (REAL, "trees, fairlearn's thresholds", "none"),
}


def fair(results):
    score = Score("accuracy")
    entries = []
    for method, (role, name, promise) in FAIR.items():
        epsilon = math.inf if role == REAL else 1.0
        rows = results.rows("fair_frontier", table="Adult by sex", method=method, epsilon=epsilon)
        rows = [row for row in rows if row["DI"] >= RATE]
        if rows:
            row = max(rows, key=lambda row: row["accuracy"])
            note = f"at a ratio of {row['DI']:.2f}"
            figure = Figure(row["accuracy"], row["sd of accuracy"], row["seeds"], note=note)
            entries.append(Entry(role, name, promise, {score: figure}))
    return Task(
        name="Adult by sex",
        title=f"Adult by sex, ε = 1, the smaller rate of approval at least {RATE} of the larger",
        guarantee="one record replaced, δ = 1e-5",
        chosen="simulated records, for the other methods too",
        sources="``bench_fair_frontier.py``",
        remarks=f"Of each method the most accurate setting whose ratio of rates is {RATE} or more, "
        "by the means over three splits. DP-FERMI does not know the group when it predicts.",
        entries=entries,
        scores=(score,),
    )


def images(results):
    scores = {
        Score("accuracy of a convolutional network, percent", 1): "convolutional",
        Score("of a perceptron", 1): "MLP",
        Score("of logistic regression", 1): "LogReg",
    }
    named = {
        "images": (HERE, "MomentImageSampler"),
        "vectors, former covariances": (
            CHEAP,
            "MomentSampler on cosine coefficients, earlier version",
        ),
        "real images": (REAL, "real images"),
    }
    entries = []
    for method, (role, name) in named.items():
        epsilon = math.inf if role == REAL else 1.0
        rows = results.rows("moments_mnist", method=method, epsilon=epsilon)
        figures = {s: spread(100 * row[key] for row in rows) for s, key in scores.items()}
        entries.append(Entry(role, name, "none" if role == REAL else "one image replaced", figures))
    main_score = next(iter(scores))
    for row in results.rows("printed", data="MNIST", epsilon=1.0):
        figure = Figure(
            row["accuracy"], note=f"printed by {row['printed by']}, of its own protocol"
        )
        entries.append(Entry(OTHER, row["method"], "as printed", {main_score: figure}))
    return Task(
        name="MNIST by class",
        title="MNIST by class, ε = 1, trained on synthetic images",
        guarantee="one image replaced, with its label, δ = 1e-5",
        chosen="the last 10,000 training images",
        sources="``bench_moments_mnist.py``, ``printed.json``",
        remarks="Figures of others are printed, of the protocol of DPImageBench with its larger "
        "networks, and were not run here; ours are of a small network, and not of that protocol.",
        entries=entries,
        scores=tuple(scores),
        n_headlines=1,
    )


ADAPTATION = {
    "moments": (HERE, "moments"),
    "projections": (VARIANT, "projections"),
    "features": (VARIANT, "features"),
    "recentered": (CHEAP, "features shifted by one noisy mean"),
    "source only": (CHEAP, "source only"),
    "private DANN": (OTHER, "private DANN"),
    "Algorithm 2": (OTHER, "Algorithm 2"),
    "two sides, not private": (REAL, "sliced Wasserstein"),
    "DANN": (REAL, "DANN"),
}


def adaptation(results):
    score = Score("mean accuracy on the target, percent", 1)
    seeds = results.file("adaptation")["meta"]["seeds"]
    entries = []
    for method, (role, name) in ADAPTATION.items():
        rows = results.rows("adaptation", method=method, change="-")
        mean, least, most = (
            statistics.fmean(row[key] for row in rows) for key in ("accuracy", "lowest", "highest")
        )
        # Three standard deviations are about the range of few seeds; it only says who is near.
        figure = Figure(mean, (most - least) / 2, seeds, least, most)
        promise = (
            "none"
            if role == REAL or method == "source only"
            else "one record of the target replaced"
        )
        entries.append(Entry(role, name, promise, {score: figure}))
    return Task(
        name="Nine domain adaptations",
        title="Nine domain adaptations, ε = 10",
        guarantee="one record of the target replaced, δ = 1e-5",
        chosen="three other transformations, by labels of the target",
        sources="``bench_adaptation.py``",
        remarks="In brackets the means of the lowest and of the highest seed of each task. The "
        "source alone needs no guarantee.",
        entries=entries,
        scores=(score,),
    )


CURVES = {
    "expectation maximization": (HERE, "DeconvolutionEM"),
    "entropic": (VARIANT, "EntropicDeconvGAN"),
    "moments": (CHEAP, "two moments"),
    "unregularized": (OTHER, "unregularized generator"),
}


def rectangle(results):
    score = Score("W2 to the raw points", sign=-1)
    entries = []
    for model, (role, name) in CURVES.items():
        rows = results.rows("curves", curve="rectangle", mechanism="Laplace, eps 5", model=model)
        entries.append(Entry(role, name, "local", {score: spread(row["W2"] for row in rows)}))
    return Task(
        name="Rectangle from noisy points",
        title="Rectangle from Laplace noise, ε = 5, local privacy",
        guarantee="each point by itself, δ = 0",
        chosen="curves like these: no independent test",
        sources="``bench_curves.py``",
        entries=entries,
        scores=(score,),
    )


def tasks(results):
    return [
        *(named_target(results, table) for table in TITLES),
        *(unknown_target(results, table) for table in TITLES),
        *(local_defaults(results, table) for table in TITLES),
        local_asked(results),
        fair(results),
        images(results),
        adaptation(results),
        rectangle(results),
    ]


# ---- reStructuredText ----


def wrapped(text, indent=0):
    options = {"break_long_words": False, "break_on_hyphens": False}
    return textwrap.fill(text, 116, subsequent_indent=" " * indent, **options)


def table(head, rows, widths, title=""):
    """Return a table, one row a line."""
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerows([head, *rows])
    lines = [f".. csv-table:: {title}".rstrip(), "   :header-rows: 1"]
    lines += [f"   :widths: {' '.join(map(str, widths))}", ""]
    return "\n".join([*lines, textwrap.indent(written.getvalue().rstrip("\n"), "   ")])


def headline(results):
    """Return the table of the README: for each score the best of each role."""
    rows = []
    for task in tasks(results):
        for score in task.scores[: task.n_headlines]:
            leaders = task.leaders(score)
            row = [f"{task.title}; {task.guarantee}: **{score.name}** {score.arrow}"]
            for role in (HERE, CHEAP, OTHER, REAL):
                best = task.best(role, score)
                row.append("" if best is None else _cell(task, best, score, leaders))
            rows.append(row)
    head = ["Measure", "Here", "Best of the cheap", "Best private one of others", "Not private"]
    return table(head, rows, [32, 14, 20, 22, 12])


def _cell(task, entry, score, leaders):
    figure = entry.figures[score]
    text = f"{figure.text(score.digits)} [{figure.seeds}]"
    if entry.role in leaders:
        text = f"**{text}**"
    if entry.role == HERE:
        return text
    found = f"{entry.method} {text}"
    if entry.role in leaders and HERE not in leaders:
        found = f"**better**: {found}"
    other = entry.role == OTHER and entry.guarantee.startswith("one")
    return (
        f"{found}; {entry.guarantee}" if other and entry.guarantee not in task.guarantee else found
    )


def details(results):
    """Return a table for each task, with the methods that are in the files.

    Rows of methods of others that an earlier table has are left out.
    """
    roles = {HERE: "this package", OTHER: "others"}
    parts, shown = [], set()
    for task in tasks(results):
        scores = {score: f"{score.name[0].upper()}{score.name[1:]}" for score in task.scores}
        rows = []
        for found in task.entries:
            figures = found.figures
            cells = [figures[s].text(s.digits) if s in figures else "" for s in scores]
            role = roles.get(found.role, found.role)
            promise = re.sub(r"^one (record|image) |\bone record ", "", found.guarantee)
            rows.append([found.method, role, promise, str(found.seeds), *cells])
        rows += [
            [name, "others", "", "", *([why] * len(scores))] for name, why in task.missing.items()
        ]
        data = task.name.partition(",")[0]
        kept = [row for row in rows if (data, *row) not in shown]
        above = f"Other methods: see the first table of {data}." if len(kept) < len(rows) else ""
        shown |= {(data, *row) for row in rows if row[1] == "others"}
        widths = [34, 13, 18, 7, *([28 // len(scores)] * len(scores))]
        better = ", ".join(f"{score.name} {score.arrow}" for score in scores)
        text = f"{task.title}; {task.guarantee}: {better}. {task.losses()} {task.remarks} {above}"
        parts += [f"{task.name}\n{'~' * len(task.name)}", wrapped(" ".join(text.split()))]
        parts.append(wrapped(f"Settings were chosen on {task.chosen}. Source: {task.sources}."))
        parts.append(
            table(["Method", "Kind", "Guarantee", "Seeds", *scores.values()], kept, widths)
        )
    return "\n\n".join(parts)


def budgets(results):
    """Return the scores of two tables by budget, where one record is replaced."""
    rows = []
    for name, title in TITLES.items():
        for score in (AUC, PAIRS):
            cells = []
            for epsilon in BUDGETS:
                file = "compare_replace" if epsilon == 1.0 else "tables_budgets"
                found = results.row(file, table=name, epsilon=epsilon)
                figure = entry(found, HERE).figures[score]
                cells.append(f"{figure.text(score.digits)} [{figure.seeds}]")
            rows.append([f"{title}: {score.short}", *cells])
    head = ["Target named, one record replaced", *(f"ε = {budget:g}" for budget in BUDGETS)]
    return table(head, rows, [40, 15, 15, 15, 15])


def times(results):
    """Return the sentence on the time and memory of fits."""
    fit = {name: results.row("compare_replace", table=name)["cpu seconds"] for name in TITLES}
    wide = results.row("table_sampler_scale", rows=100_000, columns=100)
    return wrapped(
        f"With one thread, a fit of Adult took {fit['adult']:.1f} seconds of a processor, one of "
        f"RAND health {fit['rand health']:.1f}, and one of 100,000 rows of 100 columns, half of "
        f"them numeric, {wide['counts, s'] + wide['fit, s']:.0f}, with "
        f"{wide['peak, MiB'] / 1024:.1f} GiB (``bench_table_sampler.py --scale``)."
    )


def solvers(results):
    """Return the tables of the solvers on the page of figures."""
    kinds = {"few_lines": "few lines of torch", "pot_default": "``ot.sinkhorn``"}
    kinds |= {"pot_torch": "POT, log domain, torch", "pot_numpy": "POT, log domain, NumPy"}
    rows = []
    for row in results.rows("sinkhorn"):
        if "ratio_pot_torch" not in row:
            continue
        cells = [f"{row[f'ratio_{kind}']:.1f}" for kind in kinds]
        # A plan without a number, or one whose margins are off by half of the mass.
        errors = [row.get(f"error_{kind}", 0.0) for kind in kinds]
        lost = [error is None or error > 0.5 for error in errors]
        cells = ["fails" if no else cell for no, cell in zip(lost, cells, strict=True)]
        size, kind = f"{row['n']} x {row['n']}", f"{row['dtype']}, {row['iterations']} iterations"
        rows.append([f"{row['case']}, {size}, {kind}", f"{row['ours_ms']:.1f}", *cells])
    head = ["Problem", "Here, ms", *(f"{kind}, times that" for kind in kinds.values())]
    first = table(head, rows, [36, 10, 13, 13, 14, 14], "Sinkhorn (``bench_sinkhorn.py``)")
    head = ["Points, peer", "Here, s", "Time of the peer", "Memory of the peer"]
    rows = []
    for file, peer in (("sliced_lines", "lines"), ("sliced", "pot")):
        for row in results.rows(file):
            if f"peak_MB_{peer}" in row:
                name = {"pot": "POT with autograd", "lines": "three lines of torch"}[peer]
                memory = row[f"peak_MB_{peer}"] / row["peak_MB_ours"]
                cells = [f"{row['n']:,} and {row['m']:,}, {name}", f"{row['ours_ms'] / 1000:.2f}"]
                rows.append([*cells, f"{row['ratio']:.1f} times", f"{memory:.1f} times"])
    title = "Sliced :math:`W_2`, both gradients, 50 columns, 100 directions (``bench_sliced.py``)"
    return f"{first}\n\n{table(head, rows, [46, 14, 20, 20], title)}"


def threads(results):
    """Return the table of default fits, with all threads and with one, on the page of figures."""
    found = {}
    for row in results.rows("threads"):
        if "default wall" in row:
            found.setdefault(row["case"], {})[row["load"]] = row
    rows = [
        [f"``{case}``" if case in ("sinkhorn", "sliced_wasserstein") else case]
        + [f"{loads[load][f'{name} wall']:.2f}" for load in ("idle", "busy") for name in _THREADS]
        + [f"{loads[load]['default / best']:.2f}" for load in ("idle", "busy")]
        for case, loads in found.items()
    ]
    names = _THREADS.values()
    head = ["Estimator", *(f"{load}: {name}" for load in ("idle", "busy") for name in names)]
    head += ["idle: default over best", "busy: default over best"]
    title = "Seconds of the clock (``bench_threads.py``)"
    return table(head, rows, [20, 10, 10, 10, 10, 10, 10, 10, 10], title)


def first_hour(results):
    """Return what a stranger waits for first, by Python, on the page of releases."""
    found = results.rows("first_hour")
    pythons = list(dict.fromkeys(row["python"] for row in found))
    rows = []
    for step in dict.fromkeys(row["step"] for row in found):
        cells = [f"``{step}``" if step.startswith(("pip", "sklearn-dpgen")) else step]
        for python in pythons:
            cell = NEVER
            for row in results.rows("first_hour", python=python, step=step):
                cell = f"{row['seconds']:.0f} s"
                cell += f", {row['MB']:,.0f} MB" if row["MB"] else ""
            cells.append(cell)
        rows.append(cells)
    head = ["Step", *(f"Python {python}" for python in pythons)]
    return table(head, rows, [40] + [20] * len(pythons))


def columns(results):
    """Return the table of deconvolution of columns of numbers, on the page of figures."""
    methods = ("copula", "joint", "generator", "raw")
    cases = {(r["table"], r["epsilon"]): r for r in results.rows("deconvolution_tables")}
    rows = []
    for (name, epsilon), case in cases.items():
        cells = [f"{name}, {case['columns']} columns, {case['n']} rows", f"{epsilon:g}"]
        for method in methods:
            wanted = {"table": name, "epsilon": epsilon, "method": method}
            found = [r for r in results.rows("deconvolution_tables") if wanted.items() <= r.items()]
            figure = spread(r["W2"] for r in found) if found else None
            cells.append(f"{figure.text(3)} [{figure.seeds}]" if found else NEVER)
        rows.append(cells)
    head = ["Table", "ε", "Copula", "Joint", "Generator", "Raw records"]
    title = ":math:`W_2` to other raw records (``bench_deconvolution.py``) [seeds]"
    return table(head, rows, [34, 6, 15, 15, 15, 15], title)


def ranking(results):
    """Return the sentence on free scores that rank two kinds of dependence."""
    parts = []
    for epsilon in (20.0, 5.0):
        rows = results.rows("deconvolution_ranking", epsilon=epsilon)
        for score in ("energy", "likelihood"):
            right = sum(all(gain * row["W2"] > 0 for gain in row[score]) for row in rows)
            wrong = sum(all(gain * row["W2"] < 0 for gain in row[score]) for row in rows)
            parts.append(
                f"by the {score} at ε = {epsilon:g}, {right} of {len(rows)} tables right and "
                f"{wrong} wrong"
            )
    return wrapped(
        "Free scores of held-out records that rank the copula and joint points as raw records do, "
        "in each of three folds (``--part ranking``, 4000 records, one seed): "
        f"{'; '.join(parts)}. In the others the folds differ."
    )


DISTANCES = {
    "private_sliced_wasserstein": "``private_sliced_wasserstein``",
    "noisy mean": "Noisy mean",
    "noisy moments": "Noisy moments",
    "three histograms of 8 cells": "Three histograms, 8 cells",
    "three histograms of 16 cells": "16 cells",
    "smoothed_sliced_wasserstein": "``smoothed_sliced_wasserstein``",
}


def distance_power(results):
    """Return the rates of rejection of two-sample tests, on the page of figures."""
    rows = [
        [f"{row['table']}, {row['d']}, {row['n']}", f"{row['epsilon']:g}", _change(row)]
        + [f"{row[name]:.2f}" for name in DISTANCES]
        for row in sorted(
            results.rows("private_distance_power"),
            key=lambda row: [row[key] for key in ("table", "d", "n", "epsilon")],
        )
    ]
    trials = {row["trials"] for row in results.rows("private_distance_power")}
    title = (
        f"Rejections at level 0.05, {' or '.join(map(str, sorted(trials)))} trials "
        "(``bench_private_distance.py``)"
    )
    head = ["Table, columns, n", "ε", "Change", *DISTANCES.values()]
    return table(head, rows, [18, 6, 16, 12, 9, 9, 10, 8, 12], title)


def distance_errors(results):
    """Return the errors of private distances, the mean and the worst over seeds."""
    rows, found = [], results.rows("private_distance_accuracy")
    for row in found:
        if row["epsilon"] == 1:
            others = {
                epsilon: results.row(
                    "private_distance_accuracy",
                    **{key: row[key] for key in ("d", "change", "size")},
                    epsilon=epsilon,
                )
                for epsilon in (0.3, 5.0)
            }
            rows.append(
                [str(row["d"]), _change(row), f"{row['W1']:.3f}", f"{row['W2']:.3f}"]
                + [f"{row[f'error {w}']:+.3f} ({row[f'worst {w}']:.3f})" for w in ("W1", "W2")]
                + [f"{others[epsilon]['worst W2']:.3f}" for epsilon in others]
                + [f"{row['worst W2 smoothed']:.2f}"]
            )
    head = ["d", "Change", "W1", "W2", "Error of W1, ε = 1", "Error of W2, ε = 1"]
    head += ["Worst W2, ε = 0.3", "ε = 5", "Smoothed, worst W2, ε = 1"]
    covered = [(row["covered"] * row["seeds"], row["seeds"]) for row in found if "covered" in row]
    held, total = (round(sum(numbers)) for numbers in zip(*covered, strict=True))
    title = (
        f"Errors on flights, n = {found[0]['n']}, mean and in brackets worst of "
        f"{found[0]['seeds']} seeds; 95 percent intervals at ε = 1 held {held} of {total} "
        "distances (``bench_private_distance.py``)"
    )
    return table(head, rows, [5, 18, 8, 8, 17, 17, 10, 8, 9], title)


SHIFTS = {"none": "No shift", "labels": "Labels", "sampling": "Sampling", "drift": "Drift"}


def adaptation_tables(results):
    """Return what the default of the domain adapter gains on tables, by the kind of shift."""
    found = results.rows("adaptation_tables", method="default")
    rows = []
    for name in dict.fromkeys(row["table"] for row in found):
        own = {row["kind"]: row for row in found if row["table"] == name}
        cells = [_gain(own[kind]) if kind in own else NEVER for kind in SHIFTS]
        rows.append([TITLES.get(name, name.replace("_", " ")), *cells])
    worst = min(found, key=lambda row: row["lowest gain"])
    title = (
        f"Accuracy of the default of the domain adapter, percent, and in brackets its gain over "
        f"the source alone, in points; by what it adapted; ε = {found[0]['epsilon']:g}, δ = 1e-5, "
        f"mean of {found[0]['seeds']} seeds. The lowest gain of a fit is "
        f"{worst['lowest gain']:+.2f}, on {worst['table']} with the shift {worst['kind']} "
        "(``bench_adaptation.py --part tables``)"
    )
    chosen = results.rows("adaptation_tables_choice")
    names = " and ".join(dict.fromkeys(f"*{row['table']}*" for row in chosen))
    told = [
        f"{words} {row['gain']:+.1f}, on *{row['table']}* with the shift {row['kind']}"
        for method, words in (
            ("default", "the default"),
            ("moments", "a map in any case"),
            ("recentered", "a shift by the difference of the means"),
        )
        for row in [min((r for r in chosen if r["method"] == method), key=lambda row: row["gain"])]
    ]
    note = (
        f"On two of the tables for choosing, {names}, other methods were measured too. The lowest "
        f"mean gain of 3 seeds has {'; '.join(told)} (``--part tables_choice``)."
    )
    whole = table(["Table", *SHIFTS.values()], rows, [18, 20, 20, 20, 20], title)
    return whole + "\n\n" + textwrap.fill(note, 120)


def adaptation_default(results):
    """Return the default of the domain adapter beside Algorithm 2, on three tasks."""
    found = results.rows("adaptation_default")
    methods = list(dict.fromkeys(row["method"] for row in found))
    rows = [
        [task.replace("-", " to ")]
        + [
            f"{row['accuracy']:.1f}"
            for method in methods
            for row in results.rows("adaptation_default", task=task, method=method)
        ]
        for task in dict.fromkeys(row["task"] for row in found)
    ]
    seeds = results.file("adaptation_default")["meta"]["seeds"]
    title = (
        f"The default of the domain adapter, without a domain, beside Algorithm 2 without its half "
        f"that is not covered, percent, ε = {found[0]['epsilon']:g}, δ = 1e-5, seeds: {seeds} "
        "(``bench_adaptation.py --part default``)"
    )
    return table(
        ["Task", *(method.capitalize() for method in methods)], rows, [25, 15, 15, 15], title
    )


def _gain(row):
    ways = ", ".join(dict.fromkeys(row["adapted by"].split(", ")))
    return f"{row['accuracy']:.1f} ({row['gain']:+.1f}) {ways}"


def _change(row):
    size = row["size"]
    return row["change"] if not size else f"{row['change']} {size:g}"


def introduction(results):
    """Return what the landing page says of one table."""
    task = named_target(results, "adult")
    here, real = (task.best(role, AUC).figures[AUC].mean for role in (HERE, REAL))
    cheap = task.best(CHEAP, AUC)
    return wrapped(
        f"On the Adult census table at :math:`\\varepsilon = 1` (one record replaced, five seeds), "
        f"a model trained on synthetic rows reaches an area under the ROC curve of {here:.3f} on "
        f"real rows; trained on real rows, it reaches {real:.3f}. The best cheap method for this "
        f"score, {cheap.method}, reaches {cheap.figures[AUC].mean:.3f} (:doc:`measured`)."
    )


# ---- the comparison on twelve tables ----

TARGET_AUC, TWO_WAY = Score("AUC"), Score("2-way TV", sign=-1)
COMPARED = {TARGET_AUC: "AUC boosting", TWO_WAY: "2-way TV"}
COMPARED |= {Score("3-way TV", sign=-1): "3-way TV"}
NAMES = {OURS: "this package, target named", NO_TARGET: "this package"}
METHODS = (OURS, NO_TARGET, "independent", *TOLD, *PEERS)
# Fits whose budget comes from the bound of zCDP, which is loose.
FORMER, MARK = "zCDP", "†"


@dataclass(frozen=True)
class Fitted:
    """The fits of a method on a table: their entry, their seconds, and whether they are former."""

    entry: Entry
    seconds: float
    is_former: bool


def compared(results):
    """Return the fits by (epsilon, table, model), and what failed."""
    parts = defaultdict(list)
    for name in ("compare_ours", "compare_ours_budgets", "compare_unknown_budgets", "table_peers"):
        for row in results.rows(name):
            parts[row["epsilon"], row["table"], row["model"]].append(row)
    for row in results.rows("compare_independent"):
        # Where the other file has fits of the same seeds, these would count twice.
        parts.setdefault((row["epsilon"], row["table"], row["model"]), [row])
    for row in results.rows("tables_target_unknown", model=NO_TARGET):
        if "add" in row["guarantee"]:
            parts.setdefault((row["epsilon"], row["table"], NO_TARGET), [row])
    found = {}
    for key, rows in parts.items():
        seconds = statistics.fmean(row["cpu seconds"] for row in rows)
        former = any(row.get("calibration") == FORMER for row in rows)
        found[key] = Fitted(merged(rows, COMPARED), seconds, former)
    failed = {
        (row["epsilon"], row["table"], row["model"]): row["failure"]
        for row in results.file("table_peers")["failures"]
    }
    return found, failed


def _compared_tables(found):
    return [table for epsilon, table, model in found if (epsilon, model) == (1.0, OURS)]


def marks(found, epsilon, name, score):
    """Return the models that are best on a table, or near; none if no other method was run."""
    rows = {model: one.entry for (e, t, model), one in found.items() if (e, t) == (epsilon, name)}
    if set(rows) <= set(NAMES):
        return set()
    return near_best({m: row.figures[score] for m, row in rows.items()}, score.sign, OURS)


def wins(results):
    """Return how often each method is best, or near."""
    found, failed = compared(results)
    names = _compared_tables(found)
    best = {score: [marks(found, 1.0, name, score) for name in names] for score in COMPARED}
    rows = []
    for model in METHODS:
        run = sum((1.0, name, model) in found for name in names)
        did_not = sum((1.0, name, model) in failed for name in names)
        counts = [str(sum(model in marked for marked in best[score])) for score in COMPARED]
        rest = len(names) - run - did_not
        rows.append([NAMES.get(model, model), str(run), str(did_not), str(rest), *counts])
    head = ["Method", "Tables run", "Failed", "Not run", *(score.label for score in COMPARED)]
    title = (
        f"On how many of {len(names)} tables a method is best, or within one standard error, ε = 1"
    )
    return table(head, rows, [30, 12, 10, 12, 12, 12, 12], title)


def pairs_not_run(results):
    """Return the sentence on what is missing."""
    found, failed = compared(results)
    names = _compared_tables(found)
    peers = (*TOLD, *PEERS)
    keys = [(epsilon, name, model) for epsilon in BUDGETS for name in names for model in peers]
    run = [found[key] for key in keys if key in found]
    seeds = [one.entry.seeds for one in run if not one.is_former]
    former = sum(one.is_former for one in run)
    did_not = sum(key in failed and key not in found for key in keys)
    return wrapped(
        f"Of the {len(keys)} cells of a table, a method of others and a budget, {len(run)} were "
        f"run: {former} with the former calibration ({MARK}), {len(seeds)} with the present one, "
        f"{sum(n >= 5 for n in seeds)} of them with five seeds. {did_not} are recorded as failed, "
        f"and of {len(keys) - len(run) - did_not} there is no record: they are *{NEVER}*."
    )


def by_table(results):
    """Return two tables for each table, of a score each, by budget."""
    found, failed = compared(results)
    return "\n\n".join(
        budget_table(results, found, failed, name, score)
        for name in _compared_tables(found)
        for score in (TARGET_AUC, TWO_WAY)
    )


def budget_table(results, found, failed, name, score):
    """Return a score of all methods on a table, by budget, with the number of seeds."""
    real = results.row("compare_real", table=name)[COMPARED[score]]
    rows = [["*real records*", *([f"{real:.3f}"] * len(BUDGETS)), ""]]
    best = {epsilon: marks(found, epsilon, name, score) for epsilon in BUDGETS}
    for model in METHODS:
        cells = []
        for epsilon in BUDGETS:
            key = epsilon, name, model
            one = found.get(key)
            if one is None:
                cells.append(f"failed: {failed[key]}" if key in failed else NEVER)
                continue
            text = f"{one.entry.figures[score].mean:.3f}"
            text = f"**{text}**" if model in best[epsilon] else text
            cells.append(f"{text} [{one.entry.seeds}]" + (f" {MARK}" if one.is_former else ""))
        one = found.get((1.0, name, model))
        rows.append([NAMES.get(model, model), *cells, f"{one.seconds:.0f}" if one else ""])
    head = ["Method", *(f"ε = {epsilon:g}" for epsilon in BUDGETS), "Seconds"]
    return table(head, rows, [32, 15, 15, 15, 15, 8], f"*{name}*: {score.label} {score.arrow}")


# ---- all estimators that make tables ----


def estimators(results, name):
    """Return the table of all estimators that make tables."""
    rows = []

    def add(label, row):
        suffix = " (local)" if relation(row) == "local" else ""
        seconds = "" if row["model"] == "real" else f"{row['cpu seconds']:.0f}"
        rows.append(
            [
                label + suffix,
                f"{row['2-way TV']:.3f}",
                f"{row['sliced W1']:.4f}",
                f"{row['AUC boosting']:.3f}",
                f"{row['AUC logistic']:.3f}",
                seconds,
            ]
        )

    add(f"``{OURS}``, target named", results.row("compare_replace", table=name))
    others = {
        "PrivateEvolutionSampler": "",
        "SmoothedSlicedWassersteinGenerator": ", public bins",
    }
    for model, text in others.items():
        add(f"``{model}``{text}", results.row("tables_others", table=name, model=model))
    if name == "rand health":
        add(
            "``DPSlicedWassersteinGenerator``, two seeds",
            results.row("tables_gradients", table=name),
        )
    row = results.row("tables_others", table=name, model="EntropicDeconvGAN")
    add("``EntropicDeconvGAN``, public bins", row)
    for row in results.rows("tables_target_unknown", table=name, model="pairs with the target"):
        if "replace" in row["guarantee"]:
            add("noisy pairs with the target, independent given it, public bins", row)
    row = results.row("tables_others", table=name, model="independent")
    add("independent columns, public bins", row)
    add("real records", results.row("compare_real", table=name))
    head = ["Estimator", "Pairs", "Sliced W₁", "AUC, boosting", "AUC, logistic", "Seconds"]
    return table(head, rows, [42, 12, 12, 12, 12, 10], TITLES[name])


# ---- pages ----

BLOCKS: dict[str, Callable[[Results], str]] = {
    "headline": headline,
    "details": details,
    "budgets": budgets,
    "times": times,
    "solvers": solvers,
    "threads": threads,
    "first hour": first_hour,
    "distance power": distance_power,
    "distance errors": distance_errors,
    "adaptation tables": adaptation_tables,
    "adaptation default": adaptation_default,
    "introduction": introduction,
    "columns of numbers": columns,
    "free ranking": ranking,
    "wins": wins,
    "pairs not run": pairs_not_run,
    "by table": by_table,
    "estimators on adult": lambda results: estimators(results, "adult"),
    "estimators on rand health": lambda results: estimators(results, "rand health"),
}


def blocks(text):
    """Return the blocks of a page: their text by name."""
    return {name: body.strip("\n") for name, body in re.findall(BLOCK, text, flags=re.M | re.S)}


def write_page(text, results):
    """Return a page with its blocks made anew."""

    def block(found):
        name = found[1]
        return f".. begin figures {name}\n\n{BLOCKS[name](results)}\n\n.. end figures {name}"

    return re.sub(BLOCK, block, text, flags=re.M | re.S)


def differences(text, results):
    """Return the names of the blocks of a page that are not what the results make."""
    return [name for name, body in blocks(text).items() if body != BLOCKS[name](results)]


def main():
    results = Results()
    for name in PAGES:
        path = ROOT / name
        text = path.read_text(encoding="utf-8")
        path.write_text(write_page(text, results), encoding="utf-8")


if __name__ == "__main__":
    main()
