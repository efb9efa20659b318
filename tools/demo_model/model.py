"""The demo target (Hugging Face's Qwen3.5-MoE), its multi-token-prediction head and a DFlash drafter.

PyTorch. The target is transformers' own module; what is written here is what transformers lacks: the
two draft models, and differentiable stand-ins for two slow operations of the training loop.
"""
import torch
import torch.nn.functional as F
import transformers.models.qwen3_5_moe.modeling_qwen3_5_moe as qwen
from torch import Tensor, nn
from transformers import Qwen3_5MoeTextConfig

CHUNK = 64  # rows of one chunk of the delta rule
INNER = 16  # rows of the blocks its triangular inverse starts from


def text_config(vocab_size: int, **overrides) -> Qwen3_5MoeTextConfig:
    """The demo's shape: small everywhere except the head sizes, which are those of the releases."""
    fields = dict(
        vocab_size=vocab_size, hidden_size=256, num_hidden_layers=8,
        num_attention_heads=4, num_key_value_heads=2, head_dim=256,
        linear_num_key_heads=2, linear_num_value_heads=4,
        linear_key_head_dim=128, linear_value_head_dim=128,
        moe_intermediate_size=128, shared_expert_intermediate_size=128,
        num_experts=16, num_experts_per_tok=4,
        max_position_embeddings=8192, tie_word_embeddings=False, rms_norm_eps=1e-6,
        rope_parameters={"rope_type": "default", "rope_theta": 10000000.0,
                         "partial_rotary_factor": 0.25, "mrope_section": [11, 11, 10],
                         "mrope_interleaved": True})
    return Qwen3_5MoeTextConfig(**{**fields, **overrides})


# ---- stand-ins for training


def unit_lower_inverse(lower: Tensor) -> Tensor:
    """(I + A)^-1 of strictly lower triangular A [..., 64, 64].

    A 16-wide diagonal block is nilpotent, so its inverse is a finite product; blocks are then merged
    in pairs.
    """
    eye = torch.eye(INNER, device=lower.device, dtype=lower.dtype)
    inverses = []
    for begin in range(0, CHUNK, INNER):
        a = lower[..., begin:begin + INNER, begin:begin + INNER]
        a2 = a @ a
        a4 = a2 @ a2
        inverses.append((eye - a) @ (eye + a2) @ (eye + a4) @ (eye + a4 @ a4))

    def merge(top: Tensor, bottom: Tensor, corner: Tensor) -> Tensor:
        low = -(bottom @ corner) @ top
        zero = torch.zeros_like(low).transpose(-1, -2)
        return torch.cat([torch.cat([top, zero], -1), torch.cat([low, bottom], -1)], -2)

    upper_half = merge(inverses[0], inverses[1], lower[..., 16:32, 0:16])
    lower_half = merge(inverses[2], inverses[3], lower[..., 48:64, 32:48])
    return merge(upper_half, lower_half, lower[..., 32:64, 0:32])


def chunk_gated_delta_rule(query, key, value, g, beta, chunk_size=CHUNK, initial_state=None,
                           output_final_state=False, use_qk_l2norm_in_kernel=False, **unused):
    """Differentiable gated delta rule in chunks, with the signature transformers calls.

    [B, T, H, D] in and out; T a multiple of 64; the state starts at zero and is not returned.
    """
    batch, length, heads, key_dim = key.shape
    chunks = length // CHUNK
    dtype = value.dtype
    with torch.autocast("cuda", enabled=False):
        q, k, v = [t.transpose(1, 2).float().reshape(batch, heads, chunks, CHUNK, -1)
                   for t in (query, key, value)]
        g, beta = [t.transpose(1, 2).float().reshape(batch, heads, chunks, CHUNK) for t in (g, beta)]
        q = q * torch.rsqrt((q * q).sum(-1, keepdim=True) + 1e-6) * key_dim ** -0.5
        k = k * torch.rsqrt((k * k).sum(-1, keepdim=True) + 1e-6)

        # decay[i, j] = exp(g_{j+1} + … + g_i) for j <= i, the fading between rows of a chunk.
        log_decay = g.cumsum(-1)
        causal = torch.ones(CHUNK, CHUNK, device=q.device, dtype=torch.bool).tril()
        decay = (log_decay[..., :, None] - log_decay[..., None, :])
        decay = decay.masked_fill(~causal, float("-inf")).exp()

        k_beta = k * beta[..., None]
        solve = unit_lower_inverse((k_beta @ k.transpose(-1, -2) * decay).tril(-1))
        written = solve @ (v * beta[..., None])
        erased = solve @ (k_beta * log_decay.exp()[..., None])
        scores = q @ k.transpose(-1, -2) * decay
        q_faded = q * log_decay.exp()[..., None]
        last = log_decay[..., -1:]
        k_faded = (k * (last - log_decay).exp()[..., None]).transpose(-1, -2)
        chunk_decay = last.exp()[..., None]

        state = q.new_zeros(batch, heads, key_dim, v.shape[-1])
        outputs = []
        for n in range(chunks):
            new_values = written[:, :, n] - erased[:, :, n] @ state
            outputs.append(q_faded[:, :, n] @ state + scores[:, :, n] @ new_values)
            state = state * chunk_decay[:, :, n] + k_faded[:, :, n] @ new_values
        out = torch.stack(outputs, 2).reshape(batch, heads, length, -1).transpose(1, 2)
    return out.to(dtype), None


