"""Generators of raw records, learned from locally privatized ones."""

from sklearn_dpgen.deconvolution._deconvolution_em import DeconvolutionEM
from sklearn_dpgen.deconvolution._gan import EntropicDeconvGAN
from sklearn_dpgen.deconvolution._risk import approximation_bound, excess_risk_bound
from sklearn_dpgen.deconvolution._scores import energy_score, likelihood_score

__all__ = [
    "DeconvolutionEM",
    "EntropicDeconvGAN",
    "approximation_bound",
    "energy_score",
    "excess_risk_bound",
    "likelihood_score",
]
