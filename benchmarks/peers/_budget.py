"""The budget of zCDP that the scripts of peers share which ask for it."""

import numpy as np
from scipy.optimize import brentq, minimize_scalar

__all__ = ["rho_of"]


def rho_of(epsilon, delta):
    """Return the most rho of which rho-zCDP is (epsilon, delta)-DP.

    By Proposition 7 of Canonne, Kamath and Steinke, "The discrete Gaussian for differential
    privacy" (2020).
    """

    def log_delta(rho):
        def bound(log_order):  # of order 1 + exp(log_order)
            excess = np.exp(log_order)
            order = 1 + excess
            return excess * (order * rho - epsilon) + order * np.log1p(-1 / order) - log_order

        return minimize_scalar(bound, bounds=(-5, 12), method="bounded").fun

    return brentq(lambda rho: log_delta(rho) - np.log(delta), 1e-8, epsilon + 10, xtol=1e-10)
