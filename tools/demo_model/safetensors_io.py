"""Reads and writes .safetensors files with numpy alone, as raw bytes: no dtype is ever converted."""
import json
import struct
from pathlib import Path
from typing import NamedTuple

import numpy as np

ITEM_BYTES = {"F32": 4, "I32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "U8": 1}


class Stored(NamedTuple):
    """A tensor as a file holds it."""
    dtype: str
    shape: tuple[int, ...]
    data: bytes


def read(path: Path) -> dict[str, Stored]:
    raw = Path(path).read_bytes()
    header_bytes = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + header_bytes])
    header.pop("__metadata__", None)
    data = raw[8 + header_bytes:]
    return {name: Stored(entry["dtype"], tuple(entry["shape"]), data[slice(*entry["data_offsets"])])
            for name, entry in header.items()}


def write(path: Path, tensors: dict[str, Stored]) -> None:
    """Widest elements first, then by name, so that every tensor is aligned; header padded to 8."""
    order = sorted(tensors, key=lambda name: (-ITEM_BYTES[tensors[name].dtype], name))
    header: dict = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name in order:
        dtype, shape, data = tensors[name]
        header[name] = {"dtype": dtype, "shape": list(shape),
                        "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)))
        file.write(text)
        for name in order:
            file.write(tensors[name].data)


def bf16_to_f32(data: bytes, shape: tuple[int, ...]) -> np.ndarray:
    return (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32).reshape(shape)


def f32_to_bf16(x: np.ndarray) -> np.ndarray:
    """Bits of the nearest bf16, ties to even."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def stored_bf16(x: np.ndarray) -> Stored:
    return Stored("BF16", x.shape, f32_to_bf16(x).tobytes())


def stored(dtype: str, x: np.ndarray) -> Stored:
    """An array whose bytes are already those of dtype."""
    return Stored(dtype, x.shape, np.ascontiguousarray(x).tobytes())
