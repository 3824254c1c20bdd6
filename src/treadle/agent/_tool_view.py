"""The tools of a run: the toolkit's and those that hooks bring."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from treadle.hook import HookSet
from treadle.model import ToolSpec
from treadle.tool import Tool, Toolkit


@dataclass(frozen=True, slots=True)
class ToolView:
    """The tools of a run: the toolkit's and the hooks'."""

    toolkit: Toolkit
    extra: Mapping[str, Tool]
    specs: tuple[ToolSpec, ...]

    @classmethod
    def of(cls, toolkit: Toolkit, hooks: HookSet) -> ToolView:
        """Put a toolkit and what hooks add to it together, as they are now."""
        specs = toolkit.specs()
        found = [tool for hook in hooks.hooks for tool in hook.tools()]
        if not found:
            return cls(toolkit, {}, specs)
        extra = {tool.name: tool for tool in Toolkit(found)}
        own = [spec for spec in specs if spec.name not in extra]
        return cls(toolkit, extra, (*own, *(tool.spec for tool in extra.values())))

    def get(self, name: str) -> Tool | None:
        """A tool by name; a hook's tool comes first."""
        return self.extra.get(name) or self.toolkit.get(name)
