"""Which parameters of a function the model sees, which it may give, and who provides the rest."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, cast

from treadle.errors import ToolDefinitionError
from treadle.tool._context import Context, ToolContext
from treadle.tool._injection import MISSING, Filler, constant, preset_maker
from treadle.tool._options import names_of
from treadle.tool._schema import Schema
from treadle.tool._signature import Param, Signature, Target

_SECRET_LENGTH = 6


class Plan:
    """The roles of a function's parameters in one tool.

    Attributes:
        required: What the model must give.
        exact: Parameters whose values need no validator if they are of this very type.
        refused: What the model must not give.
        locked: Presets that the model cannot override; their values never leave the call.
        fillers: Providers of what the model leaves out.
        parameters: The JSON schema of what the model sees.
    """

    __slots__ = ("exact", "fillers", "locked", "parameters", "refused", "required")

    def __init__(
        self, shown: Mapping[str, Param], refused: frozenset[str], locked: frozenset[str], fillers: tuple[Filler, ...]
    ) -> None:
        self.required = frozenset(name for name, param in shown.items() if param.required)
        self.exact: dict[str, type] = {}
        self.refused = refused
        self.locked = locked
        self.fillers = fillers
        self.parameters: Mapping[str, Any] = {}

    def filled(self, tool: str, arguments: Mapping[str, Any], ctx: ToolContext) -> dict[str, Any]:
        """The arguments with everything that the model left out."""
        values = dict(arguments)
        for filler in self.fillers:
            if filler.name not in values and (value := filler.value(tool, ctx)) is not MISSING:
                values[filler.name] = value
        return values

    def secrets(self, values: Mapping[str, Any]) -> tuple[str, ...]:
        """The locked texts that must not appear in an error; short ones are too common to be looked for."""
        texts = [values[name] for name in self.locked if isinstance(values.get(name), str)]
        return tuple(text for text in texts if len(text) >= _SECRET_LENGTH)


def plan_of(target: Target, options: Mapping[str, Any], properties: Collection[str] | None = None) -> Plan:
    """The plan of a tool. `properties` are the names in a schema that was given instead of made."""
    if not options.get("presets") and not options.get("injected") and not options.get("locked") and not target.presets:
        if properties is not None:
            return _make(target, {}, frozenset(), frozenset(), properties)
        signature = target.signature
        if signature.plan is None:
            signature.plan = _make(target, {}, frozenset(), frozenset(), None)
        return signature.plan
    presets = {name: constant(value) for name, value in target.presets.items()}
    presets |= {name: preset_maker(target.name, name, value) for name, value in options.get("presets", {}).items()}
    locked, injected = names_of(options.get("locked", ())), names_of(options.get("injected", ()))
    _check_names(target, presets, locked, injected)
    return _make(target, presets, locked, injected, properties)


def _check_names(target: Target, presets: Mapping[str, Any], locked: frozenset[str], injected: frozenset[str]) -> None:
    known, tool = target.signature.params, target.name
    for name in (*presets, *injected):
        if name not in known and (target.signature.extra is None or name in injected):
            raise ToolDefinitionError(f"`{tool}` has no parameter `{name}`; it has {', '.join(known) or 'none'}.")
    for name in locked - presets.keys():
        raise ToolDefinitionError(f"`{tool}`: `{name}` is locked and has no preset; add it to `presets`.")
    for name in injected & presets.keys():
        raise ToolDefinitionError(f"`{tool}`: `{name}` cannot be both injected and preset.")


def _make(
    target: Target,
    presets: Mapping[str, Any],
    locked: frozenset[str],
    injected: frozenset[str],
    properties: Collection[str] | None,
) -> Plan:
    params = target.signature.params
    hidden = {name for name, param in params.items() if name in injected or _is_hidden(param, properties)}
    shown = {name: param for name, param in params.items() if name not in hidden and name not in presets}
    refused = frozenset((hidden - presets.keys()) | locked)
    fillers = [Filler(name, param, presets.get(name)) for name, param in params.items() if _may_lack(param, shown)]
    fillers += [Filler(name, None, preset) for name, preset in presets.items() if name not in params]
    plan = Plan(shown, refused, locked, tuple(fillers))
    if properties is None:
        _check_problems(target, shown)
        plan.parameters = parameters_of(target.signature, shown)
        exact = target.signature.exact()
        plan.exact = {name: kind for name, kind in exact.items() if name not in refused}
    return plan


def _is_hidden(param: Param, properties: Collection[str] | None) -> bool:
    if properties is None:
        return param.inject is not None
    return param.inject in (Context, ToolContext) or param.name not in properties


def _may_lack(param: Param, shown: Mapping[str, Param]) -> bool:
    return param.name not in shown or not param.required


def _check_problems(target: Target, shown: Mapping[str, Param]) -> None:
    extra = target.signature.extra
    for param in (*shown.values(), *([extra] if extra else [])):
        if param.problem is not None:
            raise ToolDefinitionError(
                f"`{target.name}`: the parameter `{param.name}` cannot be offered to a model: {param.problem}. "
                f"Change its annotation, or provide it with `presets={{{param.name!r}: ...}}`."
            )


def parameters_of(signature: Signature, shown: Mapping[str, Param]) -> Schema:
    """The JSON schema of the parameters that the model sees."""
    schema: Schema = {"type": "object", "properties": {name: param.schema for name, param in shown.items()}}
    required = [name for name, param in shown.items() if param.required]
    if required:
        schema["required"] = required
    extra = signature.extra
    schema["additionalProperties"] = False if extra is None else extra.schema or True
    defs = _reachable(schema, signature.defs) if signature.defs else {}
    return {"$defs": defs, **schema} if defs else schema


def _reachable(schema: Schema, defs: Mapping[str, Any]) -> dict[str, Any]:
    """The definitions that a schema refers to, directly or through others."""
    found: dict[str, Any] = {}
    pending = list(_references(schema))
    while pending:
        name = pending.pop()
        if name in defs and name not in found:
            found[name] = defs[name]
            pending.extend(_references(defs[name]))
    return dict(sorted(found.items()))


def _references(node: Any) -> list[str]:
    if isinstance(node, str):
        return [node.removeprefix("#/$defs/")] if node.startswith("#/$defs/") else []
    if isinstance(node, Mapping):
        node = list(cast(Mapping[str, Any], node).values())
    return [name for item in cast(list[Any], node) for name in _references(item)] if isinstance(node, list) else []
