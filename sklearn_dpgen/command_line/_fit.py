"""The commands plan, audit and synthesize: plan, audit and fit a sampler of tables."""

import itertools
import os
import secrets
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sklearn_dpgen.command_line._console import CommandError, Console
from sklearn_dpgen.command_line._files import (
    OutputFolder,
    check_files,
    check_new_file,
    check_writable,
    files_of,
    identifiers_of,
    in_folder,
    in_format,
    is_same_file,
    output_ending,
    private_files,
    public_files,
    public_tables,
    read_frame,
    read_key,
    read_schema,
    real_paths,
    table_columns,
    table_names,
    write_table,
    write_text,
)
from sklearn_dpgen.command_line._ledger import open_existing
from sklearn_dpgen.command_line._options import (
    add_budget,
    add_command,
    add_named_tables,
    add_overwrite,
    add_public,
    add_rules,
    add_schema,
    add_tables,
    add_target,
    at_least,
    by_name,
    check_options,
    with_options,
)
from sklearn_dpgen.command_line._release import (
    CARD,
    LIST,
    MODEL,
    REPORT,
    SCHEMA,
    not_private_beside,
    write_list,
    write_pages,
)
from sklearn_dpgen.exceptions import BudgetExceededError, PublicTypeError, PublicValueError

if TYPE_CHECKING:
    import pandas as pd

    from sklearn_dpgen.accounting import PrivacyReport
    from sklearn_dpgen.ledger import PrivacyLedger
    from sklearn_dpgen.schema import RelationalSchema, Schema
    from sklearn_dpgen.tables import RelationalSampler, TableSampler

__all__ = ["add_to", "drawn_text", "made_up_table", "made_up_tables", "make_sampler", "risk_of"]

_PLAN = """\
Show what a fit will release, how much noise it will add, and what an attacker could learn.

The plan is computed from the schema, the budget and the number of rows alone. No private table is
read, so the plan is public, and can be repeated as often as you like to choose a budget.

For a relational schema --rows is the number of persons, and --table gives its public tables.
"""
_PLAN_EXAMPLES = """\
  sklearn-dpgen plan --schema schema.yaml --rows 5000 --epsilon 1
  sklearn-dpgen plan --schema schema.yaml --rows 5000 --epsilon 1 --target outcome
  sklearn-dpgen plan --schema schema.yaml --rows 5000 --epsilon 1 --ledger patients.ledger
  sklearn-dpgen plan --schema schema.yaml --epsilon 2 --neighbours add_or_remove --json
  sklearn-dpgen plan --schema hospital.yaml --rows 5000 --epsilon 1 --table wards=wards.csv
  sklearn-dpgen plan --schema schema.yaml --rows 5000 --epsilon 1 --public census.csv
"""
_AUDIT = """\
Audit the sampler that synthesize fits with the same options.

The audit searches two neighbouring tables whose releases differ most, and measures a lower bound of
the privacy loss. Its ratio to the claimed epsilon should be near 1, and never above. The exit code
is 1 if the claim is violated, which would be a bug of this package: please report it.

No private table is read: the audit uses a made-up table of the schema, so its result is public. It
takes a minute or more.

For a relational schema --rows is the number of persons, and --table gives its public tables. The
audit replaces or removes persons with all rows.
"""
_AUDIT_EXAMPLES = """\
  sklearn-dpgen audit --schema schema.yaml --epsilon 1
  sklearn-dpgen audit --schema schema.yaml --epsilon 1 --target outcome --rows 500 --json
  sklearn-dpgen audit --schema hospital.yaml --epsilon 1 --rows 100 --table wards=wards.csv
"""
_SYNTHESIZE = """\
Fit a sampler to a private table, and write a synthetic table with its guarantee.

The folder --out receives a release:

  synthetic.*            the synthetic table, in the format of the input
  report.html            what these rows are fit for, what was spent, and how close they are to the
                         noisy marginals
  card.html, .md, .json  the guarantee and its limits, to publish with the table
  schema.yaml            the public declaration of the columns
  model.safetensors      the fitted sampler; 'sample' draws more rows from it at no privacy cost
  release.json           the guarantee and the SHA-256 of all these files, for programs; 'verify
                         FOLDER' checks them

Of a relational schema, give a folder with a file NAME.* of each table, or name each table by
--table. Each person is protected with all rows in all
tables, and each table has its file: synthetic-NAME.* Of an earlier run, --overwrite removes all of
these.

All of these are covered by the budget, and may be published. --not-private-report writes
OUT-NOT-PRIVATE.html beside the folder, which compares the synthetic table with the private one
without noise. Do not publish it.

The folder is claimed before the budget is spent: a second run with the same --out is refused. The
files appear together at the end, release.json as the last one. --signing-key signs release.json and
the card.

With --ledger the cost is charged to a ledger before anything is released, and the command is
refused with exit code 1 if less is left. Create one with 'sklearn-dpgen ledger init'. Without a
ledger, you have to add up the cost of several runs on one table yourself.

The schema may declare rules, the unit, a public table, and how CSV files are written. --rule adds
to its rules; --unit and --public replace what it declares.

With --public the fit starts from a public table, such as a census sample; NAME=FILE stands beside
table NAME of a relational schema. Report and card state its
SHA-256. It is not protected, so it must not be made from the private table. An earlier synthetic
table is allowed if both runs have one --ledger, where the files of the first one are recorded: the
report then says so, and all charges together cover both.

If the command fails after the budget was spent, the budget stays spent, and the message says so.

There is no option for a seed: noise comes from the operating system, and whoever knows or guesses a
seed can subtract it. A repeated run gives another table, and costs its budget again.
"""
_SYNTHESIZE_EXAMPLES = """\
  sklearn-dpgen synthesize patients.csv --schema schema.yaml --epsilon 1 --out synthetic
  sklearn-dpgen synthesize patients.parquet --schema schema.yaml --epsilon 1 --delta 1e-6 \\
      --target outcome --ledger patients.ledger --out synthetic
  sklearn-dpgen synthesize 'visits-*.csv' --schema schema.yaml --epsilon 2 --unit person \\
      --neighbours add_or_remove --rows 10000 --out synthetic
  sklearn-dpgen synthesize tables/ --schema hospital.yaml --epsilon 1 --out synthetic
  sklearn-dpgen synthesize --schema hospital.yaml --epsilon 1 --out synthetic \\
      --table patients=patients.csv --table visits=visits-1.csv --table visits=visits-2.csv
  sklearn-dpgen synthesize stays.csv --schema schema.yaml --epsilon 1 --out synthetic \\
      --rule 'admission <= discharge' --rule "age < 18 => status == 'single'"
  sklearn-dpgen synthesize patients.csv --schema schema.yaml --epsilon 1 --out synthetic \\
      --public 'census-*.parquet' --public-weights weight
"""
# The most rows of a made-up parent row; the audit tries persons with more.
_MADE_UP_ROWS = 3
_ENDINGS = (
    *(f".{text}{packed}" for text in ("csv", "tsv", "jsonl") for packed in ("", ".gz", ".bz2")),
    *(".xlsx", ".parquet", ".feather", ".arrow"),
)


