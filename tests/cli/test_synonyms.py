"""Words of other trainers get our key in the hint."""

from __future__ import annotations

import re

import pytest
from omegaconf import DictConfig, OmegaConf

from diffusion_lab.cli.main import main
from diffusion_lab.cli.synonyms import OTHER, SAME, suggested
from tests.conf.test_options import composed


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("lr=1e-3", "lr=1e-3: there is no setting lr; use optimizer.lr=1e-3"),
        ("learning_rate=1", "use optimizer.lr=1"),
        ("epochs=3", "use max_steps, the number of optimizer steps of batch_size images each"),
        ("steps=100", "use max_steps=100"),
        ("outdir=x", "use paths.root=x"),
        ("ckpt_path=x", "use resume=RUN_FOLDER to continue a run, init_from=RUN_FOLDER to start from its weights"),
        ("model=dit", "must be one of diffusion, .*gan.* network=dit_b"),
        ("data=cifar10", "use dataset=cifar10"),
        ("batch=32", "use batch_size=32"),
        (
            "optimizer={lrr: 1}",
            "optimizer.lrr: there is no setting optimizer.lrr .*'optimizer.lr'.*; optimizer has lr, ",
        ),
        ("sampler.foo=1", "there is no setting sampler.foo .*sampler has num_timesteps"),
    ],
)
def test_a_word_that_people_type_gets_the_right_key(word: str, said: str, capsys) -> None:
    assert main(["train", word]) == 2
    error = capsys.readouterr().err
    assert error.startswith("config error: ") and error.count("\n") == 1 and re.search(said, error)


def test_the_keys_of_the_chosen_part_are_listed(capsys) -> None:
    assert main(["train", "sampler=logit_normal", "sampler.sd=1"]) == 2
    assert "sampler=logit_normal has num_timesteps, mean, std, reweight, shift" in capsys.readouterr().err


def test_a_command_without_the_key_does_not_suggest_it(capsys) -> None:
    assert main(["evaluate", "run=x", "lr=3"]) == 2
    error = capsys.readouterr().err
    assert "there is no setting lr" in error and "optimizer" not in error


def test_an_option_of_another_group_is_found(capsys) -> None:
    assert main(["train", "sampler=cosine"]) == 2
    assert re.search(r"did you mean \S*=cosine or \S*=cosine\?", capsys.readouterr().err)


def test_every_suggestion_is_a_setting_and_no_word_is_one() -> None:
    cfg = composed()
    for key, words in SAME.items():
        assert _is_setting(cfg, key) or key in ("optimizer.weight_decay",), key
        assert not any(word in cfg for word in words.split()), words
    assert not any(word in cfg for word in OTHER)
    words = [word for words in SAME.values() for word in words.split()] + list(OTHER)
    assert len(words) == len(set(words))


def _is_setting(cfg: DictConfig, key: str) -> bool:
    parent, _, name = key.rpartition(".")
    node = OmegaConf.select(cfg, parent) if parent else cfg
    return name in node or _is_group(key)


def _is_group(key: str) -> bool:
    from diffusion_lab.cli.config import conf_dir

    return (conf_dir() / key).is_dir()


def test_a_word_may_be_written_as_an_option() -> None:
    assert suggested("--learning-rate", "3") == "optimizer.lr=3" and suggested("nonsense", "3") is None
