"""What one run of an agent works with: the agent's parts as they were when the run began."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from treadle.agent._history import History
from treadle.agent._output import OutputSpec
from treadle.agent._reply import Limits
from treadle.agent._storable import checked_response
from treadle.agent._template import render
from treadle.agent._texts import EMPTY_HINT, output_hint
from treadle.errors import InputError, MalformedResponseError
from treadle.event import ModifiableEvent, ReasoningChunkEvent, SummaryChunkEvent
from treadle.graph._run import Run
from treadle.graph._state import ThreadState
from treadle.hook import CallModel
from treadle.message import Msg, TextBlock, ThinkingBlock, ToolUseBlock
from treadle.message._codec import dumps
from treadle.message._msg import now
from treadle.model import Delta, ModelRequest, ModelResponse, TextDelta, ThinkingDelta, ToolCallDelta, ToolSpec, Usage
from treadle.model._base import close_stream
from treadle.tool import Tool

if TYPE_CHECKING:
    from treadle.agent._react import ReActAgentBase

M = TypeVar("M", bound=ModifiableEvent)
ChunkType: TypeAlias = type[ReasoningChunkEvent | SummaryChunkEvent]
MAX_REMINDERS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRequest:
    """What a run of an agent is asked to do."""

    messages: tuple[Msg, ...] | None = None
    decisions: Mapping[str, Any] | None = None
    answers: Mapping[str, Any] | None = None
    """Answers that a parent's run hands down to its child, as its record holds them."""
    output: Any = None
    limits: Limits | None = None
    child: bool = False
    resume: bool = False
    """Whether a turn that ended with an answer is left as it is: its reply is wanted, and nothing more."""


