"""Errors of providers by their meaning: one table, whichever way they say it."""

from __future__ import annotations

import email.utils
import json
import re
import time
from collections.abc import Mapping
from typing import Any, cast

from treadle.errors import (
    AuthenticationError,
    BadRequestError,
    ContentRefusedError,
    ContextWindowError,
    ModelError,
    ModelNotFoundError,
    ModelPermissionError,
    ModelTimeoutError,
    OverloadedError,
    RateLimitError,
    ServerError,
)

_BY_STATUS: dict[int, type[ModelError]] = {
    400: BadRequestError,
    401: AuthenticationError,
    402: ModelPermissionError,
    403: ModelPermissionError,
    404: ModelNotFoundError,
    408: ModelTimeoutError,
    409: ServerError,
    413: ContextWindowError,
    422: BadRequestError,
    429: RateLimitError,
    503: OverloadedError,
    504: ModelTimeoutError,
    529: OverloadedError,
}
# What providers write in `code`, `type` or `status`; it says more than the HTTP status, which inside a stream is 200.
_BY_CODE: tuple[tuple[re.Pattern[str], type[ModelError]], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), kind)
    for pattern, kind in (
        (r"context_length|context_window|context_size|max_tokens_exceeded|request_too_large", ContextWindowError),
        (r"content_filter|content_policy|data_?inspection_?failed|safety|prohibited", ContentRefusedError),
        (
            r"invalid_api_key|api_key_invalid|invalid_?apikey|authentication|unauthenticated|unauthorized",
            AuthenticationError,
        ),
        (r"permission|access_?denied|forbidden|insufficient_quota|arrearage|billing", ModelPermissionError),
        (r"model_not_found|not_?found", ModelNotFoundError),
        (r"rate_?limit|throttling|resource_exhausted|too_many_requests|tokens_per", RateLimitError),
        (r"overloaded|unavailable|capacity", OverloadedError),
        (r"timeout|deadline", ModelTimeoutError),
        (r"bad_?request|unsupported|invalid_?(request|parameter|argument|url)|failed_precondition", BadRequestError),
        (r"server_error|api_error|internal", ServerError),
    )
)
_TOO_LONG = re.compile(
    r"context (length|window)|maximum context|too (long|many tokens)|exceeds? the (maximum|limit) .*tokens?"
    r"|input length|range of input length|prompt is too long|token count .* exceeds",
    re.IGNORECASE,
)


def failure(
    provider: str, status: int, body: bytes | str | Mapping[str, Any], headers: Mapping[str, str] | None = None
) -> ModelError:
    """The error that a provider's answer means."""
    data = body if isinstance(body, Mapping) else _parsed(body)
    code, text = _said(data) if data is not None else ("", plain_text(cast("bytes | str", body)))
    status = _status_within(status, code)
    kind = _kind(status, code, text)
    advice = _ADVICE.get(kind, "")
    asked = _retry_after(headers or {})
    where = f" ({status}{f', {code}' if code else ''})" if status >= 300 or code else ""
    return kind(
        f"{provider} refused the request{where}: {text or 'no reason given'}{advice}",
        provider=provider,
        status=status,
        retry_after=_retry_delay(data or {}) if asked is None else asked,
    )


_ADVICE: dict[type[ModelError], str] = {
    AuthenticationError: " Check the key: the environment variable or `auth=`.",
    ModelNotFoundError: " Check the model's name and `base_url`.",
}


def _kind(status: int, code: str, text: str) -> type[ModelError]:
    by_status = _BY_STATUS.get(status, ServerError if status >= 500 else BadRequestError)
    named = next((kind for pattern, kind in _BY_CODE if code and pattern.search(code)), None)
    if issubclass(by_status, BadRequestError) and _TOO_LONG.search(text):
        return ContextWindowError
    if named is None or status == 200:
        return named or (by_status if status >= 300 else ServerError)
    # A specific status is trusted, and so is a specific code beside a vague status.
    vague = status in (400, 403, 422, 429, 500) and named not in (BadRequestError, ServerError)
    return named if vague else by_status


def _parsed(body: bytes | str) -> Mapping[str, Any] | None:
    try:
        value = json.loads(body)
    except ValueError:
        return None
    if isinstance(value, list) and value:
        value = cast("list[Any]", value)[0]
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else None


def _said(data: Mapping[str, Any]) -> tuple[str, str]:
    """Code and text, wherever the provider puts them."""
    inner: Any = data.get("error", data)
    if isinstance(inner, str):
        return str(data.get("code") or ""), inner
    if not isinstance(inner, Mapping):
        inner = data
    error = cast("Mapping[str, Any]", inner)
    given = [*_details(error, "reason")]
    given += [str(error[key]) for key in ("code", "type", "status") if isinstance(error.get(key), str | int)]
    code = next((word for word in given if not word.isdigit()), given[0] if given else "")
    said = next((error[key] for key in ("message", "detail", "msg") if error.get(key)), "")
    return code, said if isinstance(said, str) else json.dumps(said, ensure_ascii=False)[:500]


def _details(error: Mapping[str, Any], key: str) -> list[str]:
    """A field of Google's `details`, which say more than the error itself."""
    details: Any = error.get("details")
    found = cast("list[Any]", details) if isinstance(details, list) else []
    fields = [cast("Mapping[str, Any]", item) for item in found if isinstance(item, Mapping)]
    return [str(item[key]) for item in fields if key in item]


def _status_within(status: int, code: str) -> int:
    """The status that an error inside a 200 names as its code; some routers do that."""
    return int(code) if status == 200 and re.fullmatch(r"[45]\d\d", code) else status


def plain_text(body: bytes | str) -> str:
    """What a page or a text says, short and without markup."""
    text = body.decode("utf-8", "replace") if isinstance(body, bytes) else body
    return " ".join(re.sub(r"<[^>]+>", " ", text).split())[:500]


def _retry_delay(data: Mapping[str, Any]) -> float | None:
    """Seconds to wait, as Google says it: "34.5s" in the body."""
    error = data.get("error")
    given = _details(cast("Mapping[str, Any]", error), "retryDelay") if isinstance(error, Mapping) else []
    found = re.fullmatch(r"([\d.]+)s", given[0]) if given else None
    return float(found[1]) if found else None


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait, as a number or as a date; the millisecond form is more exact where it is given."""
    try:
        if "retry-after-ms" in headers:
            return max(0.0, float(headers["retry-after-ms"]) / 1000)
        given = headers.get("retry-after")
        if given is None:
            return None
        if re.fullmatch(r"\s*[\d.]+\s*", given):
            return float(given)
        return max(0.0, email.utils.parsedate_to_datetime(given).timestamp() - time.time())
    except (ValueError, TypeError):
        return None
