"""The start of ``kubestow run`` on a large cluster: CPU time and memory until it schedules.

    .venv/bin/python benchmarks/startup.py [--nodes 5000] [--pods 150000] [-- FLAG ...]

The server is a process that answers each watch with the objects of its kind and then keeps it open: nodes and
bound pods. Objects have the fields of real ones and belong to 200 workloads (``memory.py``). Prints the CPU time of
the scheduler's process, imports included, its peak resident memory and the elapsed time, in which the server has its
part. Results: docs/performance.md.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import suppress

from end_to_end import cpu_seconds, memory_mb
from memory import node, pod

_BATCH = 500
_END = (
    b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9",'
    b'"annotations":{"k8s.io/initial-events-end":"true"}}}}'
)
_WATCH = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
_EMPTY = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


def objects(path: str, nodes: int, pods: int) -> Iterator[bytes]:
    """The objects of the resource at a path."""
    if path == "/api/v1/nodes":
        return (node(number) for number in range(nodes))
    if path == "/api/v1/pods":
        return (pod(number, nodes) for number in range(pods))
    return iter(())


def serve(listening: socket.socket, nodes: int, pods: int) -> None:
    """Answer watches until the process is terminated."""

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                path, _, query = head.split(b" ", 2)[1].decode().partition("?")
                if "watch=" not in query:
                    writer.write(_EMPTY)
                    continue
                writer.write(_WATCH)
                lines = (b'{"type":"ADDED","object":%b}\n' % each for each in objects(path, nodes, pods))
                while batch := b"".join(line for _, line in zip(range(_BATCH), lines, strict=False)):
                    writer.write(b"%x\r\n%b\r\n" % (len(batch), batch))
                    await writer.drain()
                writer.write(b"%x\r\n%b\n\r\n" % (len(_END) + 1, _END))

    async def run() -> None:
        async with await asyncio.start_server(respond, sock=listening) as server:
            await server.serve_forever()

    with suppress(KeyboardInterrupt):
        asyncio.run(run())


async def measure(url: str, flags: list[str]) -> tuple[float, float, float]:
    """CPU seconds, peak megabytes and elapsed seconds of a scheduler until it begins to schedule."""
    began = time.perf_counter()
    command = ("-m", "kubestow", "run", "--master", url, "--leader-elect=false", "--secure-port=0", *flags)
    scheduler = await asyncio.create_subprocess_exec(sys.executable, *command, stderr=asyncio.subprocess.PIPE)
    assert scheduler.stderr is not None
    try:
        await scheduler.stderr.readuntil(b'"Scheduling"')
        return cpu_seconds(scheduler.pid), memory_mb(scheduler.pid), time.perf_counter() - began
    finally:
        scheduler.kill()
        await scheduler.wait()


def main() -> None:
    """Run the benchmark."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--nodes", type=int, default=5000)
    arguments.add_argument("--pods", type=int, default=150000)
    arguments.add_argument("flags", nargs="*", help="further flags of the scheduler, after --")
    options = arguments.parse_args()
    listening = socket.create_server(("127.0.0.1", 0))
    fork = multiprocessing.get_context("fork")
    server = fork.Process(target=serve, args=(listening, options.nodes, options.pods), daemon=True)
    server.start()
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    cpu, memory, elapsed = asyncio.run(measure(url, options.flags))
    print(
        f"{options.nodes:,} nodes and {options.pods:,} pods: {cpu:.1f} s CPU, {memory:.0f} MB, {elapsed:.1f} s elapsed"
    )
    server.terminate()


if __name__ == "__main__":
    main()
