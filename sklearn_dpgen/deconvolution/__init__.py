"""Paper 1: generators of raw data, learned from locally privatized records."""

from sklearn_dpgen.deconvolution._gan import EntropicDeconvGAN

__all__ = ["EntropicDeconvGAN"]
