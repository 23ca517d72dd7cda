"""Files that were damaged, or made to deceive: of some kinds each, by a seed."""

import gzip
import hashlib
import io
import json
import pickle
import zipfile

import numpy as np

_KEY = "sklearn_dpgen"
_DTYPES = {
    "BOOL": "|b1",
    "U8": "|u1",
    "I8": "|i1",
    "I16": "<i2",
    "I32": "<i4",
    "I64": "<i8",
    "U32": "<u4",
    "F16": "<f2",
    "F32": "<f4",
    "F64": "<f8",
}


def split(data):
    """Return the document and the tensors of a file, as its format is described."""
    n = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + n])
    document = json.loads(header.pop("__metadata__")[_KEY])
    tensors = {
        name: (e["dtype"], e["shape"], data[8 + n :][slice(*e["data_offsets"])])
        for name, e in sorted(header.items(), key=lambda item: item[1]["data_offsets"])
    }
    return document, tensors


def digest_of(dtype, shape, data):
    inner = hashlib.sha256(data).digest()
    return hashlib.sha256(f"{dtype} {[*shape]} ".encode() + inner).digest()


def join(document, tensors, edit=None):
    """Return a file with the seal that it should have, for whoever can write one can seal one.

    Parameters
    ----------
    document : dict
    tensors : dict of str to (dtype, shape, bytes)
    edit : callable or None, default=None
        Of the text of the header, once it is sealed.
    """
    document = {"sha256": "0" * 64} | {k: v for k, v in document.items() if k != "sha256"}
    content, header, start = json.dumps(document), {}, 0
    seal = hashlib.sha256(content.encode(errors="surrogatepass"))
    for name in sorted(tensors):
        dtype, shape, data = tensors[name]
        seal.update(hashlib.sha256(name.encode(errors="surrogatepass")).digest())
        seal.update(digest_of(_DTYPES.get(dtype, dtype), shape, data))
    content = content.replace("0" * 64, seal.hexdigest(), 1)
    for name, (dtype, shape, data) in tensors.items():
        offsets = [start, start + len(data)]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
        start += len(data)
    text = json.dumps({"__metadata__": {_KEY: content}} | header)
    text = (text if edit is None else edit(text)).encode()
    return len(text).to_bytes(8, "little") + text + b"".join(data for *_, data in tensors.values())


class Reduced:
    """What runs if it is unpickled."""

    def __reduce__(self):
        return print, ("EXECUTED",)


def _bits(data, rng):
    data = bytearray(data)
    for place in rng.integers(len(data), size=rng.integers(1, 9)):
        data[place] ^= 1 << rng.integers(8)
    return bytes(data)


def _cut(data, rng):
    return data[: rng.integers(len(data))]


def _longer(data, rng):
    return data + rng.bytes(rng.integers(1, 1000))


def _moved(data, rng):
    first, second = sorted(rng.integers(len(data), size=2))
    return data[:first] + data[second:] + data[first:second]


def _header_length(data, rng):
    lengths = [0, 1, 2**20, 2**31, 2**40, 2**63, 2**64 - 1, len(data), len(data) - 8]
    return int(rng.choice(np.array(lengths, dtype=np.uint64))).to_bytes(8, "little") + data[8:]


def _places(node, path=()):
    """Yield the path of each entry of a document."""
    items = node.items() if isinstance(node, dict) else enumerate(node)
    for key, part in items:
        yield (*path, key)
        if isinstance(part, dict | list):
            yield from _places(part, (*path, key))


def _at(node, path):
    for key in path:
        node = node[key]
    return node


def _junk(rng, document, places):
    """Return something that may be anywhere in a document, but should not be everywhere."""
    deep = "x"
    for _ in range(200):
        deep = [deep]
    names = ["os.system", "builtins.eval", "__reduce__", "../../etc/passwd", "Box", "Sequential"]
    junk = [
        None,
        True,
        [],
        {},
        "",
        -1,
        10**30,
        10**300,
        1e308,
        -0.5,
        2**63,
        "inf",
        "\ud800",
        "../../../../etc/passwd",
        "dateutil//etc/passwd",
        "__import__('os').system('true')",
        deep,
        {"float": "nan"},
        {"float": "__class__"},
        {"array": "law_.shares.0"},
        {"tuple": {"array": "law_.shares.0"}},
        {"dict": [[["unhashable"], 1]]},
        {"labels": ["a" * 1000], "dtype": "<U100000000"},
        {"scalar": ["object", 1]},
        {"timestamp": [2**80, "ns"]},
        {"object": str(rng.choice(names)), "fields": {}},
        {"object": "OneHot", "fields": {"n_categories": 10**12}},
        {"object": "Box", "fields": {"low": 0.0, "high": 1.0, "n_features": 10**12}},
        {"report": {}},
        {"__class__": "x"},
    ]
    if rng.integers(2):
        return _at(document, places[rng.integers(len(places))])
    return junk[rng.integers(len(junk))]


def _document(data, rng):
    document, tensors = split(data)
    for _ in range(rng.integers(1, 4)):
        places = [*_places(document)]
        *path, key = places[rng.integers(len(places))]
        holder = _at(document, path)
        if rng.integers(4) == 0:
            del holder[key]
        else:
            # A copy, for a part may take the place of what it is in.
            holder[key] = pickle.loads(pickle.dumps(_junk(rng, document, places)))
        if not document:
            break
    return join(document, tensors)


