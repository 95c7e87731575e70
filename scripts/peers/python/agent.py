"""An ACP agent on the Python SDK: agent.py [--late]

It runs the text of a prompt as a script, with the words that `lastword agent` knows too: `wait=MS` waits and ends when it
is cancelled, `say=TEXT` says it, `updates=N` says N numbers, `permission` asks and says the outcome, and any other word is
echoed.

The SDK keeps no books of prompts and cancels, so that is left to the agent's author. This is how one would write it first:
a prompt registers its turn first thing, which ends the older one of its session, and a cancel ends the turn that is
registered. With `--late` one await comes before that, as when a session is loaded first: then a cancel that arrives at
once finds no turn, and is lost.
"""

import asyncio
import sys
from typing import Any

import acp
from acp.schema import AllowedOutcome, PermissionOption, ToolCallUpdate


class Turn:
    """A prompt that is being handled."""

    def __init__(self, client: acp.Client, session: str) -> None:
        self.client = client
        self.session = session
        self.ended = asyncio.Event()

    async def run(self, script: str) -> str:
        for word in script.split():
            await self.step(word)
            if self.ended.is_set():
                return "cancelled"
        return "end_turn"

    async def step(self, word: str) -> None:
        match word.partition("="):
            case "wait", "=", ms:
                await self.unless_ended(asyncio.sleep(int(ms) / 1000))
            case "say", "=", text:
                await self.say(text)
            case "updates", "=", count:
                for number in range(int(count)):
                    await self.say(str(number + 1))
            case "permission", "", "":
                response = await self.unless_ended(self.ask())
                if response is not None:
                    outcome = response.outcome
                    await self.say(outcome.option_id if isinstance(outcome, AllowedOutcome) else "cancelled")
            case _:
                await self.say(word)

    async def say(self, text: str) -> None:
        await self.client.session_update(session_id=self.session, update=acp.update_agent_message_text(text))

    async def ask(self) -> Any:
        return await self.client.request_permission(
            session_id=self.session,
            tool_call=ToolCallUpdate(tool_call_id="permission", title="Do what the prompt says"),
            options=[
                PermissionOption(option_id="allow", name="Allow", kind="allow_once"),
                PermissionOption(option_id="reject", name="Reject", kind="reject_once"),
            ],
        )

    async def unless_ended(self, work: Any) -> Any:
        """The result of the work, or None where the turn was ended first."""
        task, ended = asyncio.ensure_future(work), asyncio.ensure_future(self.ended.wait())
        done, left = await asyncio.wait({task, ended}, return_when=asyncio.FIRST_COMPLETED)
        for loser in left:
            loser.cancel()
        return task.result() if task in done else None


class Scripted:
    """The agent: it knows its sessions, and the turn that runs in each."""

    client: acp.Client

    def __init__(self, late: bool) -> None:
        self.late = late
        self.sessions: set[str] = set()
        self.turns: dict[str, Turn] = {}

    def on_connect(self, conn: acp.Client) -> None:
        self.client = conn

    async def initialize(self, protocol_version: int, **_: Any) -> acp.InitializeResponse:
        return acp.InitializeResponse(protocol_version=acp.PROTOCOL_VERSION)

    async def new_session(self, cwd: str, **_: Any) -> acp.NewSessionResponse:
        session = f"session-{len(self.sessions) + 1}"
        self.sessions.add(session)
        return acp.NewSessionResponse(session_id=session)

    async def prompt(self, session_id: str, prompt: list[Any], **_: Any) -> acp.PromptResponse:
        if self.late:
            await asyncio.sleep(0)
        if session_id not in self.sessions:
            raise acp.RequestError.invalid_params({"sessionId": session_id})
        turn = Turn(self.client, session_id)
        await self.cancel(session_id)
        self.turns[session_id] = turn
        try:
            return acp.PromptResponse(stop_reason=await turn.run(" ".join(block.text for block in prompt)))
        finally:
            if self.turns.get(session_id) is turn:
                del self.turns[session_id]

    async def cancel(self, session_id: str, **_: Any) -> None:
        if turn := self.turns.get(session_id):
            turn.ended.set()


if __name__ == "__main__":
    if sys.argv[1:] not in ([], ["--late"]):
        sys.exit("usage: agent.py [--late]")
    asyncio.run(acp.run_agent(Scripted(late="--late" in sys.argv[1:])))