class Turn:
    """The working set of one run. Nothing in here survives the run; what must, is in the state."""

    def __init__(self, agent: ReActAgentBase, run: Run) -> None:
        request = cast("AgentRequest", run.request)
        self.agent = agent
        self.run = run
        self.hooks = agent.hook_set()
        self._has_hooks = bool(self.hooks.hooks) or agent.console is not None
        self.model = agent.model
        self.limits = request.limits or _stored_limits(run.state) or agent.limits
        self.output: OutputSpec | None = None
        self.over = False
        """Whether the turn had ended before this run, so that only its reply is wanted."""
        self.given: tuple[Msg, ...] = ()
        """The messages with which the run begins its turn."""
        self.abandoned: set[str] = set()
        self.since = 0
        """How many messages were there before the turn, its input included, where the run began it."""
        self.asked_again = 0
        """How many answers the node that is under way has thrown away."""
        self.deltas: list[Delta] = []
        """What the model said so far in the answer that is under way."""
        self._asked = False
        self._checked: ModelResponse | None = None
        self.state: ThreadState = run.state
        self.history: History = run.state.values["messages"]
        self._tools = agent.tool_view(self.hooks)
        prompt = render(agent.system_prompt, {**agent.variables, **run.variables})
        self.system: tuple[Msg, ...] = (Msg.system(prompt),) if prompt else ()

    # The state, typed.

    @property
    def notes(self) -> Mapping[str, Any]:
        """What hooks have stored."""
        return MappingProxyType(self.run.state.values["state"])

    @property
    def usage(self) -> Usage:
        """What the turn has cost so far."""
        return self.run.state.values["usage"]

    def reminders(self, kind: str) -> int:
        """How often the model was asked again for one reason in this turn."""
        return self.run.state.values["reminders"].get(kind, 0)

    @property
    def step(self) -> int:
        """How many answers of the model the thread has had."""
        total = self.state.total
        extra = (self.state.values["extra_answers"] or 0) + self.asked_again
        return total.get("model", 0) + total.get("summarize", 0) + extra

    # Tools.

    def tool(self, name: str) -> Tool | None:
        """A tool by name."""
        return self._tools.get(name)

    def specs(self) -> Sequence[ToolSpec]:
        """What the model may call, the finish tool of this run included."""
        return self._tools.specs if self.output is None else (*self._tools.specs, self.output.tool)

    @property
    def tool_names(self) -> list[str]:
        """All names that can be called."""
        return [spec.name for spec in self.specs()]

    # Limits.

    @property
    def max_iters(self) -> int:
        """How many answers of the model a turn may take."""
        given = self.limits.iterations if self.limits else None
        return self.agent.max_iters if given is None else given

    def again(self, *, asked: int = 0) -> str:
        """Where a run goes that needs another answer of the model: the limit holds for every way of asking again."""
        return "model" if self.state.visits.get("model", 0) + asked < self.max_iters else "summarize"

    def over_budget(self) -> bool:
        """Whether a limit is reached, so that the model must not be asked again."""
        limits = self.limits
        if limits is None:
            return False
        used = self.usage
        began = self.state.values["began"]
        return (
            (limits.tokens is not None and used.total_tokens >= limits.tokens)
            or (limits.usd is not None and self._spent() >= limits.usd)
            or (limits.seconds is not None and now() - began >= limits.seconds)
        )

    def _spent(self) -> float:
        """What the turn cost in dollars; a limit that cannot be checked is an error, not a limit that never holds."""
        used = self.usage
        if used.cost is None and used.requests:
            raise InputError(
                f"`Limits.usd` cannot be checked: the price of `{self.model.name}` is not known. Limit `tokens`."
            )
        return used.cost or 0.0

    # Asking the model.

    def hints(self) -> tuple[Msg, ...]:
        """Reminders for the next request; they are never stored."""
        if not self.state.values["reminders"]:
            return ()
        if self.reminders("empty"):
            return (Msg.user(EMPTY_HINT, name="system"),)
        if self.reminders("output") and self.output is not None:
            return (Msg.user(output_hint(self.output.name), name="system"),)
        return ()

    async def fire(self, event: M) -> M:
        """Let hooks change an event, then show it to readers."""
        event = await self.hooks.fire(event)
        if self.run.listening:
            await self.run.forward(event)
        return event

    @property
    def silent(self) -> bool:
        """Whether nobody watches at all: no hook, no reader, no console."""
        return not (self._has_hooks or self.run.listening)

    def watched(self, kind: type[Any]) -> bool:
        """Whether anybody, hook or reader, wants events of a class."""
        return self.run.listening or bool(self.hooks.hooks and self.hooks.wanting(kind))

    async def through_hooks(self, ask: CallModel, request: ModelRequest, chunk: ChunkType) -> ModelResponse:
        """Ask through every `around_model`; an answer that came without asking the model is shown in one piece."""
        self.deltas, self._asked, self._checked = [], False, None
        response = await self.hooks.wrap_model(ask)(request)
        if self._checked is None or response is not self._checked:  # a hook or a subclass made it
            response = checked_response(response, self.model.name)
        if not self._asked:
            await self._show_whole(response, chunk)
        return response

    async def ask(self, request: ModelRequest, chunk: ChunkType) -> ModelResponse:
        """Ask the model."""
        self._asked = True
        self.deltas = deltas = list[Delta]()
        emit = self._emitter(chunk)
        source = self.run.source
        response: ModelResponse | None = None
        stream = self.model.stream(request)
        try:
            async for item in stream:
                if isinstance(item, ModelResponse):
                    response = item
                    continue
                deltas.append(item)
                if emit is not None:
                    await emit(chunk(source=source, delta=item))
        finally:
            await close_stream(stream)
        if response is None:
            raise MalformedResponseError(f"`{self.model.name}` ended its stream without a response.")
        response = self._checked = checked_response(response, self.model.name)
        if not deltas:
            await self._show_whole(response, chunk)
        return response

    async def _show_whole(self, response: ModelResponse, chunk: ChunkType) -> None:
        emit = self._emitter(chunk)
        if emit is not None:
            for delta in as_deltas(response):
                await emit(chunk(source=self.run.source, delta=delta))

    def _emitter(self, kind: type[Any]) -> Callable[[Any], Awaitable[None]] | None:
        """How events of a class get to whoever wants them: hooks and readers, readers alone, or nobody."""
        if self.hooks.hooks and self.hooks.wanting(kind):
            return self.run.emit
        return self.run.forward if self.run.listening else None


def _stored_limits(state: ThreadState) -> Limits | None:
    """The limits with which the turn began, where it goes on after a pause."""
    stored = state.values["limits"]
    return Limits(**stored) if stored else None


def as_deltas(response: ModelResponse) -> list[Delta]:
    """What a model that does not stream would have streamed: one delta a block."""
    out: list[Delta] = []
    for index, block in enumerate(response.content):
        if isinstance(block, TextBlock):
            out.append(TextDelta(block.text, index))
        elif isinstance(block, ThinkingBlock):
            out.append(ThinkingDelta(block.thinking, index))
        elif isinstance(block, ToolUseBlock):
            arguments = block.raw if block.raw is not None else dumps(block.input)
            out.append(ToolCallDelta(arguments, index, block.id or None, block.name))
    return out


def partial_blocks(deltas: Sequence[Delta]) -> tuple[TextBlock | ThinkingBlock, ...]:
    """The text and thinking in an answer that was cut off; calls are left out, their arguments may be incomplete."""
    parts: dict[int, list[str]] = {}
    kinds: dict[int, type[TextDelta | ThinkingDelta]] = {}
    for delta in deltas:
        if not isinstance(delta, ToolCallDelta):
            parts.setdefault(delta.index, []).append(delta.text)
            kinds[delta.index] = type(delta)
    return tuple(
        TextBlock(text="".join(texts)) if kinds[index] is TextDelta else ThinkingBlock(thinking="".join(texts))
        for index, texts in sorted(parts.items())
        if any(texts)
    )


def turn_of(run: Run) -> Turn:
    """The turn of a run of an agent."""
    return run.scratch["turn"]