def add_to(commands) -> None:
    """Add the commands."""
    plan = add_command(
        commands,
        "plan",
        run_plan,
        summary="show noise, errors and attack risk of a fit, without a table",
        text=_PLAN,
        examples=_PLAN_EXAMPLES,
    )
    add_schema(plan)
    plan.add_argument(
        "--rows",
        type=at_least(1),
        metavar="N",
        help="number of private rows, or of persons with --unit or a relational schema; not needed "
        "where it is private, as with --neighbours add_or_remove",
    )
    add_named_tables(plan)
    plan.add_argument(
        "--ledger",
        metavar="FILE",
        help="also show whether the ledger has enough left; if not, the exit code is 1. Nothing is "
        "charged",
    )
    add_budget(plan)
    add_target(plan)
    add_public(plan)
    add_rules(plan)

    audit = add_command(
        commands,
        "audit",
        run_audit,
        summary="measure on a made-up table whether the guarantee holds",
        text=_AUDIT,
        examples=_AUDIT_EXAMPLES,
    )
    add_schema(audit)
    audit.add_argument(
        "--rows",
        type=at_least(10),
        default=200,
        metavar="N",
        help="number of rows of the made-up table, or of persons of made-up tables with keys "
        "(default: %(default)s)",
    )
    add_named_tables(audit)
    add_budget(audit, has_units=False)
    add_target(audit)
    add_public(audit)
    add_rules(audit)

    synthesize = add_command(
        commands,
        "synthesize",
        run_synthesize,
        summary="make a synthetic table with its guarantee",
        text=_SYNTHESIZE,
        examples=_SYNTHESIZE_EXAMPLES,
    )
    add_tables(synthesize, nargs="*")
    add_named_tables(synthesize)
    add_schema(synthesize)
    synthesize.add_argument(
        "--out", required=True, metavar="FOLDER", help="folder for the results, new or empty"
    )
    add_overwrite(synthesize)
    synthesize.add_argument(
        "--rows",
        type=at_least(1),
        metavar="N",
        help="number of synthetic rows, or persons of a relational schema (default: the number of "
        "records where it is public, or else a noisy count of them)",
    )
    add_budget(synthesize)
    synthesize.add_argument(
        "--ledger", metavar="FILE", help="existing ledger to which the cost is charged"
    )
    add_target(synthesize)
    add_public(synthesize)
    add_rules(synthesize)
    group = synthesize.add_argument_group("publication")
    group.add_argument("--title", metavar="TEXT", help="title of the model card")
    group.add_argument("--author", metavar="TEXT", help="publisher named on the model card")
    group.add_argument("--description", metavar="TEXT", help="what the table holds")
    group.add_argument(
        "--signing-key",
        metavar="FILE",
        help="Ed25519 private key in PEM format that signs the release and the card, as made by: "
        "openssl genpkey -algorithm ed25519 -out key.pem",
    )
    group.add_argument(
        "--not-private-report",
        action="store_true",
        help="also compare with the private table, without noise, in OUT-NOT-PRIVATE.html beside "
        "the folder; DO NOT PUBLISH it",
    )


