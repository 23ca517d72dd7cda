"""Paper 1: generators of raw data, learned from locally privatized records."""

from sklearn_dpgen.deconvolution._gan import EntropicDeconvGAN
from sklearn_dpgen.deconvolution._risk import excess_risk_bound

__all__ = ["EntropicDeconvGAN", "excess_risk_bound"]
