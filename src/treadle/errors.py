"""Every error that Treadle raises, in one tree.

TreadleError
├── InputError                what was given to a call does not fit the thread or the agent
│   ├── DecisionError         a decision does not answer what the thread is waiting for
│   ├── PendingCallsError     new input on a thread whose policy forbids settling open calls
│   └── TemplateError         a template names a variable that the run was not given
├── AgentBusyError            another run drives this thread
├── FormatError               stored or given JSON is not a message or record we understand
├── EventError                a hook changed something that cannot be changed
├── GraphError
│   ├── GraphDefinitionError  the graph cannot be compiled
│   ├── StateError            a state value is missing, of the wrong type, or cannot be stored
│   ├── NodeTimeoutError      a node did not finish in time
│   └── StepLimitError        the graph did not end within its step limit
├── JournalError
│   ├── ThreadNotFoundError
│   ├── ThreadExistsError
│   ├── ConflictError         the thread has grown since it was read
│   ├── LeaseLostError        another process took the thread over
│   ├── JournalLockedError    the file is locked by somebody else
│   ├── JournalFullError      no space left
│   └── JournalCorruptError   the file is damaged or not a journal
├── ToolDefinitionError       a function cannot be made a tool
├── ToolError                 a tool could not be run, or not to its end
│   ├── ToolInputError        the arguments do not fit the tool
│   └── ToolTimeoutError      a tool did not finish in time
├── OutputError               no valid structured output within the allowed attempts
└── ModelError                the model could not answer
    ├── AuthenticationError       the key is missing or wrong
    ├── ModelPermissionError      the key may not use this model
    ├── ModelNotFoundError        no such model, or no such address
    ├── BadRequestError           the provider does not take the request
    │   └── ContextWindowError    the conversation is too long for the model
    ├── ContentRefusedError       the provider refuses to answer this
    ├── RateLimitError            too many requests or tokens; retryable
    ├── OverloadedError           the provider is too busy; retryable
    ├── ServerError               the provider failed; retryable
    ├── ModelConnectionError      the provider could not be reached, or hung up; retryable
    ├── ModelTimeoutError         the provider was silent for too long; retryable
    ├── EmptyResponseError        only empty answers, again and again
    └── MalformedResponseError    the provider's answer makes no sense; retryable
"""

from __future__ import annotations

__all__ = [
    "AgentBusyError",
    "AuthenticationError",
    "BadRequestError",
    "ConflictError",
    "ContentRefusedError",
    "ContextWindowError",
    "DecisionError",
    "EmptyResponseError",
    "EventError",
    "FormatError",
    "GraphDefinitionError",
    "GraphError",
    "InputError",
    "JournalCorruptError",
    "JournalError",
    "JournalFullError",
    "JournalLockedError",
    "LeaseLostError",
    "MalformedResponseError",
    "ModelConnectionError",
    "ModelError",
    "ModelNotFoundError",
    "ModelPermissionError",
    "ModelTimeoutError",
    "NodeTimeoutError",
    "OutputError",
    "OverloadedError",
    "PendingCallsError",
    "RateLimitError",
    "ServerError",
    "StateError",
    "StepLimitError",
    "TemplateError",
    "ThreadExistsError",
    "ThreadNotFoundError",
    "ToolDefinitionError",
    "ToolError",
    "ToolInputError",
    "ToolTimeoutError",
    "TreadleError",
]


class TreadleError(Exception):
    """The root of every error that Treadle raises."""


class InputError(TreadleError):
    """What was given to a call does not fit the thread or the agent."""


class DecisionError(InputError):
    """A decision does not answer what the thread is waiting for."""


class PendingCallsError(InputError):
    """New input came while tool calls are open, and the agent was told not to settle them."""


class TemplateError(InputError):
    """A template names a variable that the run was not given."""


class AgentBusyError(TreadleError):
    """Another run drives this thread; wait for it, or pass `on_busy="wait"`."""


class FormatError(TreadleError):
    """Stored or given JSON is not a message or a record that this version understands."""


class EventError(TreadleError):
    """A hook changed, or asked for, something that its event does not allow."""


class GraphError(TreadleError):
    """Something about a graph or its state is wrong."""


class GraphDefinitionError(GraphError):
    """The graph cannot be compiled; the text lists every problem found."""


class StateError(GraphError):
    """A state value is missing, of the wrong type, or cannot be stored."""


class NodeTimeoutError(GraphError, TimeoutError):
    """A node did not finish within its timeout."""


class StepLimitError(GraphError):
    """The graph did not end within its step limit."""


class JournalError(TreadleError):
    """A journal could not do what was asked; what it had stored before is intact."""


class ThreadNotFoundError(JournalError):
    """No thread of that name is stored."""


class ThreadExistsError(JournalError):
    """A thread of that name is stored already."""


class ConflictError(JournalError):
    """The thread has grown since it was read: another writer was faster."""


class LeaseLostError(JournalError):
    """Another process took the thread over; this one may not write to it any more."""


class JournalLockedError(JournalError):
    """The journal's file is locked by somebody else for longer than the timeout."""


class JournalFullError(JournalError):
    """There is no space left to write; nothing stored before was lost."""


class JournalCorruptError(JournalError):
    """The file is damaged, or is not a journal."""


class ToolDefinitionError(TreadleError):
    """A function cannot be made a tool; the text names the parameter."""


class ToolError(TreadleError):
    """A tool could not be run, or not to its end."""


class ToolInputError(ToolError):
    """The arguments do not fit the tool; the text names every path that is wrong."""


class ToolTimeoutError(ToolError, TimeoutError):
    """A tool did not finish within its timeout."""


class OutputError(TreadleError):
    """The model gave no valid structured output within the allowed attempts."""


class ModelError(TreadleError):
    """The model could not answer. `retryable` says whether asking again may help.

    Args:
        message: What happened, without secrets.
        provider: Whom was asked.
        status: The HTTP status, where there was one.
        retry_after: Seconds after which the provider wants to be asked again.
        partial: The text that had come before the error.
    """

    retryable = False

    def __init__(
        self,
        message: str = "",
        *,
        provider: str = "",
        status: int | None = None,
        retry_after: float | None = None,
        partial: str = "",
    ) -> None:
        super().__init__(message)
        self.provider = provider
        self.status = status
        self.retry_after = retry_after
        self.partial = partial


class AuthenticationError(ModelError):
    """The key is missing or wrong."""


class ModelPermissionError(ModelError):
    """The key may not use this model."""


class ModelNotFoundError(ModelError):
    """There is no such model, or no such address."""


class BadRequestError(ModelError):
    """The provider does not take the request as it is."""


class ContextWindowError(BadRequestError):
    """The conversation is too long for the model."""


class ContentRefusedError(ModelError):
    """The provider refuses to answer this."""


class RateLimitError(ModelError):
    """Too many requests or tokens for now."""

    retryable = True


class OverloadedError(ModelError):
    """The provider is too busy for now."""

    retryable = True


class ServerError(ModelError):
    """The provider failed."""

    retryable = True


class ModelConnectionError(ModelError):
    """The provider could not be reached, or hung up."""

    retryable = True


class ModelTimeoutError(ModelError, TimeoutError):
    """The provider was silent for too long."""

    retryable = True


class EmptyResponseError(ModelError):
    """The model gave only empty answers, however often it was asked."""


class MalformedResponseError(ModelError):
    """The provider's answer makes no sense."""

    retryable = True
