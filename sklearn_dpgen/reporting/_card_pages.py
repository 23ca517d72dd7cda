"""A model card as HTML and as Markdown, from the same parts."""

import html
import re

from sklearn_dpgen.accounting import PrivacyReport
from sklearn_dpgen.accounting._wording import (
    accountant_text,
    ledger_text,
    public_texts,
    relation_text,
)
from sklearn_dpgen.reporting._certificate import AUDIT_NOTE, facts, percent_up, section
from sklearn_dpgen.reporting._style import badge, page
from sklearn_dpgen.reporting._summary import score_card
from sklearn_dpgen.utils._html import clean, element, notebook, preformatted, rows_table, shorten

__all__ = ["card_html", "card_markdown", "card_summary"]

_MOST_COLUMNS, _MOST_VALUES = 300, 12
_VERIFY = (
    "The JSON of this card is what is signed. Check it with the publisher's public key, from a "
    "source that you trust, and with the file of the model:"
)
_CODE = (
    "from sklearn_dpgen.reporting import verify_model_card\n"
    'verify_model_card("model-card.json", "publisher.pem", file="model.safetensors")'
)
# What Markdown reads as a mark wherever it is, what makes an address a link, and what begins a
# list, a heading or a quotation where a line does.
_MARKS = re.compile(r"([\\`*_\[\]|~$]|:(?=//)|(?<=[wW])\.|@)")
_STARTS = re.compile(r"^([-+=#]|\d+(?=[.)]))")


def _blocks(content):
    """Yield the parts of a card: a key, a heading, a paragraph, and rows of (what, how)."""
    privacy, risk = content["privacy"], content["attack_risk"]
    estimator = content["estimator"]
    rows = [("estimator", f"{estimator['module']}.{estimator['class']}")]
    shown = estimator["parameters"].items()
    rows += [(name, str(value)) for name, value in shown if value is not None]
    size = content["n_records"]
    counted = "number of records" if privacy["unit"] is None else "number of persons"
    rows.append((counted, "not stated" if size is None else f"{size:,.0f}"))
    report = PrivacyReport.from_dict(privacy)
    yield "model", "Model", report.title, rows
    if content["schema"] is not None:
        columns = content["schema"]
        note = f"{len(columns)} columns, declared publicly and not read from records."
        if len(columns) > _MOST_COLUMNS:
            note += f" The first {_MOST_COLUMNS} of them:"
        rows = [(shorten(c["name"], 80), _declaration(c)) for c in columns[:_MOST_COLUMNS]]
        yield "learned", "What it was learned from", note, rows
    unit = privacy["unit"]
    who = "each record by itself" if unit is None else f"all rows with one value in {unit}"
    rows = [
        ("(ε, δ)", f"({_number(privacy['epsilon'])}, {_number(privacy['delta'])})"),
        ("neighbours", relation_text(report)),
        ("who is protected", who),
        ("public", ", ".join(public_texts(report)) or "nothing"),
        ("noise", privacy["noise_source"]),
        ("accountant", accountant_text(report, grid=report.discretization)),
    ]
    if privacy["ledger"]:
        rows.append(("ledger", ledger_text(privacy["ledger"])))
    if risk["mu"] is not None:
        rows.insert(1, ("μ (Gaussian differential privacy)", f"{risk['mu']:.4g}"))
    protected = (
        "each record by itself. A person with several records is not protected as a whole: what "
        "they tell adds up"
        if unit is None
        else f"each person, with all records that have one value in {unit}"
    )
    note = f"The guarantee holds for {protected}. It does whatever an attacker knows or does."
    if content["is_seeded"]:
        note = "SEEDED: the guarantee is void for whoever knows or guesses the seed."
    yield "guarantee", "For whom the guarantee holds", note, rows
    rows = [
        (f"cases found with {100 * float(fpr):g}% false alarms", f"at most {percent_up(tpr)}")
        for fpr, tpr in risk["true_positive_rates"].items()
    ]
    rows.append(("right about an even guess", f"at most {percent_up(risk['posterior'])}"))
    rows.append(("advantage over guessing", f"at most {percent_up(risk['advantage'])}"))
    note = "Of the best attacker, who knows all other records and wants to know of one."
    yield "risk", "Attack risk", note, rows
    rows = [(str(i), text) for i, text in enumerate(content["limits"], start=1)]
    yield "limits", "Known limits", None, rows
    yield "versions", "Versions", None, list(privacy["versions"].items())
    rows = [("SHA-256 of the privacy report", content["report_sha256"])]
    if content["file"] is not None:
        facts_ = content["file"]
        rows.append(("file", f"{shorten(facts_['name'], 80)}, {facts_['bytes']:,} bytes"))
        rows.append(("SHA-256 of the file", facts_["sha256"]))
    signature = content.get("signature")
    if signature is None:
        rows.append(("signature", "none"))
    else:
        rows.append((f"{signature['algorithm']} signature", signature["value"]))
        rows.append(("public key, as claimed", signature["public_key"]))
    yield "verify", "How to verify", _VERIFY, rows


