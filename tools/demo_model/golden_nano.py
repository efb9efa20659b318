"""Reference outputs of tiny random models with odd sizes, from Hugging Face transformers.

    golden_nano.py OUT

Writes OUT/nano-moe (with its multi-token-prediction head), nano-dense, nano-dflash and
nano-dflash-swa: checkpoint, config and golden.safetensors. Weights are rounded to bf16, arithmetic is
f32. Runs on a CPU in a minute; exact bits depend on the machine, differences stay near 1e-5.

Names in golden.safetensors: input_ids; logits [T, V]; hidden.i, the residual stream that enters layer
i; hidden.final_norm; greedy.prompt_len, greedy.tokens; mtp.logits and mtp.hidden, row t from the
embedding of token t + 1 and the final hidden state of t; mtp.chain.*, four drafts after the first 37
tokens; and for the drafter features [T, taps·H], draft.P.hidden and draft.P.logits for the block
whose anchor is token P.
"""
import argparse
import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

import model
from model import qwen

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SEED = 20261129
VOCAB_SIZE, LENGTH, PROMPT_LENGTH, CHAIN_LENGTH = 320, 150, 37, 4
ANCHORS = (5, 37, 101)
WINDOW = 16

NANO = dict(
    hidden_size=64, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, head_dim=32,
    linear_num_key_heads=2, linear_num_value_heads=6, linear_key_head_dim=16,
    linear_value_head_dim=24, moe_intermediate_size=48, shared_expert_intermediate_size=40,
    num_experts=8, num_experts_per_tok=3, max_position_embeddings=4096, tie_word_embeddings=False,
    rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": .25,
                     "mrope_section": [2, 1, 1], "mrope_interleaved": True})
DRAFTER = dict(layers=2, heads=4, kv_heads=2, head_dim=32, intermediate=96,
               target_layer_ids=[0, 1, 2], block_size=8, mask_token_id=319, theta=10000.0)

# What a Hugging Face config dumps that released config files do not carry.
DROPPED_FIELDS = set("""
architectures transformers_version _name_or_path id2label label2id return_dict output_hidden_states
chunk_size_feed_forward is_encoder_decoder problem_type output_attentions
ignore_keys_at_rope_validation
""".split())


# ---- models


def randomize(module: nn.Module, seed: int) -> None:
    """Weights that make every part matter: wide norms, spread logits, decays over the whole range."""
    generator = torch.Generator().manual_seed(seed)
    zero_centred_norms = not isinstance(module, model.DFlash)
    for name, parameter in sorted(module.named_parameters()):
        shape = parameter.shape
        if name.endswith("A_log"):
            value = torch.rand(shape, generator=generator) * 4 - 3
        elif name.endswith("dt_bias"):
            value = torch.rand(shape, generator=generator) * 2 - 1
        elif "norm" in name and parameter.dim() == 1:
            plain = "linear_attn.norm" in name or not zero_centred_norms
            value = torch.randn(shape, generator=generator) * .3 + (1.0 if plain else 0.0)
        elif "conv1d" in name:
            value = torch.randn(shape, generator=generator) * .5
        elif "embed" in name:
            value = torch.randn(shape, generator=generator)
        elif "lm_head" in name:
            value = torch.randn(shape, generator=generator) * 3 / shape[-1] ** .5
        else:
            value = torch.randn(shape, generator=generator) * 1.6 / shape[-1] ** .5
        parameter.data = value.bfloat16().float().to(DEVICE)


def make(module: nn.Module, seed: int) -> nn.Module:
    module = module.to(DEVICE).eval()
    randomize(module, seed)
    return module


