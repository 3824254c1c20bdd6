"""The `model` node: ask the model, and decide what its answer leads to."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from treadle._ids import new_id
from treadle.agent._history import Conversation
from treadle.agent._texts import error_block
from treadle.agent._turn import MAX_REMINDERS, Turn, partial_blocks, turn_of
from treadle.errors import EmptyResponseError, ModelError, OutputError
from treadle.event import PostReasoningEvent, PreReasoningEvent, ReasoningChunkEvent, Wish
from treadle.graph import END, Command, NodeContext
from treadle.message import Block, Msg, TextBlock, ThinkingBlock, ToolUseBlock
from treadle.model import ModelRequest, ModelResponse, ToolChoice

if TYPE_CHECKING:
    from treadle.agent._react import ReActAgentBase

CUT: Final = ("length", "refused")
"""The stop reasons of an answer that is not whole; its calls are never run."""


class ModelNode:
    """PreReasoning, the model, PostReasoning."""

    name = "model"
    interruptible = True
    commits = False

    async def run(self, context: NodeContext) -> Command:
        """Ask once, and say where the answer leads."""
        turn = turn_of(context.run)
        if turn.over_budget():
            return Command(update={"extra_answers": -1}, goto=END, reason="budget")
        before = _PreReasoning(turn)
        if not turn.silent and turn.watched(PreReasoningEvent):
            await before.fire()
        if before.stopped:
            return Command(update={**before.update(()), "extra_answers": -1}, goto=END, reason="stopped")
        agent = cast("ReActAgentBase", context.run.host)

        def ask(request: ModelRequest) -> Awaitable[ModelResponse]:
            return agent._reasoning(request, context.run)  # pyright: ignore[reportPrivateUsage]

        try:
            response = await turn.through_hooks(ask, before.request(), ReasoningChunkEvent)
        except BaseException as error:
            context.run.salvaged = before.update(())
            if isinstance(error, asyncio.CancelledError):
                check_cancelled(turn, error)
                context.run.salvaged = before.update(cut_off(turn))
            raise
        answer = _Answer(turn, before, response)
        try:
            return await answer.lead()
        except asyncio.CancelledError:
            context.run.salvaged = before.update(answer.without_calls())
            raise


class _PreReasoning:
    """What the model is about to be asked, and what hooks made of it."""

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.messages: Any = Conversation(turn.system, turn.history.messages, turn.hints())
        self.tools: Any = turn.specs()
        self.tool_choice = _forced(turn)
        self.options: Any = turn.agent.options
        self.added: tuple[Msg, ...] = ()
        self.updates: dict[str, Any] = {}
        self.stopped = False

    async def fire(self) -> None:
        turn = self.turn
        event = await turn.fire(
            PreReasoningEvent(
                source=turn.run.source,
                messages=self.messages,
                tools=self.tools,
                tool_choice=self.tool_choice,
                options=dict(self.options),
                iteration=turn.state.visits.get("model", 0),
                state=turn.notes,
            )
        )
        self.messages, self.tools, self.options = event.messages, event.tools, event.options
        self.tool_choice, self.added = event.tool_choice, event.added
        self.updates, self.stopped = event.updates, event.stopped

    def request(self) -> ModelRequest:
        return ModelRequest(
            messages=self.messages,
            tools=self.tools,
            tool_choice=self.tool_choice,
            options=self.options,
            thread=self.turn.run.name,
            step=self.turn.step,
        )

    @property
    def state(self) -> Mapping[str, Any]:
        """What hooks have stored, with what they are about to store."""
        if not self.updates:
            return self.turn.notes
        return {key: value for key, value in {**self.turn.notes, **self.updates}.items() if value is not None}

    def update(self, messages: Any) -> dict[str, Any]:
        """The state update of this step, with these messages."""
        out: dict[str, Any] = {}
        if self.added or messages:
            out["messages"] = [*self.added, *messages]
        if self.updates:
            out["state"] = self.updates
        return out


def check_cancelled(turn: Turn, error: asyncio.CancelledError) -> None:
    """Go on only if somebody wants the run to stop; a model that cancels itself has failed."""
    task = asyncio.current_task()
    if task is not None and not task.cancelling():
        raise ModelError(f"`{turn.model.name}` was cancelled from within: nobody had asked it to stop.") from error


def cut_off(turn: Turn) -> list[Msg]:
    """What the model had said when it was stopped."""
    partial = partial_blocks(turn.deltas)
    return [Msg.assistant(partial, name=turn.agent.name, metadata={"interrupted": True})] if partial else []


def _forced(turn: Turn) -> ToolChoice | None:
    """Force the finish tool on a reminder, where agent and model allow it."""
    if turn.output is None or not turn.reminders("output") or turn.agent.output_reminder != "tool_choice":
        return None
    return ToolChoice(mode="required", name=turn.output.name) if turn.model.profile.forced_tool_choice else None


class _Answer:
    """One answer of the model, on its way into the history."""

    def __init__(self, turn: Turn, before: _PreReasoning, response: ModelResponse) -> None:
        self.turn = turn
        self.before = before
        self.response = response
        self.message = named(turn, response)

    def without_calls(self) -> list[Msg]:
        """What is kept of an answer if the run is stopped before it was stored."""
        content = tuple(block for block in self.message.content if not isinstance(block, ToolUseBlock))
        return [dataclasses.replace(self.message, content=content, metadata={"interrupted": True})] if content else []

    async def lead(self) -> Command:
        """Let hooks have their say, then decide: stop, ask again, act, or end."""
        turn = self.turn
        if turn.silent:
            return self._decide()
        if turn.watched(PostReasoningEvent):
            event = PostReasoningEvent(source=turn.run.source, message=self.message, state=self.before.state)
            event = await turn.fire(event)
            self.message = _with_ids(turn, event.message)
            self.before.updates = {**self.before.updates, **event.updates}
            if event.stopped:
                return self._stopped()
            if event.goto is not None:
                return self._again(event.goto)
        await turn.agent.show(turn, self.message)
        return self._decide()

    def _decide(self) -> Command:
        calls, cut = self.message.tool_calls, self.response.stop_reason in CUT
        if calls and cut:
            why = "the answer was cut off" if self.response.stop_reason == "length" else "the answer was refused"
            return self._again(
                [Msg.tool(error_block(call, f"Not run: {why} before it was complete.")) for call in calls]
            )
        if calls:
            return self._command("tools")
        if cut:
            return self._command(END, reason=self.response.stop_reason)
        if self.turn.output is not None:
            return self._text_output()
        if is_empty(self.message):
            return self._remind("empty")
        return self._command(END, reason="answered")

    def _text_output(self) -> Command:
        """Text instead of a finish call: take it as the answer if it is one, else remind."""
        output = self.turn.output
        assert output is not None
        data = output.from_text(self.message.text)
        if data is not None:
            return self._command(END, reason="finished", answer=data)
        return self._remind("output")

    def _remind(self, kind: str) -> Command:
        asked = self.turn.reminders(kind) + 1
        if asked > MAX_REMINDERS:
            raise self._given_up(kind)
        messages = [] if is_empty(self.message) else [self.message]
        return self._command(self.turn.again(asked=1), messages=messages, reminders={kind: asked})

    def _given_up(self, kind: str) -> Exception:
        if kind == "empty":
            return EmptyResponseError(f"`{self.turn.model.name}` gave {MAX_REMINDERS + 1} empty answers in a row.")
        return OutputError(
            f"`{self.turn.model.name}` gave no output that fits the schema, though reminded {MAX_REMINDERS} times; "
            f"its last answer: {self.message.text[:500]!r}"
        )

    def _stopped(self) -> Command:
        messages = [] if is_empty(self.message) else [self.message]
        if self.response.stop_reason in CUT:
            calls = self.message.tool_calls
            messages += [Msg.tool(error_block(call, "Not run: the answer was cut off.")) for call in calls]
        if not self.message.tool_calls or self.response.stop_reason in CUT:
            return self._command(END, reason="stopped", messages=messages)
        wish = Wish(id="stop", kind="breakpoint", reason="A hook stopped the run before its tool calls.")
        return self._command("tools", reason="stopped", pause=(wish,))

    def _again(self, messages: Any) -> Command:
        answered = {result.id for msg in messages for result in msg.tool_results}
        open_calls = [call for call in self.message.tool_calls if call.id not in answered]
        results = [Msg.tool(error_block(call, "Not run: the model is asked again.")) for call in open_calls]
        return self._command(self.turn.again(asked=1), messages=[self.message, *results, *messages])

    def _command(
        self,
        goto: str,
        *,
        reason: str | None = None,
        messages: list[Msg] | None = None,
        pause: tuple[Wish, ...] = (),
        **values: Any,
    ) -> Command:
        update = {**self.before.update([self.message] if messages is None else messages), **values}
        update["usage"] = self.response.usage
        if "reminders" not in values and self.turn.state.values["reminders"]:
            update["reminders"] = {"empty": None}
        return Command(update=update, goto=goto, reason=reason, pause=pause)


def named(turn: Turn, response: ModelResponse) -> Msg:
    """The response as a message of this agent, every call with an id of its own."""
    content = _ids_given(turn, response.content)
    return Msg(role="assistant", content=content, name=turn.agent.name, metadata=response.metadata)


def _with_ids(turn: Turn, message: Msg) -> Msg:
    content = _ids_given(turn, message.content)
    return message if content is message.content else dataclasses.replace(message, content=content)


def _ids_given(turn: Turn, content: tuple[Block, ...]) -> tuple[Block, ...]:
    """Give an id to each call that has none or one that was used before."""
    used: set[str] = set()
    out: list[Block] = []
    changed = False
    for block in content:
        if isinstance(block, ToolUseBlock):
            if not block.id or block.id in used or turn.history.has_seen(block.id):
                out.append(dataclasses.replace(block, id=new_id("call")))
                changed = True
                continue
            used.add(block.id)
        out.append(block)
    return tuple(out) if changed else content


def is_empty(message: Msg) -> bool:
    """Whether a message says nothing: no text, no call, no media; thinking alone is not an answer."""
    return all(
        isinstance(block, ThinkingBlock) or (isinstance(block, TextBlock) and not block.text.strip())
        for block in message.content
    )
