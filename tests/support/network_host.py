"""A host for drivers with a network of its own: what it reaches passes through relays, each of which can stand still.

A host is a network, a process and a host name of its own (namespaces of Linux). Within it the broker and the store have
the addresses that they have outside. It takes root.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kappa.config import Config
from kappa_local.kafka import HOST
from support.airflow_stack import wait_for
from support.programs import program, python_path

_SECONDS = 60.0
_BYTES = 1 << 16


@dataclass(frozen=True, kw_only=True)
class NetworkHost:
    """A host that runs ``kappa drivers``.

    Attributes:
        name: its host name.
        relays: per service, the process through which the host reaches it.
    """

    name: str
    relays: Mapping[str, subprocess.Popen[bytes]]

    @contextlib.contextmanager
    def without(self, *services: str) -> Iterator[None]:
        """Within, these services answer nothing; what the host sent meanwhile arrives afterwards."""
        relays = [self.relays[service] for service in services]
        for relay in relays:
            relay.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            for relay in relays:
                relay.send_signal(signal.SIGCONT)


@contextlib.contextmanager
def network_host(name: str, folder: Path, config: Config, ports: Mapping[str, int]) -> Iterator[NetworkHost]:
    """Within, a host runs ``kappa drivers``; all that it started ends with it.

    Args:
        name: its host name.
        folder: its home, and a log.
        config: settings of its drivers.
        ports: per service, the port on loopback at which it answers, here and there.
    """
    folder.mkdir(parents=True)
    sockets = {service: folder / f"{service}.sock" for service in ports}
    environ = {**os.environ, **config.to_env(), "KAPPA_HOME": str(folder / "home")}
    (folder / "hosts").write_text(f"{HOST} localhost {name}\n")
    lines = [f"hostname {name}", f"mount --bind {shlex.quote(str(folder / 'hosts'))} /etc/hosts", "ip link set lo up"]
    lines += [f"{shlex.join(_relay(f'{port}', str(sockets[service])))} &" for service, port in ports.items()]
    lines.append(shlex.join(["exec", sys.executable, "-m", "kappa", "drivers"]))
    own = ("--net", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc")
    with contextlib.ExitStack() as stack:
        relays = {
            service: stack.enter_context(program(_relay(str(sockets[service]), f"{port}"), folder / f"{service}.log"))
            for service, port in ports.items()
        }
        wait_for(lambda: all(path.exists() for path in sockets.values()), _SECONDS, "relays listen", lambda: "")
        command = ["unshare", *own, "sh", "-euc", "\n".join(lines)]
        stack.enter_context(program(command, folder / "drivers.log", environ))
        yield NetworkHost(name=name, relays=relays)


def _relay(listen: str, connect: str) -> list[str]:
    return ["env", f"PYTHONPATH={python_path()}", sys.executable, "-m", "support.network_host", listen, connect]


async def _serve(listen: str, connect: str) -> None:
    """Pass on what comes; an end is a port on loopback, or the path of a Unix socket, which all networks share."""

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far = await (
                asyncio.open_connection(HOST, int(connect))
                if connect.isdigit()
                else asyncio.open_unix_connection(connect)
            )
        except OSError:
            writer.close()
            return
        await asyncio.gather(_pump(reader, far[1]), _pump(far[0], writer))

    server = await (
        asyncio.start_server(take, HOST, int(listen)) if listen.isdigit() else asyncio.start_unix_server(take, listen)
    )
    await server.serve_forever()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_BYTES):
            writer.write(data)
            await writer.drain()
    with contextlib.suppress(OSError):
        writer.close()


if __name__ == "__main__":
    asyncio.run(_serve(*sys.argv[1:]))
