"""What every test gets without asking: no network, and property tests that do not depend on the machine's speed."""

from __future__ import annotations

import ipaddress
import os
import socket
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# A deadline would test the machine. Where a change is judged, the same examples are tried every time; new ones are for
# people at work. `thorough` is for a long look: HYPOTHESIS_PROFILE=thorough make test
settings.register_profile(
    "default",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
    derandomize=bool(os.environ.get("CI")),
)
settings.register_profile("thorough", settings.get_profile("default"), max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def _is_local(address: Any) -> bool:
    """Whether a socket address stays on this machine: a Unix socket's path, or a loopback address."""
    if not isinstance(address, tuple):
        return True
    host = str(address[0])  # pyright: ignore[reportUnknownArgumentType]: an address is whatever its family says
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse connections that would leave this machine."""
    connect = socket.socket.connect

    def local_only(self: socket.socket, address: Any) -> None:
        if not _is_local(address):
            raise OSError(f"tests stay on this machine: no connection to {address!r}")
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", local_only)
