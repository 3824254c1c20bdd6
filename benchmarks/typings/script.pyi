# What the shared bench gives to its adapters: enough for the type checker. The module itself is not in this repository.
from collections.abc import Sequence
from typing import Any, TypeAlias

ANSWER: str
PROMPT: str
SYSTEM: str

class Call:
    id: str
    name: str
    args: dict[str, Any]
    json: str

Turn: TypeAlias = list[Call] | str

class Script:
    def __init__(self, turns: Sequence[Turn], latency: float = ...) -> None: ...
    async def next(self) -> Turn: ...

def chunks(text: str) -> list[str]: ...
