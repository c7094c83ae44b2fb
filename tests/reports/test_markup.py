"""What a stranger's run can put into files that others open: no HTML, link or code in Markdown, no formula in CSV."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from markdown_it import MarkdownIt

from diffusion_lab.cli.main import main
from diffusion_lab.export.card import card
from diffusion_lab.markup import csv_cell, csv_text, markdown_cell, markdown_text
from diffusion_lab.reports.comparison.cells import Cell, Comparison
from diffusion_lab.reports.pages.files import latex, markdown
from diffusion_lab.runs.run import Run
from diffusion_lab.tables.values import COLUMNS, Value, per_seed_csv
from tests.reports.synthetic import write_run

PAYLOADS = {
    "script": "<script>alert(1)</script>",
    "handler": "<img src=x onerror=alert(1)>",
    "closing tag": "</textarea></style></td>",
    "comment": "<!-- a -->",
    "declaration": "<!DOCTYPE a> <?a?> <![CDATA[a]]>",
    "address in brackets": "<javascript:alert(1)>",
    "link": "[a](javascript:alert(1))",
    "picture": "![a](http://evil.example/a.png)",
    "escaped bracket": r"[a\](javascript:alert(1)) \[a](b)",
    "link by name": "[a][b]",
    "name of a link": "a\n\n[a]: http://evil.example",
    "code": "`a` ``b``",
    "cell": r"a | b \| c",
    "lines": "a\n| b | c |\r\n\n<b>c</b>",
    "block": "a\n\n    b\n\n```\nc\n```",
}
RENDERED = MarkdownIt("commonmark", {"html": True}).enable("table")
FORMULAS = ("=1+1", "+1+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "\n=1", '=HYPERLINK("http://evil.example")', "＝1+1")


def kinds(text: str) -> list[str]:
    """The kinds of all pieces of a rendered text."""
    return [one.type for token in RENDERED.parse(text) for one in [token, *(token.children or [])]]


def shown(text: str) -> str:
    """What a reader sees of a rendered text."""
    tokens = [one for token in RENDERED.parse(text) for one in token.children or []]
    return "".join(one.content for one in tokens)


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
def test_a_payload_is_text_in_markdown(payload: str) -> None:
    assert set(kinds(payload)) - {"inline", "text", "paragraph_open", "paragraph_close"} or payload != markdown_text(
        payload
    )
    assert set(kinds(markdown_text(payload))) <= {"paragraph_open", "inline", "text", "text_special", "paragraph_close"}
    line = re.sub(r"[\t\n\r]", lambda match: repr(match[0])[1:-1], payload)
    assert shown(markdown_text(payload)) == line


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
def test_a_payload_stays_in_its_cell(payload: str) -> None:
    table = Comparison(["a", payload], [[Cell(payload), Cell("1", bold=True)]], "", [payload])
    found = kinds(markdown(table))
    assert (found.count("th_open"), found.count("td_open"), found.count("strong_open")) == (2, 2, 1)
    assert not {"html_inline", "html_block", "link_open", "image", "code_inline", "code_block", "fence"} & set(found)
    assert "\n\n" not in latex(table).split(r"\end{tabular}")[0]


def test_names_and_numbers_are_as_before() -> None:
    for text in ("sampler=log_normal", "1.83 [1.70, 1.96] (n=3)", "better, p<0.001", "fd1k_digits ↓", "a*b", "±0.1"):
        assert markdown_text(text) == markdown_cell(text) == text


@pytest.mark.parametrize("formula", FORMULAS)
def test_a_formula_is_text_in_a_spreadsheet(formula: str) -> None:
    ((first, second),) = list(csv.reader(io.StringIO(csv_text(("a", "b"), [(formula, 1)]))))[1:]
    assert first.startswith("'") and second == "1"


def test_numbers_and_names_are_no_formulas() -> None:
    for entry in ("-1.5", "+3", "-inf", "1e-7", "-1e-7", "-", "a=b", "nan", "", "0.1-0.2", -1.5, 3, None):
        assert csv_cell(entry) == entry
    text = per_seed_csv([Value("=a", "b", "c", 1, 0, "-1+1", -0.5, "@run")])
    assert text == f"{','.join(COLUMNS)}\n'=a,b,c,1,0,'-1+1,-0.5,'@run,\n"


def test_the_files_of_a_report_hold_text_alone(in_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The payloads as method, metric, version and command of two runs, in the page, the Markdown and the CSV file."""
    for seed in (0, 1):
        write_run(Path("runs", f"={seed}+1"), "uniform", seed, steps=250)
        put(Path("runs", f"={seed}+1"), "=1+1 " + " ".join(PAYLOADS.values()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("diffusion_lab.reports.figures.of_section", lambda *_: [])
        assert main(["report", "runs", "--out", "page.html", "--table", "table.md"]) == 0
    assert capsys.readouterr().out
    page = Path("page.html").read_text()
    for payload in ("<script>alert", "<img src=x", "</textarea></style>", "<!-- a", "<javascript", "<!DOCTYPE a>"):
        assert payload not in page
    found = kinds(Path("table.md").read_text())
    assert not {"html_inline", "html_block", "link_open", "image", "code_inline", "fence"} & set(found)
    rows = list(csv.reader(io.StringIO(Path("table.per_seed.csv").read_text())))[1:]
    assert {row[2] for row in rows} == {"'=0+1", "'=1+1"} and all(row[1].startswith("'=1+1") for row in rows)
    assert all(float(row[6]) is not None for row in rows)


def put(run: Path, payload: str) -> None:
    record = json.loads((run / "run.json").read_text())
    record |= {"method": payload, "group_hash": "a", "command": f"diffusion-lab train name='{payload}'"}
    record["versions"][payload] = payload
    (run / "run.json").write_text(json.dumps(record))
    for name in ("metrics.jsonl", "evaluations.jsonl", "result.json"):
        text = (run / name).read_text()
        (run / name).write_text(text.replace("fd1k_digits", f"fd1k_{json.dumps(payload)[1:-1]}"))


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
def test_a_payload_is_text_in_a_model_card(payload: str) -> None:
    source = SimpleNamespace(
        shape=(1, 8, 8),
        source=SimpleNamespace(decoding=lambda: None),
        conditions=SimpleNamespace(class_names=[payload], null_label=None, num_labels=1),
    )
    denoiser = SimpleNamespace(network=torch.nn.Linear(1, 1), num_timesteps=10)
    trained = SimpleNamespace(data=source, denoiser=denoiser, decay=None, step=2, config_hash=payload)
    names = ("dataset", "network", "schedule", "sampler", "solver")
    info = {
        "run_id": payload,
        "versions": {"diffusion-lab": payload, "torch": payload},
        "labels": {"options": dict.fromkeys(names, payload)},
        "git": payload,
        "command": payload,
        "config": {"optimizer": {"lr": payload}, "network": {"_target_": payload, "inner": {"_target_": "mine.Net"}}},
    }
    lines = [{"step": 2, "name": payload, "value": 1.0, "protocol": {payload: payload, "a": {"name": payload}}}]
    run = Run(Path("run"), "done", info=info, result={"evaluations": lines})
    form = SimpleNamespace(usage=lambda _: "import torch\nfrom mine import Net")
    found = kinds(card(trained, run, form).split("---\n", 2)[2])  # type: ignore[arg-type]
    assert not {"html_inline", "html_block", "link_open", "image"} & set(found)
    assert found.count("fence") == 2 and found.count("table_open") == 4 and "code_block" not in found


def test_a_model_card_names_the_classes_of_ones_own_and_where_a_reader_gets_them() -> None:
    source = SimpleNamespace(
        shape=(1, 8, 8),
        source=SimpleNamespace(decoding=lambda: None),
        conditions=SimpleNamespace(class_names=None, null_label=None, num_labels=1),
    )
    denoiser = SimpleNamespace(network=torch.nn.Linear(1, 1), num_timesteps=10)
    trained = SimpleNamespace(data=source, denoiser=denoiser, decay=None, step=2, config_hash="0" * 8)

    def of(network: str, usage: str) -> str:
        late = {"_target_": "late.Late"}
        parts = {"callbacks": {"timestep_sampling": {"sampler": late}}, "network": {"_target_": network}}
        adam = {"_target_": "torch.optim.AdamW"}
        run = Run(Path("run"), "done", info={"config": parts | {"sampler": late, "optimizer": adam}})
        form = SimpleNamespace(usage=lambda _: f"import json\nfrom pathlib import Path\n{usage}")
        return card(trained, run, form)  # type: ignore[arg-type]

    text = of("mine.nets.Net", "from mine.nets import Net")
    assert "`mine.nets.Net` is not part of diffusion-lab, and its module `mine` is not in this folder" in text
    assert "| `network` | `mine.nets.Net` | `mine` |\n| `sampler` | `late.Late` | `late` |" in text
    assert "`--config-dir FOLDER`" in text and "allow=[mine.nets.Net,late.Late]" in text and "AdamW" not in text
    text = of("diffusion_lab.networks.UNet", "from diffusion_lab.networks import UNet")
    assert "is not part of" not in text and "| `sampler` | `late.Late` | `late` |" in text
