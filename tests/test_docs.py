"""The documentation is code: every Python block in README.md and docs/ runs, and so does every docstring example.

The blocks of one page run one after another in one namespace and in an empty working folder, with top-level `await`.
A block after the line `<!-- not run -->` is only compiled.
"""

from __future__ import annotations

import ast
import asyncio
import doctest
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from types import CodeType, ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MODULES = sorted((ROOT / "src" / "treadle").rglob("*.py"))

BLOCK = re.compile(
    r"^(?P<marker>[ \t]*<!-- not run -->[ \t]*\n(?:[ \t]*\n)*)?"
    r"(?P<indent>[ \t]*)```python\b[^\n]*\n(?P<code>.*?)^(?P=indent)```[ \t]*$",
    re.MULTILINE | re.DOTALL,
)
LINK = re.compile(r"\]\((?!\w+:)(?P<path>[^)#\s]+)")
OPENING = re.compile(r"^[ \t]*```python\b", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A code block: its text, the line of the page where the text starts, and whether it is run."""

    code: str
    line: int
    run: bool


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def blocks(text: str) -> list[Block]:
    """All Python blocks of a page in their order."""
    return [
        Block(
            code=dedent(match["code"]),
            line=text.count("\n", 0, match.start("code")) + 1,
            run=match["marker"] is None,
        )
        for match in BLOCK.finditer(text)
    ]


def compiled(block: Block, page: str) -> CodeType:
    """The block's code object, with the page's own name and line numbers in tracebacks."""
    source = "\n" * (block.line - 1) + block.code
    return compile(source, page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)


def execute(code: CodeType, namespace: dict[str, Any], runner: asyncio.Runner) -> None:
    """Run a code object; one with a top-level `await` runs in the runner's event loop."""
    result = eval(code, namespace)
    if code.co_flags & inspect.CO_COROUTINE:
        runner.run(result)


def line_in_page(error: BaseException, page: str, default: int) -> int:
    """The last line of the page that the error's traceback went through."""
    if isinstance(error, SyntaxError) and error.filename == page:
        return error.lineno or default
    line, traceback = default, error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == page:
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return line


def run_page(text: str, page: str) -> None:
    """Run the blocks of one page; an error is raised again as a failure that names the page and the line."""
    module = ModuleType("documentation_page")  # in `sys.modules`, where dataclasses and pydantic look types up
    sys.modules[module.__name__] = module
    try:
        with asyncio.Runner() as runner:
            for block in blocks(text):
                try:
                    code = compiled(block, page)
                    if block.run:
                        execute(code, module.__dict__, runner)
                except Exception as error:
                    line = line_in_page(error, page, block.line)
                    raise AssertionError(f"{page}:{line}: {type(error).__name__}: {error}") from error
    finally:
        del sys.modules[module.__name__]


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_page(page.read_text(encoding="utf-8"), relative(page))


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"], ids=relative)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    links = {match["path"] for match in LINK.finditer(page.read_text(encoding="utf-8"))}
    assert [link for link in sorted(links) if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_every_python_fence_is_a_complete_block(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert len(blocks(text)) == len(OPENING.findall(text)), "a block is opened and not closed"


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT / "src").with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@pytest.fixture
def doctest_awaits(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Teach doctest top-level `await`; yields the compiler flags that the runner then needs."""
    with asyncio.Runner() as runner:

        def awaiting(code: CodeType, namespace: dict[str, Any]) -> None:
            execute(code, namespace, runner)

        monkeypatch.setattr(doctest, "exec", awaiting, raising=False)  # found before the builtin
        yield ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_docstring_examples_run(
    path: Path, doctest_awaits: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(module_name(path))
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    report: list[str] = []
    for test in doctest.DocTestFinder().find(module):
        runner.run(test, compileflags=doctest_awaits, out=report.append)
    assert not report, "".join(report)


def test_a_failing_block_names_its_page_and_line() -> None:
    page = "# Page\n\n```python\nx = 1\n```\n\n```python\nimport asyncio\nawait asyncio.sleep(0)\nassert x == 2\n```\n"
    with pytest.raises(AssertionError, match=r"^page\.md:10: AssertionError"):
        run_page(page, "page.md")


def test_a_block_marked_as_not_run_must_still_be_python() -> None:
    run_page("<!-- not run -->\n```python\nraise SystemError\n```\n", "page.md")
    with pytest.raises(AssertionError, match=r"^page\.md:3: SyntaxError"):
        run_page("<!-- not run -->\n```python\nno python at all\n```\n", "page.md")


def test_docstring_examples_may_await(doctest_awaits: int) -> None:
    text = ">>> import asyncio\n>>> await asyncio.sleep(0, result=42)\n{}\n"
    for expected, failures in (("42", 0), ("43", 1)):
        test = doctest.DocTestParser().get_doctest(text.format(expected), {}, "example", None, None)
        runner = doctest.DocTestRunner(verbose=False)
        runner.run(test, compileflags=doctest_awaits, out=lambda _: None)
        assert (runner.tries, runner.failures) == (2, failures)
