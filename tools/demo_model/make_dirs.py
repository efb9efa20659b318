"""Lays a trained demo checkpoint out as model directories, one per weight format.

    make_dirs.py CHECKPOINT OUT

CHECKPOINT is what train.py wrote (model-*.safetensors, dflash.safetensors, tokenizer.json,
configs.json). OUT gets demo-bf16, demo-int4-autoround, demo-fp8, demo-nvfp4, demo-hybrid and the
drafter demo-dflash. The repository's models/demo is demo-hybrid.
"""
import argparse
import json
import shutil
from pathlib import Path

import quantize as q
import safetensors_io as st
from safetensors_io import Stored

# The bundled model's chat template, shared by every directory.
TEMPLATE_PATH = Path(__file__).resolve().parents[2] / "models" / "demo" / "chat_template.jinja"
TRANSFORMERS_VERSION = "5.17.0"
CONTEXT_LENGTH = 8192

# Fields a Hugging Face config object dumps that released config files of the family do not carry.
DROPPED_FIELDS = set("""
transformers_version architectures output_hidden_states return_dict chunk_size_feed_forward
is_encoder_decoder id2label label2id problem_type _name_or_path output_attentions
ignore_keys_at_rope_validation pad_token_id bos_token_id eos_token_id dtype model_type
output_router_logits partial_rotary_factor
""".split())

Shards = dict[str, dict[str, Stored]]


def text_config(trained: dict, token_id: dict[str, int]) -> dict:
    config = {k: v for k, v in trained.items() if k not in DROPPED_FIELDS and v is not None}
    config.update(model_type="qwen3_5_moe_text", full_attention_interval=4, mtp_num_hidden_layers=1,
                  mtp_use_dedicated_embeddings=False, attn_output_gate=True,
                  mamba_ssm_dtype="float32", dtype="bfloat16",
                  eos_token_id=token_id["<|endoftext|>"], mlp_only_layers=[])
    return config


def model_config(text: dict, token_id: dict[str, int]) -> dict:
    return {"architectures": ["Qwen3_5MoeForConditionalGeneration"], "model_type": "qwen3_5_moe",
            "text_config": text, "tie_word_embeddings": False,
            "image_token_id": token_id["<|image_pad|>"], "video_token_id": token_id["<|video_pad|>"],
            "vision_start_token_id": token_id["<|vision_start|>"],
            "vision_end_token_id": token_id["<|vision_end|>"],
            "transformers_version": TRANSFORMERS_VERSION}


def tokenizer_config(tokenizer: dict) -> dict:
    added = {str(token["id"]): {"content": token["content"], "special": token["special"],
                                "normalized": False, "lstrip": False, "rstrip": False,
                                "single_word": False} for token in tokenizer["added_tokens"]}
    return {"add_prefix_space": False, "added_tokens_decoder": added, "bos_token": None,
            "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "unk_token": None,
            "model_max_length": CONTEXT_LENGTH, "tokenizer_class": "Qwen2Tokenizer",
            "clean_up_tokenization_spaces": False}


def generation_config(token_id: dict[str, int]) -> dict:
    end = token_id["<|endoftext|>"]
    return {"bos_token_id": end, "do_sample": True, "eos_token_id": [token_id["<|im_end|>"], end],
            "pad_token_id": end, "temperature": 0.6, "top_k": 20, "top_p": 0.95,
            "transformers_version": TRANSFORMERS_VERSION}


def layer_prefixes(text: dict) -> list[tuple[str, bool]]:
    """(name prefix, is a linear-attention layer) of each layer."""
    return [(f"model.language_model.layers.{i}.", kind == "linear_attention")
            for i, kind in enumerate(text["layer_types"])]


def autoround_config(text: dict) -> dict:
    unquantised = {}
    for prefix, is_linear in layer_prefixes(text):
        names = [f"mlp.shared_expert.{m}" for m in ("gate_proj", "up_proj", "down_proj")]
        names.append("mlp.shared_expert_gate")
        if is_linear:
            names += ["linear_attn.in_proj_a", "linear_attn.in_proj_b"]
        unquantised.update({prefix + name: {"bits": 16, "data_type": "fp"} for name in names})
    return {"autoround_version": "0.10.0", "bits": 4,
            "block_name_to_quantize": "model.language_model.layers", "data_type": "int",
            "extra_config": unquantised, "group_size": q.INT4_GROUP,
            "packing_format": "auto_round:auto_gptq", "quant_method": "auto-round", "sym": True}


def fp8_config(text: dict) -> dict:
    skipped = ["lm_head", "model.language_model.embed_tokens", "mtp.fc", "mtp.layers.0.mlp.gate",
               "mtp.layers.0.mlp.shared_expert_gate"]
    for prefix, is_linear in layer_prefixes(text):
        skipped += [prefix + "mlp.gate", prefix + "mlp.shared_expert_gate"]
        if is_linear:
            skipped += [f"{prefix}linear_attn.{m}" for m in ("conv1d", "in_proj_a", "in_proj_b")]
    return {"activation_scheme": "dynamic", "modules_to_not_convert": sorted(skipped),
            "quant_method": "fp8", "weight_block_size": [q.FP8_BLOCK, q.FP8_BLOCK],
            "weight_per_tensor": False, "act_per_tensor": False}


def nvfp4_config() -> dict:
    weights = {"num_bits": 4, "type": "float", "strategy": "tensor_group",
               "group_size": q.NVFP4_GROUP, "symmetric": True, "dynamic": False,
               "scale_dtype": "torch.float8_e4m3fn"}
    group = {"targets": ["Linear"], "weights": weights,
             "input_activations": {**weights, "dynamic": "local"}}
    ignored = ["lm_head", "re:.*visual.*", "re:.*mlp.gate$", "re:.*shared_expert_gate$",
               "re:.*linear_attn.*", "re:^mtp.*"]
    return {"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized",
            "config_groups": {"group_0": group}, "ignore": ignored, "kv_cache_scheme": None,
            "quantization_status": "compressed"}


