"""Noise in words: what a person reads of a standard deviation."""

__all__ = ["count_words", "number_words"]


def number_words(value):
    """Return a number with two digits that matter."""
    value = float(f"{value:.2g}")
    return f"{value:,.0f}" if value >= 10 else f"{value:g}"


def count_words(scales, n_records=None, unit="records"):
    """Return what noise leaves of a count.

    Parameters
    ----------
    scales : sequence of float
        Standard deviations of the noise, of counts of one kind.
    n_records : float or None, default=None
        Of which the counts are parts, where that is public.
    unit : str, default="records"

    Returns
    -------
    str
        One standard deviation, and from where on a count is two of them from zero.
    """
    low, high = min(scales), max(scales)
    if high == 0:
        return "exact: there is no noise"

    def between(factor):
        ends = dict.fromkeys(number_words(factor * end) for end in (low, high))
        text = f"{' to '.join(ends)}"
        if n_records is None:
            return text, ""
        shares = dict.fromkeys(f"{factor * end / n_records:.2g}" for end in (low, high))
        percents = (f"{100 * float(share):g}" for share in shares)
        return text, f" ({' to '.join(percents)} percent)"

    (one, share), (two, double) = between(1), between(2)
    return f"± {one} {unit}{share}; told from zero above {two}{double}"
