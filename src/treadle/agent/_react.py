"""`ReActAgentBase` and `ReActAgent`: reason, act, and never lose a step."""

from __future__ import annotations

import dataclasses
import os
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Self, TextIO, TypeVar, cast, overload

from treadle._sync import run_sync
from treadle.agent._base import AgentBase, private_thread
from treadle.agent._begin import begin
from treadle.agent._end import closing_record, reply_of
from treadle.agent._input import Input, to_messages
from treadle.agent._interrupt import last_word
from treadle.agent._options import as_context, check_options
from treadle.agent._plan import GOTOS, react_plan
from treadle.agent._reply import Limits, Reply
from treadle.agent._saved import load_records, save_records
from treadle.agent._summary import summarize
from treadle.agent._template import Template
from treadle.agent._tool_view import ToolView
from treadle.agent._turn import AgentRequest, Turn, turn_of
from treadle.errors import InputError
from treadle.event import ErrorEvent, Event, PostCallEvent, PreCallEvent, ReasoningChunkEvent, RunFailedEvent
from treadle.graph import EventStream, NodeContext
from treadle.graph._answers import answers_below, raise_pause
from treadle.graph._channel import Channel
from treadle.graph._draw import mermaid
from treadle.graph._interrupt import Interruption, interrupt_thread
from treadle.graph._options import OnBusy, When, at_once, must_wait, named
from treadle.graph._run import Run, Terminal, active_run
from treadle.graph._stream import Watcher
from treadle.graph._thread import OpenThread, load_state
from treadle.hook import Hook, HookSet, ToolCall
from treadle.journal import Journal, open_store
from treadle.journal._record import EndedRecord, InputRecord, Record
from treadle.message import Msg, ToolResultBlock
from treadle.model import ChatModel, ModelRequest, ModelResponse, Usage, resolve_model
from treadle.model._base import close_model
from treadle.tool import Context, Tool, Toolkit, ToolResult

T = TypeVar("T")


