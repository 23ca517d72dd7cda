"""Noisy records of secret batches, counted on lines: all that a generator learns from."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from tqdm import tqdm

from sklearn_dpgen.ledger._unit import Persons
from sklearn_dpgen.utils._labels import check_proportions
from sklearn_dpgen.utils._torch import as_tensor

__all__ = ["CHUNK_ENTRIES", "ClassRecords", "count_releases", "released_proportions"]

# Values released at a time.
CHUNK_ENTRIES = 2**21


@dataclass(frozen=True)
class ClassRecords:
    """Centered records with their classes, and how they are laid out in a release.

    Parameters
    ----------
    records : ndarray of float64 of shape (n, d)
    codes : ndarray of int of shape (n,)
        The class of each, 0 .. n_classes - 1.
    n_classes : int
    is_public : bool
        Public classes: each is a stratum, with slots of its own in a release. Private classes:
        one stratum, and every record has a slot of d values for each class, all but that of its
        own class 0.
    persons : Persons or None, default=None
        Of whom the records are, where a batch is one of persons.
    """

    records: np.ndarray
    codes: np.ndarray
    n_classes: int
    is_public: bool
    persons: Persons | None = None

    @cached_property
    def member_codes(self):
        """The class of each member: of records, or of persons of whom each has rows."""
        return self.codes if self.persons is None else self.persons.shared(self.codes, "class")

    @cached_property
    def members(self):
        """Who is in each stratum: records, or persons."""
        if self.is_public:
            return [np.flatnonzero(self.member_codes == code) for code in range(self.n_classes)]
        return [np.arange(len(self.member_codes))]

    def rows(self, drawn, noise):
        """Return the rows of a batch: of each person one, drawn anew.

        Parameters
        ----------
        drawn : list of ndarray of int
            For each stratum positions within it.
        noise : NoiseSource
            The draw is secret.

        Returns
        -------
        list of ndarray of int
        """
        picked = [who[positions] for who, positions in zip(self.members, drawn, strict=True)]
        if self.persons is None:
            return picked
        return [self.persons.draw(noise, who) for who in picked]

    def layout(self, drawn):
        """Return what is released of batches, before noise.

        Parameters
        ----------
        drawn : list of ndarray of int of shape (n_releases, batch_size)
            For each stratum positions within it.

        Returns
        -------
        list of ndarray
            For public classes one of shape (n_releases * batch_size, d) a class; for private ones
            a single one of shape (n_releases * batch_size, n_classes * d).
        """
        parts = [
            self.records[rows[positions.ravel()]]
            for rows, positions in zip(self.members, drawn, strict=True)
        ]
        if self.is_public:
            return parts
        (batch,) = parts
        codes = self.codes[drawn[0].ravel()]
        slots = np.zeros((len(batch), self.n_classes, batch.shape[1]))
        slots[np.arange(len(batch)), codes] = batch
        return [slots.reshape(len(batch), -1)]

    def by_class(self, released):
        """Return for each class its noisy values of shape (n, d), from those of `layout`."""
        if self.is_public:
            return released
        return np.split(released[0], self.n_classes, axis=1)


def count_releases(mechanism, noise, records, directions, grid, *, verbose=0):
    """Release noisy records, and count their projections on lines.

    Parameters
    ----------
    mechanism : StratifiedGaussianMechanism
        With the strata of ``records``. All its releases are made.
    noise : NoiseSource
    records : ClassRecords
    directions : Tensor of float32 of shape (k, d)
        Public rows. What is counted is post-processing of the releases.
    grid : LineGrid
    verbose : int, default=0
        1 shows a progress bar.

    Returns
    -------
    Tensor of float64 of shape (n_classes, k, n_bins)
    """
    run, n_releases = mechanism.run(noise), mechanism.n_releases
    entries = sum(s.batch_size for s in mechanism.strata) * directions.shape[1]
    chunk = max(1, CHUNK_ENTRIES // (entries * (1 if records.is_public else records.n_classes)))
    counts = torch.zeros(
        (records.n_classes, len(directions), grid.n_bins),
        dtype=torch.float64,
        device=directions.device,
    )
    with tqdm(total=n_releases, disable=not verbose, desc="releases", mininterval=0.5) as bar:
        for start in range(0, n_releases, chunk):
            size = min(chunk, n_releases - start)
            parts = records.layout(run.draw(size))
            noisy = run.release(np.concatenate([part.ravel() for part in parts]))
            ends = np.cumsum([part.size for part in parts])[:-1]
            released = [
                values.reshape(part.shape)
                for values, part in zip(np.split(noisy, ends), parts, strict=True)
            ]
            for code, values in enumerate(records.by_class(released)):
                points = as_tensor(values, device=directions.device)
                counts[code] += grid.counts(points, directions)
            bar.update(size)
    return counts


def released_proportions(label_proportions, codes, n_classes, counting, noise):
    """Return the proportions of the classes.

    Parameters
    ----------
    label_proportions : array-like of shape (n_classes,) or None
        Public ones, taken as they are.
    codes : ndarray of int of shape (n_samples,)
    n_classes : int
    counting : StratifiedGaussianMechanism or None
        Releases the counts where they are private; None where the counts are public.
    noise : NoiseSource
        Of that release.

    Returns
    -------
    ndarray of shape (n_classes,)
    """
    if label_proportions is not None:
        return check_proportions(label_proportions, n_classes)
    counts = np.bincount(codes, minlength=n_classes).astype(np.float64)
    if counting is not None:
        run = counting.run(noise)
        run.draw()
        # A class that noise takes below half a record is kept at that.
        counts = run.release(counts).clip(0.5, None)
    return counts / counts.sum()
