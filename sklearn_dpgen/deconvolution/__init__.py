"""Generators of raw records, learned from locally privatized ones."""

from typing import TYPE_CHECKING

from sklearn_dpgen.utils._lazy import lazy_names

__all__ = [
    "DeconvolutionEM",
    "EntropicDeconvGAN",
    "approximation_bound",
    "energy_score",
    "excess_risk_bound",
    "likelihood_score",
]

if TYPE_CHECKING:
    from sklearn_dpgen.deconvolution._deconvolution_em import DeconvolutionEM
    from sklearn_dpgen.deconvolution._gan import EntropicDeconvGAN
    from sklearn_dpgen.deconvolution._risk import approximation_bound, excess_risk_bound
    from sklearn_dpgen.deconvolution._scores import energy_score, likelihood_score
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "sklearn_dpgen.deconvolution._deconvolution_em": ["DeconvolutionEM"],
            "sklearn_dpgen.deconvolution._gan": ["EntropicDeconvGAN"],
            "sklearn_dpgen.deconvolution._risk": ["approximation_bound", "excess_risk_bound"],
            "sklearn_dpgen.deconvolution._scores": ["energy_score", "likelihood_score"],
        },
    )
