"""Parts that a run has to carry: learned weights in the checkpoint, a preconditioned model read back from its
folder; and two methods that are one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from diffusion_lab.annealing import MDLRC
from diffusion_lab.cli.load import load_run
from diffusion_lab.diffusion import FDMScale
from diffusion_lab.networks import UNet
from diffusion_lab.training.checkpoint_io import load
from tests.harness import configuration, differences, final_state, train_child

UNCERTAIN = ["weighting=uncertainty", "weighting.normalize=mean1_sampler", "annealing=mdlrc", "~callbacks.validation"]


@pytest.mark.slow
def test_a_learned_weighting_trains_with_the_model_and_resumes_exactly(tmp_path: Path) -> None:
    whole, cut = (tmp_path / name / "run" for name in ("whole", "cut"))
    train_child(configuration(whole, *UNCERTAIN, "max_steps=6")).succeed()
    total = "annealing.total_steps=6"
    train_child(configuration(cut, *UNCERTAIN, total, "max_steps=3")).succeed()
    train_child(configuration(cut, *UNCERTAIN, total, "max_steps=6")).succeed()
    assert differences(final_state(whole), final_state(cut)) == []
    content = load(whole / "checkpoints" / "last.ckpt", map_location="cpu")
    coefficients = content["state_dict"]["weighting.coefficients"]
    assert coefficients.shape == (128,) and bool((coefficients != 0).all())
    rows = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    logged = [(row["optim/lr"], row["optim/beta1"]) for row in rows if "optim/beta1" in row]
    expected = [MDLRC(6)(step) for step in range(6)]
    assert logged == [(0.001 * factor, beta1) for factor, beta1, _ in expected]
    assert content["optimizer_states"][0]["param_groups"][0]["betas"] == (expected[-1].beta1, 0.999)


def test_a_preconditioned_model_is_read_back_from_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    train_child(configuration(folder, "method=fdm", "schedule=cosine", "max_steps=2")).succeed()
    trained = load_run(folder)
    assert isinstance(trained.denoiser.preconditioning, FDMScale) and trained.step == 2
    seen: list[torch.Tensor] = []
    trained.denoiser.network.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    x, t = torch.ones(1, *trained.data.shape), torch.tensor([39])
    with torch.no_grad():
        trained.denoiser.estimate(x, t)
    scale = FDMScale(1.0).input_scale(trained.denoiser.schedule)[39].float()
    assert torch.equal(seen[0], scale * x) and float(scale) < 0.1


def test_the_mean_weight_is_one_also_where_draws_carry_a_weight(tmp_path: Path) -> None:
    """E[w_t/(T p_t)] over t ~ p is the plain mean of w_t."""
    folder = tmp_path / "run"
    words = ["sampler=logit_normal", "sampler.reweight=true", "weighting=min_snr", "weighting.normalize=mean1_sampler"]
    train_child(configuration(folder, *words, "max_steps=1")).succeed()
    schedule = load_run(folder).denoiser.schedule
    weight = schedule.snr.clamp(max=5.0) / schedule.snr  # Min-SNR on the eps loss
    state = load(folder / "checkpoints" / "last.ckpt", map_location="cpu")["state_dict"]
    assert float(state["weighting.factor"]) == pytest.approx(1 / float(weight.mean()), rel=1e-5)


def test_a_look_asks_for_at_most_twice_the_rows_of_a_microbatch_at_a_time(tmp_path: Path) -> None:
    """40 timesteps and 2 x 3 rewards before the update in the first of two microbatches of 8, 6 in the second."""
    rows = tmp_path / "rows"

    def note() -> None:
        forward = UNet.forward

        def noting(self: UNet, x: torch.Tensor, *args: torch.Tensor, **cond: torch.Tensor) -> torch.Tensor:
            if not torch.is_grad_enabled():
                with rows.open("a") as file:
                    file.write(f"{len(x)} ")
            return forward(self, x, *args, **cond)

        UNet.forward = noting

    words = ["sampler=learned_beta", "sampler.grid_stride=1", "accumulate=2", "~callbacks.validation", "max_steps=1"]
    train_child(configuration(tmp_path / "run", *words), note).succeed()
    assert rows.read_text().split() == ["16", "15", "15", "6", "13", "13", "13", "13"]


@pytest.mark.slow
def test_gradients_are_clipped_in_bfloat16_with_a_fused_optimizer(tmp_path: Path) -> None:
    """Lightning refuses it, although nothing is scaled; a bound that is never reached changes no bit."""
    states = {}
    for clip in ("null", "1000000", "0.001"):
        folder = tmp_path / clip
        words = ["precision=bf16-mixed", f"gradient_clip={clip}", "optimizer.eps=0.1", "max_steps=2"]
        train_child(configuration(folder, *words)).succeed()
        states[clip] = final_state(folder)
    assert "weights" not in differences(states["null"], states["1000000"])
    assert "weights" in differences(states["null"], states["0.001"])


def test_p2_without_gamma_is_ddpm_to_the_bit(tmp_path: Path) -> None:
    states = []
    for method in ("ddpm", "p2_gamma0"):
        folder = tmp_path / method
        train_child(configuration(folder, f"method={method}", "max_steps=3")).succeed()
        states.append(final_state(folder))
    # Their weightings differ in what they are, and neither keeps anything of its own.
    assert differences(*states) == []
