"""How long fits on releases take, and how much memory: all of it is public."""

from itertools import pairwise

from sklearn_dpgen.smoothed._laws import STEP_DIRECTIONS, count_lines
from sklearn_dpgen.smoothed._releases import CHUNK_ENTRIES

__all__ = ["adapter_forecast", "generator_forecast"]

# In seconds, from the times of 14 fits of 20 to 1000 steps (benchmarks/bench_forecast.py): of the
# price of the releases, where many small batches take longest, of a step, of a product with a
# weight, of a point on a line in a step, of a released record that is counted on a line.
_CALIBRATION = {"records": 3.0, "features": 3.0, "projections": 0.3, "moments": 0.1}
_STEP, _PRODUCT, _PROJECTED, _COUNTED = 1e-3, 1.5e-10, 5e-8, 1.5e-8
# In bytes: of the price, and of an entry of those that are released at a time.
_BYTES = {"records": 1e8, "features": 1e8, "projections": 2.5e7, "moments": 2.5e7}
_ENTRY_BYTES = 72.0


def generator_forecast(
    n_samples,
    d,
    n_classes,
    *,
    release,
    n_lines,
    n_epochs,
    widths,
    n_generated,
    n_steps,
):
    """Return about how long a fit of a generator takes on two cores, and how much memory.

    Parameters
    ----------
    n_samples, d : int
        Of the records.
    n_classes : int
        1 without labels.
    release : {"records", "moments", "projections"}
    n_lines : int or "auto"
    n_epochs : float
        Passes over the records, of released records.
    widths : list of int
        Of the latent and of the hidden layers: of a multilayer perceptron, whatever is built.
    n_generated : int
        Points of a class in a step.
    n_steps : int
        Of all networks together.

    Returns
    -------
    dict of str to float
    """
    widths = [widths[0] + n_classes, *widths[1:], d]
    points, lines = n_classes * n_generated, count_lines(n_lines, d)
    step = _seconds_of_step(points, widths, lines)
    seconds = _CALIBRATION[release] + n_steps * step
    entries = 0.0
    if release == "records":
        entries = n_samples * n_epochs * d
        seconds += _COUNTED * n_samples * n_epochs * lines
    return _forecast(seconds, _BYTES[release], entries, n_samples * d, points * sum(widths))


def adapter_forecast(
    n_target,
    widths,
    *,
    release,
    batch_size,
    n_lines,
    n_epochs,
    n_source_steps,
    n_steps,
):
    """Return about how long a fit of an adapter takes on two cores, and how much memory.

    Parameters
    ----------
    n_target : int
        0 where nothing is released.
    widths : list of int
        Of the features, the hidden layers, what is compared, and the logits.
    release : {"features", "projections", "moments"}
    batch_size : int
        Source records of a step.
    n_lines : int or "auto"
    n_epochs : float
    n_source_steps, n_steps : int

    Returns
    -------
    dict of str to float
    """
    d = widths[-2]
    seconds = n_source_steps * _seconds_of_step(batch_size, widths, 0)
    entries, price = 0.0, _BYTES["moments"]
    if n_target > 0:
        price = _BYTES[release]
        seconds += _CALIBRATION[release]
        lines = 0 if release == "moments" else count_lines(n_lines, d)
        # With moments a step has two batches; with features the network before them stays.
        steps = {"moments": 2, "projections": 2, "features": 1}[release] * n_steps
        seconds += steps * _seconds_of_step(batch_size, widths, lines)
        if release == "features":
            entries = n_target * n_epochs * d
            seconds += _COUNTED * n_target * n_epochs * lines
    return _forecast(seconds, price, entries, n_target * widths[0], batch_size * sum(widths))


def _seconds_of_step(points, widths, lines):
    products = points * sum((a + 1) * b for a, b in pairwise(widths))
    return _STEP + _PRODUCT * products + _PROJECTED * points * min(lines, STEP_DIRECTIONS)


def _forecast(seconds, price, n_entries, n_records, n_points):
    released = _ENTRY_BYTES * min(n_entries, CHUNK_ENTRIES)
    return {"seconds": seconds, "bytes": price + released + 8.0 * (3 * n_records + 4 * n_points)}
