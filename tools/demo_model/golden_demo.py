"""Reference outputs of the demo checkpoint and of its quantised variants.

    golden_demo.py CHECKPOINT OUT

CHECKPOINT is what train.py wrote. OUT gets golden.safetensors (per-token losses, logits, draft
outputs), answers.json (60 prompts with the greedy answers of every variant) and acceptance-*.json
(tokens per target step of greedy speculation, by family). Arithmetic is f32 on the exactly dequantised
stored weights.
"""
import argparse
import json
import random
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor

import corpus
import model
import quantize as q
from model import qwen

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
VOCAB_SIZE = 4096
HELD_OUT_SEED, HELD_OUT_DOCUMENTS = 5, 400  # as in train.py: never trained on
SEQUENCES, LENGTH = 8, 1024
LONG_BEGIN, LONG_LENGTH = 9000, 700
PROMPTS_PER_FAMILY, PROMPT_SEED = 5, 4242
ANSWER_LIMIT, LONGEST_SPECULATION = 96, 900
MTP_LENGTH, DFLASH_POSITION = 200, 150
FAMILIES = [corpus.capitals, corpus.arithmetic, corpus.counting, corpus.story, corpus.json_doc,
            corpus.code, corpus.tools, corpus.needle, corpus.repeat, corpus.definition,
            corpus.chinese, corpus.smalltalk]
VARIANTS = ("bf16", "int4", "fp8", "hybrid", "nvfp4")
SPECULATION_VARIANTS = ("bf16", "hybrid")


