"""For tests: a model that follows a script, checks of what must always hold, and faults on demand."""

from treadle.testing._conformance import JOURNAL_CHECKS, check_journal
from treadle.testing._faults import FaultyJournal, InjectedFault, kill
from treadle.testing._provider import FakeProvider, Fault, ProviderRequest
from treadle.testing._scripted import ScriptedModel, Turn, thinking, tool_call
from treadle.testing._valid import assert_valid_history, history_problems

__all__ = [
    "JOURNAL_CHECKS",
    "FakeProvider",
    "Fault",
    "FaultyJournal",
    "InjectedFault",
    "ProviderRequest",
    "ScriptedModel",
    "Turn",
    "assert_valid_history",
    "check_journal",
    "history_problems",
    "kill",
    "thinking",
    "tool_call",
]