def run_plan(arguments, console: Console) -> int:
    """Show the plan of a fit."""
    # The plan depends on the number of rows where that is public.
    needs_rows = arguments.neighbours == "replace_one" and arguments.max_rows is None
    if arguments.rows is None and needs_rows:
        raise CommandError(
            "--rows is needed: under --neighbours replace_one the number of rows is public, and "
            "the plan depends on it."
        )
    check_files(schema=arguments.schema, ledger=arguments.ledger)
    schema = _read_public(arguments)
    ledger = None if arguments.ledger is None else open_existing(arguments.ledger)
    sampler = make_sampler(arguments, schema)
    report = sampler.plan(arguments.rows)
    text = f"{report.to_text()}\n\n{report.attack_risk().to_text()}"
    document = {"report": report.to_dict(), "attack_risk": risk_of(report)}
    refusal = None
    if ledger is not None:
        document["refused"] = refusal = _refusal(ledger, report, type(sampler).__name__)
        text += f"\n\n{refusal or f'{arguments.ledger} has enough left for this fit.'}"
    return console.result(text, document, ok=refusal is None)


def _read_public(arguments):
    """Return the schema of a command that reads public tables alone."""
    tables = {name: files_of(paths) for name, paths in by_name(arguments.tables).items()}
    public_files(arguments.public)
    schema = with_options(read_schema(arguments.schema, tables), arguments)
    check_options(arguments, schema)
    private = [name for name in getattr(schema, "order", ()) if name in tables]
    if private:
        raise CommandError(f"--table must name public tables, as no other is read, got {private}.")
    return schema


def _refusal(ledger, report, what):
    """Return the reason why a ledger would refuse a fit, or None."""
    from sklearn_dpgen.ledger._ledger import check_affordable

    try:
        check_affordable(ledger, report, what=what)
    except BudgetExceededError as error:
        return str(error)
    return None


def run_audit(arguments, console: Console) -> int:
    """Audit a sampler on made-up tables."""
    schema = _read_public(arguments)
    from sklearn_dpgen.auditing import audit
    from sklearn_dpgen.schema import RelationalSchema

    sampler = make_sampler(arguments, schema)
    records: Any
    if isinstance(schema, RelationalSchema):
        # All releases of this sampler come before it fits a distribution to them.
        sampler.set_params(population_size=2, max_iter=1)
        records = made_up_tables(schema, arguments.rows)
    else:
        records = made_up_table(schema, arguments.rows)
    console.say("Auditing on made-up records. This takes a minute or more.")
    result = audit(sampler, records)
    return console.result(result.to_text(), {"audit": result.to_dict()}, ok=not result.is_violation)


