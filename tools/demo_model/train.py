"""Trains the demo target with its multi-token-prediction head, then a DFlash drafter on the frozen target.

    train.py OUT --seconds 370 --dflash-seconds 60                                      from scratch
    train.py OUT --seconds 390 --dflash-seconds 60 --init EARLIER --sequence 4096 \\
             --batch 10 --learning-rate 1.2e-3 --documents 260000                       longer context

Needs one CUDA GPU, and the packages of ../requirements-demo-model.txt. OUT gets model-*.safetensors,
dflash.safetensors, tokenizer.json and configs.json, which make_dirs.py turns into model directories.
Time budgets rather than steps: the recipe was made to fit into a fixed stay on a machine.
"""
import argparse
import json
import math
import multiprocessing
import random
import re
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers,
                        trainers)
from torch import Tensor, nn

import corpus
import model
from model import qwen

VOCAB_SIZE, TRAINED_VOCAB_SIZE = 4096, 4000
SEED = 7
CORPUS_SEED, HELD_OUT_SEED = 1000, 5
CORPUS_PARTS, WORKERS = 30, 15
TOKENIZER_DOCUMENTS = 120_000
SHARD_BYTES = 15_500_000

# The added tokens of the release's tokenizer, in its order.
SPECIAL_TOKENS = """<|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|>
<|box_start|> <|box_end|> <|quad_start|> <|quad_end|> <|vision_start|> <|vision_end|> <|vision_pad|>
<|image_pad|> <|video_pad|>""".split()
PLAIN_TOKENS = """<tool_call> </tool_call> <|fim_prefix|> <|fim_middle|> <|fim_suffix|> <|fim_pad|>
<|repo_name|> <|file_sep|> <tool_response> </tool_response> <think> </think>""".split()
SPLIT_REGEX = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
               r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")

# The drafter: its shape, and the sample of a training step.
BLOCK_SIZE, TARGET_LAYER_IDS = 12, [1, 4, 6]
DFLASH_SHAPE = dict(layers=2, heads=4, kv_heads=2, head_dim=64, intermediate=512, theta=1e7)
CONTEXT, ANCHORS, DFLASH_BATCH = 512, 16, 32

CHAT_QUESTIONS = [
    "What is the capital of France?", "What is 17 + 25?", "Count from 3 to 20.",
    "Tell me a story about a fox.", "Who are you?",
    "Write a JSON object for Mia, who is 30 years old and lives in Oslo.", "法国的首都是哪里？",
    "Define bridge.", "Write a Python function that checks whether n is prime."]
EXACT_FAMILIES = [corpus.capitals, corpus.arithmetic, corpus.needle, corpus.repeat, corpus.tools]


# ---- text


def documents(job: tuple[int, int]) -> list[str]:
    seed, count = job
    conversations = corpus.stream(seed, corpus.load_glosses())
    return [next(conversations) for _ in range(count)]


