"""The shape of the project: what is public, which way imports go, what an import costs, what files may contain."""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "treadle"
MODULES = sorted(SOURCE.rglob("*.py"))

# Bottom to top: a module imports from its own package and from lower lines, never sideways or up.
LAYERS = (
    ("_ids", "_sync", "errors"),
    ("message",),
    ("model", "formatter"),
    ("event",),
    ("journal",),
    ("graph",),
    ("tool",),
    ("memory", "plan"),
    ("hook",),
    ("agent",),
    ("team",),
    ("testing",),
)
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
PUBLIC_MODULES = {"errors"}
PACKAGES = sorted(path.parent.name for path in SOURCE.glob("*/__init__.py"))

HEAVY = ("anyio", "httpx", "httpx2", "jsonschema_rs", "pydantic", "pydantic_core", "sqlite3", "_sqlite3")
MOST_MODULES = 250  # beyond those of the bare interpreter
LONGEST_MODULE = 600


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def dotted(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


# What is public


def exports_in_order(names: list[str]) -> list[str]:
    """Constants, then classes, then functions, each by name: the order that ruff's RUF022 keeps."""

    def rank(name: str) -> tuple[int, str]:
        return (0 if name.isupper() else 1 if name[:1].isupper() else 2), name

    return sorted(names, key=rank)


@pytest.mark.parametrize("name", ["treadle", "treadle.errors", *(f"treadle.{package}" for package in PACKAGES)])
def test_exported_names_are_sorted_and_exist(name: str) -> None:
    module = importlib.import_module(name)
    exported: list[str] = module.__all__
    assert exported == exports_in_order(exported)
    assert len(exported) == len(set(exported))
    assert [missing for missing in exported if not hasattr(module, missing)] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_everything_public_in_a_package_is_exported(package: str) -> None:
    name = f"treadle.{package}"
    module = importlib.import_module(name)
    public = {
        key for key, value in vars(module).items() if not key.startswith("_") and _defined_below(name, key, value)
    }
    assert sorted(public - set(module.__all__)) == []


def _defined_below(package: str, key: str, value: object) -> bool:
    """Whether a package's attribute is its own: not a `__future__` flag, not something borrowed from elsewhere."""
    return getattr(value, "__module__", "").startswith(package) and f"{package}.{key}" not in sys.modules


def test_only_packages_and_declared_modules_are_public() -> None:
    loose = {path.stem for path in SOURCE.glob("*.py") if not path.stem.startswith("_")}
    inner = {relative(path) for path in SOURCE.glob("*/**/*.py") if not path.stem.startswith("_")}
    assert (loose, inner) == (PUBLIC_MODULES, set())


def test_every_folder_with_code_is_a_package_with_a_place_in_the_layers() -> None:
    folders = {path.parent.relative_to(SOURCE).parts[0] for path in SOURCE.glob("*/**/*.py")}
    loose = {path.stem for path in SOURCE.glob("*.py")} - {"__init__"}
    assert sorted(folders) == PACKAGES
    assert sorted((folders | loose) - LEVEL.keys()) == [], "give it a line in LAYERS, and in the design"


def test_the_package_says_that_it_is_typed() -> None:
    assert (SOURCE / "py.typed").is_file()


# Which way imports go


def imported(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Every module that a file imports, wherever the import stands, with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: a relative import"
            if node.module == "treadle":
                yield from ((f"treadle.{alias.name}", node.lineno) for alias in node.names)
            else:
                yield node.module or "", node.lineno


def upward_imports(path: Path) -> list[str]:
    """The imports of a file that do not go down, as `file:line imports module`."""
    own = path.relative_to(SOURCE).with_suffix("").parts[0]
    found: list[str] = []
    for module, line in imported(ast.parse(path.read_text(encoding="utf-8"))):
        top, *rest = module.split(".")
        if top != "treadle" or rest[:1] == [own]:
            continue
        if not rest or LEVEL.get(rest[0], len(LAYERS)) > LEVEL[own]:
            found.append(f"{relative(path)}:{line} imports {module}")
    return found


def test_imports_go_down_only() -> None:
    files = [path for path in MODULES if path != SOURCE / "__init__.py"]
    assert [line for path in files for line in upward_imports(path)] == []


# What `import treadle` costs


def modules_after(statement: str) -> set[str]:
    code = f"import json, sys; {statement}; print(json.dumps(sorted(sys.modules)))"
    environment = {key: value for key, value in os.environ.items() if not key.startswith("COV")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True, text=True)
    return set(json.loads(done.stdout))


@pytest.mark.parametrize("statement", ["import treadle", "from treadle import ReActAgent, Toolkit"])
def test_importing_is_light(statement: str) -> None:
    loaded = modules_after(statement) - modules_after("pass")
    assert sorted(name for name in loaded if name.split(".")[0] in HEAVY) == []
    assert len(loaded) <= MOST_MODULES


# What files may contain


def tracked_files() -> list[Path]:
    """The files that are, or are about to be, in the repository."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git repository")
    return [path for name in done.stdout.split("\0") if name and (path := ROOT / name).is_file()]


# The brackets keep these patterns from finding themselves.
MACHINE_PATH = re.compile(r"(?<![\w.])(?:/(?:[r]oot|[h]ome|[w]ork|[U]sers|[o]pt)/[\w.]|[A-Z]:\\+[U]sers)")
REGISTRY = re.compile(
    r"[p]ypi\.(?:org|python)|[p]ythonhosted\.org|[r]egistry\.npmjs|--(?:extra-)?[i]ndex-url\b|"
    r"https?://[^\s/]*(?:[r]egistry|[a]rtifactory|[n]exus|[p]ypi)[^\s]*",
    re.IGNORECASE,
)


def test_files_name_no_machine_path_and_no_registry() -> None:
    found: list[str] = []
    for path in tracked_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [f"{relative(path)}: {m.group()}" for rule in (MACHINE_PATH, REGISTRY) for m in rule.finditer(text)]
    assert found == []


@pytest.mark.parametrize("text", ["see /" + "home/me/x", "/" + "root/.cache", "'/" + "opt/wheels'", "C:\\" + "Users"])
def test_machine_paths_are_recognised(text: str) -> None:
    assert MACHINE_PATH.search(text)


@pytest.mark.parametrize("folder", ["src", "tests", "benchmarks", "examples"])
def test_modules_fit_a_reading(folder: str) -> None:
    lines = {relative(path): path.read_text(encoding="utf-8").count("\n") for path in (ROOT / folder).rglob("*.py")}
    assert {name: count for name, count in lines.items() if count > LONGEST_MODULE} == {}


# What gets installed


def pins(name: str) -> dict[str, str]:
    lines = (ROOT / "requirements" / name).read_text(encoding="utf-8").split("\n")
    return dict(line.split(";")[0].strip().split("==") for line in lines if line)


def test_pins_cover_what_the_project_declares() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    def names(requirements: list[str]) -> set[str]:
        return {re.split(r"[\[<>=~! ]", requirement)[0] for requirement in requirements}

    core, dev = pins("core.txt"), pins("dev.txt")
    assert names(project["dependencies"]) <= core.keys()
    assert names(project["optional-dependencies"]["dev"]) <= dev.keys()
    assert core.items() <= dev.items(), "both files must pin the same versions"


@pytest.mark.slow
def test_the_benchmarks_run() -> None:
    command = [sys.executable, "benchmarks/run.py", "--smoke"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "CPU per iteration" in done.stdout
