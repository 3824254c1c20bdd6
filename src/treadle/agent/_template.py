"""Prompts with variables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from treadle.errors import TemplateError

_PLACE = re.compile(r"\{\{|\}\}|\{([A-Za-z_]\w*)\}")


@dataclass(frozen=True, slots=True)
class Template:
    """Text with `{variable}` places, filled from the run's `variables`; `{{` and `}}` stand for braces.

    Example:
        >>> Template("You are in {city}.").render({"city": "Hangzhou"})
        'You are in Hangzhou.'
    """

    text: str

    def render(self, variables: Mapping[str, Any]) -> str:
        """Fill the places; a missing variable is a `TemplateError` that names it. Other braces stay as they are."""

        def fill(match: re.Match[str]) -> str:
            name = match[1]
            if name is None:
                return match[0][0]
            if name not in variables:
                known = ", ".join(f"`{key}`" for key in sorted(variables)) or "none"
                raise TemplateError(
                    f"The template needs the variable `{name}`; given: {known}. "
                    f"Pass `variables={{{name!r}: ...}}`, or write `{{{{{name}}}}}` for the braces themselves."
                )
            return str(variables[name])

        return _PLACE.sub(fill, self.text)


def render(text: str | Template, variables: Mapping[str, Any]) -> str:
    """Render a template, and plain text too where the run has variables."""
    if isinstance(text, Template):
        return text.render(variables)
    return Template(text).render(variables) if variables else text