def training_documents(count: int) -> list[str]:
    jobs = [(CORPUS_SEED + part, count // CORPUS_PARTS) for part in range(CORPUS_PARTS)]
    with multiprocessing.Pool(WORKERS) as pool:
        return [document for part in pool.map(documents, jobs) for document in part]


def train_tokenizer(texts: list[str]) -> Tokenizer:
    """Byte-level BPE with the release's normaliser, splitter and added tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT_REGEX), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    added = re.compile("|".join(map(re.escape, SPECIAL_TOKENS + PLAIN_TOKENS)))
    trainer = trainers.BpeTrainer(vocab_size=TRAINED_VOCAB_SIZE, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator((added.sub(" ", t) for t in texts[:TOKENIZER_DOCUMENTS]), trainer)
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False)
                                  for t in SPECIAL_TOKENS])
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=False) for t in PLAIN_TOKENS])
    return tokenizer


def token_tensor(tokenizer: Tokenizer, texts: list[str]) -> Tensor:
    """All documents one after another, each ended by <|endoftext|>."""
    end = tokenizer.token_to_id("<|endoftext|>")
    ids: list[int] = []
    for begin in range(0, len(texts), 20_000):
        for encoding in tokenizer.encode_batch(texts[begin:begin + 20_000]):
            ids += encoding.ids + [end]
    return torch.tensor(ids, dtype=torch.int16).cuda()


class Batches:
    """Random windows of a token tensor, from one seeded generator."""

    def __init__(self, sequence: int) -> None:
        self.sequence = sequence
        self.generator = torch.Generator().manual_seed(SEED)

    def draw(self, data: Tensor, count: int) -> Tensor:
        """[count, sequence + 2]: the inputs and the targets of both heads."""
        width = self.sequence + 2
        offsets = torch.randint(0, data.numel() - width, (count,), generator=self.generator)
        return torch.stack([data[i:i + width] for i in offsets.tolist()]).long()


def learning_rate_factor(fraction: float) -> float:
    """Linear warm-up over 2 % of the time, then a cosine down to 2 %."""
    warm_up = .02
    if fraction < warm_up:
        return fraction / warm_up
    progress = (fraction - warm_up) / (1 - warm_up)
    return .02 + .98 * .5 * (1 + math.cos(math.pi * progress))


def step_optimizer(optimizer, loss: Tensor, parameters, learning_rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
    loss.backward()
    nn.utils.clip_grad_norm_(parameters, 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def round_to_bf16(module: nn.Module) -> None:
    """The shipped weights are bf16: round once, and go on with f32 copies of the rounded values."""
    for parameter in module.parameters():
        parameter.data = parameter.data.bfloat16().float()


# ---- the target and its multi-token-prediction head


class TargetTrainer:
    def __init__(self, init: Path | None) -> None:
        torch.manual_seed(SEED)
        torch.backends.cuda.matmul.allow_tf32 = True
        self.config = model.text_config(VOCAB_SIZE)
        self.config._attn_implementation = "sdpa"
        self.config._experts_implementation = "grouped_mm"
        self.net = qwen.Qwen3_5MoeForCausalLM(self.config).cuda()
        self.mtp = model.MTP(self.config).cuda()
        if init:
            load_target(init, self.net, self.mtp)
        self.named = list(self.net.named_parameters()) + list(self.mtp.named_parameters())
        self.parameters = [p for _, p in self.named]
        print("parameters", sum(p.numel() for p in self.net.parameters()), "mtp",
              sum(p.numel() for p in self.mtp.parameters()), flush=True)

    def optimizer(self) -> torch.optim.Optimizer:
        def decays(name: str, p: Tensor) -> bool:
            return p.dim() >= 2 and "conv1d" not in name
        groups = [{"params": [p for n, p in self.named if decays(n, p)], "weight_decay": .05},
                  {"params": [p for n, p in self.named if not decays(n, p)], "weight_decay": 0.}]
        return torch.optim.AdamW(groups, lr=1e-3, betas=(.9, .95), fused=True)

    def losses(self, batch: Tensor, training: bool = True) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(next token, first draft, second draft, load balance); the last two in training only."""
        length = batch.shape[1] - 2
        net, inputs = self.net, batch[:, :length]
        result = net.model(input_ids=inputs, output_router_logits=training, use_cache=False)
        hidden = result.last_hidden_state

        def cross_entropy(states: Tensor, targets: Tensor) -> Tensor:
            return F.cross_entropy(net.lm_head(states).float().flatten(0, 1), targets.flatten())

        def head(tokens: Tensor, states: Tensor, positions: Tensor) -> Tensor:
            return self.mtp(net.model.embed_tokens(tokens), states,
                            net.model.rotary_emb(hidden, positions))

        positions = model.text_positions(length, inputs.device, inputs.shape[0])
        next_token = cross_entropy(hidden, batch[:, 1:length + 1])
        drafted = head(batch[:, 1:length + 1], hidden, positions)
        first_draft = cross_entropy(drafted, batch[:, 2:length + 2])
        if not training:
            zero = hidden.new_zeros(())
            return next_token, first_draft, zero, zero
        # The second draft step: the head fed with its own output state.
        again = head(batch[:, 2:length + 1], drafted[:, :-1], positions[..., 1:])
        second_draft = cross_entropy(again, batch[:, 3:length + 2])
        balance = qwen.load_balancing_loss_func(result.router_logits, self.config.num_experts,
                                                self.config.num_experts_per_tok)
        return next_token, first_draft, second_draft, balance

    def train(self, data: Tensor, batches: Batches, batch_size: int, learning_rate: float,
              seconds: float) -> None:
        optimizer = self.optimizer()
        start, step = time.time(), 0
        while (elapsed := time.time() - start) < seconds:
            with torch.autocast("cuda", torch.bfloat16):
                lm, draft1, draft2, balance = self.losses(batches.draw(data, batch_size))
                loss = lm + .3 * draft1 + .15 * draft2 + .01 * balance
            step_optimizer(optimizer, loss, self.parameters,
                           learning_rate * learning_rate_factor(elapsed / seconds))
            step += 1
            if step % 100 == 1 or step < 4:
                speed = step * batch_size * batches.sequence / max(elapsed, 1) / 1e6
                print(f"step {step} {elapsed:.0f} s: lm {lm.item():.3f} mtp {draft1.item():.3f} "
                      f"{draft2.item():.3f} balance {balance.item():.3f} {speed:.2f} Mtok/s",
                      flush=True)
        for module in (self.net, self.mtp):
            module.eval()
            round_to_bf16(module)

    @torch.no_grad()
    def report_held_out(self, data: Tensor, batches: Batches) -> None:
        with torch.autocast("cuda", torch.bfloat16):
            pairs = [self.losses(batches.draw(data, 16), training=False)[:2] for _ in range(2)]
        lm, draft = (sum(value.item() for value in column) / len(pairs) for column in zip(*pairs))
        print("held-out: lm", lm, "mtp", draft, flush=True)


def load_target(folder: Path, net: nn.Module, mtp: nn.Module) -> None:
    weights = {}
    for path in sorted(folder.glob("model-*.safetensors")):
        weights.update({name: value.float() for name, value in load_file(path).items()})
    net.load_state_dict({name.replace("model.language_model.", "model."): value
                         for name, value in weights.items() if not name.startswith("mtp.")})
    mtp.load_state_dict({name.removeprefix("mtp."): value
                         for name, value in weights.items() if name.startswith("mtp.")})


# ---- the drafter


def make_drafter(hidden_size: int, mask_token_id: int) -> model.DFlash:
    return model.DFlash(hidden_size, target_layer_ids=TARGET_LAYER_IDS, block_size=BLOCK_SIZE,
                        mask_token_id=mask_token_id, **DFLASH_SHAPE).cuda()


def drafter_step(drafter: model.DFlash, net: nn.Module, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """(logits, targets) of ANCHORS random blocks in each sequence, all in one pass.

    A block sees the context before its anchor and itself, never another block.
    """
    device, block = tokens.device, drafter.block_size
    with torch.no_grad():
        states = net.model(input_ids=tokens, output_hidden_states=True, use_cache=False).hidden_states
        features = drafter.features(states)[:, :CONTEXT]
    sequences = tokens.shape[0]
    anchors = torch.randint(1, CONTEXT, (sequences, ANCHORS), device=device).sort(-1)[0]
    query_positions = (anchors[..., None] + torch.arange(block, device=device)).flatten(1)
    truth = tokens.gather(1, query_positions)
    row = torch.arange(ANCHORS * block, device=device)
    masked = torch.full_like(truth, drafter.mask_token_id)
    inputs = torch.where((row % block == 0)[None], truth, masked)
    block_of = row // block
    sees_context = torch.arange(CONTEXT, device=device)[None, None] < anchors[:, block_of][..., None]
    sees_block = (block_of[:, None] == block_of[None]).expand(sequences, -1, -1)
    mask = torch.cat([sees_context, sees_block], -1)[:, None]
    context_positions = torch.arange(CONTEXT, device=device).expand(sequences, -1)
    key_positions = torch.cat([context_positions, query_positions], 1)
    noise = net.model.embed_tokens(inputs).detach()
    hidden = drafter(noise, features.detach(), query_positions, key_positions, mask)
    drafted = hidden.view(sequences, ANCHORS, block, -1)[:, :, 1:]
    return net.lm_head(drafted).float(), truth.view(sequences, ANCHORS, block)[:, :, 1:]


def train_drafter(drafter: model.DFlash, net: nn.Module, data: Tensor, batches: Batches,
                  seconds: float) -> None:
    for parameter in net.parameters():
        parameter.requires_grad_(False)
    optimizer = torch.optim.AdamW(drafter.parameters(), lr=1e-3, betas=(.9, .95), fused=True,
                                  weight_decay=.01)
    # An error late in a block matters less: acceptance stops at the first one.
    weight = torch.exp(-torch.arange(BLOCK_SIZE - 1, device=data.device) / 6.0)
    start, step = time.time(), 0
    while (elapsed := time.time() - start) < seconds:
        tokens = batches.draw(data, DFLASH_BATCH)[:, :CONTEXT + 64]
        with torch.autocast("cuda", torch.bfloat16):
            logits, targets = drafter_step(drafter, net, tokens)
            errors = F.cross_entropy(logits.flatten(0, 2), targets.flatten(), reduction="none")
            errors = errors.view(DFLASH_BATCH, ANCHORS, BLOCK_SIZE - 1)
            loss = (errors * weight).sum() / (weight.sum() * DFLASH_BATCH * ANCHORS)
        step_optimizer(optimizer, loss, drafter.parameters(),
                       2e-3 * learning_rate_factor(elapsed / seconds))
        step += 1
        if step % 200 == 1:
            accepted = (logits.argmax(-1) == targets).float().cumprod(-1).sum(-1).mean().item()
            print(f"dflash {step} {elapsed:.0f} s: loss {loss.item():.3f} accepted {accepted:.2f} "
                  f"of {BLOCK_SIZE - 1}", flush=True)
    round_to_bf16(drafter)


# ---- what is written, and what is shown


def stored_weights(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.bfloat16().contiguous().cpu() for name, value in module.state_dict().items()}


def save_target(out: Path, net: nn.Module, mtp: nn.Module) -> None:
    """Shards of bf16 weights under the names of the released family."""
    weights = {f"mtp.{name}": value for name, value in stored_weights(mtp).items()}
    for name, value in stored_weights(net).items():
        is_body = name.startswith("model.")
        weights["model.language_model." + name.removeprefix("model.") if is_body else name] = value
    shards, size = [{}], 0
    for name in sorted(weights):
        bytes_here = weights[name].numel() * 2
        if size + bytes_here > SHARD_BYTES:
            shards.append({})
            size = 0
        shards[-1][name] = weights[name]
        size += bytes_here
    for i, shard in enumerate(shards, start=1):
        save_file(shard, out / f"model-{i:05d}-of-{len(shards):05d}.safetensors",
                  metadata={"format": "pt"})


def save_configs(out: Path, config, mask_token_id: int) -> None:
    dflash = {"block_size": BLOCK_SIZE, "target_layer_ids": TARGET_LAYER_IDS,
              "mask_token_id": mask_token_id, "num_hidden_layers": DFLASH_SHAPE["layers"],
              "num_attention_heads": DFLASH_SHAPE["heads"],
              "num_key_value_heads": DFLASH_SHAPE["kv_heads"], "head_dim": DFLASH_SHAPE["head_dim"],
              "intermediate_size": DFLASH_SHAPE["intermediate"], "rope_theta": DFLASH_SHAPE["theta"]}
    (out / "configs.json").write_text(
        json.dumps({"text": config.to_dict(), "dflash": dflash}, indent=1, default=str))


class Chat:
    """Greedy answers of the trained target, to see whether it talks."""

    def __init__(self, net: nn.Module, tokenizer: Tokenizer) -> None:
        self.net, self.tokenizer = net, tokenizer

    @torch.no_grad()
    def complete(self, prompt: str, limit: int) -> str:
        x = torch.tensor([self.tokenizer.encode(prompt).ids]).cuda()
        y = self.net.generate(input_ids=x, attention_mask=torch.ones_like(x), max_new_tokens=limit,
                              do_sample=False,
                              eos_token_id=self.tokenizer.token_to_id("<|im_end|>"),
                              pad_token_id=self.tokenizer.token_to_id("<|endoftext|>"))
        return self.tokenizer.decode(y[0, x.shape[1]:].tolist(), skip_special_tokens=True)

    def show(self) -> None:
        for question in CHAT_QUESTIONS:
            prompt, _ = corpus.split_at_answer(corpus.exchange(question, ""))
            print("Q:", question, "\nA:", self.complete(prompt, 60), flush=True)

    def exact_answers(self, family, r: random.Random, count: int = 20) -> int:
        exact = 0
        for _ in range(count):
            prompt, wanted = corpus.split_at_answer(family(r))
            limit = min(150, len(self.tokenizer.encode(wanted).ids) + 4)
            exact += self.complete(prompt, limit).strip() == wanted.strip()
        return exact


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, required=True, help="training of target and MTP head")
    parser.add_argument("--dflash-seconds", type=float, required=True, help="training of the drafter")
    parser.add_argument("--init", type=Path, help="an earlier OUT to go on from, with its tokenizer")
    parser.add_argument("--sequence", type=int, default=1024, help="tokens, a multiple of 64")
    parser.add_argument("--batch", type=int, default=40)
    parser.add_argument("--learning-rate", type=float, default=2.5e-3)
    parser.add_argument("--documents", type=int, default=450_000)
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    out: Path = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    texts = training_documents(arguments.documents)
    if arguments.init:
        tokenizer = Tokenizer.from_file(str(arguments.init / "tokenizer.json"))
    else:
        tokenizer = train_tokenizer(texts)
    tokenizer.save(str(out / "tokenizer.json"))
    data = token_tensor(tokenizer, texts)
    held_out = token_tensor(tokenizer, documents((HELD_OUT_SEED, 400)))
    print("documents", len(texts), "tokens", data.numel(), "held out", held_out.numel(), flush=True)

    # transformers' own forms are put back for the answers at the end.
    own_forms = qwen.torch_chunk_gated_delta_rule, qwen.causal_conv1d_fn
    qwen.torch_chunk_gated_delta_rule = model.chunk_gated_delta_rule
    qwen.causal_conv1d_fn = model.causal_conv1d
    trainer = TargetTrainer(arguments.init)
    batches = Batches(arguments.sequence)
    trainer.train(data, batches, arguments.batch, arguments.learning_rate, arguments.seconds)
    trainer.report_held_out(held_out, batches)
    save_target(out, trainer.net, trainer.mtp)

    mask_token_id = tokenizer.token_to_id("<|fim_pad|>")
    drafter = make_drafter(trainer.config.hidden_size, mask_token_id)
    if arguments.init:
        earlier = load_file(arguments.init / "dflash.safetensors")
        drafter.load_state_dict({name: value.float() for name, value in earlier.items()})
    train_drafter(drafter, trainer.net, data, batches, arguments.dflash_seconds)
    save_file(stored_weights(drafter), out / "dflash.safetensors", metadata={"format": "pt"})
    save_configs(out, trainer.config, mask_token_id)

    qwen.torch_chunk_gated_delta_rule, qwen.causal_conv1d_fn = own_forms
    trainer.net.float()
    chat = Chat(trainer.net, tokenizer)
    chat.show()
    r = random.Random(99)
    print("exact of 20:", {f.__name__: chat.exact_answers(f, r) for f in EXACT_FAMILIES}, flush=True)


if __name__ == "__main__":
    main()
