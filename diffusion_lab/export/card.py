"""The model card: what the model is, how it was trained and measured, and how it is read, from its run alone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from diffusion_lab.data.conditions import Conditions
from diffusion_lab.export.form import Form
from diffusion_lab.export.latents import decoding_code, decoding_facts
from diffusion_lab.files import write_whole
from diffusion_lab.markup import markdown_text
from diffusion_lab.printable import one_line
from diffusion_lab.runs.identity import parts
from diffusion_lab.runs.run import Run
from diffusion_lab.training import TrainedDiffusion

PACKAGES = ("diffusion_lab", "torch", "lightning")  # whose classes a run names
PARTS = ("schedule", "prediction", "variance", "sampler", "weighting", "optimizer", "annealing", "solver")


def card(trained: TrainedDiffusion, run: Run, form: Form) -> str:
    """Markdown with the metadata that model hubs read. Values come from the run folder, which may be a stranger's, so
    each is one line of code."""
    name = _plain(run.name)
    version = markdown_text(_plain(_get(run.info, "versions", "diffusion-lab")))
    head = "---\nlibrary_name: diffusers\ntags: [diffusion, diffusion-lab]\n---"
    if "diffusers" not in type(form).__module__:
        head = head.replace("library_name: diffusers\n", "")
    decoding = trained.data.source.decoding()
    usage = form.usage(trained)
    own = _own_classes(run.config)
    kind = "A diffusion model" if decoding is None else "A diffusion model of latents"
    sections = [
        head,
        f"# {markdown_text(name)}",
        f"{kind}, trained with diffusion-lab {version}.",
        _table(["", ""], _facts(trained, run)),
        *_classes(trained.data.conditions),
        "## Use",
        f"{_needed(usage, own)}In this folder:\n\n```python\n{usage}\n```",
        *_decoded(decoding),
        *_own(own),
        "## Measured",
        _metrics(trained, run),
        "## Again",
        f"```\n{_plain(run.info.get('command'))}\n```",
    ]
    return "\n\n".join(sections) + "\n"


def _classes(conditions: Conditions) -> list[str]:
    """What the labels of a class-conditional model mean; nothing for others."""
    names, null = conditions.class_names, conditions.null_label
    if names is None:
        return []
    rows = [[str(label), f"`{_plain(name)}`"] for label, name in enumerate(names)]
    if null is not None:
        rows.append([str(null), "no class: the label that the network was given where a label was dropped in training"])
    text = f"The network has `num_classes` {conditions.num_labels}, the number of its labels:"
    return ["## Classes", text, _table(["label", "class"], rows)]


def _decoded(decoding: Mapping[str, Any] | None) -> list[str]:
    if decoding is None:
        return []
    text = "The samples x (n,c,h,w) of this model are latents of mean 0 and variance 1."
    return [
        "## Pixels",
        f"{text} An autoencoder that is not in this folder decodes them:\n\n```python\n{decoding_code(decoding)}\n```",
    ]


def _needed(usage: str, own: Iterable[str]) -> str:
    """What a reader has to bring for the lines of `usage`: the modules of own classes among its imports."""
    roots = {target.partition(".")[0] for target in own}
    lines = re.findall(r"^from ((\w+)\S*) import (\w+)", usage, re.MULTILINE)
    return "".join(
        f"`{_plain(module)}.{name}` is not part of diffusion-lab, and its module `{_plain(root)}` is not in this "
        "folder: ask the author for it, and put it beside these files or on Python's path.\n\n"
        for module, root, name in lines
        if root in roots
    )


def _own(own: Mapping[str, str]) -> list[str]:
    """A table of the author's own classes: {class: part}."""
    if not own:
        return []
    text = (
        "These classes are the author's own, and lie neither in diffusion-lab nor in this folder. A command that reads "
        "the run, or trains it again, finds them with `--config-dir FOLDER`, a folder of yaml files in or beside which "
        f"their modules are, or with `allow=[{','.join(map(_plain, own))}]` and the modules in the working folder."
    )
    rows = [[f"`{_plain(word)}`" for word in (key, name, name.partition(".")[0])] for name, key in own.items()]
    return ["## Own parts", text, _table(["part", "class", "module"], rows)]


def _own_classes(config: dict[str, Any]) -> dict[str, str]:
    """{class: part} of the classes of the author's own; of one that several nodes name, the part nearest to the top."""
    found = sorted(parts(config), key=lambda one: one[0].count("."), reverse=True)
    named = [(key, node["_target_"]) for key, node in found if isinstance(node["_target_"], str)]
    last_is_nearest = {name: key for key, name in named if name.partition(".")[0] not in PACKAGES}
    return dict(sorted(last_is_nearest.items(), key=lambda item: item[1]))


def _facts(trained: TrainedDiffusion, run: Run) -> list[list[str]]:
    options, config = _get(run.info, "labels", "options"), run.config
    channels, height, width = trained.data.shape
    chosen = options if isinstance(options, Mapping) else {}
    count = sum(p.numel() for p in trained.denoiser.network.parameters())
    weights = "the last ones" if trained.decay is None else f"average {trained.decay}"
    rows = [
        ("data", chosen.get("dataset")),
        ("shape", f"{channels} x {height} x {width}"),
        ("network", f"{chosen.get('network')}, {count:,} parameters"),
        *(decoding_facts(decoding) if (decoding := trained.data.source.decoding()) else {}).items(),
        *((name, chosen.get(name)) for name in PARTS),
        ("timesteps", trained.denoiser.num_timesteps),
        ("learning rate", _get(config, "optimizer", "lr")),
        ("steps", f"{trained.step} of {run.batch} images"),
        ("weights", weights),
        ("seed", run.seed),
        ("code", run.info.get("git")),
        ("PyTorch", _get(run.info, "versions", "torch")),
    ]
    return [[key, f"`{_plain(value)}`"] for key, value in rows if value is not None]


def _metrics(trained: TrainedDiffusion, run: Run) -> str:
    """The metrics of these weights, the average or the raw ones, each with its protocol."""
    rows = [
        [f"`{_plain(one['name'])}`", f"{one['value']:.4g}", f"`{_protocol(one.get('protocol'))}`"]
        for one in run.evaluations
        if one.get("step") == trained.step and isinstance(one.get("value"), int | float) and _is_of(trained, one)
    ]
    return _table(["metric", "value", "protocol"], rows) if rows else "No metric was measured with these weights."


def _is_of(trained: TrainedDiffusion, row: Mapping[str, Any]) -> bool:
    protocol = row.get("protocol")
    return not isinstance(protocol, Mapping) or protocol.get("ema_decay") == trained.decay


def _protocol(protocol: Any) -> str:
    if not isinstance(protocol, Mapping):
        return "unknown"
    words = [f"{key} {value}" for key, value in protocol.items() if isinstance(value, str | int | float)]
    inner = [
        f"{key} {value.get('name') or value.get('dataset')}"
        for key, value in protocol.items()
        if isinstance(value, Mapping)
    ]
    return _plain(", ".join([*words, *inner]))


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _get(content: Mapping[str, Any], *keys: str) -> Any:
    value: Any = content
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _plain(value: Any) -> str:
    """One line without what would end a code span, a cell of a table or a block of code."""
    return one_line(re.sub(r"[`|\r\n]+", " ", str(value)).strip())


def write_card(folder: Path, text: str) -> None:
    """The card as README.md, which hubs show."""
    write_whole(folder / "README.md", text.encode())
