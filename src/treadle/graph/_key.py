"""One key of a graph's state: its type, its strategy, and its values as a record holds them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cached_property
from types import NoneType, UnionType
from typing import Any, Final, Literal, Union, cast, get_args, get_origin

from treadle.errors import StateError
from treadle.graph._strategy import Strategy, append, merge, plain, replace
from treadle.message import Msg
from treadle.message._codec import as_msgs

_PLAIN: Final = (str, int, float, bool, NoneType)


class Key:
    """One key of the state."""

    def __init__(
        self,
        name: str,
        annotation: Any = Any,
        strategy: Strategy = replace,
        default: Callable[[], Any] | None = None,
    ) -> None:
        self.name = name
        self.annotation = annotation
        self.strategy = strategy
        self._default = default

    def start(self) -> Any:
        """The value before the first update."""
        value = None if self._default is None else self._default()
        return self.strategy.start() if value is None else value

    def dump(self, value: Any) -> Any:
        """Turn an update into what a record may hold; what cannot be stored is an error now, not at the next crash."""
        if type(value) in _PLAIN and self.annotation in (Any, type(value)):
            return value
        try:
            return self._msgs(value) if self.of_msgs else self._dump(plain(value))
        except Exception as error:
            raise StateError(f"`{self.name}` cannot be stored: {error}") from error

    def load(self, value: Any) -> Any:
        """Turn a record's value back into what nodes see."""
        if type(value) in _PLAIN and self._as_is:
            return value
        try:
            return self._msgs(value) if self.of_msgs else self._load(value)
        except Exception as error:
            raise StateError(f"The stored value of `{self.name}` does not fit its type: {error}") from error

    def _dump(self, value: Any) -> Any:
        adapter = self._adapter_for(value)
        if type(value) in _PLAIN and not (self.annotation is int and type(value) is bool):
            adapter.validate_python(value, strict=True)
        return json.loads(adapter.dump_json(value, warnings="error"))

    def _load(self, value: Any) -> Any:
        return self._adapter_for(value).validate_json(json.dumps(value), by_alias=True, by_name=True)

    def _msgs(self, value: Any) -> Any:
        if value is None and NoneType in get_args(self.annotation):
            return None
        if isinstance(value, Sequence) and not isinstance(value, str):
            if self.strategy is replace and not self.of_msg_list:
                raise TypeError("it holds one message, and this is a list")
            return as_msgs(map(_as_msg, cast("Sequence[Any]", value)))
        if self.strategy is replace and not self.of_msg:
            raise TypeError("it holds a list of messages, and this is not one")
        return as_msgs([_as_msg(value)])[0]

    def takes_text(self) -> bool:
        """Whether a text fits, as far as its type goes: which texts do may depend on what they say."""
        if self.strategy is merge:
            return False
        if self.annotation in (Any, str):
            return True
        from pydantic import PydanticUserError, ValidationError

        try:
            self._adapter_for("").validate_python("", strict=True)
        except PydanticUserError:
            return False
        except ValidationError as error:
            kinds = [str(detail["type"]) for detail in error.errors()]
            return not all(kind.endswith("_type") or kind in ("is_instance_of", "none_required") for kind in kinds)
        return True

    @cached_property
    def _forms(self) -> tuple[Any, ...]:
        """The types that the key is declared to hold, apart from None."""
        union = get_origin(self.annotation) in (Union, UnionType)
        kinds = get_args(self.annotation) if union else (self.annotation,)
        return tuple(kind for kind in kinds if kind is not NoneType)

    @cached_property
    def of_msg(self) -> bool:
        """Whether the key is declared to hold a message."""
        return Msg in self._forms

    @cached_property
    def of_msg_list(self) -> bool:
        """Whether the key is declared to hold a list of messages."""
        return any(map(_is_msg_list, self._forms))

    @cached_property
    def of_msgs(self) -> bool:
        """Whether the key holds messages only."""
        return bool(self._forms) and all(form is Msg or _is_msg_list(form) for form in self._forms)

    @cached_property
    def _item(self) -> Any:
        """The type of one item of a list."""
        return (get_args(self.annotation) or (Any,))[0]

    @cached_property
    def _as_is(self) -> bool:
        return _stays_plain(self._item if self.strategy is append else self.annotation)

    @cached_property
    def _whole(self) -> Any:
        args = get_args(self.annotation)
        if self.strategy is merge and len(args) == 2:
            return _adapter(dict[args[0], args[1] | None])  # an entry of None is removed
        return _adapter(self.annotation)

    @cached_property
    def _single(self) -> Any:
        return _adapter(self._item)

    def _adapter_for(self, value: Any) -> Any:
        """The adapter for an update: of the key's type, or of one item where a list takes single items."""
        return self._single if self.strategy is append and not isinstance(value, list | tuple) else self._whole


def _adapter(annotation: Any) -> Any:
    from pydantic import ConfigDict, PydanticUserError, TypeAdapter

    config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64", ser_json_inf_nan="constants")
    try:
        return TypeAdapter(annotation, config=config)
    except PydanticUserError:
        return TypeAdapter(annotation)


def _is_msg_list(annotation: Any) -> bool:
    return get_origin(annotation) in (list, Sequence) and Msg in get_args(annotation)


def _stays_plain(annotation: Any) -> bool:
    """Whether what JSON holds for a text, a number or None is the value itself."""
    if get_origin(annotation) in (Union, UnionType):
        return all(map(_stays_plain, get_args(annotation)))
    return annotation in (Any, object, *_PLAIN) or get_origin(annotation) is Literal


def _as_msg(value: Any) -> Any:
    """A reply is stored as the message that it is."""
    return value.as_msg() if hasattr(value, "as_msg") else value