def run_synthesize(arguments, console: Console) -> int:
    """Fit a sampler, and write its model, samples and reports."""
    check_files(schema=arguments.schema, ledger=arguments.ledger, others=[arguments.signing_key])
    files = files_of(arguments.table)
    tables = {name: files_of(paths) for name, paths in by_name(arguments.tables).items()}
    if not files and not tables:
        raise CommandError("Give the files of one table, or each table by --table NAME=FILE.")
    files, tables = in_folder(arguments.schema, files, tables)
    schema = with_options(read_schema(arguments.schema, tables), arguments)
    check_options(arguments, schema)
    public = [*itertools.chain(*public_files(arguments.public).values())]
    private = [*files, *itertools.chain(*tables.values())]
    others = real_paths(public)
    shared = [a for a in real_paths(private) if any(is_same_file(a, b) for b in others)]
    if shared:
        raise CommandError(f"--public must be another file than the private table: {min(shared)}.")
    given = _given_files(schema, files, tables)
    endings = [output_ending(paths[0]) for paths in given.values()]
    written = table_names("synthetic", given, endings)
    for ending in endings:
        check_writable(ending, arguments.rows)
    # A missing package must be reported before the fit, which spends the budget.
    from sklearn_dpgen.reporting._figures import import_pyplot

    import_pyplot("The quality report")
    if arguments.unit is not None:
        table_columns(in_format(files, schema.form), schema, arguments.unit)
    ledger = None if arguments.ledger is None else open_existing(arguments.ledger)
    sampler = make_sampler(arguments, schema, ledger=ledger)
    key = arguments.signing_key
    key = None if key is None else read_key(key, private=True)
    inputs = (*private, *public, arguments.schema)
    inputs += () if ledger is None else (arguments.ledger,)
    identifiers = identifiers_of(schema)
    if arguments.unit is None and identifiers:
        console.say(
            f"Each row is protected by itself. If {identifiers[0]!r} identifies persons with "
            f"several rows, --unit {identifiers[0]} protects them as a whole."
        )
    names = [MODEL, SCHEMA, *CARD, REPORT, *written.values()]
    comparison = not_private_beside(Path(arguments.out))
    if arguments.not_private_report:
        check_new_file(str(comparison), overwrite=arguments.overwrite)
    names = [*dict.fromkeys([*names, *_earlier(arguments.out), LIST])]
    with OutputFolder(arguments.out, names, overwrite=arguments.overwrite, inputs=inputs) as out:
        console.say(f"Fitting the sampler to the table{'' if '' in given else 's'}.")
        _fit(sampler, given, arguments, console)
        try:
            rows = arguments.rows
            if rows is None:
                rows = max(round(sampler.n_records_), 1)
            # Unlike that of the noise, the seed of the rows may be known: the model is published.
            seed = secrets.randbits(32)
            synthetic = _write(sampler, rows, seed, out, written, console)
            verdict = _publish(sampler, synthetic, out, seed, arguments, key, console)
            write_list(
                sampler,
                synthetic,
                out,
                n_samples=rows,
                seed=seed,
                verdict=verdict,
                arguments=arguments,
                key=key,
            )
            if ledger is not None:
                # A later fit may take the tables as public ones.
                for name in written.values():
                    ledger.record_release(
                        out.claim / name, charge=sampler.privacy_.ledger["charge"]
                    )
            if arguments.overwrite:
                # That of an earlier run is of other rows.
                comparison.unlink(missing_ok=True)
            if arguments.not_private_report:
                _compare(sampler, given, synthetic, comparison, arguments, console)
        except BaseException:
            done = ", ".join(out.written) or "nothing"
            console.spent = f"{console.spent} Written to {out.path}: {done}."
            raise
    sizes = {name: len(frame) for name, frame in synthetic.items()}
    comparison = comparison if arguments.not_private_report else None
    return _result(sampler, rows, sizes, verdict, out, comparison, ledger, console)


def _given_files(schema, files, tables):
    """Return the files of each private table; a single table without keys has an empty name."""
    from sklearn_dpgen.schema import RelationalSchema

    if not isinstance(schema, RelationalSchema):
        return {"": files}
    given = private_files(schema, files, tables)
    if not given:
        raise CommandError(f"--table must give each private table: {schema.order}.")
    return given


def _earlier(folder):
    """Return the names of all files of tables that earlier runs may have written."""
    names = [f"synthetic{ending}" for ending in _ENDINGS]
    with suppress(OSError):
        found = os.listdir(folder)
        names += [n for n in found if n.startswith("synthetic-") and n.endswith(_ENDINGS)]
    return names


def _fit(sampler, given, arguments, console):
    # The progress bar shows exact counts, so it is for a terminal and never for a log.
    sampler.set_params(verbose=int(sys.stderr.isatty() and not console.quiet))
    try:
        tables = {name: list(paths) for name, paths in given.items()}
        sampler.fit(tables.get("", tables))
    except (PublicValueError, PublicTypeError) as error:
        if hasattr(sampler, "privacy_"):
            raise
        table = "TABLE" if "" in given else "--table NAME=FILE"
        raise CommandError(
            f"{error} 'sklearn-dpgen check SCHEMA {table}' lists all values that do not fit."
        ) from error
    finally:
        if hasattr(sampler, "privacy_"):
            console.spent = _spent(sampler.privacy_, arguments.ledger)
    console.say("Fitted: the budget is spent.")


