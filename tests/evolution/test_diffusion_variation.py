"""Images of a tiny diffusion model as candidates, and a stand-in for models with prompts."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_dpgen.evolution._diffusion_variation import DiffusionVariation
from sklearn_dpgen.evolution._variation_interface import VariationInterface

# Of some schedulers, in NumPy 2: they hand tensors to it.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


def tiny_network(diffusers, in_channels):
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return diffusers.UNet2DModel(
            sample_size=8,
            in_channels=in_channels,
            out_channels=in_channels,
            block_out_channels=(8, 16),
            layers_per_block=1,
            norm_num_groups=4,
            down_block_types=("DownBlock2D", "DownBlock2D"),
            up_block_types=("UpBlock2D", "UpBlock2D"),
        )


@pytest.fixture(scope="module")
def diffusers():
    return pytest.importorskip("diffusers")


@pytest.fixture(scope="module", params=["DDPM", "DDIM", "Euler"])
def pipeline(request, diffusers):
    unet = tiny_network(diffusers, 3)
    if request.param == "DDPM":
        return diffusers.DDPMPipeline(unet, diffusers.DDPMScheduler())
    if request.param == "DDIM":
        return diffusers.DDIMPipeline(unet, diffusers.DDIMScheduler())
    return SimpleNamespace(unet=unet, scheduler=diffusers.EulerDiscreteScheduler())


@pytest.fixture
def interface(pipeline):
    return DiffusionVariation(pipeline, n_inference_steps=10, batch_size=4, device="cpu")


class Deaf(DiffusionVariation):
    """Varies by one degree whatever is asked."""

    def vary(self, X, rng, degree):
        return super().vary(X, rng, 0.3)


def photographs(n=6):
    """Smooth images in [0, 1], flattened in the order height, width, channels."""
    i, j = np.mgrid[:8, :8] / 8
    return np.stack([np.stack([i, j, (i + j + k / n) / 3], axis=2).ravel() for k in range(n)])


@pytest.mark.slow
def test_images_are_drawn_in_range_and_repeat(interface):
    assert isinstance(interface, VariationInterface)
    assert (interface.model_shape, interface.width) == ((8, 8, 3), 192)
    X = interface.random(6, np.random.default_rng(0))
    assert (X.shape, X.dtype) == ((6, 192), np.float64)
    assert X.min() >= 0
    assert X.max() <= 1
    assert len(np.unique(X, axis=0)) == 6
    # The scheduler has kept nothing of the last draw.
    interface.vary(X, np.random.default_rng(5), 0.5)
    assert_array_equal(X, interface.random(6, np.random.default_rng(0)))
    assert not np.array_equal(X, interface.random(6, np.random.default_rng(1)))


def test_no_global_stream_is_read(interface):
    torch.manual_seed(0)
    X = interface.random(2, np.random.default_rng(0))
    state = torch.get_rng_state()
    interface.vary(X, np.random.default_rng(0), 0.5)
    assert_array_equal(torch.get_rng_state(), state)


def moves_by_degree(interface):
    X = photographs()
    sizes = []
    # Beyond, an untrained network has its own idea of how far an image is.
    for degree in (0.1, 0.2, 0.4):
        varied = interface.vary(X, np.random.default_rng(1), degree)
        assert varied.shape == X.shape
        assert varied.min() >= 0
        assert varied.max() <= 1
        assert_array_equal(varied, interface.vary(X, np.random.default_rng(1), degree))
        sizes.append(np.sqrt(((varied - X) ** 2).mean()))
    return sizes[0] < 0.02 and (np.diff(sizes) > 0.1).all()


@pytest.mark.slow
def test_larger_degrees_move_farther(interface, pipeline):
    assert moves_by_degree(interface)
    deaf = Deaf(pipeline, n_inference_steps=10, batch_size=4, device="cpu")
    assert not moves_by_degree(deaf)


def test_a_small_degree_hardly_moves(pipeline):
    fine = DiffusionVariation(pipeline, n_inference_steps=500, batch_size=4, device="cpu")
    X = photographs()
    assert abs(fine.vary(X, np.random.default_rng(1), 1e-3) - X).mean() < 0.05
    assert abs(fine.vary(X, np.random.default_rng(1), 0.05) - X).mean() > 0.05


def test_a_draw_is_that_of_the_pipeline(diffusers):
    pipeline = diffusers.DDPMPipeline(tiny_network(diffusers, 1), diffusers.DDPMScheduler())
    pipeline.set_progress_bar_config(disable=True)
    interface = DiffusionVariation(pipeline, n_inference_steps=7, batch_size=8, device="cpu")
    seed = int(np.random.default_rng(0).integers(2**63))
    generator = torch.Generator().manual_seed(seed)
    images = pipeline(
        batch_size=5, generator=generator, num_inference_steps=7, output_type="np"
    ).images
    X = interface.random(5, np.random.default_rng(0))
    assert_allclose(X, images.reshape(5, -1), atol=1e-5)
    generator.manual_seed(seed + 1)
    other = pipeline(batch_size=5, generator=generator, num_inference_steps=7, output_type="np")
    assert not np.allclose(X, other.images.reshape(5, -1), atol=1e-2)


class Faithful(torch.nn.Module):
    """The noise predictor of a single known image: denoising ends there from any noise."""

    dtype = torch.float32

    def __init__(self, image, scheduler):
        super().__init__()
        self.config = SimpleNamespace(sample_size=(4, 6), in_channels=1)
        self.image, self.scheduler = image, scheduler

    def forward(self, images, t):
        kept = self.scheduler.alphas_cumprod[int(t)]
        noise = (images - kept.sqrt() * self.image) / (1 - kept).sqrt()
        return SimpleNamespace(sample=noise)


def test_denoising_leads_to_what_the_model_knows(diffusers):
    image = torch.linspace(-1, 1, 24).reshape(1, 1, 4, 6)
    scheduler = diffusers.DDIMScheduler()
    pipeline = SimpleNamespace(unet=Faithful(image, scheduler), scheduler=scheduler)
    interface = DiffusionVariation(pipeline, n_inference_steps=20, device="cpu")
    known = np.tile(np.linspace(0, 1, 24), (3, 1))
    assert_allclose(interface.random(3, np.random.default_rng(0)), known, atol=0.01)
    for degree in (0.05, 0.5, 1.0):
        assert_allclose(interface.vary(known, np.random.default_rng(0), degree), known, atol=0.01)
    assert scheduler.num_inference_steps is None


def test_decoding_resizes(pipeline):
    options = {"n_inference_steps": 2, "device": "cpu"}
    X = photographs()
    assert_allclose(DiffusionVariation(pipeline, **options).decode(X), X, atol=1e-6)
    small = DiffusionVariation(pipeline, image_shape=(4, 2, 3), **options).decode(X)
    assert small.shape == (6, 24)
    assert small.min() >= 0
    assert small.max() <= 1
    # The channels stay apart: the first is constant along the width, the second along the height.
    images = small.reshape(6, 4, 2, 3)
    assert_allclose(np.ptp(images[..., 0], axis=2), 0, atol=1e-6)
    assert_allclose(np.ptp(images[..., 1], axis=1), 0, atol=1e-6)
    assert (np.diff(images[..., 0], axis=1) > 0).all()


def test_a_saved_pipeline_is_loaded(diffusers, tmp_path):
    pipeline = diffusers.DDPMPipeline(tiny_network(diffusers, 1), diffusers.DDPMScheduler())
    pipeline.save_pretrained(tmp_path)
    options = {"n_inference_steps": 3, "batch_size": 2, "device": "cpu"}
    interface = DiffusionVariation.from_pretrained(tmp_path, local_files_only=True, **options)
    X = interface.random(3, np.random.default_rng(0))
    wanted = DiffusionVariation(pipeline, **options).random(3, np.random.default_rng(0))
    assert_allclose(X, wanted, atol=1e-4)


def test_without_diffusers_the_error_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "diffusers", None)
    with pytest.raises(ImportError, match="pip install diffusers"):
        DiffusionVariation.from_pretrained(tmp_path)


class Painter:
    """A pipeline from text to images: noise around a grey that the prompt gives."""

    vae_scale_factor = 2

    def __init__(self):
        self.unet = SimpleNamespace(config=SimpleNamespace(sample_size=3))
        self.calls = []

    def to(self, device):
        return self

    def set_progress_bar_config(self, disable):
        self.is_quiet = disable

    def __call__(
        self,
        prompt,
        num_inference_steps,
        generator,
        output_type,
        image=None,
        strength=1.0,
    ):
        assert output_type == "pt"
        n_steps = min(int(num_inference_steps * strength), num_inference_steps)
        self.calls.append((prompt, n_steps))
        share = n_steps / num_inference_steps
        images = len(prompt[0]) / 20 + torch.randn(len(prompt), 3, 6, 6, generator=generator) / 10
        images = images if image is None else share * images + (1 - share) * image
        return SimpleNamespace(images=images.half())


@pytest.fixture
def painter(monkeypatch):
    painter = Painter()
    fake = SimpleNamespace(
        AutoPipelineForImage2Image=SimpleNamespace(from_pipe=lambda pipeline: pipeline)
    )
    monkeypatch.setitem(sys.modules, "diffusers", fake)
    return painter


def test_prompts(painter):
    interface = DiffusionVariation(
        painter, prompt="a plane", n_inference_steps=40, batch_size=3, device="cpu"
    )
    assert interface.model_shape == (6, 6, 3)
    assert painter.is_quiet
    X = interface.random(5, np.random.default_rng(0))
    assert [(len(prompts), prompts[0]) for prompts, _ in painter.calls] == [
        (3, "a plane"),
        (2, "a plane"),
    ]
    assert X.shape == (5, 108)
    assert X.min() >= 0
    assert X.max() <= 1
    painter.calls.clear()
    sizes = []
    for degree in (1e-4, 0.1, 0.5, 1.0):
        varied = interface.vary(X, np.random.default_rng(1), degree)
        assert_array_equal(varied, interface.vary(X, np.random.default_rng(1), degree))
        sizes.append(abs(varied - X).mean())
    assert [n_steps for _, n_steps in painter.calls[::4]] == [1, 4, 20, 40]
    assert (np.diff(sizes) > 0).all()
    assert sizes[0] < 0.01


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"n_inference_steps": 0}, ValueError, "n_inference_steps"),
        ({"batch_size": True}, ValueError, "batch_size"),
        ({"prompt": ["a", "b"]}, TypeError, "prompt"),
        ({"image_shape": (8, 8)}, ValueError, "image_shape"),
        ({"image_shape": (8, 8, 1)}, ValueError, "channels of the model, 3"),
    ],
)
def test_parameters_that_are_refused(options, error, words):
    scheduler = SimpleNamespace(set_timesteps=lambda n, device: None, timesteps=torch.arange(50))
    pipeline = SimpleNamespace(unet=Faithful(None, None), scheduler=scheduler)
    pipeline.unet.config.in_channels = 3
    with pytest.raises(error, match=words):
        DiffusionVariation(pipeline, device="cpu", **options)


def test_schedulers_of_several_evaluations_are_refused(diffusers):
    unet = tiny_network(diffusers, 1)
    for scheduler in (diffusers.PNDMScheduler(), diffusers.HeunDiscreteScheduler()):
        with pytest.raises(ValueError, match="more than once a step"):
            DiffusionVariation(
                SimpleNamespace(unet=unet, scheduler=scheduler), n_inference_steps=10, device="cpu"
            )


def test_pipelines_and_images_that_are_refused(interface):
    for wrong in (
        object(),
        SimpleNamespace(unet=1),
        SimpleNamespace(unet=1, scheduler=1, vae=1),
        SimpleNamespace(unet=1, scheduler=1, vqvae=1),
    ):
        with pytest.raises(TypeError, match="one of pixels with unet and scheduler"):
            DiffusionVariation(wrong)
    with pytest.raises(ValueError, match="candidates of 192 features, got 100"):
        interface.vary(np.zeros((2, 100)), np.random.default_rng(0), 0.5)
    with pytest.raises(ValueError, match="degree"):
        interface.vary(photographs(), np.random.default_rng(0), 1.2)