def causal_conv1d(hidden_states, weight, bias=None, activation=None, **unused):
    """Depthwise causal convolution and SiLU as shifted products; [B, C, T] with taps [C, K].

    cuDNN's backward of a depthwise convolution is very slow.
    """
    length, taps = hidden_states.shape[-1], weight.shape[-1]
    padded = F.pad(hidden_states, (taps - 1, 0))
    w = weight.to(hidden_states.dtype)
    return F.silu(sum(padded[..., i:i + length] * w[:, i, None] for i in range(taps)))


# ---- multi-token prediction


def init_matrices(module: nn.Module) -> None:
    for parameter in module.parameters():
        if parameter.dim() >= 2:
            nn.init.normal_(parameter, std=0.02)


class MTP(nn.Module):
    """One full-attention decoder layer over [norm(next token's embedding), norm(final hidden)]."""

    def __init__(self, config) -> None:
        super().__init__()
        fields = config.to_dict()
        fields.update(num_hidden_layers=1, layer_types=["full_attention"])
        fields.pop("model_type", None)
        one_layer = Qwen3_5MoeTextConfig(
            **{k: v for k, v in fields.items() if k in config.__dict__ or k == "layer_types"})
        one_layer._attn_implementation = config._attn_implementation
        one_layer._experts_implementation = getattr(config, "_experts_implementation", None)
        hidden, epsilon = config.hidden_size, config.rms_norm_eps
        self.fc = nn.Linear(2 * hidden, hidden, bias=False)
        self.pre_fc_norm_embedding = qwen.Qwen3_5MoeRMSNorm(hidden, epsilon)
        self.pre_fc_norm_hidden = qwen.Qwen3_5MoeRMSNorm(hidden, epsilon)
        self.layers = nn.ModuleList([qwen.Qwen3_5MoeDecoderLayer(one_layer, 0)])
        self.norm = qwen.Qwen3_5MoeRMSNorm(hidden, epsilon)
        init_matrices(self)

    def forward(self, embedding: Tensor, hidden: Tensor, rope, mask: Tensor | None = None) -> Tensor:
        """mask: what an eager attention wants; a fused causal one takes None."""
        both = [self.pre_fc_norm_embedding(embedding), self.pre_fc_norm_hidden(hidden)]
        x = self.fc(torch.cat(both, -1))
        return self.norm(self.layers[0](x, position_embeddings=rope, attention_mask=mask))


def text_positions(count: int, device, batch: int = 1) -> Tensor:
    """[3, batch, count]: time, height and width are the same for text."""
    return torch.arange(count, device=device).view(1, 1, -1).expand(3, batch, -1)


def causal_mask(count: int, device) -> Tensor:
    return torch.full((count, count), float("-inf"), device=device).triu(1)[None, None]


def run_mtp(target, mtp: MTP, tokens: Tensor, hidden: Tensor) -> Tensor:
    """The head on whole sequences: row t sees the token after t and the target's hidden state of t."""
    count, device = hidden.shape[1], hidden.device
    embedding = target.model.embed_tokens(tokens)
    rope = target.model.rotary_emb(embedding, text_positions(count, device))
    return mtp(embedding, hidden, rope, causal_mask(count, device))


# ---- DFlash


class RMSNorm(nn.Module):
    def __init__(self, size: int, epsilon: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.epsilon)
        return self.weight * y.to(x.dtype)


def rope_tables(positions: Tensor, dim: int, theta: float, dtype) -> tuple[Tensor, Tensor]:
    frequency = 1.0 / theta ** (torch.arange(0, dim, 2, device=positions.device).float() / dim)
    angle = positions.float()[..., None] * frequency
    angle = torch.cat([angle, angle], -1)
    return angle.cos().to(dtype), angle.sin().to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin


class DFlashAttention(nn.Module):
    def __init__(self, hidden: int, heads: int, kv_heads: int, head_dim: int) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, head_dim
        self.q_proj = nn.Linear(hidden, heads * head_dim, bias=False)
        self.k_proj = nn.Linear(hidden, kv_heads * head_dim, bias=False)
        self.v_proj = nn.Linear(hidden, kv_heads * head_dim, bias=False)
        self.o_proj = nn.Linear(heads * head_dim, hidden, bias=False)
        self.q_norm = RMSNorm(head_dim)
        self.k_norm = RMSNorm(head_dim)

    def forward(self, x, context, query_positions, key_positions, theta, mask) -> Tensor:
        batch, rows, _ = x.shape
        source = torch.cat([context, x], 1)
        keys = source.shape[1]
        q = self.q_norm(self.q_proj(x).view(batch, rows, self.heads, self.head_dim)).transpose(1, 2)
        k = self.k_proj(source).view(batch, keys, self.kv_heads, self.head_dim)
        k = self.k_norm(k).transpose(1, 2)
        v = self.v_proj(source).view(batch, keys, self.kv_heads, self.head_dim).transpose(1, 2)
        q_cos, q_sin = rope_tables(query_positions, self.head_dim, theta, q.dtype)
        k_cos, k_sin = rope_tables(key_positions, self.head_dim, theta, k.dtype)
        q = rotate(q, q_cos[:, None], q_sin[:, None])
        k = rotate(k, k_cos[:, None], k_sin[:, None])
        group = self.heads // self.kv_heads
        mixed = F.scaled_dot_product_attention(q, k.repeat_interleave(group, 1),
                                               v.repeat_interleave(group, 1), attn_mask=mask)
        return self.o_proj(mixed.transpose(1, 2).reshape(batch, rows, -1))


class DFlashMLP(nn.Module):
    def __init__(self, hidden: int, intermediate: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden, intermediate, bias=False)
        self.up_proj = nn.Linear(hidden, intermediate, bias=False)
        self.down_proj = nn.Linear(intermediate, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class DFlashLayer(nn.Module):
    def __init__(self, hidden, heads, kv_heads, head_dim, intermediate) -> None:
        super().__init__()
        self.self_attn = DFlashAttention(hidden, heads, kv_heads, head_dim)
        self.mlp = DFlashMLP(hidden, intermediate)
        self.input_layernorm = RMSNorm(hidden)
        self.post_attention_layernorm = RMSNorm(hidden)

    def forward(self, x, context, query_positions, key_positions, theta, mask) -> Tensor:
        """x [B, Q, H] is the noise stream, context [B, T, H] the target's fused features.

        Keys are the context's rows, then x's; mask is [B, 1, Q, T + Q] bool or None for all.
        """
        h = self.input_layernorm(x)
        x = x + self.self_attn(h, context, query_positions, key_positions, theta, mask)
        return x + self.mlp(self.post_attention_layernorm(x))


class DFlash(nn.Module):
    """Block-diffusion drafter: one pass without causal mask proposes block_size - 1 tokens."""

    def __init__(self, hidden_size: int, layers: int, heads: int, kv_heads: int, head_dim: int,
                 intermediate: int, target_layer_ids: list[int], block_size: int, mask_token_id: int,
                 theta: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            DFlashLayer(hidden_size, heads, kv_heads, head_dim, intermediate) for _ in range(layers))
        self.fc = nn.Linear(len(target_layer_ids) * hidden_size, hidden_size, bias=False)
        self.hidden_norm = RMSNorm(hidden_size)
        self.norm = RMSNorm(hidden_size)
        self.target_layer_ids = target_layer_ids
        self.block_size = block_size
        self.mask_token_id = mask_token_id
        self.theta = theta
        init_matrices(self)

    def features(self, hidden_states) -> Tensor:
        """The target's hidden states after the tapped layers, side by side."""
        return torch.cat([hidden_states[i + 1] for i in self.target_layer_ids], -1)

    def forward(self, noise, features, query_positions, key_positions, masks=None) -> Tensor:
        """masks: None, one mask for every layer, or a list with one (or None) a layer."""
        if not isinstance(masks, list):
            masks = [masks] * len(self.layers)
        context = self.hidden_norm(self.fc(features))
        x = noise
        for layer, mask in zip(self.layers, masks, strict=True):
            x = layer(x, context, query_positions, key_positions, self.theta, mask)
        return self.norm(x)

    def block_after(self, target, anchor: Tensor, features: Tensor, block_size: int | None = None,
                    masks_of=None) -> Tensor:
        """Hidden states of one block: anchor [1, 1] at position P, features of positions < P.

        masks_of(query_positions, key_positions) makes the layers' masks; block_size may be cut.
        """
        block_size = block_size or self.block_size
        position, device = features.shape[1], features.device
        masked = torch.full((1, block_size - 1), self.mask_token_id, device=device)
        query_positions = torch.arange(position, position + block_size, device=device)[None]
        key_positions = torch.arange(0, position + block_size, device=device)[None]
        masks = masks_of(query_positions, key_positions) if masks_of else None
        noise = target.model.embed_tokens(torch.cat([anchor, masked], 1))
        return self(noise, features, query_positions, key_positions, masks)