def _spent(report, ledger):
    charged = (
        "No ledger was given: add up the cost of several runs yourself."
        if ledger is None
        else f"It was charged to the ledger {ledger}, and the charge stays."
    )
    return (
        f"The budget was already spent: epsilon {report.epsilon:g} at delta {report.delta:g}. "
        f"{charged}"
    )


def _write(sampler, rows, seed, out, names, console):
    # The model is saved first: everything else can be made from it again at no cost.
    with out.file(MODEL) as path:
        sampler.save(path)
    console.say(f"Drawing {rows} {'rows' if '' in names else 'persons'}.")
    drawn = sampler.sample(rows, random_state=seed)
    frames = {"": drawn} if "" in names else drawn
    for table, name in names.items():
        with out.file(name) as path:
            write_table(frames[table], path, output_ending(name), sampler, table)
    return frames


def _publish(sampler, synthetic, out, seed, arguments, key, console):
    """Write the card and the report, from the releases alone, and return the verdict."""
    console.say("Writing the card and the report on these rows.")
    return write_pages(sampler, synthetic, out, seed=seed, arguments=arguments, key=key)


def _compare(sampler, given, synthetic, path, arguments, console):
    """Write the comparison with the private tables, which is not private."""
    from sklearn_dpgen.reporting import QualityReport

    console.say("Comparing with the private records.")
    schema = getattr(sampler, "schema_", sampler.schema)
    tables = (
        {"": (schema, [])}
        if "" in given
        else {n: (schema[n].schema, schema[n].keys) for n in given}
    )
    real = {
        name: read_frame(in_format(given[name], columns.form), dict.fromkeys(keys) | dict(columns))
        for name, (columns, keys) in tables.items()
    }
    real, synthetic = real.get("", real), synthetic.get("", synthetic)
    target = arguments.target[0] if arguments.target else None
    if target is not None and "" not in given:
        # The report takes the name of a column, of whichever table.
        columns = (c for n in given for c in schema[n].schema if f"{n}.{c}" == target)
        target = next(columns, None)
    page = QualityReport(real, synthetic, privacy=sampler.privacy_, schema=schema, target=target)
    write_text(path, page.to_html())
    console.warn(f"{path} shows the private records without noise. Do not publish it.")


def _result(sampler, rows, sizes, verdict, out, comparison, ledger, console):
    from sklearn_dpgen.accounting._wording import public_tables_text

    report, is_relational = sampler.privacy_, "" not in sizes
    is_each = report.unit is not None and report.max_rows is None and not is_relational
    # The default number of rows is that of persons, fewer than the rows of the table.
    is_each = is_each and rows == max(round(sampler.n_records_), 1)
    one_each = " One for each person; --rows draws more." * is_each
    lines = [
        f"epsilon {report.epsilon:g} at delta {report.delta:g}: {report.neighbouring}.",
        drawn_text(rows, sizes if is_relational else None) + one_each,
        *(f"  {out.path / name}" for name in out.written),
    ]
    for title, key in (("Fit for:", "fit"), ("Not for:", "not_fit")):
        own = (verdict or {}).get(key)
        lines += [title, *(f"  - {line}" for line in own)] if own else []
    if report.public_tables:
        lines.append(f"Public tables: {public_tables_text(report)}.")
    document: dict[str, Any] = {
        "out": str(out.path),
        "files": out.written,
        "not_private_report": None if comparison is None else str(comparison),
        **({"persons": rows, "rows": sizes} if is_relational else {"rows": rows}),
        "report": report.to_dict(),
        "attack_risk": risk_of(report),
        "verdict": verdict,
        "ledger": None,
    }
    if ledger is not None:
        left = ledger.remaining()
        lines.append(
            f"Largest fit that the ledger still accepts: epsilon {left:.4g} at delta "
            f"{ledger.delta:g}."
        )
        document["ledger"] = {"file": ledger.path, "spent": ledger.spent(), "remaining": left}
    return console.result("\n".join(lines), document)


