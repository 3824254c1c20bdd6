"""The conformance suite of journals: what every store must do, as checks that need no test framework."""

from __future__ import annotations

from treadle.journal._journal import Journal
from treadle.testing._checks import MakeStore
from treadle.testing._checks_leases import LEASE_CHECKS
from treadle.testing._checks_mail import MAIL_CHECKS
from treadle.testing._checks_records import RECORD_CHECKS
from treadle.testing._checks_threads import THREAD_CHECKS

JOURNAL_CHECKS = (*RECORD_CHECKS, *LEASE_CHECKS, *MAIL_CHECKS, *THREAD_CHECKS)
"""Every check: an async function of `make_store`. Each uses threads of its own and closes nothing it does not test."""


async def check_journal(make_store: MakeStore) -> None:
    """Run every check and close the stores that were made; an `AssertionError` says what a store does not do.

    Args:
        make_store: Returns a handle on the same data each time it is called; the same object if data cannot be shared.
    """
    made: list[Journal] = []

    def make() -> Journal:
        made.append(make_store())
        return made[-1]

    try:
        for check in JOURNAL_CHECKS:
            try:
                await check(make)
            except BaseException as error:
                error.add_note(f"The journal failed the check {check.__name__!r}: {check.__doc__}")
                raise
    finally:
        for store in made:
            await store.close()
