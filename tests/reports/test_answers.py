"""experiments/answers.md: ten questions, each with two sentences that say what its table has."""

from __future__ import annotations

import re

import pytest

from experiments.evidence import FOLDER, QUESTIONS

PAGE = (FOLDER / "answers.md").read_text(encoding="utf-8")
SECTIONS = re.split(r"^## \d+\. ", PAGE.partition("\n## And")[0], flags=re.MULTILINE)[1:]
# For which verdicts the sentences were written: when one of these fails, read the answer again.
WRITTEN_FOR = {
    "samplers": "better better better better open better better better",
    "budgets": "better better open open open",
    "weightings": "better better better better open better",
    "predictions": "better better open better open better open",
    "mixing": "worse open better",
    "schedules": "worse worse worse better better open",
    "learned": "better worse equal worse worse worse open open better worse",
    "momentum": "equal equal better open open open open",
    "precision": "equal equal",
    "newer": "better open open better worse open",
}


def test_each_question_has_a_section_in_two_sentences_with_its_limits() -> None:
    assert [re.search(r"cells: evidence (\w+)", one)[1] for one in SECTIONS] == list(QUESTIONS)
    for text in SECTIONS:
        answer = re.search(r"^\*\*(.+)\*\*$", text, flags=re.MULTILINE)
        assert answer and len(re.findall(r"[.](?: |$)", answer[1])) == 2, text[:60]
        assert "\nHolds for: " in text and "\nWould be overturned by: " in text


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_sentences_were_written_for_these_verdicts(question: str) -> None:
    words = ["open" if one.found.word == "not decided" else one.found.word for one in QUESTIONS[question]()]
    assert " ".join(words) == WRITTEN_FOR[question]
