"""The page stands alone, says all it must, and survives folders with little in them."""

import base64
import re
from html.parser import HTMLParser

import pytest

from diffusion_lab.reports import group_runs, make_report, page, read_runs, sections_of
from diffusion_lab.reports.figures.curves import quality_over_training
from diffusion_lab.reports.figures.losses import loss_by_timestep
from diffusion_lab.reports.figures.timesteps import effective_weights
from diffusion_lab.reports.pages.files import save
from tests.reports.synthetic import METHODS, log, write_run


class Reader(HTMLParser):
    """Collects attributes and checks that tags are closed."""

    def __init__(self):
        super().__init__()
        self.tags, self.open, self.words = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def read(text):
    reader = Reader()
    reader.feed(text)
    assert not reader.open
    return reader


def page_of(path, metric=None):
    folder = read_runs(path)
    return page(make_report(folder, sections_of(folder.runs, metric)))


def test_nothing_is_fetched_from_anywhere(text):
    for tag, attributes in read(text).tags:
        assert tag not in ("script", "link", "iframe", "object")
        for name in ("src", "href", "srcset", "data"):
            assert attributes.get(name) is None or attributes[name].startswith("data:image/")
    assert "@import" not in text and "url(" not in text
    for image in re.findall(r"data:image/svg\+xml;base64,([^\"]+)", text):
        drawing = base64.b64decode(image).decode()
        assert not re.search(r"""(src|href)\s*=\s*["']?https?:""", drawing)


def test_every_figure_is_there_and_says_how_many_seeds(text):
    captions = re.findall(r'<figure class="plot">.*?<figcaption>(.*?)</figcaption>', text, re.DOTALL)
    assert len(captions) >= 9
    assert all("2 seeds each" in caption for caption in captions)


def test_samples_of_all_methods_stand_side_by_side(text):
    alts = [attributes["alt"] for tag, attributes in read(text).tags if tag == "img"]
    for method in METHODS:
        for seed in (0, 1):
            assert f"samples of {method}, seed {seed}, step 2000" in alts
        assert f"samples of {method}, seed 0, step 250" in alts


def test_what_is_not_done_is_named_with_cause_overrides_and_log(text, sweep):
    words = " ".join(" ".join(read(text).words).split())
    assert "8 done , 1 failed , 1 running , 1 lost , 1 pending" in words
    assert "NonFiniteLoss: loss is nan at step 731, t=999" in words
    assert "sampler=uniform seed=2" in words and "step 731 of 2000" in words
    assert str(sweep / "digits-uniform-s9-fail" / "train.log") in words
    for name in ("digits-logit_normal-s9-lost", "digits-stratified-s9-run", "digits-loss_second_moment-s9-pend"):
        assert name in words


def test_protocol_commands_and_versions_are_stated(text):
    words = " ".join(" ".join(read(text).words).split())
    assert "digits 1000 ddim-50-eta0 EMA 0.9999 digits train, 1500 images, 0123456789ab 0" in words
    assert "diffusion-lab train -m sampler=uniform,logit_normal,loss_second_moment,stratified seed=0,1,2" in words
    assert "diffusion-lab train sampler=stratified seed=1" in words
    assert "torch 2.15.0" in words and r"\begin{tabular}" in words and "| method | runs |" in words


def test_the_same_runs_give_the_same_page(tmp_path):
    write_run(tmp_path / "a", "uniform", 0, steps=50)
    assert page_of(tmp_path) == page_of(tmp_path)


def test_text_of_a_run_cannot_break_the_page(tmp_path):
    error = {
        "type": "ValueError",
        "message": "<script>alert(1)</script> & <b>",
        "traceback": "</pre><img src=http://x>",
    }
    write_run(tmp_path / "a", "uniform", 0, steps=100, result="failed", error=error)
    text = page_of(tmp_path, "val/loss")
    assert all(tag != "script" for tag, _ in read(text).tags)
    assert "&lt;script&gt;" in text and "src=http://x" not in re.sub(r"&lt;.*?&gt;", "", text)


@pytest.mark.parametrize("steps", [0, 50, 250])
def test_runs_that_have_hardly_begun_make_a_page(tmp_path, steps):
    write_run(tmp_path / "a", "uniform", 0, steps=max(steps, 1), result=None)
    if steps == 0:
        for path in (tmp_path / "a").glob("*.jsonl"):
            path.write_text("")
    text = page_of(tmp_path, "val/loss")
    read(text)
    assert "none finished" in text
    assert text.count('<figure class="plot">') >= {0: 0, 50: 4, 250: 6}[steps]
    assert steps or '<figure class="plot">' not in text


