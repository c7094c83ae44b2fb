"""The sweeper: the jobs of a file, one line each, as a sweep that is no product of settings.

    schedule=linear method=p2 seed=0
    schedule=cosine method=learned_beta sampler.lr=0.001 seed=0

Words on the command line come before those of every line; where one has several values, with each of them.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from diffusion_lab.cli.errors import ConfigError
from diffusion_lab.cli.sweep_jobs import jobs_of, split_values
from diffusion_lab.files import read_text
from hydra_plugins.diffusion_lab_sweeper.products import ProductsSweeper


class ListedSweeper(ProductsSweeper):
    """Launches the jobs of a file.

    Args:
        file: one job on each line, as words of a shell; empty lines and comments, from a word with # on, are left out.
        params: ignored; a preset may set it for the usual sweeper.

    Raises:
        ConfigError: the file cannot be read or has no job.
    """

    def __init__(self, file: str | None, params: Any = None) -> None:
        try:
            lines = read_text(Path(str(file))).splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"hydra.sweeper.file={file} must be a file with one job on each line ({error})"
            ) from error
        self.jobs = []
        for number, line in enumerate(lines, 1):
            try:
                job = words_of(line)
            except ValueError as error:
                raise ConfigError(
                    f"hydra.sweeper.file={file} must have words of a shell on line {number} ({error}); quote the value"
                ) from error
            for word in job:
                if len(split_values(word)) > 1:
                    raise ConfigError(
                        f"hydra.sweeper.file={file} must have one value of each key on line {number}, and has {word}; "
                        "write a line for each, or quote a value that has a comma: \"key='a,b'\""
                    )
            self.jobs += [job] if job else []
        if not self.jobs:
            raise ConfigError(f"hydra.sweeper.file={file} must have a job on some line, e.g. method=ddpm seed=0")

    def words(self, arguments: list[str]) -> list[list[str]]:
        outer = list(jobs_of([], None, arguments, self.loader))
        return [[*words, *job] for words in outer for job in self.jobs]


def words_of(line: str) -> list[str]:
    """The words before a comment.

    Raises:
        ValueError: a quotation is not closed.
    """
    words, lexer = list[str](), shlex.shlex(line, posix=True, punctuation_chars=False)
    lexer.whitespace_split, lexer.commenters = True, ""
    while True:
        try:
            word = lexer.get_token()
        except ValueError:
            if lexer.token.startswith("#"):  # an apostrophe of the comment's
                return words
            raise
        if word is None or word.startswith("#"):
            return words
        words.append(word)
