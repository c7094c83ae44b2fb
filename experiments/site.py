"""Writes the site of the documentation with the reference of the API: `make docs`.

    python -m experiments.site FOLDER     the sources of the site, for mkdocs: FOLDER/mkdocs.yml and FOLDER/pages

The pages are those of the repository, at the same places, so that their links hold; `api/PACKAGE.md` names the public
classes and functions of a package, which mkdocstrings writes out from their docstrings without importing them.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs", "experiments", "benchmarks")
KEPT = (".md", ".svg", ".png", ".csv", ".ipynb", ".yaml", ".html", ".tex")
NAMES = ROOT / "tests" / "programs" / "public_names.txt"


def guides() -> list[dict[str, str]]:
    """Heading -> page of every guide: first those that the README links, in its order, then the others."""
    linked = re.findall(r"\(docs/([\w-]+\.md)", (ROOT / "README.md").read_text(encoding="utf-8"))
    names = dict.fromkeys([*linked, *sorted(path.name for path in (ROOT / "docs").glob("*.md"))])
    return [{_heading(ROOT / "docs" / name): f"docs/{name}"} for name in names]


def _heading(page: Path) -> str:
    return page.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def packages() -> dict[str, list[str]]:
    """Package -> its public names, as the test of the public surface lists them."""
    found: dict[str, list[str]] = {}
    for name in NAMES.read_text(encoding="utf-8").split():
        package, _, own = name.rpartition(".")
        found.setdefault(package, []).append(own)
    return found


def write(folder: Path) -> None:
    """The sources of the site."""
    pages = folder / "pages"
    shutil.rmtree(folder, ignore_errors=True)
    for name in PAGES:
        source = ROOT / name
        for path in [source] if source.is_file() else sorted(source.rglob("*")):
            if path.is_file() and path.suffix in KEPT:
                target = pages / path.relative_to(ROOT)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)
    api = pages / "api"
    api.mkdir(parents=True)
    for package, names in packages().items():
        members = "".join(f"\n::: {package}.{name}\n" for name in names)
        (api / f"{package}.md").write_text(f"# {package}\n{members}", encoding="utf-8")
    shutil.copyfile(Path(__file__).with_suffix(".css"), pages / "site.css")
    (folder / "mkdocs.yml").write_text(yaml.safe_dump(_settings(), sort_keys=False), encoding="utf-8")


def _settings() -> dict[str, object]:
    options: dict[str, object] = {
        "show_root_heading": True,
        "show_source": False,
        "docstring_style": "google",
        "heading_level": 2,
    }
    options["docstring_options"] = {"warnings": False}  # several arguments on one line
    found = [*ROOT.glob("experiments/*.md"), *ROOT.glob("experiments/*/README.md")]
    studies = {path.parent.name if path.stem == "README" else path.stem: str(path.relative_to(ROOT)) for path in found}
    groups = {path.parent.name: str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("docs/options/*/README.md"))}
    nav = [
        {"diffusion-lab": "README.md"},
        {"Guides": guides()},
        {"Options": [{name: page} for name, page in groups.items()]},
        {"What has been found": [{name: page} for name, page in sorted(studies.items())]},
        {"API": [{package: f"api/{package}.md"} for package in packages()]},
        {"Contributing": "CONTRIBUTING.md"},
        {"Changes": "CHANGELOG.md"},
    ]
    options["extensions"] = [str(Path(__file__).with_name("site_docstrings.py"))]
    handler = {"python": {"paths": [str(ROOT)], "options": options}}
    return {
        "site_name": "diffusion-lab",
        "docs_dir": "pages",
        "theme": {"name": "readthedocs", "highlightjs": False, "navigation_depth": 2},
        "extra_css": ["site.css"],
        "plugins": ["search", {"mkdocstrings": {"handlers": handler}}],
        "validation": {"omitted_files": "ignore", "not_found": "warn", "anchors": "warn"},
        "nav": nav,
    }


if __name__ == "__main__":
    write(Path(sys.argv[1]))