def _declaration(entry):
    """Return the declaration of a column in words."""
    parts = [str(entry["type"])]
    if "low" in entry:
        parts.append(f"{entry['low']} to {entry['high']}")
    for key in ("categories", "values"):
        if key in entry:
            shown = ", ".join(shorten(v, 24) for v in entry[key][:_MOST_VALUES])
            more = len(entry[key]) - _MOST_VALUES
            parts.append(shown + (f" and {more} more" if more > 0 else ""))
    if entry.get("integer"):
        parts.append("integers")
    if entry.get("nullable"):
        parts.append("or null")
    return "; ".join(parts)


def _number(value):
    return f"{value:.6g}" if isinstance(value, int | float) else str(value)


def card_html(content):
    """Return a card as a page of HTML."""
    privacy, risk = content["privacy"], content["attack_risk"]
    mark = "private" if content["audit"] is None else "audited"
    if content["is_seeded"] or privacy["epsilon"] == "inf":
        mark = "void"
    cards = [
        score_card("Privacy budget", f"ε = {_short(privacy['epsilon'])}", "in nats"),
        score_card("Failure probability", f"δ = {_short(privacy['delta'])}", "of the guarantee"),
        score_card(
            "An even guess is right",
            percent_up(risk["posterior"]),
            "at most; 50% without the release",
            share=risk["posterior"],
            mark=0.5,
        ),
        score_card(
            "Signed", "yes" if "signature" in content else "no", "verify before you trust it"
        ),
    ]
    sections = []
    for key, title, note, rows in _blocks(content):
        parts = [note and element("p", note, class_="note"), facts(rows)]
        if key == "verify":
            parts.insert(1, preformatted(_CODE))
        sections.append(section(key, title, element("div", parts, class_="card")))
    if content["audit"] is not None:
        body = element("div", preformatted(content["audit"]["text"]), class_="card")
        note = element("p", AUDIT_NOTE, class_="note")
        sections.insert(-3, section("audit", "Audit", note, body, mark="raw"))
    return page(
        content["title"],
        element("p", "sklearn_dpgen model card", class_="eyebrow"),
        element("h1", shorten(content["title"], 200)),
        content["author"] and element("p", f"by {shorten(content['author'], 200)}", class_="lead"),
        element("p", badge(mark)),
        content["description"]
        and [element("p", line, class_="lead") for line in content["description"].splitlines()],
        element("div", cards, class_="scores"),
        sections,
    )


def _short(value):
    return f"{value:.3g}" if isinstance(value, int | float) else "∞"


def card_summary(content):
    """Return what a notebook shows of a card."""
    privacy, risk = content["privacy"], content["attack_risk"]
    return notebook(
        element("div", shorten(content["title"], 200), class_="headline"),
        rows_table(
            [
                ("(ε, δ)", f"({_number(privacy['epsilon'])}, {_number(privacy['delta'])})"),
                ("neighbours", relation_text(PrivacyReport.from_dict(privacy))),
                ("an even guess is right", f"at most {percent_up(risk['posterior'])}"),
                ("signed", "yes" if "signature" in content else "no"),
            ]
        ),
    )


def escaped(text):
    """Return text that Markdown shows as it is, on one line: no mark, no tag, no link."""
    text = _MARKS.sub(r"\\\1", clean(text).strip())
    # A number that begins a list is kept from it by what follows.
    text = _STARTS.sub(lambda m: m[1] + "\\" if m[1].isdigit() else "\\" + m[1], text)
    return html.escape(text, quote=False)


def card_markdown(content):
    """Return a card as Markdown."""
    lines = [f"# {escaped(shorten(content['title'], 200))}", ""]
    if content["author"]:
        lines += [f"by {escaped(content['author'])}", ""]
    if content["description"]:
        for line in content["description"].splitlines():
            lines += [escaped(line), ""]
    for key, title, note, rows in _blocks(content):
        if key == "limits" and content["audit"] is not None:
            lines += ["## Audit", "", escaped(AUDIT_NOTE), ""]
            lines += [f"    {clean(line)}" for line in content["audit"]["text"].splitlines()]
            lines.append("")
        lines += [f"## {title}", ""]
        if note:
            lines += [escaped(note), ""]
        if key == "verify":
            lines += ["```python", _CODE, "```", ""]
        lines += ["| | |", "| --- | --- |"]
        lines += [f"| {escaped(name)} | {escaped(value)} |" for name, value in rows]
        lines.append("")
    return "\n".join(lines)