class ReActAgentBase(AgentBase):
    """An agent that alternates between `_reasoning` and `_acting`; both can be overridden, and hooks fire all the same.

    It holds no run's state: one instance serves any number of threads at once.
    """

    def __init__(
        self,
        *,
        name: str,
        model: ChatModel | str,
        system_prompt: str | Template = "",
        toolkit: Toolkit | Iterable[Callable[..., Any] | Tool] = (),
        hooks: Iterable[Hook] = (),
        store: Journal | str | os.PathLike[str] | None = None,
        max_iters: int = 10,
        limits: Limits | None = None,
        options: Mapping[str, Any] | None = None,
        variables: Mapping[str, Any] | None = None,
        on_pending: Literal["settle", "error"] = "settle",
        output_reminder: Literal["tool_choice", "prompt"] = "tool_choice",
        finish_name: str = "generate_response",
        output_key: str | None = None,
        description: str = "",
        console: TextIO | None = None,
    ) -> None:
        """Configure the agent.

        Args:
            name: What the agent is called.
            model: The model to ask: an object, or `provider:name`.
            system_prompt: Instructions for the model; may be a `Template`.
            toolkit: The tools, as a `Toolkit` or a list of functions.
            hooks: Hooks of this agent.
            store: Where threads are kept: a `Journal`, a URL such as `sqlite:///runs.db`, or a path; else in memory.
            max_iters: How many answers of the model one turn may take before it is asked for a summary.
            limits: Default limits of a turn.
            options: Passed to the model with every request (temperature, ...).
            variables: Default values for templates.
            on_pending: What a new message does to open calls: `settle` them with what is known, or raise an `error`.
            output_reminder: How a model that forgets the finish tool is reminded: by forced `tool_choice` where it can,
                or by `prompt` alone.
            finish_name: The name of the finish tool in runs with `output=`.
            output_key: The state key for the reply, where the agent is a node of a graph.
            description: What the agent is for, where it is a tool of another agent.
            console: Where messages are printed while they come; None prints nothing.
        """
        super().__init__(name=name, hooks=hooks, console=console)
        check_options(
            name=name,
            system_prompt=system_prompt,
            max_iters=max_iters,
            limits=limits,
            options=options,
            variables=variables,
            on_pending=on_pending,
            output_reminder=output_reminder,
            finish_name=finish_name,
            description=description,
        )
        if max_iters < 1:
            raise InputError(f"`max_iters` must be at least 1, not {max_iters!r}.")
        self.model = resolve_model(model)
        self.system_prompt = system_prompt
        self.toolkit = toolkit if isinstance(toolkit, Toolkit) else Toolkit(toolkit)
        self.max_iters = max_iters
        self.limits = limits
        self.options: Mapping[str, Any] = options or {}
        self.variables: Mapping[str, Any] = variables or {}
        self.on_pending = on_pending
        self.output_reminder = output_reminder
        self.finish_name = finish_name
        self.output_key = output_key
        self.description = description
        self._store: Journal | None = None if store is None else open_store(store)
        self._own_store = store is not None
        self._thread: str | None = None
        self._tool_view: tuple[Any, HookSet, ToolView] | None = None

    # To override.

    @abstractmethod
    async def _reasoning(self, request: ModelRequest, run: Run) -> ModelResponse:
        """Get one answer of the model."""

    @abstractmethod
    async def _acting(self, call: ToolCall, run: Run) -> ToolResult:
        """Run one tool call; what it raises becomes an error result."""

    @abstractmethod
    async def _summarizing(self, settled: list[Msg], run: Run) -> tuple[Msg, Usage]:
        """Get a last word at the iteration limit."""

    # Calling.

    @property
    def journal(self) -> Journal:
        """The store of this agent's threads."""
        if self._store is None:
            self._store = open_store("memory:")
        return self._store

    @property
    def thread(self) -> str:
        """The agent's private thread, used where a call names none."""
        if self._thread is None:
            self._thread = private_thread(self.name)
        return self._thread

    @overload
    async def call(
        self,
        input: Input = None,
        *,
        output: type[T],
        thread: str | None = None,
        decisions: Mapping[str, Any] | None = None,
        context: Context | None = None,
        variables: Mapping[str, Any] | None = None,
        limits: Limits | None = None,
        on_busy: OnBusy = "error",
    ) -> Reply[T]: ...
    @overload
    async def call(
        self,
        input: Input = None,
        *,
        output: Any = None,
        thread: str | None = None,
        decisions: Mapping[str, Any] | None = None,
        context: Context | None = None,
        variables: Mapping[str, Any] | None = None,
        limits: Limits | None = None,
        on_busy: OnBusy = "error",
    ) -> Reply[Any]: ...
    async def call(
        self,
        input: Input = None,
        *,
        output: Any = None,
        thread: str | None = None,
        decisions: Mapping[str, Any] | None = None,
        context: Context | None = None,
        variables: Mapping[str, Any] | None = None,
        limits: Limits | None = None,
        on_busy: OnBusy = "error",
    ) -> Reply[Any]:
        """Run until the agent has an answer, pauses, or fails.

        Args:
            input: Text, a message, blocks or a list; results of open calls; or nothing, to go on with what is pending.
            output: The wanted structured output: a pydantic model, dataclass, TypedDict, type or JSON schema.
            thread: The conversation; the agent's private one if not given.
            decisions: Decisions about waiting calls, by id; see `resume`.
            context: Objects and values for tools; never stored.
            variables: Values for templates; never stored.
            limits: Limits of this turn.
            on_busy: What to do if another run drives the thread: raise `AgentBusyError`, or wait for it.
        """
        request = self._request(input, decisions, output, limits, variables)
        run = self._run(request, thread, context=context, variables=variables, on_busy=on_busy)
        return result_of(await run.start().wait())

    def stream(
        self,
        input: Input = None,
        *,
        output: Any = None,
        thread: str | None = None,
        decisions: Mapping[str, Any] | None = None,
        context: Context | None = None,
        variables: Mapping[str, Any] | None = None,
        limits: Limits | None = None,
        on_busy: OnBusy = "error",
        detach: bool = False,
    ) -> EventStream[Reply[Any]]:
        """The same run as `call`, event by event; the last event has the reply, and so has `await stream.result()`."""
        request = self._request(input, decisions, output, limits, variables)

        def start(channel: Channel) -> Run:
            return self._run(request, thread, context=context, variables=variables, on_busy=on_busy, channel=channel)

        return EventStream(start, result_of, detach=detach)

    async def resume(
        self,
        thread: str,
        decisions: Mapping[str, Any] | None = None,
        *,
        output: Any = None,
        context: Context | None = None,
        variables: Mapping[str, Any] | None = None,
        limits: Limits | None = None,
        on_busy: OnBusy = "error",
    ) -> Reply[Any]:
        """Go on with a thread that paused or was cut short by a crash, an interrupt or an error.

        `decisions` maps ids of waiting calls to `Approve()`, `Edit(...)`, `Reject(...)`, `Result(...)` or `Retry()`.
        A thread whose turn came to its end is left as it is, and its reply returned again: resuming twice does no harm.
        """
        request = self._request(None, decisions, output, limits, variables)
        request = dataclasses.replace(request, resume=True)
        run = self._run(request, thread, context=context, variables=variables, on_busy=on_busy)
        return result_of(await run.start().wait())

    def call_sync(self, input: Input = None, **options: Any) -> Reply[Any]:
        """`call` for code without async; works inside a running event loop too."""
        return run_sync(self.call(input, **options))

    def resume_sync(self, thread: str, decisions: Mapping[str, Any] | None = None, **options: Any) -> Reply[Any]:
        """`resume` for code without async."""
        return run_sync(self.resume(thread, decisions, **options))

    async def reply(self, msg: Input = None) -> Reply[Any]:
        """`call` on the private thread."""
        return await self.call(msg)

    async def observe(self, msg: Msg | list[Msg], *, thread: str | None = None) -> None:
        """Add messages to a thread without answering; beside open calls they wait for the results."""
        record = InputRecord(run="observe", values={"messages": self._messages(msg, None)}, next=None, turn=False)
        opened = await OpenThread.open(
            self.journal, self._named(thread), react_plan().schema, owner="observe", wait=True
        )
        try:
            opened.record(record)
            await opened.commit()
        finally:
            await opened.close()

    def interrupt(
        self,
        message: str | Msg | None = None,
        *,
        thread: str | None = None,
        when: When = "checkpoint",
    ) -> Interruption:
        """Stop a running thread, in this or another process: before its next model call, or `now`.

        `message` becomes the agent's answer. Await what this returns to be sure that the wish was delivered.
        """
        answer = None if message is None else last_word(message, self.name)
        return interrupt_thread(self.journal, self._named(thread), answer, now=at_once(when))

    def watch(self, thread: str | None = None) -> AsyncIterator[Event]:
        """Watch a run that somebody else started in this process, without slowing it."""
        run = active_run(self.journal, self._named(thread))
        if run is None:
            raise InputError(f"No run drives thread {self._named(thread)!r} in this process.")
        return Watcher(run)

    async def history(self, thread: str | None = None) -> list[Msg]:
        """The messages of a thread."""
        state = await load_state(self.journal, self._named(thread), react_plan().schema)
        return list(state.values["messages"].messages)

    def save_state(self, *, thread: str | None = None) -> dict[str, Any]:
        """A thread as JSON, wherever it stands: mid-approval too."""
        return run_sync(save_records(self.journal, self._named(thread)))

    def load_state(self, state: Mapping[str, Any], *, thread: str | None = None) -> None:
        """Put a saved thread in the place of this agent's private one, or of `thread`."""
        run_sync(load_records(self.journal, self._named(thread), state))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the agent's store, and the connections of its model."""
        await close_model(self.model)
        if self._store is not None:
            await self._store.close()

    def mermaid(self) -> str:
        """The loop as a Mermaid flowchart."""
        return mermaid(react_plan(), GOTOS)

    # As part of something bigger.

    def as_tool(self, *, name: str | None = None, description: str | None = None) -> Tool:
        """This agent as a tool: it works on a thread of its own below the caller's, and is resumed with it."""
        from treadle.agent._agent_tool import AgentTool

        return AgentTool(self, name=name, description=description)

    def as_node(self, *, output_key: str | None = None) -> Callable[[Any, NodeContext], Any]:
        """This agent as a node: reads `input` or `messages` of the state, writes its reply under `output_key`."""
        from treadle.agent._agent_node import agent_node

        return agent_node(self, output_key or self.output_key)

    async def run_child(
        self, parent: Run, place: str, label: str, messages: Sequence[Msg], context: Any = None
    ) -> Reply[Any]:
        """Run on a thread below the parent's, or take up the run that is there; its pauses become the parent's."""
        prefix = f"{place}/"
        request = AgentRequest(messages=tuple(messages), answers=answers_below(parent.state, prefix), child=True)
        journal = self.journal if self._own_store else parent.journal
        run = Run(
            react_plan(),
            self,
            journal,
            f"{parent.name}/{place}",
            request=request,
            context=context if context is not None else as_context(parent.context),
            variables=parent.variables,
            parent=parent,
            label=label,
            wait=True,  # whoever holds this thread while we hold the one above is about to lose it, or to be done
        )
        last = await self._watched(run).start().wait()
        raise_pause(last, prefix, label)
        return result_of(last)

    # What the runner asks its host.

    async def begin_run(self, run: Run) -> Sequence[Record] | None:
        """Fit what was asked to what the thread was doing."""
        turn = Turn(self, run)
        run.scratch["turn"] = turn
        records = begin(turn, cast("AgentRequest", run.request))
        turn.over = records is None
        if run.listening and turn.given and not turn.hooks.wanting(PreCallEvent):  # else `before_agent` tells
            event = PreCallEvent(source=run.source, messages=turn.given)
            event.seal()
            await run.forward(event)
        return records

    def close_run(self, run: Run, reason: str, error: BaseException | None) -> EndedRecord:
        """End a run that was interrupted or failed, with a result for every open call."""
        return closing_record(turn_of(run), reason, error)

    async def finish_run(self, run: Run, reason: str) -> Reply[Any]:
        """Make the reply, and let hooks change it."""
        turn = turn_of(run)
        reply = reply_of(turn, reason)
        if reason != "paused" and not turn.over and turn.watched(PostCallEvent):
            try:
                event = await turn.fire(PostCallEvent(source=run.source, reply=reply))
            except Exception as error:
                if reason == "interrupted":  # the thread is closed already, and nobody else tells of the error
                    await run.emit(ErrorEvent(source=run.source, error=error))
                raise
            reply = cast("Reply[Any]", event.reply)
        return reply

    # Small parts.

    def tool_view(self, hooks: HookSet) -> ToolView:
        """The toolkit and what hooks add to it, kept until one of them changes."""
        specs = self.toolkit.specs()
        if self._tool_view is None or self._tool_view[0] is not specs or self._tool_view[1] is not hooks:
            view = ToolView.of(self.toolkit, hooks)
            self._tool_view = (specs, hooks, view)
        return self._tool_view[2]

    async def show(self, turn: Turn, message: Msg) -> None:
        """Print what the model said; a finish call is shown as the text that it is."""
        if self.console is not None:
            await self.print(message if turn.output is None else turn.output.in_words(message))

    async def show_result(self, turn: Turn, result: ToolResultBlock) -> None:
        """Print a result; a finish call is shown only when it failed."""
        if self.console is not None and not (result.metadata or {}).get("finish"):
            await self.print(Msg.tool(result))

    def _request(
        self, input: Input, decisions: Mapping[str, Any] | None, output: Any, limits: Limits | None, variables: Any
    ) -> AgentRequest:
        check_options(variables=variables, limits=limits)
        if decisions is not None and input is not None:
            raise InputError("Give `input` or `decisions`, not both: decide first, then send the message.")
        messages = () if input is None else tuple(self._messages(input, variables))
        return AgentRequest(messages=messages or None, decisions=decisions, output=output, limits=limits)

    def _messages(self, input: Any, variables: Mapping[str, Any] | None) -> list[Msg]:
        return to_messages(input, {**self.variables, **(variables or {})})

    def _run(
        self, request: AgentRequest, thread: str | None, *, context: Any, variables: Any, on_busy: OnBusy, **more: Any
    ) -> Run:
        check_options(context=context, variables=variables, limits=request.limits)
        run = Run(
            react_plan(),
            self,
            self.journal,
            self._named(thread),
            request=request,
            context=context,
            variables=variables,
            wait=must_wait(on_busy),
            **more,
        )
        return self._watched(run)

    def _named(self, thread: str | None) -> str:
        """The thread that is meant: the private one only where none is named."""
        return self.thread if thread is None else named(thread)

    def _watched(self, run: Run) -> Run:
        """Let hooks see the run from its first event on."""
        hooks = self.hook_set()
        if hooks.hooks:
            run.watch = _watcher(hooks)
        return run


