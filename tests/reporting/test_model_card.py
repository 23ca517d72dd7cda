"""A card states public facts alone, and what is changed in it, in the file or in the key shows."""

import copy
import dataclasses
import hashlib
import json
import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression

import sklearn_dpgen
from sklearn_dpgen.domains import Box
from sklearn_dpgen.mechanisms import GaussianMechanism, JointRandomizedResponse, LaplaceMechanism
from sklearn_dpgen.reporting import model_card, verify_model_card
from sklearn_dpgen.reporting._model_card import ModelCard
from sklearn_dpgen.schema import Categorical, Datetime, Numeric, Schema
from sklearn_dpgen.tables import LocalTableSampler, TableSampler

ed25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")
serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")

KEY = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
HOSTILE = "<script>alert(1)</script> [x](javascript:alert(1)) `a` | b * c _d_ https://e.org"
SCHEMA = Schema({HOSTILE: Numeric(0, 100), "b": Categorical([HOSTILE, "no"], nullable=True)})


def fit(**options):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({HOSTILE: rng.uniform(0, 90, 900), "b": rng.choice([HOSTILE, "no"], 900)})
    options = {"population_size": 100, "max_iter": 2} | options
    return TableSampler(schema=SCHEMA, **options).fit(frame)


@pytest.fixture(scope="module")
def fitted():
    return fit()


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.dpgen"
    path.write_bytes(b"parameters and arrays")
    return path


@pytest.fixture
def card(fitted, model):
    return model_card(
        fitted, title="Survey", description="One\nTwo", author="Ada", file=model, signing_key=KEY
    )


