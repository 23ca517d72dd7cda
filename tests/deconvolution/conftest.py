import pytest

from sklearn_dpgen.deconvolution import EntropicDeconvGAN
from sklearn_dpgen.domains import Box
from sklearn_dpgen.mechanisms import LaplaceMechanism


@pytest.fixture
def tiny():
    """Return a function that makes a GAN of a few steps: to run through, not to learn."""

    def make(mechanism=None, **options):
        if mechanism is None:
            mechanism = LaplaceMechanism(5.0, domain=Box(-1, 1, n_features=2), random_state=0)
        small = {
            "training__hidden_layer_sizes": (8,),
            "batch_size": 32,
            "n_generated": 16,
            "training__max_iter": 5,
            "n_sinkhorn": 10,
            "random_state": 0,
        }
        return EntropicDeconvGAN(mechanism).set_params(**small | options)

    return make
