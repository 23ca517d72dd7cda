"""The RAND Health Insurance Experiment."""

from sklearn.utils import Bunch

from sklearn_dpgen.schema import Categorical, Numeric, Ordinal, Schema

__all__ = ["load_rand_health"]

_DESCR = """\
RAND Health Insurance Experiment (1974 to 1982)
-----------------------------------------------
Families were assigned at random to insurance plans with different cost sharing. One row is one
year of one participant: 20190 rows, 10 columns, nothing missing. Fewer than 6000 people took part,
each for several years, so a guarantee for one row is not a guarantee for one person.

The bounds of the schema are declarations from the study's design and from what the columns mean,
not minima and maxima of the rows; values outside are clipped by whatever encodes the table.

- Coinsurance plans of 0, 25, 50, 95 and 100 percent give the five values of `lncoins`.
- An out-of-pocket maximum of 1000 dollars a year at the lowest positive coinsurance, 25 percent,
  gives ln(4000) < 8.3 for `fmde`.
- Payments of up to exp(7.2) = 1339 dollars a year are declared for `lpi`.
- Up to two visits a month are declared for `mdvis`, and up to 60 for the index `disea`.

Source: statsmodels.datasets.randhie; public domain. Used in Cameron and Trivedi (2005),
Microeconometrics: Methods and Applications, chapter 20.
"""

_COLUMNS = {
    "mdvis": ("outpatient visits to a physician in the year", Numeric(0, 24, integer=True)),
    "lncoins": (
        "ln(coinsurance + 1), with the coinsurance rate of the plan in percent",
        Ordinal([0.0, 3.258096, 3.931826, 4.564348, 4.61512]),
    ),
    "idp": ("1 if the plan has an individual deductible", Categorical([0, 1])),
    "lpi": ("ln(max(1, annual participation incentive payment in dollars))", Numeric(0, 7.2)),
    "fmde": (
        "ln(max(1, maximum expenditure in dollars / coinsurance share)); documented as 0 where idp "
        "is 1, which the rows do not follow",
        Numeric(0, 8.3),
    ),
    "physlm": ("1 if physically limited; fractions are imputed", Numeric(0, 1)),
    "disea": ("index of chronic diseases", Numeric(0, 60)),
    "hlthg": ("1 if self-rated health is good", Categorical([0, 1])),
    "hlthf": ("1 if self-rated health is fair", Categorical([0, 1])),
    "hlthp": ("1 if self-rated health is poor (none of the three: excellent)", Categorical([0, 1])),
}


def load_rand_health() -> Bunch:
    """Load the RAND health insurance table with its public schema.

    Returns
    -------
    Bunch
        ``frame`` : DataFrame of shape (20190, 10), in the original columns and dtypes;
        ``schema`` : Schema, declared from the design of the study;
        ``column_descriptions`` : dict from column name to a phrase;
        ``DESCR`` : str, the origin of the table and of each public bound.

    Raises
    ------
    ImportError
        statsmodels, which ships the table, is not installed.

    Notes
    -----
    A row is one year of one participant, and each participant has several, so a guarantee for one
    row is not a guarantee for one person.
    """
    try:
        from statsmodels.datasets import randhie
    except ImportError as error:
        raise ImportError(
            "load_rand_health needs statsmodels: pip install 'sklearn-dpgen[examples]'."
        ) from error
    return Bunch(
        frame=randhie.load_pandas().data,
        schema=Schema({name: column for name, (_, column) in _COLUMNS.items()}),
        column_descriptions={name: phrase for name, (phrase, _) in _COLUMNS.items()},
        DESCR=_DESCR,
    )
