"""Words that other trainers have for our settings, so that the message for an unknown key names ours.

Sources: the options of Hugging Face's and Lightning's trainers, of improved-diffusion, guided-diffusion, EDM and DiT.
"""

from __future__ import annotations

# our key: words whose value means the same there
SAME = {
    "optimizer.lr": "lr learning_rate base_lr",
    "optimizer.weight_decay": "weight_decay wd",
    "optimizer.betas": "betas adam_betas",
    "batch_size": "batch bs batchsize train_batch_size global_batch_size total_batch_size",
    "images_per_device": "microbatch microbatch_size batch_gpu per_device_train_batch_size",
    "accumulate": "accumulate_grad_batches gradient_accumulation_steps grad_accum",
    "max_steps": "steps num_steps iterations iters max_iters train_steps total_steps max_train_steps",
    "gradient_clip": "grad_clip clip_grad max_grad_norm gradient_clip_val grad_clip_norm",
    "paths.root": "outdir out output output_dir save_dir logdir log_dir results_dir default_root_dir",
    "resume": "resume_from resume_checkpoint resume_from_checkpoint",
    "init_from": "pretrained pretrained_model_name_or_path init weights finetune load_from",
    "dataset": "data ds dataset_name",
    "network": "net arch backbone unet",
    "schedule": "noise_schedule beta_schedule noise_scheduler path",
    "schedule.num_timesteps": "timesteps num_timesteps diffusion_steps num_train_timesteps num_diffusion_timesteps",
    "sampler": "schedule_sampler timestep_sampler time_sampler",
    "weighting": "loss_weight loss_weighting weight",
    "prediction": "prediction_type parameterization objective_type pred_type",
    "solver": "sample_method inference_scheduler",
    "solver.steps": "sampling_steps num_sampling_steps num_inference_steps sample_steps",
    "metrics.num_samples": "num_samples num_fid_samples fid_samples",
    "annealing": "lr_scheduler lr_schedule lr_scheduler_type",
    "averaging": "ema_rule",
    "precision": "mixed_precision dtype",
    "trainer.devices": "gpus devices num_gpus nproc ngpus",
    "trainer.accelerator": "device accelerator",
    "threads": "num_threads omp_num_threads",
    "seed": "random_seed manual_seed",
    "log_every": "log_interval log_steps logging_steps log_every_n_steps",
    "checkpoint_every": "save_interval save_every ckpt_every save_steps checkpointing_steps snap",
    "snapshot_every": "eval_interval eval_every sample_every sample_interval",
    "dataset.conditional": "class_cond cond conditional",
    "dataset.label_dropout": "class_dropout_prob label_dropout drop_prob uncond_prob",
    "network.dropout": "dropout",
    "logger": "log_with report_to loggers",
}
# what to use: words in whose place it is used, because their value means something else
_INSTEAD = {
    "max_steps, the number of optimizer steps of batch_size images each": (
        "epochs num_epochs max_epochs num_train_epochs duration"
    ),
    "resume=RUN_FOLDER to continue a run, init_from=RUN_FOLDER to start from its weights": "ckpt_path ckpt checkpoint",
    "callbacks.ema.decays=[0.9999], or averaging=power_function": "ema ema_decay ema_rate",
    "solver=guided solver.scale=2, with dataset.label_dropout=0.1 in training": "cfg cfg_scale guidance_scale",
    "precision=bf16-mixed or precision=16-mixed": "fp16 use_fp16 amp",
    "precision=bf16-mixed": "bf16",
    "logger=wandb": "wandb",
    "optimizer.betas=[0.9,0.999]": "beta1 beta2",
    "annealing=warmup": "lr_warmup_steps warmup_steps",
    "annealing=linear": "lr_anneal_steps",
    "a data set with that size, dataset=NAME": "image_size resolution",
    "dataset=image_folder dataset.source.root=FOLDER": "data_dir data_path train_data_dir",
    "variance=learned_range": "learn_sigma",
    "prediction=x0": "predict_xstart",
    "weighting=min_snr": "min_snr",
    "weighting=min_snr weighting.gamma=5": "snr_gamma",
}
_KEYS = {word: key for key, words in SAME.items() for word in words.split()}
OTHER = {word: text for text, words in _INSTEAD.items() for word in words.split()}


def suggested(word: str, value: str | None) -> str | None:
    """What to write for a word and its value; None for a word that is not known here."""
    plain = word.lstrip("+-").replace("-", "_").lower()
    if plain in _KEYS:
        return _KEYS[plain] if value is None else f"{_KEYS[plain]}={value}"
    return OTHER.get(plain)
