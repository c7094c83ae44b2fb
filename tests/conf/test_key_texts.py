"""Every key of an option has one text: its entry under `Args:` in the docstring of its class, else its yaml comment.

A comment beside a key that a docstring documents would be a second text, and the two would come to disagree.
"""

from __future__ import annotations

import re

import pytest

from diffusion_lab.cli.conf_folder import conf_dir
from diffusion_lab.cli.options import files
from diffusion_lab.cli.options.described import argument_texts

FOLDERS = [conf_dir()]
GROUPS = [*files.groups(FOLDERS), "base", "dataset/base"]


@pytest.mark.parametrize("group", GROUPS)
def test_a_key_that_its_class_documents_has_no_comment(group: str) -> None:
    found = [
        f"conf/{group}/{name}.yaml {key.name}:\n    docstring: {texts[key.name]}\n    comment: {key.comment}"
        for name in files.options(group, FOLDERS)
        for option in [files.read_option(group, name, FOLDERS)]
        for texts in [argument_texts(option)]
        for key in option.keys
        if key.comment and key.name in texts
    ]
    assert not found, "Two texts for one key; keep the docstring's:\n" + "\n".join(found)


@pytest.mark.parametrize("group", GROUPS)
def test_the_text_is_no_reference_to_another(group: str) -> None:
    for name in files.options(group, FOLDERS):
        texts = argument_texts(files.read_option(group, name, FOLDERS))
        assert [key for key, text in texts.items() if re.match(r"(as|as in|see) `", text)] == [], f"{group}={name}"


@pytest.mark.parametrize("group", GROUPS)
def test_no_comment_stands_between_the_keys_of_a_part(group: str) -> None:
    for name in files.options(group, FOLDERS):
        option = files.read_option(group, name, FOLDERS)
        _, *below = re.split(r"^\w", option.path.read_text("utf-8"), maxsplit=1, flags=re.MULTILINE)
        assert not option.target or not re.search(r"^ *#", "".join(below), re.MULTILINE), option.path