def released_names(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {("model.language_model." + name.removeprefix("model.") if name.startswith("model.")
             else name): value for name, value in state.items()}


def released_config(config, architecture: str, model_type: str, mtp_layers: int) -> dict:
    dumped = json.loads(json.dumps(config.to_dict(), default=str))
    text = {k: v for k, v in dumped.items() if k not in DROPPED_FIELDS and v is not None}
    text.update(model_type=model_type + "_text", full_attention_interval=4,
                mtp_num_hidden_layers=mtp_layers, dtype="bfloat16", mamba_ssm_dtype="float32",
                attn_output_gate=True)
    return {"architectures": [architecture], "model_type": model_type, "text_config": text,
            "tie_word_embeddings": config.tie_word_embeddings, "image_token_id": 1,
            "video_token_id": 2, "vision_start_token_id": 3, "vision_end_token_id": 4,
            "transformers_version": "5.17.0"}


def drafter_config() -> dict:
    return {"architectures": ["DFlashDraftModel"], "model_type": "qwen3",
            "block_size": DRAFTER["block_size"],
            "dflash_config": {"mask_token_id": DRAFTER["mask_token_id"],
                              "target_layer_ids": DRAFTER["target_layer_ids"]},
            "num_target_layers": NANO["num_hidden_layers"], "hidden_size": NANO["hidden_size"],
            "num_hidden_layers": DRAFTER["layers"], "num_attention_heads": DRAFTER["heads"],
            "num_key_value_heads": DRAFTER["kv_heads"], "head_dim": DRAFTER["head_dim"],
            "intermediate_size": DRAFTER["intermediate"], "rms_norm_eps": 1e-6,
            "rope_theta": DRAFTER["theta"], "vocab_size": VOCAB_SIZE, "hidden_act": "silu",
            "attention_bias": False, "layer_types": ["full_attention"] * DRAFTER["layers"],
            "max_position_embeddings": 4096, "dtype": "bfloat16", "tie_word_embeddings": False}


def save(folder: Path, config: dict, weights: dict[str, Tensor], golden: dict[str, Tensor]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    save_file({name: value.bfloat16().contiguous().cpu() for name, value in weights.items()},
              folder / "model.safetensors", metadata={"format": "pt"})
    save_file({name: (value.float() if value.is_floating_point() else value).contiguous().cpu()
               for name, value in golden.items()}, folder / "golden.safetensors")
    print(folder, {name: tuple(value.shape) for name, value in golden.items() if "hidden" not in name})


# ---- outputs


def trace(net, ids: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    """(golden tensors of one forward pass, the final hidden states [1, T, H])."""
    result = net.model(input_ids=ids, output_hidden_states=True, use_cache=False)
    final = result.last_hidden_state
    golden = {"input_ids": ids[0].int(), "logits": net.lm_head(final)[0]}
    golden.update({f"hidden.{i}": h[0] for i, h in enumerate(result.hidden_states[:-1])})
    golden["hidden.final_norm"] = final[0]
    return golden, final


def add_greedy(golden: dict[str, Tensor], net, ids: Tensor, count: int = 64) -> None:
    prompt = ids[:, :PROMPT_LENGTH]
    y = net.generate(input_ids=prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=count,
                     do_sample=False, eos_token_id=None, pad_token_id=0)
    golden["greedy.prompt_len"] = torch.tensor([PROMPT_LENGTH], dtype=torch.int32)
    golden["greedy.tokens"] = y[0, PROMPT_LENGTH:].int()


def report_incremental(net, ids: Tensor, logits: Tensor, begin: int = 70, end: int = 80) -> None:
    """How far ten cached steps are from the whole pass: the size of rounding in these goldens."""
    cache = net.model(input_ids=ids[:, :begin], use_cache=True).past_key_values
    worst = 0.0
    for t in range(begin, end):
        step = net.model(input_ids=ids[:, t:t + 1], past_key_values=cache, use_cache=True)
        difference = net.lm_head(step.last_hidden_state)[0, 0] - logits[t]
        worst = max(worst, difference.abs().max().item())
    print("incremental against whole:", worst, "of logits with deviation", logits.std().item())


def add_mtp(golden: dict[str, Tensor], net, mtp: model.MTP, ids: Tensor, final: Tensor) -> None:
    hidden = model.run_mtp(net, mtp, ids[:, 1:], final[:, :-1])
    golden["mtp.logits"], golden["mtp.hidden"] = net.lm_head(hidden)[0], hidden[0]
    # A chain: the first step sees the target's hidden states, later ones the head's own.
    first = net.lm_head(final[:, PROMPT_LENGTH - 1]).argmax(-1)
    tokens = torch.cat([ids[:, 1:PROMPT_LENGTH], first[None]], 1)
    states = final[:, :PROMPT_LENGTH].clone()
    drafts, logits = [], []
    for _ in range(CHAIN_LENGTH):
        out = model.run_mtp(net, mtp, tokens, states)
        logits.append(net.lm_head(out[:, -1]))
        draft = logits[-1].argmax(-1)
        drafts.append(draft.item())
        tokens = torch.cat([tokens, draft[None]], 1)
        states = torch.cat([states, out[:, -1:]], 1)
    golden["mtp.chain.first_token"] = first.int()
    golden["mtp.chain.tokens"] = torch.tensor(drafts, dtype=torch.int32)
    golden["mtp.chain.logits"] = torch.cat(logits)


def draft_golden(net, drafter: model.DFlash, ids: Tensor, features: Tensor,
                 masks_of=None) -> dict[str, Tensor]:
    golden = {"input_ids": ids[0].int(), "features": features[0]}
    for p in ANCHORS:
        hidden = drafter.block_after(net, ids[:, p:p + 1], features[:, :p], masks_of=masks_of)
        golden[f"draft.{p}.hidden"] = hidden[0]
        golden[f"draft.{p}.logits"] = net.lm_head(hidden[:, 1:])[0]
    return golden


def sliding_then_full(query_positions: Tensor, key_positions: Tensor) -> list[Tensor | None]:
    """Masks of two layers: causal within a window of WINDOW keys, then everything."""
    distance = query_positions[:, :, None] - key_positions[:, None, :]
    return [((distance >= 0) & (distance < WINDOW))[:, None], None]


def write_moe_and_drafters(out: Path, ids: Tensor) -> None:
    config = model.text_config(VOCAB_SIZE, **NANO)
    config._attn_implementation = "eager"
    net = make(qwen.Qwen3_5MoeForCausalLM(config), seed=1)
    mtp = make(model.MTP(config), seed=2)
    golden, final = trace(net, ids)
    report_incremental(net, ids, golden["logits"])
    add_greedy(golden, net, ids)
    add_mtp(golden, net, mtp, ids, final)
    weights = released_names(net.state_dict())
    weights.update({"mtp." + name: value for name, value in mtp.state_dict().items()})
    save(out / "nano-moe",
         released_config(config, "Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe", mtp_layers=1),
         weights, golden)

    drafter = make(model.DFlash(NANO["hidden_size"], **DRAFTER), seed=5)
    states = net.model(input_ids=ids, output_hidden_states=True, use_cache=False).hidden_states
    features = drafter.features(states)
    save(out / "nano-dflash", drafter_config(), drafter.state_dict(),
         draft_golden(net, drafter, ids, features))
    sliding = {**drafter_config(), "layer_types": ["sliding_attention", "full_attention"],
               "use_sliding_window": True, "sliding_window": WINDOW}
    save(out / "nano-dflash-swa", sliding, drafter.state_dict(),
         draft_golden(net, drafter, ids, features, sliding_then_full))


def write_dense(out: Path, ids: Tensor) -> None:
    """No experts, tied embeddings, one key head."""
    fields = {k: v for k, v in NANO.items() if "expert" not in k and "moe" not in k}
    fields.update(vocab_size=VOCAB_SIZE, intermediate_size=112, tie_word_embeddings=True,
                  num_key_value_heads=1, linear_num_value_heads=2, rms_norm_eps=1e-6)
    config = Qwen3_5TextConfig(**fields)
    config._attn_implementation = "eager"
    net = make(Qwen3_5ForCausalLM(config), seed=7)
    embedding = net.model.embed_tokens.weight
    embedding.data = (embedding.data * .4).bfloat16().float()
    net.lm_head.weight = embedding
    golden, _ = trace(net, ids)
    add_greedy(golden, net, ids)
    weights = released_names(net.state_dict())
    weights.pop("lm_head.weight", None)
    save(out / "nano-dense",
         released_config(config, "Qwen3_5ForConditionalGeneration", "qwen3_5", mtp_layers=0),
         weights, golden)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    torch.manual_seed(SEED)
    torch.set_grad_enabled(False)
    ids = torch.randint(0, VOCAB_SIZE, (1, LENGTH), generator=torch.Generator().manual_seed(3))
    ids = ids.to(DEVICE)
    write_moe_and_drafters(arguments.out, ids)
    write_dense(arguments.out, ids)


if __name__ == "__main__":
    main()
