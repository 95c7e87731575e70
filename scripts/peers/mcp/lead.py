"""Delegates through `lastword fleet` with the client of the Python MCP SDK: lead.py REVISION LASTWORD

The lead belongs to another team, so what it makes of the tools is evidence that they serve any MCP client. Each check runs over
the stdio bridge, which starts the daemon, and over HTTP, prints one line, and ends the program with status 1 if it fails.
Their names and order are in the file `fleet-checks`. REVISION is `auto` or `legacy`: the newest that both sides speak, or the
handshake of 2025-11-25. With `tasks`, it is the newest, the lead declares the tasks extension, and the checks are those of the
file `fleet-task-checks`.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import httpx2
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.client.session import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult, ElicitRequestFormParams, ElicitResult, Request, Result
from pydantic import TypeAdapter

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


ANY_RESULT = TypeAdapter(dict[str, Any])


class Created(Result):
    """A task in place of the result of a tool."""

    result_type: Literal["task"]
    taskId: str
    status: str


class OfTask(Request[dict[str, Any], str]):
    name_param = "taskId"


async def of_task(session: ClientSession, method: str, task: str, **params: Any) -> dict[str, Any]:
    result = await session.send_request(OfTask(method=method, params={"taskId": task, **params}), ANY_RESULT)
    expect(result["resultType"] == "complete", result)
    return result


async def until(session: ClientSession, task: str, *statuses: str) -> dict[str, Any]:
    """Looks at a task until it has one of the statuses."""
    while True:
        seen = await of_task(session, "tasks/get", task)
        if seen["status"] in statuses:
            return seen
        # As often as the server asks for would make the checks slow.
        await asyncio.sleep(seen["pollIntervalMs"] / 20_000)


async def answer(_: Any, form: ElicitRequestFormParams) -> ElicitResult:
    expect((form.message, list(form.requested_schema["properties"])) == ("which", ["answer"]), form)
    return ElicitResult(action="accept", content={"answer": "this"})


class Tasks(ClientExtension):
    """Sees tasks through, so that whoever calls a tool notices nothing of them."""

    identifier = "io.modelcontextprotocol/tasks"

    def claims(self) -> list[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=Created, resolve=self.resolve)]

    async def resolve(self, created: Created, context: ClaimContext) -> CallToolResult:
        ended = ("completed", "failed", "cancelled")
        while (seen := await until(context.session, created.taskId, "input_required", *ended))["status"] not in ended:
            requests = {key: ElicitRequestFormParams.model_validate(it["params"]) for key, it in seen["inputRequests"].items()}
            responses = {key: (await answer(None, form)).model_dump(exclude_none=True) for key, form in requests.items()}
            await of_task(context.session, "tasks/update", created.taskId, inputResponses=responses)
        expect(seen["status"] == "completed", seen)
        return CallToolResult.model_validate(seen["result"])


async def drive_tasks(transport: str, connect: Connect, kill: Callable[[], None]) -> None:
    async with check(f"{transport}-task-question"), connect() as lead:
        worker = await spawn(lead)
        # The call ends with the work, whose question was answered meanwhile.
        sent = await call(lead, "fleet_send", worker=worker, content="ask=which wait=100 reply=done")
        expect((sent["state"], sent["reply"], sent["questions"]) == ("completed", "done", []), sent)
        await call(lead, "fleet_stop", worker=worker)

    async def create(lead: Client, **arguments: Any) -> Created:
        created = await lead.session.call_tool("fleet_send", arguments, allow_claimed=True)
        expect(isinstance(created, Created) and created.status == "working", created)
        return created

    async with check(f"{transport}-task-cancel"), connect() as lead:
        worker = await spawn(lead)
        created = await create(lead, worker=worker, content="wait=60000")
        await of_task(lead.session, "tasks/cancel", created.taskId)
        seen = await until(lead.session, created.taskId, "cancelled")
        expect(seen["statusMessage"] == "it was cancelled", seen)
        # Its worker lives on.
        sent = await call(lead, "fleet_send", worker=worker, content="reply=alive")
        expect(sent["reply"] == "alive", sent)
        await call(lead, "fleet_stop", worker=worker)

    async with check(f"{transport}-task-unknown"), connect() as lead:
        try:
            await of_task(lead.session, "tasks/get", "ticket-999")
        except MCPError as error:
            expect((error.error.code, "no such ticket" in error.error.message) == (-32602, True), error)
        else:
            expect(False, None)

    # Over HTTP, nobody would start the daemon again.
    if transport == "bridge":
        async with check(f"{transport}-task-after-kill"):
            async with connect() as lead:
                worker = await spawn(lead)
                lost = await create(lead, worker=worker, content="wait=60000")
                kept = await create(lead, worker=worker, content="reply=kept")
                await poll(lead, int(lost.taskId.removeprefix("ticket-")), "working")
            kill()
            async with connect() as lead:
                seen = await until(lead.session, kept.taskId, "completed")
                expect(seen["result"]["structuredContent"]["reply"] == "kept", seen)
                seen = await until(lead.session, lost.taskId, "failed")
                expect("the service ended" in seen["error"]["message"], seen)
                await call(lead, "fleet_stop", worker=worker)


async def main(revision: str, lastword: str) -> None:
    tasks = revision == "tasks"
    takes: dict[str, Any] = {"mode": "auto" if tasks else revision}
    if tasks:
        takes |= {"extensions": [Tasks()], "elicitation_callback": answer}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "fleet.toml")
        file.write_text(
            'listen = "127.0.0.1:0"\n'
            f"[limits]\nwait_seconds = {WINDOW_S}\nprogress_seconds = {PROGRESS_S}\n"
            f'[workers.scripted]\ncommand = {json.dumps(lastword)}\nargs = ["agent"]\n'
        )
        said = lambda *words: subprocess.check_output([lastword, "fleet", *words, "--config", file], text=True)  # noqa: E731

        def bridge() -> AbstractAsyncContextManager[Client]:
            return Client(StdioServerParameters(command=lastword, args=["fleet", "mcp", "--config", str(file)]), **takes)

        @asynccontextmanager
        async def http() -> AsyncIterator[Client]:
            headers = {"Authorization": f"Bearer {said('token').strip()}"}
            url = json.loads(said("status", "--json"))["url"]
            async with httpx2.AsyncClient(headers=headers, timeout=CHECK_S, trust_env=False) as client:
                async with Client(streamable_http_client(url, http_client=client), **takes) as lead:
                    yield lead

        def kill() -> None:
            os.kill(json.loads(said("status", "--json"))["pid"], signal.SIGKILL)

        try:
            for transport, connect in (("bridge", bridge), ("http", http)):
                await (drive_tasks(transport, connect, kill) if tasks else drive(transport, connect))
        finally:
            subprocess.run([lastword, "fleet", "stop", "--config", file], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: lead.py REVISION LASTWORD")
    try:
        asyncio.run(main(*sys.argv[1:]))
    except Failed:
        sys.exit(1)
