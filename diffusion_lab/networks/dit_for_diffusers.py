"""DiT as a DiTTransformer2DModel of the diffusers library.

Differs from the library: it embeds t at the frequencies 10000^(-i/127), the published code and ours at 10000^(-i/128).
The library's layer has an attribute for that, which is set again after loading; it changes no weight.

The library's blocks each embed time and label on their own, so its copies of those weights are as many as the blocks.
"""

from __future__ import annotations

from typing import Any

import torch

from diffusion_lab.networks.for_diffusers import ForDiffusers, renamed, thirds

ADJUSTMENT = """for part in model.modules():  # the published frequencies of t
    if hasattr(part, "downscale_freq_shift"):
        part.downscale_freq_shift = 0"""


def for_diffusers(network: Any) -> ForDiffusers:
    """The library's model for a `DiT`."""
    blocks, last, time = network.blocks, network.last, network.time
    dim, heads = network.patches.out_channels, blocks[0].attention.num_heads
    embedding = [("timestep_embedder.linear_1", time[0]), ("timestep_embedder.linear_2", time[2])]
    label = torch.zeros(1, dim) if network.label is None else network.label.weight
    pairs = [("pos_embed.proj", network.patches), ("proj_out_1", last.modulation), ("proj_out_2", last.out)]
    tensors = {}
    for k, block in enumerate(blocks):
        place = f"transformer_blocks.{k}"
        pairs += [(f"{place}.norm1.emb.{name}", layer) for name, layer in embedding]
        pairs += [
            (f"{place}.norm1.linear", block.modulation),
            (f"{place}.attn1.to_out.0", block.attention.out),
            (f"{place}.ff.net.0.proj", block.hidden),
            (f"{place}.ff.net.2", block.out),
        ]
        tensors[f"{place}.norm1.emb.class_embedder.embedding_table.weight"] = label.detach().clone()
        to = f"{place}.attn1.to_"
        tensors |= thirds((f"{to}q", f"{to}k", f"{to}v"), block.attention.qkv)
    arguments = {
        "num_attention_heads": heads,
        "attention_head_dim": dim // heads,
        "in_channels": network.patches.in_channels,
        "out_channels": last.out.out_features // network.patch_size**2,
        "num_layers": len(blocks),
        "patch_size": network.patch_size,
        "num_embeds_ada_norm": len(label) - 1,  # the library adds the null label
        "norm_eps": 1e-6,
    }
    return ForDiffusers("DiTTransformer2DModel", arguments, renamed(pairs) | tensors, ADJUSTMENT, needs_label=True)
