"""Cuts the reference outputs down to what the committed tests read.

    make_golden_fixture.py GOLDENS OUT

GOLDENS is the folder written by tools/demo_model/golden.py and golden_demo.py (nano-moe, nano-dense, demo). The
nano folders are copied whole. Of the demo, the bundled model's own (hybrid) tensors are kept, and every format's
per-token losses, which tell the formats apart.
"""

import argparse
import json
import pathlib
import shutil
import struct


def read_safetensors(path):
    """Returns {name: (dtype, shape, bytes)}."""
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    return {
        name: (info["dtype"], info["shape"], data[8 + size + info["data_offsets"][0] : 8 + size + info["data_offsets"][1]])
        for name, info in header.items()
    }


def write_safetensors(path, tensors):
    """Writes {name: (dtype, shape, bytes)} with a header padded to eight bytes."""
    header, offset = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("goldens", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    args = parser.parse_args()
    for name in ("nano-moe", "nano-dense"):
        folder = args.out / name
        folder.mkdir(parents=True, exist_ok=True)
        for file in ("config.json", "model.safetensors", "golden.safetensors"):
            shutil.copyfile(args.goldens / name / file, folder / file)
    demo = args.out / "demo"
    demo.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(args.goldens / "demo" / "answers.json", demo / "answers.json")
    tensors = read_safetensors(args.goldens / "demo" / "golden.safetensors")
    kept = {
        name: value
        for name, value in tensors.items()
        if name.endswith(("input_ids", ".nll")) or name.startswith("hybrid.long")
    }
    write_safetensors(demo / "golden.safetensors", kept)


if __name__ == "__main__":
    main()