def drawn_text(n: int, sizes: dict[str, int] | None) -> str:
    """Return a sentence of the numbers of drawn rows, or of persons and the rows of each table."""
    if sizes is None:
        return f"{n} synthetic rows."
    rows = ", ".join(f"{size} in {name!r}" for name, size in sizes.items())
    return f"{n} synthetic persons; rows: {rows}."


def make_sampler(
    arguments, schema: "Schema | RelationalSchema", *, ledger: "PrivacyLedger | None" = None
) -> "TableSampler | RelationalSampler":
    """Return the unfitted sampler for the options of a command."""
    from sklearn_dpgen.schema import RelationalSchema
    from sklearn_dpgen.tables import RelationalSampler, TableSampler

    # Rules and the unit are those of the schema, to which options have been added.
    public = public_tables(arguments.public, arguments.public_weights, schema)
    target = arguments.target
    if target is not None:
        target = target[0] if len(target) == 1 else target
    if isinstance(schema, RelationalSchema):
        return RelationalSampler(
            arguments.epsilon,
            arguments.delta,
            schema=schema,
            target=target,
            neighbours=arguments.neighbours,
            noise=arguments.noise,
            ledger=ledger,
            public=public,
        )
    counted: dict[str, Any] = {} if arguments.max_rows is None else {"unit_weights": "rows"}
    return TableSampler(
        arguments.epsilon,
        arguments.delta,
        schema=schema,
        target=target,
        neighbours=arguments.neighbours,
        max_rows=arguments.max_rows,
        noise=arguments.noise,
        ledger=ledger,
        public=public,
        **counted,
    )


def risk_of(report: "PrivacyReport") -> dict:
    """Return the attack risk of a release, for a JSON document."""
    risk = report.attack_risk()
    return {
        "true_positive_rates": risk.true_positive_rates,
        "advantage": risk.advantage,
        "posterior_of_an_even_guess": risk.posterior(),
        "mu": risk.mu,
    }


def made_up_table(schema: "Schema", n_rows: int) -> "pd.DataFrame":
    """Return a random public table of shape (n_rows, n_columns).

    The columns are independent and uniform over the declared values; an open column has ten labels.
    A unit has persons of one row or two.
    """
    import numpy as np
    import pandas as pd

    rng = np.random.default_rng()
    labels = [f"label {i}" for i in range(10)]
    schema = schema.with_labels(dict.fromkeys(schema.open_columns, labels))
    found = {name: _values(column, n_rows, rng).to_numpy() for name, column in schema.items()}
    if schema.unit is not None:
        # Some persons have two rows.
        found[schema.unit] = np.minimum(np.arange(n_rows), np.arange(n_rows)[::-1] * 2)
    return pd.DataFrame(found)


def made_up_tables(schema: "RelationalSchema", n_persons: int) -> "dict[str, pd.DataFrame]":
    """Return random public tables with keys by name, with values as in :func:`made_up_table`.

    A parent row has three rows at most. The first person has rows in all tables.
    """
    import numpy as np

    rng = np.random.default_rng()
    keys: dict[str | None, np.ndarray] = {None: np.arange(n_persons)}
    found = {}
    for name in schema.order:
        table, owners = schema[name], keys[schema.parent(name)]
        owner = table.primary_key if schema.is_panel else schema.parent_key(name)
        if table.max_rows is not None:
            most = min(table.max_rows, _MADE_UP_ROWS)
            # A person of a panel has a row.
            n_sizes = most if schema.is_panel else most + 1
            owners = np.repeat(owners, most - np.arange(len(owners)) % n_sizes)
        frame = made_up_table(table.schema, len(owners))
        for column in table.static:
            frame[column] = frame[column].groupby(owners).transform("first")
        if owner is not None:
            frame[owner] = owners
        if not table.ties:
            frame = frame.drop_duplicates([owner, table.sequence_index], ignore_index=True)
        for column, parent in table.foreign_key.items():
            public = schema[parent].frame
            if public is not None:
                frame[column] = rng.choice(public[schema[parent].primary_key], len(frame))
        if table.primary_key not in (None, owner):
            frame[table.primary_key] = keys[name] = np.arange(len(frame))
        found[name] = frame
    return found


def _values(column, n_rows, rng):
    import numpy as np

    from sklearn_dpgen.schema._column import CategoryColumn

    if isinstance(column, CategoryColumn):
        return column.decode_codes(rng.integers(0, column.n_categories, n_rows))
    points = rng.uniform(-1, 1, (n_rows, 1))
    if column.nullable:
        null = rng.random((n_rows, 1)) < 0.1
        points = np.hstack([points, ~null, null])
    return column.decode(points)
