"""The fast path says what pydantic would say."""

from typing import Any, Literal, Union

from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from treadle.tool import FunctionTool

plain = st.sampled_from([int, str, float, bool, None, Any, object, list, dict, set])
literals = st.lists(
    st.one_of(st.text(max_size=3), st.integers(0, 5), st.booleans(), st.none()), min_size=1, max_size=3
).map(lambda values: Literal[tuple(values)])


def extended(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        inner.map(lambda kind: list[kind]),
        inner.map(lambda kind: set[kind]),
        inner.map(lambda kind: frozenset[kind]),
        inner.map(lambda kind: dict[str, kind]),
        inner.map(lambda kind: dict[int, kind]),
        inner.map(lambda kind: tuple[kind, ...]),
        st.lists(inner, min_size=1, max_size=3).map(lambda kinds: tuple[tuple(kinds)]),
        st.lists(inner, min_size=1, max_size=3).map(lambda kinds: Union[tuple(kinds)]),  # noqa: UP007
    )


annotations = st.recursive(st.one_of(plain, literals), extended, max_leaves=5)


@given(annotations)
def test_schemas_are_equal(annotation: Any) -> None:
    def function(value: Any) -> None: ...

    function.__annotations__ = {"value": annotation}
    assert FunctionTool(function).parameters["properties"]["value"] == TypeAdapter(annotation).json_schema()
