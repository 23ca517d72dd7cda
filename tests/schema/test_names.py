"""Types that names suggest: in four languages, with gaps, and none where a name is not plain."""

import pytest

from sklearn_dpgen.schema import Schema
from sklearn_dpgen.schema._names import suggest

PLAIN = {
    "identifier": "id patient_id PatientID idPatient SSN e-mail first_name Kundennummer Vorname "
    "nom identifiant apellidos DNI",
    "postcode": "zip zip_code Postcode PLZ Postleitzahl code_postal código_postal",
    "ICD": "icd10 ICD-10 main_icd CIM-10 cie10 diagnosis_code",
    "ATC": "atc ATC_Code",
    "a code": "country_code Diagnoseschlüssel NUTS3 codigo_pais",
    "free text": "comment Notes Bemerkungen Kommentar commentaires observaciones free_text",
    "date of birth": "dob birth_date Geburtsdatum date_naissance fecha_de_nacimiento",
    "a time": "timestamp created_at Zeitstempel",
    "a date": "date visit_date dateOfVisit Aufnahmedatum date_entree fecha_alta",
    "a year": "year birth_year Baujahr année_fiscale año",
    "an age": "age AGE age_at_entry Alter edad âge",
    "money": "income price_eur Haushaltseinkommen Kosten salaire coût precio",
    "coordinate": "lat longitude Breitengrad latitud",
    "country": "country Land pays nationality",
    "sex": "sex gender Geschlecht sexe sexo",
    "yes or no": "is_smoker hasCar",
}


@pytest.mark.parametrize("meaning", PLAIN)
def test_plain_names(meaning):
    for name in PLAIN[meaning].split():
        found = suggest(name)
        assert found is not None, name
        assert meaning in found.note, name
        assert len(found.note) <= 96


OTHER = (
    "page village candidate update idea product_name note cp age_group income_class n_comments "
    "number_of_dates Anzahl_Kosten stage average patient land_use years 3 ü"
)


@pytest.mark.parametrize("name", OTHER.split())
def test_other_names_suggest_nothing(name):
    assert suggest(name) is None


def test_a_suggestion_is_no_declaration():
    """Each but an identifier, which is not learned, has a gap that no schema accepts."""
    for names in PLAIN.values():
        for name in names.split():
            entry = suggest(name).entry
            if entry != {"type": "identifier"}:
                assert "..." in entry.values()
                with pytest.raises(ValueError, match=name):
                    Schema.from_dict({name: entry})
    # One that is changed must not change the next.
    suggest("age").entry["low"] = 0
    assert suggest("age").entry["low"] == "..."


@pytest.mark.parametrize(
    ("name", "kind", "suggested"),
    [
        ("plz", "numeric", "categorical"),
        ("patient_id", "numeric", "identifier"),
        ("notes", "categorical", "..."),
        ("visit_date", "categorical", "datetime"),
        ("visit_date", "datetime", "datetime"),
        ("visit_date", "numeric", None),
        ("income", "categorical", None),
        ("age", "numeric", "numeric"),
    ],
)
def test_the_type_of_a_file_stays_unless_it_is_a_code(name, kind, suggested):
    found = suggest(name, kind)
    assert (found and found.entry["type"]) == suggested
