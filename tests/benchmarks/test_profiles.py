"""`python -m benchmarks.profiles`: it finds every file; an operator has a kind, and a function is somebody's code."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import benchmarks.profiles
from benchmarks.kinds import KINDS, by_kind, package_of
from benchmarks.profiles import names, section

FOLDER = Path(benchmarks.profiles.__file__).parent


def test_every_file_is_found_and_says_what_it_takes_apart() -> None:
    assert set(names()) == {path.stem for path in FOLDER.glob("*.py")} - {"__init__", "__main__"}
    for name in names():  # read, not imported: some import peers that only the benchmarks need
        tree = ast.parse((FOLDER / f"{name}.py").read_text())
        title, _, text = (ast.get_docstring(tree) or "").partition("\n")
        assert title.endswith(".") and len(title) <= 120 and len(text) > 100
        assert [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "rows"] == [
            "rows"
        ]


@pytest.mark.parametrize(
    ("operator", "kind"),
    [
        ("aten::convolution_backward", "convolutions"),
        ("aten::mkldnn_convolution", "convolutions"),
        ("aten::native_group_norm_backward", "GroupNorm"),
        ("aten::_scaled_dot_product_flash_attention_for_cpu_backward", "attention"),
        ("aten::addmm", "linear layers"),
        ("aten::silu_backward", "SiLU"),
        ("aten::bernoulli_", "dropout"),
        ("aten::_fused_adam_", "Adam, clip, EMA"),
        ("aten::lerp_", "Adam, clip, EMA"),
        ("aten::copy_", "copies"),
        ("aten::add_", "sums and products"),
        ("aten::empty", "everything else"),
    ],
)
def test_an_operator_has_a_kind(operator: str, kind: str) -> None:
    assert by_kind({operator: 2.0}) == {kind: 2.0, "all": 2.0}


def test_kinds_add_up() -> None:
    spent = by_kind({"aten::convolution": 3.0, "aten::cat": 1.0, "aten::mul": 0.5, "aten::mkldnn_convolution": 2.0})
    assert spent == {"convolutions": 5.0, "copies": 1.0, "sums and products": 0.5, "all": 6.5}
    assert spent["all"] == sum(spent[kind] for kind in [*KINDS, "everything else"])


@pytest.mark.parametrize(
    ("file", "function", "code"),
    [
        ("/x/site-packages/torch/nn/modules/module.py", "_call_impl", "PyTorch: Python"),
        ("/x/site-packages/lightning/pytorch/loops/fit_loop.py", "run", "Lightning"),
        ("/x/diffusion_lab/callbacks/ema.py", "on_step_end", "diffusion_lab.callbacks"),
        ("/diffusion_lab/diffusion_lab/streams.py", "normal", "diffusion_lab"),
        ("~", "<built-in method torch._C._nn.linear>", "PyTorch: operators"),
        ("~", "<method 'mul' of 'torch._C.TensorBase' objects>", "PyTorch: operators"),
        ("~", "<method 'run_backward' of 'torch._C._EngineBase' objects>", "PyTorch: backward pass"),
        ("~", "<built-in method builtins.isinstance>", "Python's own functions"),
        ("/x/site-packages/tqdm/std.py", "update", "other libraries"),
    ],
)
def test_a_function_is_somebodys_code(file: str, function: str, code: str) -> None:
    assert package_of(file, function) == code


def test_a_section_is_a_title_a_text_and_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "spoons.py").write_text(
        '"""Spoons.\n\nCounted once.\n"""\n\n\ndef rows():\n    yield "which", "how many"\n    yield "large", "3"\n'
    )
    monkeypatch.setattr(benchmarks.profiles, "__path__", [str(tmp_path)])
    assert names() == ["spoons"]
    assert section("spoons") == (
        "## Spoons: `make profile ONLY=spoons`\n\nCounted once.\n\n| which | how many |\n| --- | ---: |\n| large | 3 |"
    )


def test_the_profile_of_a_misspelt_setting_adds_up() -> None:
    """The command itself is profiled; its own functions' times are all there is."""
    from benchmarks.profiles import startup

    head, *rows = startup.rows()
    spent = {name: float(ms) for name, ms, _ in rows}
    assert head[0] == "part"
    whole = spent.pop("all")
    packages = [ms for name, ms in spent.items() if name.startswith("in all, ")]
    assert len(packages) > len(startup.PACKAGES) - 1 and sum(packages) == pytest.approx(whole, abs=5)  # 1.4: no antlr4
    assert 0 < spent["the configuration is composed"] < whole
