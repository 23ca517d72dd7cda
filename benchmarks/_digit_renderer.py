"""Digits drawn by public fonts: a renderer of MNIST-sized images, and what is declared of it.

The fonts are those that come with matplotlib. Letters that some write for digits are among the
glyphs. Ranges of the parameters are guesses, made before any image of MNIST was looked at by it.
"""

from functools import cache
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from sklearn_dpgen.domains import Box
from sklearn_dpgen.evolution import TabularVariation
from sklearn_dpgen.schema import Categorical, Numeric, Schema

__all__ = ["SCHEMA", "DigitVariation", "render_digits"]

FONTS = ("DejaVuSans", "DejaVuSerif", "STIXGeneral", "STIXGeneralItalic", "cmr10", "cmss10")
GLYPHS = "0123456789lZqbgSO"
SCHEMA = Schema(
    {
        "glyph": Categorical(list(GLYPHS)),
        "font": Categorical(list(FONTS)),
        "slant": Numeric(-0.5, 0.8),
        "turn": Numeric(-0.4, 0.4),
        "width": Numeric(0.5, 1.4),
        "height": Numeric(0.7, 1.1),
        "stroke": Numeric(0.0, 1.0),
        "right": Numeric(-3.0, 3.0),
        "down": Numeric(-3.0, 3.0),
        "bow": Numeric(-0.3, 0.3),
        "wave": Numeric(-0.3, 0.3),
        "sag": Numeric(-0.3, 0.3),
        "top heavy": Numeric(-0.4, 0.4),
    }
)
_SIDE = 112  # pixels of a glyph, of which the middle 80 are its box


@cache
def _glyphs():
    """Return the glyphs of all fonts, blurred, of shape (n_fonts, n_glyphs, side, side)."""
    folder = Path(mpl.get_data_path()) / "fonts" / "ttf"
    fonts = [ImageFont.truetype(str(folder / f"{name}.ttf"), 120) for name in FONTS]
    return torch.stack([torch.stack([_glyph(font, g) for g in GLYPHS]) for font in fonts])


def _glyph(font, character):
    image = Image.new("L", (300, 300))
    ImageDraw.Draw(image).text((80, 60), character, fill=255, font=font)
    image = image.crop(image.getbbox())
    width = min(80, max(12, round(80 * image.width / image.height)))
    image = image.resize((width, 80))
    page = Image.new("L", (_SIDE, _SIDE))
    page.paste(image, ((_SIDE - width) // 2, (_SIDE - 80) // 2))
    return (
        torch.tensor(np.asarray(page.filter(ImageFilter.GaussianBlur(4)), dtype=np.float32)) / 255
    )


def render_digits(frame):
    """Return images of shape (n, 784) in [0, 1], one for each row of parameters."""
    numbers = [name for name in SCHEMA if isinstance(SCHEMA[name], Numeric)]
    p = {n: torch.tensor(frame[n].to_numpy(dtype=np.float32))[:, None, None] for n in numbers}
    fonts = [FONTS.index(name) for name in frame["font"]]
    glyphs = [GLYPHS.index(name) for name in frame["glyph"]]
    shapes = _glyphs()[fonts, glyphs][:, None]
    axis = (torch.arange(28) - 13.5) / 14
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    # From a place of the image to one of the glyph, both with sides of length 2.
    x, y = x[None] - p["right"] / 14, y[None] - p["down"] / 14
    cos, sin = torch.cos(p["turn"]), torch.sin(p["turn"])
    x, y = cos * x - sin * y, sin * x + cos * y
    x = x + p["slant"] * y + p["bow"] * (1 - 4 * y**2) + p["wave"] * torch.sin(4 * y)
    y = y / p["height"] + p["sag"] * x**2
    x = x / p["width"] * (1 + p["top heavy"] * y)
    places = torch.stack([x, y], dim=-1)
    found = F.grid_sample(shapes, places, align_corners=False, padding_mode="zeros")[:, 0]
    level = 0.6 - 0.4 * p["stroke"]
    return torch.sigmoid(20 * (found - level)).flatten(1).numpy().astype(np.float64)


class DigitVariation(TabularVariation):
    """Candidates that are parameters of the renderer; votes go to the images."""

    pixels = Box(0.0, 1.0, n_features=784)

    def __init__(self):
        super().__init__(SCHEMA)

    # Images are compared pixel by pixel, and not as rows of a table.
    embed = staticmethod(np.asarray)

    def decode(self, X):
        """Return the images of encoded rows of parameters."""
        images = np.asarray(render_digits(self.encoder.inverse_transform(X)), dtype=np.float64)
        return self.pixels.project(images.reshape(len(images), -1))

    def smooth(self, X, rng, degree):
        """Move all numbers of each row, and keep its categories."""
        blocks = self.encoder.blocks_.values()
        numbers = [part.start for part in blocks if part.stop - part.start == 1]
        moved = np.array(X, dtype=np.float64)
        moved[:, numbers] += 2 * degree * rng.normal(size=(len(moved), len(numbers)))
        return self.domain.project(moved)