def test_a_sweep_that_has_not_begun_makes_a_page(tmp_path):
    job = '{"dir": "a", "overrides": ["seed=0"], "config_hash": "x"}'
    (tmp_path / "sweep.json").write_text(
        f'{{"name": "s", "commands": ["diffusion-lab train -m seed=0"], "jobs": [{job}]}}'
    )
    text = page_of(tmp_path, "val/loss")
    assert "1 <span" in text and "pending" in text and "no run has begun" in text


def test_a_group_without_a_figure_leaves_the_others(tmp_path):
    write_run(tmp_path / "a", "uniform", 0, steps=100)
    write_run(tmp_path / "b", "logit_normal", 0, steps=100)
    (tmp_path / "b" / "metrics.jsonl").unlink()
    groups = group_runs(read_runs(tmp_path).runs)
    assert effective_weights(groups) is not None
    (tmp_path / "a" / "metrics.jsonl").unlink()
    assert effective_weights(group_runs(read_runs(tmp_path).runs)) is None


def test_many_groups_have_a_panel_each_and_tiles_of_samples(tmp_path):
    for k in range(9):
        write_run(tmp_path / str(k), "uniform", 0, optimizer={"_target_": "x.Adam", "lr": k})
    text = page_of(tmp_path)
    words = " ".join(read(text).words)
    assert "dotted: uniform lr=0, grey: the other groups" in words and "ratio to that of uniform lr=0" in words
    assert text.count('<div class="grids tiles">') == 1 and text.count("seed 0, step 2000") == 2 * 9


def test_a_metric_measured_once_gives_way_to_a_course_among_many_groups(tmp_path):
    for k in range(8):
        write_run(tmp_path / str(k), "uniform", 0, steps=250, optimizer={"_target_": "x.Adam", "lr": k})
    assert quality_over_training(group_runs(read_runs(tmp_path).runs), "fd1k_digits") is None
    for k in range(8):
        log(tmp_path / str(k), 300, val__loss=0.1)
    figure = quality_over_training(group_runs(read_runs(tmp_path).runs), "fd1k_digits")
    assert figure.caption.startswith("val/loss (lower is better). Coloured")


def test_a_loss_has_no_better_side_between_rows_that_move_it(tmp_path):
    """It said that lower is better above curves of several samplers, of which it compares none."""
    for method, k in (("uniform", 0), ("uniform", 1), ("logit_normal", 0)):
        write_run(tmp_path / f"{method}{k}", method, 0, steps=250, optimizer={"_target_": "x.Adam", "lr": k})
    groups = group_runs(read_runs(tmp_path).runs)
    alike, moved = (quality_over_training(some, "val/loss").svg.decode() for some in (groups[:2], groups))
    assert "<!-- val/loss (lower is better) -->" in alike and "not comparable" not in alike
    assert "<!-- val/loss (not comparable between these rows) -->" in moved and "lower is better" not in moved


def test_losses_of_other_predictions_have_no_ratio(tmp_path):
    write_run(tmp_path / "a", "uniform", 0, steps=250)
    write_run(tmp_path / "b", "logit_normal", 0, steps=250, prediction={"_target_": "diffusion_lab.diffusion.V"})
    figure = loss_by_timestep(group_runs(read_runs(tmp_path).runs))
    assert "or schedule: logit_normal." in figure.caption


def test_the_page_is_replaced_as_a_whole(tmp_path, without_figures):
    write_run(tmp_path / "a", "uniform", 0, steps=50)
    folder = read_runs(tmp_path)
    report = make_report(folder, sections_of(folder.runs))
    path = tmp_path / "new" / "page.html"
    save(path, page(report).encode(), "out")
    assert path.read_text().startswith("<!doctype html>") and [p.name for p in path.parent.iterdir()] == ["page.html"]
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="out=.* must be a file that can be written"):
        save(tmp_path / "file" / "page.html", page(report).encode(), "out")


def test_grey_lines_of_the_objective_have_names(tmp_path):
    for method in ("uniform", "logit_normal"):
        write_run(tmp_path / method, method, 0, steps=100)
    image = effective_weights(group_runs(read_runs(tmp_path).runs)).image
    drawn = base64.b64decode(image.partition("base64,")[2]).decode()
    assert drawn.count("the other groups") == 1 and "simple loss of DDPM" in drawn
