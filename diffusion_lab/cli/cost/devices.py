"""GPUs whose cost can be estimated on other machines: peak FLOP/s and memory from data sheets."""

from __future__ import annotations

from typing import NamedTuple


class GPU(NamedTuple):
    """Dense peak in TFLOP/s (a multiplication and an addition are 2), without sparsity, and memory in GB."""

    full: float  # of float32; from Ampere on of TF32, which PyTorch's convolutions use
    half: float  # of bfloat16 or float16 with float32 sums
    memory: float


# NVIDIA's data sheets of the V100 (SXM2, 2020), A100 (SXM, 80 GB, 2021), H100 and H200 (SXM, 2023 and 2024; theirs
# print twice the dense numbers, "with sparsity") and the white paper of the Ada architecture (2022, appendix A).
GPUS = {
    "V100": GPU(15.7, 125.0, 32.0),  # float16 alone; it computes bfloat16 no faster than float32
    "A100": GPU(156.0, 312.0, 80.0),
    "H100": GPU(494.5, 989.5, 80.0),
    "H200": GPU(494.5, 989.5, 141.0),
    "RTX4090": GPU(82.6, 165.2, 24.0),
}


def peak(device: str, precision: str) -> float:
    """FLOP/s that the device can reach at this `precision` of the configuration: 32-true, bf16-mixed or 16-mixed."""
    gpu = GPUS[device]
    slow = precision == "32-true" or (device == "V100" and precision == "bf16-mixed")
    return 1e12 * (gpu.full if slow else gpu.half)