def in_halves(tensors: dict[str, Stored]) -> Shards:
    """Two shards of about equal bytes, in the order of the names."""
    names = sorted(tensors)
    total = sum(len(tensors[name].data) for name in names)
    cut, seen = len(names), 0
    for i, name in enumerate(names):
        seen += len(tensors[name].data)
        if seen > total / 2:
            cut = i + 1
            break
    return {"model-00001-of-00002.safetensors": {name: tensors[name] for name in names[:cut]},
            "model-00002-of-00002.safetensors": {name: tensors[name] for name in names[cut:]}}


def with_mtp_apart(tensors: dict[str, Stored], mtp_file: str) -> Shards:
    """The multi-token-prediction layer in a file of its own, as quantised releases ship it."""
    body = {k: v for k, v in tensors.items() if not k.startswith("mtp.")}
    mtp = {k: v for k, v in tensors.items() if k.startswith("mtp.")}
    return {**in_halves(body), mtp_file: mtp}


def write_json(path: Path, value: dict, indent: int) -> None:
    path.write_text(json.dumps(value, indent=indent, ensure_ascii=path.name != "tokenizer_config.json"))


class DirectoryWriter:
    """Writes model directories that differ in their weights and quantization_config only."""

    def __init__(self, checkpoint: Path, out: Path) -> None:
        self.out = out
        self.tokenizer_path = checkpoint / "tokenizer.json"
        self.tokenizer = json.loads(self.tokenizer_path.read_text())
        self.token_id = {token["content"]: token["id"] for token in self.tokenizer["added_tokens"]}
        self.trained = json.loads((checkpoint / "configs.json").read_text())
        self.text = text_config(self.trained["text"], self.token_id)

    def write(self, name: str, shards: Shards, quantization: dict | None = None,
              unindexed: tuple[str, ...] = ()) -> None:
        """`unindexed` shards are left out of the index: some releases forget their MTP file there."""
        folder = self.out / name
        folder.mkdir(parents=True, exist_ok=True)
        config = model_config(self.text, self.token_id)
        if quantization:
            config["quantization_config"] = quantization
        write_json(folder / "config.json", config, indent=2)
        write_json(folder / "tokenizer_config.json", tokenizer_config(self.tokenizer), indent=1)
        write_json(folder / "generation_config.json", generation_config(self.token_id), indent=2)
        shutil.copyfile(TEMPLATE_PATH, folder / "chat_template.jinja")
        shutil.copyfile(self.tokenizer_path, folder / "tokenizer.json")
        weight_map, total = {}, 0
        for file_name, tensors in shards.items():
            st.write(folder / file_name, tensors)
            if file_name in unindexed:
                continue
            weight_map.update({tensor: file_name for tensor in tensors})
            total += sum(len(tensor.data) for tensor in tensors.values())
        index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
        write_json(folder / "model.safetensors.index.json", index, indent=1)
        print(f"{name}: {total} bytes,", {file: len(tensors) for file, tensors in shards.items()})

    def write_drafter(self, weights: Path) -> None:
        folder = self.out / "demo-dflash"
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(weights, folder / "model.safetensors")
        d = self.trained["dflash"]
        config = {
            "architectures": ["DFlashDraftModel"], "model_type": "qwen3",
            "block_size": d["block_size"],
            "dflash_config": {"mask_token_id": d["mask_token_id"],
                              "target_layer_ids": d["target_layer_ids"]},
            "num_target_layers": self.text["num_hidden_layers"],
            "hidden_size": self.text["hidden_size"], "num_hidden_layers": d["num_hidden_layers"],
            "num_attention_heads": d["num_attention_heads"],
            "num_key_value_heads": d["num_key_value_heads"], "head_dim": d["head_dim"],
            "intermediate_size": d["intermediate_size"], "rms_norm_eps": 1e-6,
            "rope_theta": d["rope_theta"], "rope_scaling": None,
            "vocab_size": self.text["vocab_size"], "hidden_act": "silu", "attention_bias": False,
            "layer_types": ["full_attention"] * d["num_hidden_layers"], "sliding_window": None,
            "max_position_embeddings": CONTEXT_LENGTH, "tie_word_embeddings": False,
            "dtype": "bfloat16"}
        write_json(folder / "config.json", config, indent=2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()

    writer = DirectoryWriter(arguments.checkpoint, arguments.out)
    fused = q.load_checkpoint(arguments.checkpoint)
    split = q.split_experts(fused)
    packed = {variant: q.quantize(split, variant)[0] for variant in q.VARIANTS}

    writer.write("demo-bf16", in_halves({k: st.stored_bf16(v) for k, v in fused.items()}))
    extra = "model_extra_tensors.safetensors"
    writer.write("demo-int4-autoround", with_mtp_apart(packed["int4"], extra),
                 autoround_config(writer.text), unindexed=(extra,))
    writer.write("demo-fp8", in_halves(packed["fp8"]), fp8_config(writer.text))
    writer.write("demo-nvfp4", with_mtp_apart(packed["nvfp4"], "mtp_weights.safetensors"),
                 nvfp4_config())
    # The hybrid keeps AutoRound's config, which says nothing of its FP8 shared experts: a reader
    # must recognise them by their tensors.
    writer.write("demo-hybrid", with_mtp_apart(packed["hybrid"], extra), autoround_config(writer.text))
    writer.write_drafter(arguments.checkpoint / "dflash.safetensors")


if __name__ == "__main__":
    main()
