"""What a fitted generator does: it makes records, and is compared with others."""

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike

from sklearn_dpgen.ot._sliced import held_out_distance
from sklearn_dpgen.preprocessing._records import decode_records, draw_categories, read_records
from sklearn_dpgen.smoothed._generator_training import n_normals, one_hot
from sklearn_dpgen.utils._frames import FramesMixin
from sklearn_dpgen.utils._labels import LabelSamplerMixin
from sklearn_dpgen.utils._random import split_random_state, torch_generator
from sklearn_dpgen.utils._torch import as_array, as_tensor
from sklearn_dpgen.utils._validation import check_is_fitted, check_n_samples

__all__ = ["GeneratedRecordsMixin"]

_CHUNK = 2048
# Of the records that a score draws: it is public, and the same for all that is compared.
_SEED = 0
# Of a class: fewer would add to the distance, and favour a law that is too narrow.
_FEWEST_GENERATED = 1000


class GeneratedRecordsMixin(FramesMixin, LabelSamplerMixin):
    """Records of an estimator whose ``generator_`` maps normals and a class to its domain."""

    def _keep(self, module):
        """Store a trained network, and what sample needs of the parameters: they may change."""
        self._n_normals = n_normals(module, self.latent_dim)
        self._output_domain = self.domain_ if self.output_domain is None else self.output_domain
        self._output_transform = self.output_transform
        self.generator_ = module

    @torch.no_grad()
    def sample(
        self,
        n_samples: int = 1,
        *,
        y: ArrayLike | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> np.ndarray | pd.DataFrame:
        """Draw synthetic records.

        Parameters
        ----------
        n_samples : int, default=1
            How many; as many as wanted, at no cost in privacy.
        y : label, array-like of shape (n_samples,) or None, default=None
            The class of all records, or of each. None draws them as ``sample_labels`` does.
        random_state : int, RandomState or None, default=None
            Seed of the draw.

        Returns
        -------
        X : ndarray or data frame of shape (n_samples, n_features)
            A data frame with a schema, or where ``fit`` was given one with names of columns. With
            an ``output_transform`` it is an array of what comes before it, in columns of its own.

        Raises
        ------
        ValueError
            A label that was not in ``classes_``, or any after a fit without labels.
        """
        check_is_fitted(self)
        n_classes = len(self.classes_) if hasattr(self, "classes_") else 0
        width = self._n_normals + n_classes + self._output_domain.n_features
        n_samples = check_n_samples(n_samples, width)
        label_seed, latent_seed, category_seed = split_random_state(random_state, 3)
        codes = self._sample_codes(n_samples, y, label_seed)
        device = next(self.generator_.parameters()).device
        Z = torch.randn(n_samples, self._n_normals, generator=torch_generator(latent_seed))
        inputs = torch.cat([Z.to(device), one_hot(torch.from_numpy(codes), n_classes, device)], 1)
        X = as_array(torch.cat([self.generator_(chunk) for chunk in inputs.split(_CHUNK)]))
        rng = np.random.default_rng(category_seed)
        if self._output_transform is not None:
            return draw_categories(self._output_domain, X, rng)
        return decode_records(self, X, rng, domain=self._output_domain)

    def score(self, X: ArrayLike | pd.DataFrame, y: ArrayLike | None = None) -> float:
        """Return minus the sliced Wasserstein distance between records and samples.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_features)
            Records, of which the score tells: if they are private, it is not.
        y : array-like of shape (n_samples,) or None, default=None
            Their labels, of which it tells as well. With them each class is compared with samples
            of its own, and counts by its share of X. None compares all records with all classes.

        Returns
        -------
        float
            At most 0, and larger is better: minus the root of the mean of W_2 squared, over fixed
            directions. It is in the units of the records, which are not moved into the domain, so
            that fits with other domains can be compared; with a schema, in those of its encoding.
            Directions and samples are the same at each call.

        Raises
        ------
        ValueError
            Other columns than those of ``fit``, a label that was not in ``classes_``, or any after
            a fit without labels.

        Warns
        -----
        UnpaidScoreWarning
            After a private fit: nothing is paid for the score.
        """
        check_is_fitted(self)
        self._warn_of_score()
        X = read_records(self, self._without_unit(X))
        classes = [(None, slice(None))]
        if y is not None:
            codes = self._sample_codes(len(X), y, None)
            classes = [(self.classes_[code], codes == code) for code in np.unique(codes)]
        groups = [(X[rows], self._generated(len(X[rows]), label)) for label, rows in classes]
        return -held_out_distance(groups, device=next(self.generator_.parameters()).device)

    @torch.no_grad()
    def _generated(self, n_samples, label):
        """Return samples to compare with records, in the space of these."""
        made = self.sample(max(n_samples, _FEWEST_GENERATED), y=label, random_state=_SEED)
        if self._output_transform is None:
            return read_records(self, made)
        device = next(self.generator_.parameters()).device
        return as_array(self._output_transform.transform(as_tensor(made, device=device)))
