"""Fitted estimators in files, without pickles.

A class declares what a file holds of it, next to its code: see
:class:`~sklearn_dpgen.persistence._files.SavedEstimator`. The codec of this package writes and
reads these declarations; it knows no estimator.

skops is the usual way to save estimators without pickles. It is not used here because its ``load``
imports the classes and functions that the file names, once the reader trusts these names, restores
their attributes past the constructor and unchecked, and bounds no memory; it has no networks of
PyTorch either. A file of this package can name only classes that are declared, is checked before it
takes memory, and every object passes its constructor and the checks of its class.
"""

from sklearn_dpgen.persistence._declarations import Array, Maybe

__all__ = ["Array", "Maybe"]