class Demo:
    """The target with its head and drafter, and its tokenizer."""

    def __init__(self, checkpoint: Path) -> None:
        dflash = json.loads((checkpoint / "configs.json").read_text())["dflash"]
        self.tokenizer = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
        self.im_end = self.tokenizer.token_to_id("<|im_end|>")
        self.end_of_text = self.tokenizer.token_to_id("<|endoftext|>")
        config = model.text_config(VOCAB_SIZE)
        config._attn_implementation = "eager"
        self.net = qwen.Qwen3_5MoeForCausalLM(config).to(DEVICE).eval()
        self.mtp = model.MTP(config).to(DEVICE).eval()
        self.drafter = model.DFlash(
            config.hidden_size, layers=dflash["num_hidden_layers"],
            heads=dflash["num_attention_heads"], kv_heads=dflash["num_key_value_heads"],
            head_dim=dflash["head_dim"], intermediate=dflash["intermediate_size"],
            target_layer_ids=dflash["target_layer_ids"], block_size=dflash["block_size"],
            mask_token_id=dflash["mask_token_id"], theta=dflash["rope_theta"]).to(DEVICE).eval()
        weights = load_file(checkpoint / "dflash.safetensors")
        self.drafter.load_state_dict({name: value.float() for name, value in weights.items()})

    def load(self, split_weights: dict[str, np.ndarray]) -> None:
        weights = {name: torch.from_numpy(np.array(value)).to(DEVICE)
                   for name, value in q.fuse_experts(split_weights).items()}
        self.net.load_state_dict({name.replace("model.language_model.", "model."): value
                                  for name, value in weights.items() if not name.startswith("mtp.")})
        self.mtp.load_state_dict({name.removeprefix("mtp."): value
                                  for name, value in weights.items() if name.startswith("mtp.")})

    def hidden(self, ids: Tensor) -> Tensor:
        return self.net.model(input_ids=ids, use_cache=False).last_hidden_state

    def logits(self, ids: Tensor) -> Tensor:
        return self.net.lm_head(self.hidden(ids))

    def hidden_and_features(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        result = self.net.model(input_ids=ids, output_hidden_states=True, use_cache=False)
        return result.last_hidden_state, self.drafter.features(result.hidden_states)

    def answer(self, prompt_ids: list[int]) -> list[int]:
        x = torch.tensor([prompt_ids], device=DEVICE)
        y = self.net.generate(input_ids=x, attention_mask=torch.ones_like(x),
                              max_new_tokens=ANSWER_LIMIT, do_sample=False,
                              eos_token_id=self.im_end, pad_token_id=self.end_of_text)
        return y[0, len(prompt_ids):].tolist()

    def draft_mtp(self, sequence: Tensor, hidden: Tensor, length: int, count: int) -> list[int]:
        """`count` drafts after the first `length` tokens, the head fed with its own states."""
        tokens, states = sequence[:, 1:length], hidden[:, :length - 1].clone()
        drafts = []
        for _ in range(count):
            out = model.run_mtp(self.net, self.mtp, tokens, states)
            draft = self.net.lm_head(out[:, -1]).argmax(-1)
            drafts.append(draft.item())
            tokens = torch.cat([tokens, draft[None]], 1)
            states = torch.cat([states, out[:, -1:]], 1)
        return drafts

    def draft_dflash(self, sequence: Tensor, features: Tensor, length: int, count: int) -> list[int]:
        anchor = sequence[:, length - 1:length]
        hidden = self.drafter.block_after(self.net, anchor, features[:, :length - 1], count + 1)
        return self.net.lm_head(hidden[:, 1:]).argmax(-1)[0].tolist()


def held_out_tokens(demo: Demo) -> list[int]:
    conversations = corpus.stream(HELD_OUT_SEED, corpus.load_glosses())
    ids: list[int] = []
    for _ in range(HELD_OUT_DOCUMENTS):
        ids += demo.tokenizer.encode(next(conversations)).ids + [demo.end_of_text]
    return ids


def make_prompts() -> list[tuple[str, str]]:
    """(family, prompt) of PROMPTS_PER_FAMILY conversations a family, cut before the last answer."""
    r, glosses = random.Random(PROMPT_SEED), corpus.load_glosses()
    return [(family.__name__, corpus.split_at_answer(corpus.generate(family, r, glosses))[0])
            for family in FAMILIES for _ in range(PROMPTS_PER_FAMILY)]


def add_losses(golden: dict[str, Tensor], demo: Demo, variant: str) -> float:
    ids = golden["nll.input_ids"].long().to(DEVICE)
    logits = demo.logits(ids)
    losses = F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
    golden[f"{variant}.nll"] = losses.view(SEQUENCES, LENGTH - 1)
    long_logits = demo.logits(golden["long.input_ids"].long().to(DEVICE)[None])[0]
    golden[f"{variant}.long.logits_tail"] = long_logits[-16:]
    golden[f"{variant}.long.argmax"] = long_logits.argmax(-1).int()
    return losses.mean().item()


def count_steps(demo: Demo, sequence: Tensor, prompt_length: int) -> dict[str, tuple[int, int]]:
    """(target steps, tokens emitted) of greedy speculation over a known greedy answer, by drafter."""
    hidden, features = demo.hidden_and_features(sequence)
    total = sequence.shape[1]
    full_block = demo.drafter.block_size - 1
    counts = {}
    for kind, drafts in (("mtp", 1), ("mtp", 2), ("mtp", 3), ("dflash", 4), ("dflash", full_block)):
        length, steps = prompt_length + 1, 0  # the first token of the answer comes from prefill
        while length < total:
            if kind == "mtp":
                drafted = demo.draft_mtp(sequence, hidden, length, drafts)
            else:
                drafted = demo.draft_dflash(sequence, features, length, drafts)
            accepted = 0
            while (accepted < drafts and length + accepted < total
                   and drafted[accepted] == sequence[0, length + accepted].item()):
                accepted += 1
            length += min(accepted + 1, total - length)
            steps += 1
        counts[f"{kind}{drafts}"] = (steps, max(total - prompt_length - 1, 0))
    return counts


def acceptance(demo: Demo, prompts: list[tuple[str, str]], prompt_ids: list[list[int]],
               answers: list[list[int]]) -> dict:
    sums: dict[str, dict[str, list[int]]] = {}
    for (family, _), prompt, reply in zip(prompts, prompt_ids, answers):
        if len(prompt) + len(reply) > LONGEST_SPECULATION:
            continue
        sequence = torch.tensor([prompt + reply], device=DEVICE)
        for drafter, (steps, tokens) in count_steps(demo, sequence, len(prompt)).items():
            total = sums.setdefault(family, {}).setdefault(drafter, [0, 0])
            total[0] += steps
            total[1] += tokens
    return {family: {drafter: {"steps": steps, "tokens": tokens,
                               "tokens_per_step": round(tokens / max(steps, 1), 3)}
                     for drafter, (steps, tokens) in by_drafter.items()}
            for family, by_drafter in sums.items()}


def add_drafts(golden: dict[str, Tensor], demo: Demo) -> None:
    """Both draft models on one sequence, with the bf16 weights."""
    sequence = golden["long.input_ids"].long().to(DEVICE)[None, :MTP_LENGTH]
    hidden, features = demo.hidden_and_features(sequence)
    logits = demo.net.lm_head(model.run_mtp(demo.net, demo.mtp, sequence[:, 1:], hidden[:, :-1]))[0]
    golden["mtp.input_ids"] = sequence[0].int()
    golden["mtp.argmax"] = logits.argmax(-1).int()
    golden["mtp.logits_tail"] = logits[-8:]
    p = DFLASH_POSITION
    block = demo.drafter.block_after(demo.net, sequence[:, p:p + 1], features[:, :p])
    golden["dflash.position"] = torch.tensor([p], dtype=torch.int32)
    golden["dflash.logits"] = demo.net.lm_head(block[:, 1:])[0]


def write_answers(path: Path, demo: Demo, prompts: list[tuple[str, str]],
                  prompt_ids: list[list[int]], answers: dict[str, list[list[int]]]) -> None:
    entries = [{"family": family, "prompt": prompt, "prompt_ids": ids,
                "answers": {variant: answers[variant][k] for variant in answers},
                "text": demo.tokenizer.decode(answers["bf16"][k], skip_special_tokens=True)}
               for k, ((family, prompt), ids) in enumerate(zip(prompts, prompt_ids))]
    path.write_text(json.dumps({"prompts": entries}, ensure_ascii=False), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    out: Path = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    torch.set_grad_enabled(False)

    demo = Demo(arguments.checkpoint)
    base = q.split_experts(q.load_checkpoint(arguments.checkpoint))
    held_out = held_out_tokens(demo)
    golden = {
        "nll.input_ids": torch.tensor(held_out[:SEQUENCES * LENGTH]).view(SEQUENCES, LENGTH).int(),
        "long.input_ids": torch.tensor(held_out[LONG_BEGIN:LONG_BEGIN + LONG_LENGTH]).int()}
    prompts = make_prompts()
    prompt_ids = [demo.tokenizer.encode(prompt).ids for _, prompt in prompts]
    answers: dict[str, list[list[int]]] = {}
    for variant in VARIANTS:
        demo.load(base if variant == "bf16" else q.quantize(base, variant)[1])
        loss = add_losses(golden, demo, variant)
        answers[variant] = [demo.answer(ids) for ids in prompt_ids]
        equal = sum(a == b for a, b in zip(answers[variant], answers["bf16"]))
        print(f"{variant}: loss {loss}, answers equal to bf16 {equal} of {len(prompts)}", flush=True)
        if variant in SPECULATION_VARIANTS:
            table = acceptance(demo, prompts, prompt_ids, answers[variant])
            (out / f"acceptance-{variant}.json").write_text(json.dumps(table, indent=1))
    write_answers(out / "answers.json", demo, prompts, prompt_ids, answers)
    demo.load(base)
    add_drafts(golden, demo)
    save_file({name: value.contiguous().cpu() for name, value in golden.items()},
              out / "golden.safetensors")


if __name__ == "__main__":
    main()