def test_a_card_that_was_not_changed_is_verified(card, model, tmp_path):
    path = tmp_path / "card.json"
    card.save(path)
    raw = KEY.public_key().public_bytes_raw()
    pem = tmp_path / "key.pem"
    pem.write_bytes(
        KEY.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    for given in (card, card.to_dict(), path):
        for key in (KEY.public_key(), raw, pem):
            assert verify_model_card(given, key, file=model) == card
    assert ModelCard.from_json(card.to_json()) == card


def test_keys_are_read_from_files(fitted, tmp_path):
    pem = tmp_path / "private.pem"
    formats = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    pem.write_bytes(KEY.private_bytes(serialization.Encoding.PEM, *formats))
    signed = [model_card(fitted, signing_key=key) for key in (KEY, pem, bytes(range(32)))]
    assert signed[0] == signed[1] == signed[2]


def leaves(value, path=()):
    """Yield the path of each value within plain containers."""
    if isinstance(value, dict | list) and value:
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            yield from leaves(item, (*path, key))
    else:
        yield path


def changed(content, path):
    """Return a copy in which one value is another."""
    copy = json.loads(json.dumps(content))
    place = copy
    for key in path[:-1]:
        place = place[key]
    value = place[path[-1]]
    if isinstance(value, str):
        place[path[-1]] = value[:-1] + ("0" if value[-1:] != "0" else "1")
    elif isinstance(value, bool) or value is None or value in ([], {}):
        place[path[-1]] = "changed"
    else:
        place[path[-1]] = value * 2 + 1
    return copy


def test_whatever_is_changed_in_a_card_is_refused(card):
    content, key = card.to_dict(), KEY.public_key()
    paths = list(leaves(content))
    assert len(paths) > 60
    for path in paths:
        with pytest.raises(
            ValueError, match="changed since|no Ed25519|of a model card|names another"
        ):
            verify_model_card(changed(content, path), key)
    # What is shown of a signature is of it, too.
    more = content | {"signature": content["signature"] | {"signed_by": "somebody else"}}
    with pytest.raises(ValueError, match="names another"):
        verify_model_card(more, key)


def test_public_tables_are_stated_and_signed(fitted, model):
    digest, estimator = "0123456789abcdef" * 4, copy.copy(fitted)
    estimator.privacy_ = dataclasses.replace(fitted.privacy_, public_tables={"public": digest})
    card = model_card(estimator, file=model, signing_key=KEY)
    content = verify_model_card(card, KEY.public_key(), file=model).to_dict()
    for text in (card.to_markdown(), card.to_html()):
        assert f"public (SHA-256 {digest}): claimed to be public" in text
        assert "only if they were not made from the private records" in text
    tables = ("privacy", "public_tables", "public")
    assert tables in list(leaves(content))
    with pytest.raises(ValueError, match="changed since"):
        verify_model_card(changed(card.to_dict(), tables), KEY.public_key())
    # Negative twin: the card of a fit without a public table.
    assert "public tables" not in model_card(fitted).to_markdown()


def test_what_is_added_left_out_or_moved_is_refused(card):
    content, key = card.to_dict(), KEY.public_key()
    with pytest.raises(ValueError, match="changed"):
        verify_model_card(content | {"more": 1}, key)
    with pytest.raises(ValueError, match="changed"):
        verify_model_card({k: v for k, v in content.items() if k != "limits"}, key)
    with pytest.raises(ValueError, match="changed"):
        verify_model_card(content | {"schema": content["schema"][::-1]}, key)
    with pytest.raises(ValueError, match="no Ed25519 signature"):
        verify_model_card({k: v for k, v in content.items() if k != "signature"}, key)


def test_another_key_another_file_and_a_changed_file_are_refused(card, model, fitted, tmp_path):
    other = ed25519.Ed25519PrivateKey.generate()
    with pytest.raises(ValueError, match="names another key"):
        verify_model_card(card, other.public_key())
    # Signed anew by somebody else, who says that the key is his.
    forged = model_card(fitted, title="Survey", signing_key=other)
    with pytest.raises(ValueError, match="names another key"):
        verify_model_card(forged, KEY.public_key())
    model.write_bytes(b"parameters and Arrays")
    with pytest.raises(ValueError, match="not the one that the card names"):
        verify_model_card(card, KEY.public_key(), file=model)
    with pytest.raises(ValueError, match="names no file"):
        verify_model_card(model_card(fitted, signing_key=KEY), KEY.public_key(), file=model)


def test_a_report_that_does_not_have_its_hash_is_refused(card):
    from sklearn_dpgen.reporting._model_card import canonical_json, sign

    content = card.to_dict()
    del content["signature"]
    content["privacy"]["epsilon"] = 0.1
    content["signature"] = sign(canonical_json(content), KEY)
    with pytest.raises(ValueError, match="hash"):
        verify_model_card(content, KEY.public_key())


def test_hashes_are_those_that_anybody_computes(card, fitted, model):
    content = card.to_dict()
    report = json.loads(fitted.privacy_.to_json())
    text = json.dumps(report, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert content["report_sha256"] == hashlib.sha256(text.encode()).hexdigest()
    assert content["file"] == {
        "name": "model.dpgen",
        "bytes": 21,
        "sha256": hashlib.sha256(b"parameters and arrays").hexdigest(),
    }


def test_the_guarantee_is_that_of_the_report(card, fitted):
    content, risk = card.to_dict(), fitted.privacy_.attack_risk()
    assert (content["privacy"]["epsilon"], content["privacy"]["delta"]) == (1.0, 1e-5)
    assert content["attack_risk"]["posterior"] == risk.posterior()
    assert content["attack_risk"]["advantage"] == risk.advantage
    text = card.to_markdown()
    for words in ("replace one record", "n\\_samples", "Known limits", "How to verify"):
        assert words in text
    assert [column["name"] for column in content["schema"]] == list(SCHEMA)


def test_the_number_of_records_is_stated_only_where_it_is_public(fitted):
    assert model_card(fitted).to_dict()["n_records"] == 900
    other = fit(neighbours="add_or_remove")
    assert other.n_records_ > 0
    assert model_card(other).to_dict()["n_records"] is None
    assert "not stated" in model_card(other).to_markdown()


def test_the_schema_of_a_mechanism_within_is_shown():
    mechanism = JointRandomizedResponse(4.0, schema=SCHEMA, n_bins=4).fit()
    answers = mechanism.transform(pd.DataFrame({HOSTILE: [1.0, 2.0] * 50, "b": ["no"] * 100}))
    sampler = LocalTableSampler(mechanism, population_size=5, max_iter=2).fit(answers)
    for estimator in (mechanism, sampler):
        found = model_card(estimator).to_dict()["schema"]
        assert [column["name"] for column in found] == list(SCHEMA)


def test_bounds_at_midnight_are_shown_as_days():
    columns = {
        "day": Datetime("2020-01-01", "2024-12-31", resolution="D"),
        "time": Datetime("2020-01-01T06:00:00", "2024-12-31T00:00:00"),
    }
    sampler = TableSampler(np.inf, schema=Schema(columns))
    frame = pd.DataFrame(dict.fromkeys(columns, pd.to_datetime(["2021-01-01", "2022-01-01"])))
    text = model_card(sampler.fit(frame)).to_markdown()
    assert "datetime; 2020-01-01 to 2024-12-31 |" in text
    assert "datetime; 2020-01-01T06:00:00 to 2024-12-31 |" in text


def test_no_seed_no_ledger_and_no_machine_is_shown(tmp_path):
    ledger = tmp_path / "secret ledger.json"
    estimator = fit(random_state=98765)
    estimator.set_params(ledger=str(ledger))
    card = model_card(estimator)
    for text in (card.to_json(), card.to_markdown(), card.to_html()):
        assert "98765" not in text
        assert "secret ledger" not in text
        assert str(tmp_path) not in text
        assert "SEEDED" in text or '"is_seeded": true' in text


def test_records_of_twins_leave_no_trace():
    """Apart from the records, all is the same: so is the card."""
    frames = [np.full((9, 1), value) for value in (0.1, 0.9)]
    cards = [
        model_card(LaplaceMechanism(1.0, domain=Box(0, 1)).fit(frame)).to_json() for frame in frames
    ]
    assert cards[0] == cards[1]
    # What a card would say if it read a fitted attribute that is of records.
    estimators = [LaplaceMechanism(1.0, domain=Box(0, 1)).fit(frame) for frame in frames]
    for estimator, frame in zip(estimators, frames, strict=True):
        estimator.n_records_ = float(frame.mean())
    leaking = [model_card(estimator).to_json() for estimator in estimators]
    assert leaking[0] != leaking[1]


class Reader(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.links = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name in ("href", "src")]
        assert not [name for name, _ in attrs if name.startswith("on")]


@pytest.mark.parametrize(
    "text",
    [HOSTILE, "</title><script>", r"\](javascript:x) \`a\`", "\u202edrow", "# x\n- y\n1. z\n> q"],
)
def test_hostile_texts_stay_text(fitted, text):
    card = model_card(fitted, title=text, description=text, author=text)
    for page in (card.to_html(), card._repr_html_()):
        found = Reader(page)
        assert not {"script", "a", "img"} & {*found.tags}
        assert found.links == []
    markdown = card.to_markdown()
    assert "<" not in markdown
    # What is left is read as marks.
    marks = re.sub(r"\\[^\w\s]", "", markdown)
    for mark in ("](", "`a`", "_d_", "https://", "\u202e"):
        assert mark not in marks
    # Each row of a table has two cells, whatever is in them.
    rows = [line for line in marks.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in rows} == {3}
    starts = [line for line in markdown.splitlines() if line.startswith(("- ", "> ", "1. "))]
    assert not starts


def test_lone_surrogates_can_be_signed_and_written(fitted, tmp_path):
    card = model_card(fitted, title="lone \ud800", signing_key=KEY)
    for end in ("json", "md", "html"):
        card.save(tmp_path / f"card.{end}")
    verify_model_card(tmp_path / "card.json", KEY.public_key())


class Audit:
    def to_dict(self):
        return {"epsilon_lower": np.float64(0.9), "ratio": float("inf")}

    def to_text(self):
        return "at least 0.9\n</pre><script>alert(1)</script>"


def test_an_audit_is_shown(fitted):
    card = model_card(fitted, audit=Audit(), signing_key=KEY)
    assert card.to_dict()["audit"]["result"] == {"epsilon_lower": 0.9, "ratio": "inf"}
    verify_model_card(card, KEY.public_key())
    assert "script" not in Reader(card.to_html()).tags
    assert "## Audit" in card.to_markdown()
    for text in (card.to_markdown(), card.to_html()):
        assert "not covered by the guarantee" in text
    assert "may be published" not in card.to_html()
    assert "may be published" in model_card(fitted).to_html()


def test_a_saved_model_is_verified_and_has_the_same_card(fitted, tmp_path):
    path = tmp_path / "model.safetensors"
    fitted.save(path)
    card = model_card(fitted, file=path, signing_key=KEY)
    loaded = sklearn_dpgen.load(path)
    assert model_card(loaded, file=path, signing_key=KEY) == card
    verify_model_card(card, KEY.public_key(), file=path)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match="not the one that the card names"):
        verify_model_card(card, KEY.public_key(), file=path)


def test_a_fit_without_a_guarantee_says_so(tmp_path):
    mechanism = GaussianMechanism(np.inf, 1e-5, domain=Box(0, 1)).fit(np.zeros((3, 1)))
    card = model_card(mechanism)
    assert "no guarantee" in card.to_html()
    assert card.to_dict()["privacy"]["epsilon"] == "inf"
    assert "inf" in card.to_markdown()


def test_errors(fitted, tmp_path):
    with pytest.raises(NotFittedError):
        model_card(TableSampler(schema=SCHEMA))
    with pytest.raises(TypeError, match="has no privacy_"):
        model_card(LinearRegression().fit([[0], [1]], [0, 1]))
    with pytest.raises(ValueError, match="model card"):
        ModelCard({"format": "another"})
    with pytest.raises(ValueError, match="must end with"):
        model_card(fitted).save(tmp_path / "card.pdf")
    with pytest.raises(ValueError, match="32 bytes"):
        model_card(fitted, signing_key=b"short")


def test_a_signature_of_other_bytes_is_refused(card):
    # Of the same content, signed without saying that it is a card.
    content = card.to_dict()
    signed = {name: value for name, value in content.items() if name != "signature"}
    text = json.dumps(signed, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    content["signature"]["value"] = KEY.sign(text.encode()).hex()
    with pytest.raises(ValueError, match="changed since"):
        verify_model_card(content, KEY.public_key())
    # As this package signs it, the same text is accepted.
    named = KEY.sign(b"sklearn_dpgen model card 1\n" + text.encode()).hex()
    content["signature"]["value"] = named
    verify_model_card(content, KEY.public_key())


def test_the_sentence_of_the_guarantee_follows_the_unit():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"b": rng.choice([HOSTILE, "no"], 900), "who": np.arange(900) // 3})
    options = {"schema": Schema({"b": SCHEMA["b"]}), "population_size": 100, "max_iter": 2}
    of_rows = "person with several records is not protected as a whole"
    of_persons = "each person, with all records that have one value in"
    for unit, said, other in ((None, of_rows, of_persons), ("who", of_persons, of_rows)):
        X = frame if unit else frame[["b"]]
        made = model_card(TableSampler(unit=unit, **options).fit(X))
        for page in (made.to_markdown(), made.to_html()):
            assert said in page
            assert other not in page
    sampler = TableSampler(unit=HOSTILE, **options)
    hostile = sampler.fit(frame.rename(columns={"who": HOSTILE}))
    assert "<script>" not in model_card(hostile).to_html()
