"""Packs weight matrices into the on-disk formats of the family, and gives back what they decode to.

Each packer takes w [N, K] f32 and returns (tensors by suffix, the exact dequantised weights f32).
It is written from the formats' descriptions alone and shares no code with the engine, so that a
misreading on one side shows. numpy only.
"""
from collections.abc import Callable
from pathlib import Path

import numpy as np

import safetensors_io as st
from safetensors_io import Stored

Packed = tuple[dict[str, Stored], np.ndarray]


# ---- INT4, AutoRound in GPTQ's layout: W = (q - 8)·s, one signed scale per 128 inputs

INT4_GROUP = 128


def pack_int4(w: np.ndarray) -> Packed:
    """qweight [K/8, N] i32 (eight inputs a word, lowest bits first), qzeros all 7, scales [K/128, N].

    The group's largest magnitude is mapped to -8, the far end of the range, so the scale has its
    opposite sign; of sixteen shrunken scales the one with the least squared error is kept.
    """
    rows, inputs = w.shape
    groups = w.reshape(rows, inputs // INT4_GROUP, INT4_GROUP)
    largest_at = np.abs(groups).argmax(-1)
    largest = np.take_along_axis(groups, largest_at[..., None], -1)[..., 0]
    scale, code, error = None, None, None
    for shrink in np.arange(0.70, 1.0001, 0.02):
        s = (-largest / 8 * shrink).astype(np.float32)
        s = np.where(np.abs(s) < 1e-5, 1e-5, s).astype(np.float16).astype(np.float32)
        q = np.clip(np.rint(groups / s[..., None]) + 8, 0, 15)
        e = (((q - 8) * s[..., None] - groups) ** 2).sum(-1)
        if error is None:
            scale, code, error = s, q, e
            continue
        better = e < error
        scale = np.where(better, s, scale)
        code = np.where(better[..., None], q, code)
        error = np.where(better, e, error)
    code = code.astype(np.uint32).reshape(rows, inputs)
    words = np.zeros((inputs // 8, rows), np.uint32)
    for nibble in range(8):
        words |= code.T[nibble::8] << np.uint32(4 * nibble)
    zeros = np.full((inputs // INT4_GROUP, rows // 8), 0x77777777, np.uint32)
    decoded = (code.astype(np.float32) - 8).reshape(groups.shape) * scale[..., None]
    return ({"qweight": st.stored("I32", words), "qzeros": st.stored("I32", zeros),
             "scales": st.stored("F16", scale.T.astype(np.float16))},
            decoded.reshape(rows, inputs).astype(np.float32))


# ---- FP8 E4M3, one scale per 128 × 128 block


def _e4m3_value(code: int) -> float:
    sign, exponent, mantissa = (-1) ** (code >> 7), (code >> 3) & 15, code & 7
    if code & 0x7F == 0x7F:
        return np.nan
    if exponent == 0:
        return sign * (mantissa / 8) * 2.0 ** -6
    return sign * (1 + mantissa / 8) * 2.0 ** (exponent - 7)


E4M3 = np.array([_e4m3_value(code) for code in range(256)], np.float32)
E4M3_MAGNITUDES = E4M3[:127]  # rising; 448 is the last
FP8_BLOCK = 128


def to_e4m3(x: np.ndarray) -> np.ndarray:
    """Codes of the nearest E4M3 values, ties to the even code; magnitudes saturate at 448."""
    magnitude = np.minimum(np.abs(x), 448)
    above = np.searchsorted(E4M3_MAGNITUDES, magnitude).clip(1, 126)
    to_low = magnitude - E4M3_MAGNITUDES[above - 1]
    to_high = E4M3_MAGNITUDES[above] - magnitude
    take_low = (to_low < to_high) | ((to_low == to_high) & ((above - 1) % 2 == 0))
    code = np.where(take_low, above - 1, above)
    return (code | np.where(np.signbit(x), 128, 0)).astype(np.uint8)


def pack_fp8_block(w: np.ndarray) -> Packed:
    """weight [N, K] E4M3 and weight_scale_inv [⌈N/128⌉, ⌈K/128⌉] bf16: W = code · scale of its block."""
    rows, inputs = w.shape
    row_blocks, input_blocks = -(-rows // FP8_BLOCK), -(-inputs // FP8_BLOCK)
    padded = np.zeros((row_blocks * FP8_BLOCK, input_blocks * FP8_BLOCK), np.float32)
    padded[:rows, :inputs] = w
    blocks = padded.reshape(row_blocks, FP8_BLOCK, input_blocks, FP8_BLOCK)
    exact = np.maximum(np.abs(blocks).max((1, 3)), 1e-8) / 448
    scale = st.bf16_to_f32(st.f32_to_bf16(exact).tobytes(), exact.shape)
    code = to_e4m3(blocks / scale[:, None, :, None])
    decoded = (E4M3[code] * scale[:, None, :, None]).reshape(padded.shape)[:rows, :inputs]
    return ({"weight": st.stored("F8_E4M3", code.reshape(padded.shape)[:rows, :inputs]),
             "weight_scale_inv": st.stored_bf16(scale)}, np.ascontiguousarray(decoded))


# ---- NVFP4 as compressed-tensors stores it: W = e2m1 · e4m3 scale of 16 inputs / global scale

E2M1 = np.array([0, .5, 1, 1.5, 2, 3, 4, 6], np.float32)
E2M1_MIDPOINTS = np.array([.25, .75, 1.25, 1.75, 2.5, 3.5, 5], np.float32)
NVFP4_GROUP = 16


def pack_nvfp4(w: np.ndarray) -> Packed:
    rows, inputs = w.shape
    global_scale = np.float32(448 * 6 / max(np.abs(w).max(), 1e-8))
    groups = w.reshape(rows, inputs // NVFP4_GROUP, NVFP4_GROUP)
    scale_code = to_e4m3(np.abs(groups).max(-1) / 6 * global_scale)
    scale = (E4M3[scale_code] / global_scale).astype(np.float32)
    x = groups / np.where(scale == 0, 1, scale)[..., None]
    magnitude = np.abs(x)
    code = np.searchsorted(E2M1_MIDPOINTS, magnitude, side="left")
    odd_tie = np.isin(magnitude, E2M1_MIDPOINTS) & (code % 2 == 1)
    code = np.where(odd_tie, code + 1, code)
    code = np.where(scale[..., None] == 0, 0, code)
    signed = (code | np.where(x < 0, 8, 0)).astype(np.uint8).reshape(rows, inputs)
    packed = (signed[:, 0::2] | (signed[:, 1::2] << 4)).astype(np.uint8)
    decoded = E2M1[code] * np.where(x < 0, -1, 1) * scale[..., None]
    return ({"weight_packed": st.stored("U8", packed),
             "weight_scale": st.stored("F8_E4M3", scale_code),
             "weight_global_scale": st.stored("F32", np.array([global_scale], np.float32)),
             "input_global_scale": st.stored("F32", np.ones(1, np.float32))},
            decoded.reshape(rows, inputs).astype(np.float32))


# ---- whole checkpoints


def load_checkpoint(folder: Path) -> dict[str, np.ndarray]:
    """Every tensor of a bf16 checkpoint's model-* shards, as f32."""
    tensors: dict[str, Stored] = {}
    for path in sorted(Path(folder).glob("model-*.safetensors")):
        tensors.update(st.read(path))
    return {name: st.bf16_to_f32(t.data, t.shape) for name, t in tensors.items()}


def split_experts(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Stacked 3-D expert tensors as one matrix per expert, the way quantised releases store them."""
    split = {}
    for name, value in tensors.items():
        if name.endswith("experts.gate_up_proj"):
            prefix, half = name.removesuffix("gate_up_proj"), value.shape[1] // 2
            for expert, matrix in enumerate(value):
                split[f"{prefix}{expert}.gate_proj.weight"] = matrix[:half]
                split[f"{prefix}{expert}.up_proj.weight"] = matrix[half:]
        elif name.endswith("experts.down_proj"):
            prefix = name.removesuffix("down_proj")
            for expert, matrix in enumerate(value):
                split[f"{prefix}{expert}.down_proj.weight"] = matrix
        else:
            split[name] = value
    return split


def fuse_experts(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The inverse of split_experts."""
    fused: dict[str, np.ndarray] = {}
    experts: dict[str, dict[str, dict[int, np.ndarray]]] = {}
    for name, value in tensors.items():
        if ".experts." not in name:
            fused[name] = value
            continue
        prefix, rest = name.split(".experts.")
        expert, projection, _ = rest.split(".")
        experts.setdefault(prefix, {}).setdefault(projection, {})[int(expert)] = value
    for prefix, by_projection in experts.items():
        gate, up, down = (by_projection[p] for p in ("gate_proj", "up_proj", "down_proj"))
        fused[f"{prefix}.experts.gate_up_proj"] = np.stack(
            [np.concatenate([gate[e], up[e]]) for e in range(len(gate))])
        fused[f"{prefix}.experts.down_proj"] = np.stack([down[e] for e in range(len(down))])
    return fused


def matrix_class(name: str) -> str:
    """Which part of a layer a matrix belongs to; "other" is never quantised."""
    if ".experts." in name:
        return "expert"
    if ".shared_expert." in name:
        return "shared"
    if ".self_attn." in name and "_proj" in name:
        return "attention"
    if any(part in name for part in (".in_proj_qkv.", ".in_proj_z.", ".linear_attn.out_proj.")):
        return "delta"
    return "other"


# variant -> (packer by matrix class, whether the multi-token-prediction layer is quantised too)
VARIANTS: dict[str, tuple[dict[str, Callable[[np.ndarray], Packed]], bool]] = {
    "int4": (dict.fromkeys(("expert", "attention", "delta"), pack_int4), False),
    "fp8": (dict.fromkeys(("expert", "shared", "attention", "delta"), pack_fp8_block), True),
    "nvfp4": (dict.fromkeys(("expert", "shared", "attention"), pack_nvfp4), False),
    "hybrid": ({**dict.fromkeys(("expert", "attention", "delta"), pack_int4),
                "shared": pack_fp8_block}, False),
}


def quantize(tensors: dict[str, np.ndarray],
             variant: str) -> tuple[dict[str, Stored], dict[str, np.ndarray]]:
    """(tensors to store, dequantised weights) of a checkpoint whose experts are split."""
    packers, includes_mtp = VARIANTS[variant]
    to_store, decoded = {}, {}
    for name, value in tensors.items():
        value = np.ascontiguousarray(value)
        pack = packers.get(matrix_class(name))
        if pack is None or (name.startswith("mtp.") and not includes_mtp):
            to_store[name], decoded[name] = st.stored_bf16(value), value
            continue
        parts, decoded[name] = pack(value)
        base = name.removesuffix("weight")
        to_store.update({base + suffix: part for suffix, part in parts.items()})
    return to_store, decoded
