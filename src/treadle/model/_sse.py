"""Server-sent events and JSON lines, from bytes that may be cut anywhere."""

from __future__ import annotations

from dataclasses import dataclass

_BOM = b"\xef\xbb\xbf"


class LineReader:
    """Cuts bytes into lines, whichever of the three line ends they have. Each byte is looked at once."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that are complete with this chunk, without their ends."""
        held = bool(self._parts) and self._parts[-1].endswith(b"\r")
        if not held and b"\n" not in chunk and b"\r" not in chunk:
            self._parts.append(chunk)
            return []
        lines = (b"".join(self._parts) + chunk).splitlines(keepends=True)
        # A line that ends with \r at the very end is held back: it may be the first half of \r\n.
        complete = lines[-1].endswith(b"\n")
        self._parts = [] if complete else [lines.pop()]
        return [line.rstrip(b"\r\n") for line in lines]

    def rest(self) -> bytes:
        """What is left when no more bytes come."""
        return b"".join(self._parts).rstrip(b"\r")


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event of a stream: its data, and its name, empty where the server gave none."""

    data: str
    name: str = ""


class SSEParser:
    """Turns bytes into events. Cutting the bytes elsewhere never changes what comes out.

    Data over several lines is joined; comments and fields other than `event` and `data` are skipped; an event that the
    stream ends in the middle of does not count.
    """

    def __init__(self) -> None:
        self._reader = LineReader()
        self._name = ""
        self._data: list[str] = []
        self._started = False

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """The events that are complete with this chunk."""
        events: list[ServerEvent] = []
        lines = self._reader.feed(chunk)
        if lines and not self._started:
            self._started, lines[0] = True, lines[0].removeprefix(_BOM)
        for line in lines:
            if not line:
                if self._data:
                    events.append(ServerEvent("\n".join(self._data), self._name))
                self._name, self._data = "", []
            elif line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" ").decode("utf-8", "replace"))
            elif line.startswith(b"event:"):
                self._name = line[6:].removeprefix(b" ").decode("utf-8", "replace")
            elif line == b"data":
                self._data.append("")
        return events

    def close(self) -> list[ServerEvent]:
        """Nothing: an event counts only with the empty line after it."""
        return []


class JSONLinesParser:
    """Turns bytes into events of one JSON text each; empty lines are skipped."""

    def __init__(self) -> None:
        self._reader = LineReader()

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """The lines that are complete with this chunk."""
        return [ServerEvent(line.decode("utf-8", "replace")) for line in self._reader.feed(chunk) if line.strip()]

    def close(self) -> list[ServerEvent]:
        """The last line, if it came without a line end."""
        rest = self._reader.rest().strip()
        return [ServerEvent(rest.decode("utf-8", "replace"))] if rest else []
