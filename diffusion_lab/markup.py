"""Text that a run or a file brought, inside Markdown and CSV files: it is neither markup nor a formula there.

Names and values stay as they are as far as they are harmless, so that `sampler=log_normal` and `1.83 [1.70, 1.96]` read
alike in a file and in its rendered form; emphasis is not escaped.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence

from diffusion_lab.printable import one_line

# A tag, comment or declaration begins with one of these after the bracket (p<0.001 does not); a link has one of those
# behind the closing bracket, and a definition of one the colon.
_MARKUP = re.compile(r"\\|`|<(?=[A-Za-z/!?])|\](?=[(\[:])")
_FORMULA = tuple("=+-@\t\r\n＝＋－＠")


def markdown_text(text: str) -> str:
    """One line of Markdown that shows `text`: no HTML, link, image or code, and no control character."""
    return _MARKUP.sub(lambda match: "&lt;" if match[0] == "<" else "\\" + match[0], one_line(text))


def markdown_cell(text: str) -> str:
    """`markdown_text` for a cell of a pipe table."""
    return markdown_text(text).replace("|", r"\|")


def csv_text(titles: Sequence[str], lines: Iterable[Sequence[object]]) -> str:
    """A CSV file. Spreadsheets compute a cell that begins with =, +, -, @, a tab or a line break, so a text that does,
    and is no number, gets an apostrophe in front, as OWASP recommends."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(titles)
    writer.writerows([csv_cell(entry) for entry in line] for line in lines)
    return text.getvalue()


def csv_cell(entry: object) -> object:
    """One cell of `csv_text`, a text on one line; a lone sign is harmless."""
    if not isinstance(entry, str):
        return entry
    computed = len(entry) > 1 and entry.startswith(_FORMULA) and not _is_number(entry)
    return "'" * computed + one_line(entry)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
