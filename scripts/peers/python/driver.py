"""Drives an ACP agent through the client of the Python SDK: driver.py AGENT [ARG...]

The client belongs to another team, so what it accepts is evidence that the agent speaks the protocol and not a dialect
that only its own tests understand. Each check prints one line; the first one that fails ends the program with status 1.
The names and the order of the checks are in the file `checks`, which is shared with the drivers in the other languages.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import acp
from acp.schema import AgentMessageChunk, AllowedOutcome, DeniedOutcome, RequestPermissionResponse

# Far more than any check needs on a busy machine, and less than LONG_TURN_MS: a turn that nobody ended is noticed.
WAIT_S = 15
LONG_TURN_MS = 60_000
UPDATES = 20
INVALID_PARAMS = -32602


class Editor:
    """The client: it keeps what the agent says, and answers what the agent asks."""

    def __init__(self) -> None:
        self.said: asyncio.Queue[str] = asyncio.Queue()
        self.grant = True

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        if isinstance(update, AgentMessageChunk):
            self.said.put_nowait(update.content.text)

    async def request_permission(self, session_id: str, tool_call: Any, options: list[Any], **_: Any) -> Any:
        if self.grant:
            outcome = AllowedOutcome(outcome="selected", option_id=options[-1].option_id)
        else:
            outcome = DeniedOutcome(outcome="cancelled")
        self.chosen = options[-1].option_id
        return RequestPermissionResponse(outcome=outcome)

    def take(self) -> list[str]:
        """What was said since the last call."""
        return [self.said.get_nowait() for _ in range(self.said.qsize())]


@asynccontextmanager
async def check(name: str) -> AsyncIterator[None]:
    """Bounds a check in time, and prints its line."""
    try:
        async with asyncio.timeout(WAIT_S):
            yield
    except Exception as error:
        print(f"FAILED {name}: {str(error) or f'nothing within {WAIT_S} s'}", flush=True)
        raise Failed from error
    print(f"ok {name}", flush=True)


class Failed(Exception):
    """A check failed and has said so."""


def expect(holds: bool, found: Any) -> None:
    if not holds:
        raise AssertionError(f"the agent gave {found!r}")


def start(agent: Any, session: str, script: str) -> asyncio.Task[str]:
    """Sends a prompt; tasks start in the order of their creation, so prompts arrive in the order of these calls."""

    async def turn() -> str:
        return (await agent.prompt(session_id=session, prompt=[acp.text_block(script)])).stop_reason

    return asyncio.create_task(turn())


async def heard(editor: Editor, text: str) -> None:
    while await editor.said.get() != text:
        pass


async def drive(command: list[str]) -> None:
    editor = Editor()
    long = f"wait={LONG_TURN_MS}"

    async with acp.spawn_agent_process(
        editor, *command, env=dict(os.environ), transport_kwargs={"stderr": None, "shutdown_timeout": WAIT_S}
    ) as (agent, process):
        async with check("initialize"):
            answer = await agent.initialize(protocol_version=acp.PROTOCOL_VERSION)
            expect(answer.protocol_version == acp.PROTOCOL_VERSION, answer)

        async with check("new-session"):
            session = (await agent.new_session(cwd=os.getcwd(), mcp_servers=[])).session_id
            other = (await agent.new_session(cwd=os.getcwd(), mcp_servers=[])).session_id
            expect(bool(session) and session != other, (session, other))

        async with check("updates"):
            stop = await start(agent, session, f"updates={UPDATES} say=done")
            said = editor.take()
            numbers = [str(number + 1) for number in range(UPDATES)]
            expect(stop == "end_turn" and said == [*numbers, "done"], (stop, said))

        async with check("permission"):
            stop = await start(agent, session, "permission")
            said = editor.take()
            expect(stop == "end_turn" and len(said) == 1 and editor.chosen in said[0], (stop, said, editor.chosen))
            editor.grant = False
            stop = await start(agent, session, "permission")
            said = editor.take()
            expect(stop == "end_turn" and len(said) == 1 and "cancelled" in said[0], (stop, said))

        async with check("overlap-running"):
            older = start(agent, session, f"say=running {long}")
            await heard(editor, "running")
            newer = start(agent, session, "say=newer")
            stops = await older, await newer
            expect(stops == ("cancelled", "end_turn") and editor.take() == ["newer"], stops)

        async with check("overlap-at-once"):
            older, newer = start(agent, session, long), start(agent, session, "say=newer")
            stops = await older, await newer
            expect(stops == ("cancelled", "end_turn") and editor.take() == ["newer"], stops)

        async with check("cancel"):
            turn = start(agent, session, f"say=running {long}")
            await heard(editor, "running")
            await agent.cancel(session_id=session)
            expect(await turn == "cancelled", turn)

        async with check("cancel-at-once"):
            turn = start(agent, session, long)
            cancel = asyncio.create_task(agent.cancel(session_id=session))
            expect(await turn == "cancelled", turn)
            await cancel

        async with check("prompt-after-cancel"):
            turn = start(agent, session, long)
            cancel = asyncio.create_task(agent.cancel(session_id=session))
            later = start(agent, session, "say=later")
            stops = await turn, await later
            expect(stops == ("cancelled", "end_turn") and editor.take() == ["later"], stops)
            await cancel

        async with check("close"):
            turn = start(agent, session, f"say=running {long}")
            await heard(editor, "running")
            await agent.close_session(session_id=session)
            expect(await turn == "cancelled", turn)
            expect(await start(agent, other, "say=alive") == "end_turn" and editor.take() == ["alive"], other)

        async with check("closed-session"):
            try:
                stop = await start(agent, session, "say=ghost")
            except acp.RequestError as error:
                expect(error.code == INVALID_PARAMS and session in f"{error} {error.data}", error.to_error_obj())
            else:
                expect(False, stop)

    async with check("exit"):
        expect(process.returncode == 0, process.returncode)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: driver.py AGENT [ARG...]")
    try:
        asyncio.run(drive(sys.argv[1:]))
    except Failed:
        sys.exit(1)