def _numbers(data, rng):
    document, tensors = split(data)
    name = rng.choice([*tensors])
    dtype, shape, content = tensors[name]
    values = np.frombuffer(content, _DTYPES[dtype]).copy()
    if values.size:
        kind = values.dtype.kind
        extremes = [np.nan, np.inf, -1.0, 1e300, 0.0] if kind == "f" else [-1, 2**31 - 1, 0, 10**6]
        with np.errstate(over="ignore"):
            chosen = np.array(rng.choice(extremes)).astype(values.dtype)
        values[rng.integers(len(values)) if rng.integers(2) else slice(None)] = chosen
    return join(document, tensors | {name: (dtype, shape, values.tobytes())})


def _dtypes(data, rng):
    document, tensors = split(data)
    name = rng.choice([*tensors])
    _, shape, content = tensors[name]
    dtype = str(rng.choice([*_DTYPES, "C64", "BF16", "F8_E4M3", "O", "object", "<U8"]))
    size = np.dtype(_DTYPES.get(dtype, "u1")).itemsize * int(np.prod(shape, dtype=object))
    content = (content * (size // max(1, len(content)) + 1))[:size]
    return join(document, tensors | {name: (dtype, shape, content)})


def _shapes(data, rng):
    document, tensors = split(data)
    name = rng.choice([*tensors])
    dtype, shape, content = tensors[name]
    n = len(content) // np.dtype(_DTYPES[dtype]).itemsize
    others = [[n], [1, n], [n, 1], [n, 0], [], [n + 1], [2**62, 4], [-1], [1] * 40, [n // 2], ["1"]]
    shape = others[rng.integers(len(others))]
    if rng.integers(2) and all(type(side) is int and 0 <= side < 2**20 for side in shape):
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(_DTYPES[dtype]).itemsize
        content = (content * (size // max(1, len(content)) + 1))[:size]
    return join(document, tensors | {name: (dtype, shape, content)})


def _names(data, rng):
    document, tensors = split(data)
    names = [*tensors]
    old = names[rng.integers(len(names))]
    new = str(rng.choice(["../../etc/passwd", "/etc/passwd", "__metadata__x", "", "\x00", *names]))
    return join(document, {new if name == old else name: t for name, t in tensors.items()})


def _offsets(data, rng):
    document, tensors = split(data)

    def edit(text):
        header = json.loads(text)
        names = [name for name in header if name != "__metadata__"]
        entry = header[rng.choice(names)]
        start, stop = entry["data_offsets"]
        choices = [[0, stop - start], [start + 1, stop + 1], [stop, start], [start, 2**62]]
        choices += [[-8, stop], [start], [start, stop, stop], [float(start), stop], "01", None]
        entry["data_offsets"] = choices[rng.integers(len(choices))]
        return json.dumps(header)

    return join(document, tensors, edit)


def _json(data, rng):
    document, tensors = split(data)
    name = next(iter(tensors), "__metadata__")

    def edit(text):
        deep = "[" * 10**5 + "]" * 10**5
        edits = [
            lambda: text.replace("{", '{"__metadata__": {}, ', 1),
            lambda: text[:-1] + f', "{name}": {json.dumps(json.loads(text)[name])}}}',
            lambda: text.replace('"shape": [', '"shape": [NaN, ', 1),
            lambda: text.replace('"shape": [', '"shape": [Infinity, ', 1),
            lambda: text.replace('"shape": [', '"shape": [1e999, ', 1),
            lambda: text.replace('"shape": [', '"shape": [' + "9" * 5000 + ", ", 1),
            lambda: text[:-1] + f', "deep": {deep}}}',
            lambda: text[:-1] + ', "many": [' + "[]," * 10**5 + "0]}",
            lambda: text[:-1] + ', "texts": ["' + "\\u0041" * 10**5 + '"]}',
            lambda: text.replace('\\"format\\"', '\\"format\\": 1, \\"format\\"', 1),
            lambda: text.replace('"__metadata__"', '"__meta__"', 1),
            lambda: text + " " * int(rng.integers(1, 2**20)),
            lambda: text.replace('"', "'", 1),
            lambda: text + "é",
            lambda: "[" + text + "]",
            lambda: json.dumps(text),
        ]
        return edits[rng.integers(len(edits))]()

    return join(document, tensors, edit)


def _foreign(data, rng):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("../../model", bytes(10**6))
    saved = io.BytesIO()
    np.save(saved, np.array([Reduced()], dtype=object), allow_pickle=True)
    empty = b"{}"
    other = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    files = [
        b"",
        b"\x00" * int(rng.integers(1, 1000)),
        rng.bytes(rng.integers(1, 1000)),
        buffer.getvalue(),
        gzip.compress(bytes(10**6)),
        pickle.dumps(Reduced()),
        saved.getvalue(),
        b"import os\nos.system('true')\n",
        len(empty).to_bytes(8, "little") + empty,
        len(other).to_bytes(8, "little") + other + bytes(4),
        json.dumps({"format": 1}).encode(),
    ]
    return files[rng.integers(len(files))]


KINDS = {
    "flipped bits": _bits,
    "cut off": _cut,
    "longer": _longer,
    "parts moved": _moved,
    "length of the header": _header_length,
    "document, sealed": _document,
    "values of tensors, sealed": _numbers,
    "dtypes of tensors, sealed": _dtypes,
    "shapes of tensors, sealed": _shapes,
    "names of tensors, sealed": _names,
    "offsets of tensors": _offsets,
    "JSON of the header": _json,
    "other formats": _foreign,
}


def hostile_file(data, kind, seed):
    """Return a hostile file of a kind, made from one that is valid.

    Parameters
    ----------
    data : bytes
    kind : str
        Of ``KINDS``.
    seed : int or sequence of int
    """
    rng = np.random.default_rng(seed)
    if "tensors" in kind and not split(data)[1]:
        return _document(data, rng)
    return KINDS[kind](data, rng)
