"""Candidate images from a public diffusion model."""

import copy
import inspect
from os import PathLike
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from sklearn_dpgen.evolution._variation_interface import check_candidates, check_degree
from sklearn_dpgen.exceptions import PublicImportError, PublicTypeError, PublicValueError
from sklearn_dpgen.utils._random import torch_generator
from sklearn_dpgen.utils._validation import Integral

if TYPE_CHECKING:
    import torch

__all__ = ["DiffusionVariation"]


class DiffusionVariation:
    """Candidate images that a diffusion model draws, and varies by noising and denoising.

    The model must have been trained on public data, because the report of a fit covers the votes
    alone. A model that was trained on private images has a privacy cost of its own.

    Parameters
    ----------
    pipeline : diffusers.DiffusionPipeline
        Without a prompt one of pixels, with ``unet`` and ``scheduler``, such as DDPMPipeline and
        DDIMPipeline; its scheduler evaluates the network once a step. With a prompt one from text
        to images, such as StableDiffusionPipeline. The model is moved to the device.
    prompt : str or None, default=None
        Public text that describes the images.
    image_shape : tuple (height, width, channels) or None, default=None
        Shape of the images that decoded candidates are compared with; None takes the model's.
        Candidates have the model's own size and are resized; channels must agree.
    n_inference_steps : int, default=50
        Steps of denoising for a new image; a variation takes ``degree`` of them.
    batch_size : int, default=16
        Number of images that the network takes at once.
    device : str or torch.device, default="auto"
        "auto" takes a GPU if there is one.

    Attributes
    ----------
    model_shape : tuple (height, width, channels)
        Shape of the images of the model.
    width : int
        Width of a candidate: an image of ``model_shape`` in [0, 1], flattened in this order.

    Notes
    -----
    ``vary`` is SDEdit [1]_, as in the experiments of private evolution on images: noise is added
    up to the timestep ``degree`` of the way from data to noise, and the scheduler denoises from
    there. Degrees are rounded to a positive multiple of 1 / n_inference_steps. At degree 1 a
    variation hardly depends on the image.

    Draws are made on the CPU from a seed of the given generator, by batch: the same generator and
    ``batch_size`` give the same images, up to the rounding of the device. It needs diffusers:
    ``pip install diffusers``.

    References
    ----------
    .. [1] C. Meng et al., "SDEdit: guided image synthesis and editing with stochastic
       differential equations", ICLR 2022.

    Examples
    --------
    >>> from sklearn_dpgen.evolution._diffusion_variation import DiffusionVariation
    >>> interface = DiffusionVariation.from_pretrained(  # doctest: +SKIP
    ...     "google/ddpm-cifar10-32", n_inference_steps=100
    ... )
    """

    def __init__(
        self,
        pipeline: Any,
        *,
        prompt: str | None = None,
        image_shape: tuple[int, int, int] | None = None,
        n_inference_steps: int = 50,
        batch_size: int = 16,
        device: "str | torch.device" = "auto",
    ) -> None:
        from sklearn_dpgen.utils._torch import resolve_device

        for value, name in ((n_inference_steps, "n_inference_steps"), (batch_size, "batch_size")):
            if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
                raise PublicValueError(f"{name} must be an integer of at least 1, got {value!r}.")
        if prompt is not None and not isinstance(prompt, str):
            raise PublicTypeError(f"prompt must be a string or None, got {type(prompt).__name__}.")
        self.n_inference_steps = int(n_inference_steps)
        self.batch_size = int(batch_size)
        self.device = resolve_device(device)
        model = _PixelModel if prompt is None else _TextModel
        self._model = model(pipeline, self.n_inference_steps, self.device, prompt)
        self.model_shape = self._model.shape
        self.image_shape = self.model_shape if image_shape is None else tuple(image_shape)
        if len(self.image_shape) != 3 or self.image_shape[2] != self.model_shape[2]:
            raise PublicValueError(
                "image_shape must be (height, width, channels) with the channels of the model, "
                f"{self.model_shape[2]}; got {image_shape!r}."
            )
        self.width = int(np.prod(self.model_shape))

    @classmethod
    def from_pretrained(
        cls,
        path_or_id: str | PathLike,
        *,
        prompt: str | None = None,
        image_shape: tuple[int, int, int] | None = None,
        n_inference_steps: int = 50,
        batch_size: int = 16,
        device: "str | torch.device" = "auto",
        **loading: Any,
    ) -> Self:
        """Load a public pipeline and build the interface.

        Parameters
        ----------
        path_or_id : str or path-like
            A folder that ``save_pretrained`` wrote, or a name on the Hugging Face hub.
        prompt, image_shape, n_inference_steps, batch_size, device
            As in the constructor.
        **loading
            For ``diffusers.DiffusionPipeline.from_pretrained``, such as ``torch_dtype`` or
            ``local_files_only``.

        Returns
        -------
        DiffusionVariation

        Raises
        ------
        ImportError
            diffusers is not installed.
        """
        pipeline = _import_diffusers().DiffusionPipeline.from_pretrained(path_or_id, **loading)
        return cls(
            pipeline,
            prompt=prompt,
            image_shape=image_shape,
            n_inference_steps=n_inference_steps,
            batch_size=batch_size,
            device=device,
        )

    def random(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw ``n`` images; see :class:`VariationInterface`."""
        generator = _seeded(rng)
        starts = range(0, n, self.batch_size)
        batches = [self._model.draw(min(self.batch_size, n - i), generator) for i in starts]
        return self._flatten(batches, n)

    def vary(self, X: np.ndarray, rng: np.random.Generator, degree: float) -> np.ndarray:
        """Draw one variation of each image, by a degree in (0, 1].

        See :class:`VariationInterface`.
        """
        degree = check_degree(degree)
        images = self._images(X)
        n_steps = max(1, round(degree * self.n_inference_steps))
        generator = _seeded(rng)
        batches = [
            self._model.redraw(batch, n_steps, generator) for batch in images.split(self.batch_size)
        ]
        return self._flatten(batches, len(images))

    def decode(self, X: np.ndarray) -> np.ndarray:
        """Return candidates as flattened images of ``image_shape``.

        Parameters
        ----------
        X : ndarray of shape (n, width)

        Returns
        -------
        ndarray of float64 of shape (n, height * width * channels)
            In [0, 1]; resized by bilinear interpolation with antialiasing.
        """
        import torch

        from sklearn_dpgen.utils._torch import as_array

        images = self._images(X)
        size = self.image_shape[:2]
        if size != self.model_shape[:2]:
            images = torch.nn.functional.interpolate(
                images, size=size, mode="bilinear", antialias=True
            ).clamp(0, 1)
        return as_array(images.permute(0, 2, 3, 1).reshape(len(images), -1))

    def _images(self, X):
        """Return candidates as a tensor of shape (n, channels, height, width), on the CPU."""
        from sklearn_dpgen.utils._torch import as_tensor

        X = check_candidates(X, len(X), self.width, None, self)
        return as_tensor(X.reshape(-1, *self.model_shape)).permute(0, 3, 1, 2)

    def _flatten(self, batches, n):
        import torch

        from sklearn_dpgen.utils._torch import as_array

        images = torch.cat(batches).permute(0, 2, 3, 1)
        return check_candidates(as_array(images.reshape(n, -1)), n, self.width, None, self)


class _PixelModel:
    """An unconditional model of pixels in [-1, 1]: its network and a copy of its scheduler."""

    def __init__(self, pipeline, n_inference_steps, device, prompt):
        missing = [name for name in ("unet", "scheduler") if not hasattr(pipeline, name)]
        if missing or getattr(pipeline, "vae", None) is not None or hasattr(pipeline, "vqvae"):
            raise PublicTypeError(
                "Without a prompt, pipeline must be one of pixels with unet and scheduler, such as "
                f"DDPMPipeline; got {type(pipeline).__name__}."
            )
        self._unet = pipeline.unet.to(device).eval()
        # A scheduler has a state: the number of steps, and for some classes the last outputs.
        self._scheduler = copy.deepcopy(pipeline.scheduler)
        self._n_inference_steps, self._device = n_inference_steps, device
        if len(self._timesteps(n_inference_steps)) != n_inference_steps:
            raise PublicValueError(
                f"{type(self._scheduler).__name__} evaluates the network more than once a step; "
                "give the pipeline another scheduler, such as DDIMScheduler."
            )
        size = self._unet.config.sample_size
        height, width = (size, size) if isinstance(size, int) else size
        self.shape = (height, width, self._unet.config.in_channels)

    def draw(self, n, generator):
        """Draw images, a tensor of shape (n, channels, height, width) in [0, 1], on the CPU."""
        timesteps = self._timesteps(self._n_inference_steps)
        noise = self._noise((n, self.shape[2], *self.shape[:2]), generator)
        return self._denoise(noise * self._scheduler.init_noise_sigma, timesteps, generator)

    def redraw(self, images, n_steps, generator):
        """Add noise to images up to the last ``n_steps`` steps, and denoise them."""
        timesteps = self._timesteps(n_steps)
        images = (2 * images - 1).to(self._device, self._unet.dtype)
        start = timesteps[:1].repeat(len(images))
        noisy = self._scheduler.add_noise(images, self._noise(images.shape, generator), start)
        return self._denoise(noisy, timesteps, generator)

    def _timesteps(self, n_steps):
        # Set for every batch, which removes the outputs of the previous one.
        self._scheduler.set_timesteps(self._n_inference_steps, device=self._device)
        first = self._n_inference_steps - n_steps
        if hasattr(self._scheduler, "set_begin_index"):
            self._scheduler.set_begin_index(first)
        return self._scheduler.timesteps[first:]

    def _noise(self, shape, generator):
        import torch

        return torch.randn(shape, generator=generator).to(self._device, self._unet.dtype)

    def _denoise(self, images, timesteps, generator):
        import torch

        accepted = inspect.signature(self._scheduler.step).parameters
        options = {"generator": generator} if "generator" in accepted else {}
        with torch.no_grad():
            for t in timesteps:
                inputs = self._scheduler.scale_model_input(images, t)
                output = self._unet(inputs, t).sample
                images = self._scheduler.step(output, t, images, **options).prev_sample
        return (images / 2 + 0.5).clamp(0, 1).float().cpu()


class _TextModel:
    """A text-to-image pipeline, and the image-to-image pipeline with the same networks."""

    def __init__(self, pipeline, n_inference_steps, device, prompt):
        self._prompt, self._n_inference_steps = prompt, n_inference_steps
        self._draw = pipeline.to(device)
        self._redraw = _import_diffusers().AutoPipelineForImage2Image.from_pipe(pipeline)
        for pipe in (self._draw, self._redraw):
            pipe.set_progress_bar_config(disable=True)
        side = pipeline.unet.config.sample_size * pipeline.vae_scale_factor
        self.shape = (side, side, 3)

    def draw(self, n, generator):
        """Draw images, a tensor of shape (n, channels, height, width) in [0, 1], on the CPU."""
        return self._run(self._draw, n, generator)

    def redraw(self, images, n_steps, generator):
        """Add noise to images up to the last ``n_steps`` steps, and denoise them."""
        # Pipelines round the strength down to a number of steps.
        strength = min(1.0, (n_steps + 0.5) / self._n_inference_steps)
        return self._run(self._redraw, len(images), generator, image=images, strength=strength)

    def _run(self, pipeline, n, generator, **inputs):
        images = pipeline(
            prompt=[self._prompt] * n,
            num_inference_steps=self._n_inference_steps,
            generator=generator,
            output_type="pt",
            **inputs,
        ).images
        return images.float().cpu().clamp(0, 1)


def _seeded(rng):
    return torch_generator(int(rng.integers(2**63)))


def _import_diffusers():
    try:
        import diffusers
    except ImportError as error:
        raise PublicImportError(
            "DiffusionVariation needs diffusers: pip install diffusers."
        ) from error
    return diffusers
