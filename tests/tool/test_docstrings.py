"""Descriptions out of docstrings."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from treadle.tool import FunctionTool

GOOGLE = """Find trains.

    Slow ones too.

    Args:
        start (str): Where the journey begins:
            a city.
        *stops: On the way.

    Returns:
        The trains.
    """
NUMPY = """Find trains.

    Slow ones too.

    Parameters
    ----------
    start : str
        Where the journey begins:
        a city.
    *stops
        On the way.

    Returns
    -------
    str
        The trains.
    """
SPHINX = """Find trains.

    Slow ones too.

    :param start: Where the journey begins:
        a city.
    :param str stops: On the way.
    :returns: The trains.
    """


@dataclass(frozen=True, kw_only=True)
class Case:
    name: str
    docstring: str | None
    description: str
    parameters: dict[str, str] = field(default_factory=dict[str, str])


FULL = {"start": "Where the journey begins:\na city.", "stops": "On the way."}
CASES = [
    Case(name="none", docstring=None, description=""),
    Case(name="empty", docstring="", description=""),
    Case(name="one line", docstring="Find trains.", description="Find trains."),
    Case(name="google", docstring=GOOGLE, description="Find trains.\n\nSlow ones too.", parameters=FULL),
    Case(name="numpy", docstring=NUMPY, description="Find trains.\n\nSlow ones too.", parameters=FULL),
    Case(name="sphinx", docstring=SPHINX, description="Find trains.\n\nSlow ones too.", parameters=FULL),
    Case(
        name="a colon is no section",
        docstring="""Find trains: all of them.

        Example: `find("Hangzhou")`.""",
        description='Find trains: all of them.\n\nExample: `find("Hangzhou")`.',
    ),
    Case(
        name="only returns",
        docstring="""Find trains.

        Returns:
            The trains.""",
        description="Find trains.",
    ),
    Case(
        name="unknown parameters are ignored",
        docstring="""Find trains.

        Args:
            stop: Not there.""",
        description="Find trains.",
    ),
    Case(
        name="what the parser cannot read",
        docstring="""Find trains.

        Args:
        start: Not indented.""",
        description="Find trains.\n\nArgs:\nstart: Not indented.",
    ),
    Case(name="a list", docstring="Find:\n- trains\n- buses", description="Find:\n- trains\n- buses"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_descriptions(case: Case) -> None:
    def find(start: str, *stops: str) -> None: ...

    find.__doc__ = case.docstring
    tool = FunctionTool(find)
    assert tool.description == case.description
    properties = tool.parameters["properties"]
    assert {name: item["description"] for name, item in properties.items() if "description" in item} == case.parameters


def test_options_win_over_the_docstring() -> None:
    def find(start: str) -> None:
        """Find trains."""

    tool = FunctionTool(find, name="search", description="Search trains.")
    assert (tool.spec.name, tool.spec.description) == ("search", "Search trains.")
