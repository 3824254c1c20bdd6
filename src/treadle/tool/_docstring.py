"""Descriptions out of docstrings: Google, NumPy and Sphinx style."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from docstring_parser import Docstring

_NUMPY = re.compile(r"^[ \t]*\w[\w ]*\n[ \t]*-{3,}[ \t]*$", re.MULTILINE)
_SPHINX = re.compile(
    r"^[ \t]*:(param|parameter|arg|argument|key|keyword|returns?|rtype|raises)\b[^:\n]*:", re.MULTILINE
)
_GOOGLE = re.compile(
    r"^[ \t]*(Args|Arguments|Parameters|Params|Keyword Args|Keyword Arguments|Other Parameters"
    r"|Returns|Yields|Raises|Examples?|Notes?|Attributes):[ \t]*$",
    re.MULTILINE,
)


class Doc(NamedTuple):
    """What a docstring says about a tool and its parameters."""

    description: str = ""
    parameters: Mapping[str, str] = {}


def read_docstring(text: str | None) -> Doc:
    """Take a docstring apart. What is in no known style is the description as a whole."""
    if not text:
        return Doc()
    if ":" not in text and "---" not in text:
        return Doc(inspect.cleandoc(text))
    parsed = _parse(text)
    if parsed is None:
        return Doc(inspect.cleandoc(text))
    described = {param.arg_name.lstrip("*"): param.description for param in parsed.params if param.description}
    return Doc((parsed.description or "").strip(), described)


def _parse(text: str) -> Docstring | None:
    numpy, sphinx = _NUMPY.search(text), _SPHINX.search(text)
    if not (numpy or sphinx or _GOOGLE.search(text)):
        return None
    from docstring_parser import ParseError, google, numpydoc, rest

    try:
        return (numpydoc if numpy else rest if sphinx else google).parse(text)
    except (ParseError, ValueError, IndexError):
        return None
