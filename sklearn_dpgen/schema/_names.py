"""Types that the name of a column suggests, for drafts from tables whose records are not read."""

import re
import unicodedata
from typing import NamedTuple

from sklearn_dpgen.schema._codebook import GAP

__all__ = ["Suggestion", "suggest"]

_GAPS = {"low": GAP, "high": GAP}
_LABELS = {"type": "categorical", "categories": GAP}
_IDENTIFIER = {"type": "identifier"}


class Suggestion(NamedTuple):
    """What the name of a column suggests: a declaration with gaps, and why."""

    entry: dict
    note: str


# For each meaning the declaration, what to declare, and whether it prevails over the type that a
# file declares: a code may be stored as a number, and is none.
_MEANINGS: dict[str, tuple[dict, str, bool]] = {
    "postcode": (
        _LABELS,
        "a postcode: categories_from the public list, hierarchy: [1, 2] (first digits)",
        True,
    ),
    "icd": (_LABELS, "an ICD code: categories_from the classification, hierarchy: [1, 3]", True),
    "atc": (_LABELS, "an ATC code: categories_from the index, hierarchy: [1, 3, 4, 5]", True),
    "code": (_LABELS, "a code: its list, also if codes are numbers", True),
    "identifier": (
        _IDENTIFIER,
        "an identifier: never learned; remove it, or categorical if it names few groups",
        True,
    ),
    "text": (
        {"type": GAP},
        "free text, which has no synthetic counterpart: remove it, or identifier",
        True,
    ),
    "birth": (
        {"type": "datetime", **_GAPS, "resolution": "D"},
        "a date of birth: low and high by the ages that are admitted",
        False,
    ),
    "moment": (
        {"type": "datetime", **_GAPS},
        "a time: low and high by the period of the study; resolution: min or h",
        False,
    ),
    "date": (
        {"type": "datetime", **_GAPS, "resolution": "D"},
        "a date: low and high by the period of the study, such as 2020-01-31",
        False,
    ),
    "year": (
        {"type": "numeric", **_GAPS, "integer": True},
        "a year: low and high by the period of the study",
        False,
    ),
    "age": (
        {"type": "numeric", **_GAPS, "integer": GAP},
        "an age: low and high by the rules of admission; integer: true for full years",
        False,
    ),
    "money": (
        {"type": "numeric", **_GAPS},
        "money: low and high by law or contract; values beyond are clipped",
        False,
    ),
    "place": (
        {"type": "numeric", **_GAPS},
        "a coordinate: low and high of the region",
        False,
    ),
    "country": (_LABELS, "a country: the list of ISO 3166, as the file writes it", False),
    "sex": (_LABELS, "sex or gender: the codes of the form", False),
    "flag": (
        _LABELS,
        "yes or no: [no, yes], [0, 1] or [false, true], as the file writes it",
        False,
    ),
}
# Phrases in English, German, French and Spanish, without accents, each for any place of a name; a
# phrase that ends with $ or begins with ^ is for that end, and one between both for a whole name.
_PHRASES = {
    "postcode": "zip|zipcode|postcode|postal code|plz|postleitzahl|code postal|codigo postal",
    "icd": "icd|cim 10|cim 11|cie 10|cie 11|diagnosis code|dx code|diagnosecode|code diagnostic",
    "atc": "atc",
    "code": "code$|codes$|^code|^codigo|schlussel$|schluessel$|nuts|nace|isco|isic|snomed|loinc",
    "identifier": "id$|^id|uid|uuid|guid|identifier|ssn|mrn|iban|nhs number|passport number|"
    "patient number|case number|account number|customer number|member number|email|e mail|mail|"
    "phone|telephone|mobile|^name$|first name|firstname|last name|lastname|surname|full name|"
    "fullname|family name|given name|user name|username|^address$|street|ip address|"
    "kennung|patientennummer|kundennummer|personalnummer|fallnummer|steuernummer|"
    "versichertennummer|sozialversicherungsnummer|telefon|handy|vorname|nachname|familienname|"
    "^adresse$|strasse|"
    "identifiant|nir|courriel|nom|prenom|numero patient|numero client|"
    "identificador|dni|nif|nie|correo|telefono|^nombre$|apellido|apellidos|direccion$|"
    "numero de paciente|numero paciente|numero cliente",
    "text": "comment|comments|remarks|notes$|free text|freetext|narrative|^description$|^text$|"
    "memo|kommentar|kommentare|bemerkung|bemerkungen|anmerkung|anmerkungen|notizen|freitext|"
    "beschreibung|commentaire|commentaires|remarques|texte libre|"
    "comentario|comentarios|observaciones|texto libre|descripcion",
    "birth": "dob|birthdate|birth date|birthday|date of birth|^born$|geburtsdatum|geburtstag|"
    "date naissance|date de naissance|fecha nacimiento|fecha de nacimiento",
    "moment": "timestamp|datetime|created at|updated at|zeitstempel|zeitpunkt|horodatage|"
    "fecha hora",
    "date": "date|datum|fecha",
    "year": "year$|^year|yob|jahr$|annee|^ano|ano$",
    "age": "^age|age$|^alter$|lebensalter|edad",
    "money": "income|salary|wage|wages|price|cost|costs|amount|revenue|fee|fees|payment|rent|"
    "einkommen$|gehalt$|lohn$|preis$|kosten$|betrag$|umsatz$|miete$|revenu|revenus|salaire|prix|"
    "cout|couts|montant|loyer|ingreso|ingresos|salario|sueldo|precio|coste|costes|costo|importe",
    "place": "lat|latitude|lon|lng|longitude|latitud|longitud|breitengrad|langengrad",
    "country": "country|^land$|pays|pais|nationality|nationalitat|nationalite|nacionalidad",
    "sex": "sex|gender|geschlecht|sexe|sexo",
    "flag": "^is|^has|^ist|^hat",
}
# A German compound is one word, of which the last part is the meaning.
_COMPOUNDS = re.compile(
    r"\w{3,}(datum|jahr|einkommen|gehalt|preis|kosten|betrag|umsatz|schlussel|schluessel)"
)
# Words of names that are counts of something, or groups of it, and tell nothing of its values.
_COUNTS = {"n", "nb", "num", "number", "count", "anzahl"}
_GROUPS = {
    *("group", "class", "category", "band", "range", "level", "type", "status", "count"),
    *("gruppe", "klasse", "kategorie", "stufe", "typ", "groupe", "classe", "categorie", "tranche"),
    *("grupo", "clase", "categoria", "tramo", "tipo", "nivel"),
}
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def suggest(name: str, kind: str | None = None) -> Suggestion | None:
    """Return what the name of a column suggests, or None.

    Parameters
    ----------
    name : str
    kind : str, optional
        The type of the column by the file, if it declares one: then a meaning is suggested that
        agrees with it, or prevails over it.

    Returns
    -------
    Suggestion or None
            Bounds and labels are gaps: they are declared, and no name tells them.
    """
    words = _words(name)
    if len(words) > 1 and (words[0] in _COUNTS or words[-1] in _GROUPS):
        return None
    for meaning, (entry, note, prevails) in _MEANINGS.items():
        if any(_is_in(phrase, words) for phrase in _PHRASES[meaning].split("|")):
            is_read = entry["type"] == "datetime" and kind == "categorical"
            if kind in (None, entry["type"]) or prevails or is_read:
                return Suggestion(dict(entry), f"by its name {note}")
            return None
    return None


def _words(name):
    """Return the words of a name, in small letters and without accents."""
    plain = unicodedata.normalize("NFKD", name.replace("ß", "ss"))
    text = "".join(mark for mark in plain if not unicodedata.combining(mark))
    words = [word.lower() for word in _WORD.findall(text)]
    if words and (found := _COMPOUNDS.fullmatch(words[-1])):
        words.append(found[1])
    return words


def _is_in(phrase, words):
    """Return whether a phrase is in the words of a name, at the end that it marks."""
    sought = phrase.strip("^$").split()
    places = range(len(words) - len(sought) + 1)
    if phrase.startswith("^"):
        places = places[:1]
    if phrase.endswith("$"):
        places = [place for place in places if place + len(sought) == len(words)]
    return any(words[place : place + len(sought)] == sought for place in places)
