"""Delegates through `lastword fleet` with the client of the Python MCP SDK: lead.py REVISION LASTWORD

The lead belongs to another team, so what it makes of the tools is evidence that they serve any MCP client. Each check runs over
the stdio bridge, which starts the daemon, and over HTTP, prints one line, and ends the program with status 1 if it fails.
Their names and order are in the file `fleet-checks`. REVISION is `auto` or `legacy`: the newest that both sides speak, or the
handshake of 2025-11-25.
"""

import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

# Far more than any check needs on a busy machine.
CHECK_S = 60
# The windows: what is 45 s and 25 s for people, scaled down by configuration.
WINDOW_S = 2
SHORT_WINDOW_S = 0.3
PROGRESS_S = 0.2
RACES = 6

Connect = Callable[..., AbstractAsyncContextManager[Client]]


class Failed(Exception):
    """A check failed and has said so."""


@asynccontextmanager
async def check(name: str) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(CHECK_S):
            yield
    except Exception as error:
        print(f"FAILED {name}: {error!r}", flush=True)
        raise Failed from error
    print(f"ok {name}", flush=True)


def expect(holds: bool, found: Any) -> None:
    if not holds:
        raise AssertionError(f"found {found!r}")


async def call(lead: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    result = await lead.call_tool(tool, arguments)
    expect(not result.is_error, result)
    return result.structured_content


async def poll(lead: Client, ticket: int, *states: str) -> dict[str, Any]:
    """Polls a ticket until it is in one of the states."""
    while True:
        (seen,) = (await call(lead, "fleet_poll", ticket=ticket, wait=WINDOW_S))["tickets"]
        if seen["state"] in states:
            return seen


async def spawn(lead: Client) -> int:
    return (await call(lead, "fleet_spawn", kind="scripted"))["worker"]


async def drive(transport: str, connect: Connect) -> None:
    async with check(f"{transport}-tools"), connect() as lead:
        tools = (await lead.list_tools()).tools
        names = ["fleet_spawn", "fleet_list", "fleet_send", "fleet_poll", "fleet_inbox", "fleet_stop"]
        expect([tool.name for tool in tools] == names and all(tool.output_schema for tool in tools), tools)

    async with check(f"{transport}-reply-after-window"), connect() as lead:
        worker = await spawn(lead)
        sent = await call(lead, "fleet_send", worker=worker, content="ask=which wait=1200 reply=done")
        ticket = sent["ticket"]
        expect(sent["state"] in ("queued", "working") and not sent["timed_out"], sent)
        (question,) = (await poll(lead, ticket, "input_required"))["questions"]
        expect(question["text"] == "which", question)
        # The window of the answer runs out before the worker replies.
        seen = await call(lead, "fleet_send", question=question["question"], content="this", wait=SHORT_WINDOW_S)
        expect((seen["ticket"], seen["state"], seen["timed_out"]) == (ticket, "working", True), seen)
        seen = await poll(lead, ticket, "completed", "failed", "cancelled")
        expect((seen["state"], seen["reply"], seen["is_last_message"]) == ("completed", "done", False), seen)
        await call(lead, "fleet_stop", worker=worker)
        expect((await poll(lead, ticket, "completed"))["reply"] == "done", ticket)

    async with check(f"{transport}-answer-after-window"), connect() as lead:
        worker = await spawn(lead)
        sent = await call(lead, "fleet_send", worker=worker, content="say=before ask=which say=unreached")
        await poll(lead, sent["ticket"], "input_required")
        # The worker's own window, which began before, is over after that; its turn ends, and the question stays.
        await asyncio.sleep(WINDOW_S + SHORT_WINDOW_S)
        expect((await poll(lead, sent["ticket"], "input_required"))["questions"][0]["text"] == "which", sent)
        await call(lead, "fleet_send", ticket=sent["ticket"], content="reply=later")
        expect((await poll(lead, sent["ticket"], "completed"))["reply"] == "later", sent)
        await call(lead, "fleet_stop", worker=worker)

    async with check(f"{transport}-client-times-out"):
        async with connect() as lead:
            worker = await spawn(lead)
            work = {"worker": worker, "content": "wait=1000 reply=slow", "request_key": f"{transport} slow"}
            try:
                result = await lead.call_tool("fleet_send", {**work, "wait": WINDOW_S}, SHORT_WINDOW_S)
            except MCPError:
                pass
            else:
                expect(False, result)
        async with connect() as lead:
            again = await call(lead, "fleet_send", **work)
            expect((await poll(lead, again["ticket"], "completed"))["reply"] == "slow", again)
            tickets = (await call(lead, "fleet_poll"))["tickets"]
            expect([seen["ticket"] for seen in tickets if seen["worker"] == worker] == [again["ticket"]], tickets)
            await call(lead, "fleet_stop", worker=worker)

    async with check(f"{transport}-progress"), connect() as lead:
        worker = await spawn(lead)
        heard: list[str] = []

        async def progress(_: float, __: float | None, message: str | None) -> None:
            heard.append(message or "")

        content = {"worker": worker, "content": "wait=60000", "wait": 1}
        result = await lead.call_tool("fleet_send", content, progress_callback=progress)
        seen = result.structured_content
        expect(seen["timed_out"] and len(heard) >= 2 and f"ticket {seen['ticket']}" in heard[0], (seen, heard))
        await call(lead, "fleet_stop", worker=worker)
        expect((await poll(lead, seen["ticket"], "cancelled")).get("reply") is None, seen)

    async with check(f"{transport}-two-leads"), connect() as one, connect() as two:

        async def delegate(lead: Client, name: str) -> list[str]:
            worker = await spawn(lead)
            sends = [call(lead, "fleet_send", worker=worker, content=f"reply={name}{number}") for number in range(5)]
            tickets = [(await send)["ticket"] for send in sends]
            replies = [(await poll(lead, ticket, "completed"))["reply"] for ticket in tickets]
            await call(lead, "fleet_stop", worker=worker)
            return replies

        replies = await asyncio.gather(delegate(one, "one"), delegate(two, "two"))
        expect(replies == [[f"{name}{number}" for number in range(5)] for name in ("one", "two")], replies)

    async with check(f"{transport}-stop-races-reply"), connect() as lead:
        for race in range(RACES):
            worker = await spawn(lead)
            sent = await call(lead, "fleet_send", worker=worker, content=f"wait={30 * race} reply=raced", wait=0.03 * race)
            await call(lead, "fleet_stop", worker=worker)
            seen = await poll(lead, sent["ticket"], "completed", "failed", "cancelled")
            outcome = (seen["state"], seen.get("reply"))
            expect(outcome in (("completed", "raced"), ("cancelled", None)), seen)
            # What is final stays so.
            expect(await poll(lead, sent["ticket"], seen["state"]) | {"late_replies": []} == seen | {"late_replies": []}, seen)


async def main(revision: str, lastword: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "fleet.toml")
        file.write_text(
            'listen = "127.0.0.1:0"\n'
            f"[limits]\nwait_seconds = {WINDOW_S}\nprogress_seconds = {PROGRESS_S}\n"
            f'[workers.scripted]\ncommand = {json.dumps(lastword)}\nargs = ["agent"]\n'
        )
        said = lambda *words: subprocess.check_output([lastword, "fleet", *words, "--config", file], text=True)  # noqa: E731

        def bridge() -> AbstractAsyncContextManager[Client]:
            return Client(StdioServerParameters(command=lastword, args=["fleet", "mcp", "--config", str(file)]), mode=revision)

        @asynccontextmanager
        async def http() -> AsyncIterator[Client]:
            headers = {"Authorization": f"Bearer {said('token').strip()}"}
            url = json.loads(said("status", "--json"))["url"]
            async with httpx2.AsyncClient(headers=headers, timeout=CHECK_S, trust_env=False) as client:
                async with Client(streamable_http_client(url, http_client=client), mode=revision) as lead:
                    yield lead

        try:
            await drive("bridge", bridge)
            await drive("http", http)
        finally:
            subprocess.run([lastword, "fleet", "stop", "--config", file], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: lead.py REVISION LASTWORD")
    try:
        asyncio.run(main(*sys.argv[1:]))
    except Failed:
        sys.exit(1)