class ReActAgent(ReActAgentBase):
    """The agent: a model, tools, and a loop that can be killed, cancelled, interrupted, paused and resumed at any time.

    Example:
        >>> from treadle import ReActAgent
        >>> from treadle.testing import ScriptedModel, tool_call
        >>> def add(a: int, b: int) -> int:
        ...     return a + b
        >>> model = ScriptedModel([[tool_call("add", a=17, b=25)], "It is 42."])
        >>> agent = ReActAgent(name="Assistant", model=model, toolkit=[add])
        >>> agent.call_sync("What is 17 + 25?").text
        'It is 42.'
    """

    async def _reasoning(self, request: ModelRequest, run: Run) -> ModelResponse:
        return await turn_of(run).ask(request, ReasoningChunkEvent)

    async def _acting(self, call: ToolCall, run: Run) -> ToolResult:
        return await call.tool.run(call.input, call.context)

    async def _summarizing(self, settled: list[Msg], run: Run) -> tuple[Msg, Usage]:
        return await summarize(turn_of(run), settled)


def result_of(last: Terminal) -> Reply[Any]:
    """What the caller gets from a run: its reply, or its error."""
    if isinstance(last, RunFailedEvent):
        raise last.error
    return last.result


def _watcher(hooks: HookSet) -> Callable[[Event], Any]:
    async def watch(event: Event) -> None:
        await hooks.fire(event)

    return watch
