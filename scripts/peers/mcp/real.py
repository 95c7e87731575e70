"""Delegates through `lastword fleet` to an agent that people use: real.py LASTWORD AGENT COMMAND...

The lead is the Python MCP SDK, the worker is COMMAND with what AGENT needs beside it, and its model is the scripted one of
`model.py`, so that no key is wanted and nothing leaves this machine. Each check prints one line, and ends the program with status 1
if it fails. Their names and order are in the file `real-fleet-checks`.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from lead import CHECK_S, SHORT_WINDOW_S, WINDOW_S, Failed, call, check, expect, poll
from mcp import Client, StdioServerParameters
from model import Model

LOOK_S = 0.05
# Less than a check may take, so that an agent that does not start is said to have not.
START_S = 40


def setting(agent: str, url: str) -> tuple[list[str], dict[str, str], dict[str, Any]]:
    """What an agent needs: arguments, environment, and files in its home folder. Commands of its model want permission."""
    match agent:
        case "gemini-cli":
            # It takes no MCP server in a folder that it was not told to trust.
            arguments = ["--acp", "--skip-trust", "--model", "gemini-2.5-flash"]
            return arguments, {"GEMINI_API_KEY": "none", "GOOGLE_GEMINI_BASE_URL": url}, {}
        case "claude-agent-acp":
            environment = {
                "ANTHROPIC_API_KEY": "none",
                "ANTHROPIC_BASE_URL": url,
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                # Without it, it does not start for root, as whom containers run.
                "IS_SANDBOX": "1",
            }
            return [], environment, {".claude/settings.json": {"permissions": {"defaultMode": "default"}}}
        case _:
            sys.exit(f"real.py: nobody has said what {agent} needs")


class Scene:
    """A fleet whose daemon runs, and the model of its workers."""

    def __init__(self, lastword: str, agent: str, command: list[str], folder: Path) -> None:
        self.lastword, self.file, self.home = lastword, folder / "fleet.toml", folder / "home"
        self.model, self.trace = Model(), folder / "trace"
        self.project = folder / "project"
        self.project.mkdir()
        arguments, environment, files = setting(agent, self.model.url)
        for name, content in files.items():
            path = self.home / name
            path.parent.mkdir(parents=True)
            path.write_text(json.dumps(content))
        self.home.mkdir(exist_ok=True)
        # A JSON text is a TOML string as well.
        environment = "\n".join(f"{name} = {json.dumps(value)}" for name, value in environment.items())
        kind = (
            f"start_seconds = {START_S}\ncommand = {json.dumps(command[0])}\nargs = {json.dumps(command[1:] + arguments)}\ncwd = \"project\"\n"
            "permissions = {permissions}\n[workers.{name}.env]\n"
            f"HOME = {json.dumps(str(self.home))}\n{environment}\n"
        )
        kinds = [("asking", "ask"), ("denying", "deny")]
        workers = (
            f"[workers.{name}]\n" + kind.replace("{permissions}", json.dumps(permissions)).replace("{name}", name)
            for name, permissions in kinds
        )
        self.file.write_text(f'listen = "127.0.0.1:0"\n[limits]\nwait_seconds = {WINDOW_S}\n' + "".join(workers))

    def run(self, *words: str) -> str:
        return subprocess.check_output([self.lastword, *words], text=True)

    def lead(self) -> Client:
        """A session of the lead, which starts the daemon if none runs."""
        arguments = ["fleet", "mcp", "--config", str(self.file)]
        environment = {**os.environ, "LASTWORD_TRACE": str(self.trace)}
        return Client(StdioServerParameters(command=self.lastword, args=arguments, env=environment), mode="auto")

    def daemon(self) -> int:
        return json.loads(self.run("fleet", "status", "--json", "--config", str(self.file)))["pid"]

    def processes(self) -> dict[int, int]:
        """Every process that was started as a worker or by one, with its parent, also where it left the group."""
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if f"HOME={self.home}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                    found[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
        return found

    async def held(self) -> None:
        """Waits until the model of a worker holds."""
        while not self.model.holding.is_set():
            await asyncio.sleep(LOOK_S)

    async def gone(self, lead: Client, worker: int) -> None:
        """Waits until a worker is gone, and sees that it has left nothing behind."""
        while True:
            (seen,) = [one for one in (await call(lead, "fleet_list"))["workers"] if one["worker"] == worker]
            if seen["life"] == "gone":
                break
            await asyncio.sleep(LOOK_S)
        # What was killed may take a moment to be gone.
        while self.processes():
            await asyncio.sleep(LOOK_S)


@asynccontextmanager
async def worker(lead: Client, kind: str = "asking") -> AsyncIterator[int]:
    number = (await call(lead, "fleet_spawn", kind=kind))["worker"]
    yield number
    await call(lead, "fleet_stop", worker=number)


async def send(lead: Client, worker: int, script: str) -> int:
    return (await call(lead, "fleet_send", worker=worker, content=f"script: {script}"))["ticket"]


async def answer(lead: Client, ticket: int, choose: Any) -> dict[str, Any]:
    """Answers the one question of a ticket: with the first option that is one of the words, or with the word itself."""
    (question,) = (await poll(lead, ticket, "input_required", "completed", "failed"))["questions"]
    options = [option for option in question["options"] if option in choose] or [choose]
    await call(lead, "fleet_send", question=question["question"], content=options[0])
    return question


async def drive(scene: Scene) -> None:
    model = scene.model
    ended = ("completed", "failed", "cancelled")

    async with check("reply-after-window"):
        async with scene.lead() as lead, worker(lead) as number:
            model.hold_next()
            ticket = await send(lead, number, 'ask="which branch" hold reply="on {}"')
            seen = await poll(lead, ticket, "input_required", *ended)
            expect([one["text"] for one in seen.get("questions", [])] == ["which branch"], (seen, model.problems))
            number_of_question = seen["questions"][0]["question"]
            seen = await call(lead, "fleet_send", question=number_of_question, content="main", wait=SHORT_WINDOW_S)
            expect((seen["ticket"], seen["state"], seen["timed_out"]) == (ticket, "working", True), seen)
            await scene.held()
            async with scene.lead() as later:
                model.let_go.set()
                seen = await poll(later, ticket, *ended)
            expect((seen["state"], seen.get("reply"), seen["is_last_message"]) == ("completed", "on main", False), seen)

    async with check("answer-after-window"), scene.lead() as lead, worker(lead) as number:
        ticket = await send(lead, number, 'ask="which branch" reply="on {}"')
        await poll(lead, ticket, "input_required", *ended)
        # The worker's own wait runs out, it ends its turn, and the question stays.
        await asyncio.sleep(WINDOW_S + SHORT_WINDOW_S)
        await answer(lead, ticket, "main")
        seen = await poll(lead, ticket, *ended)
        expect((seen["state"], seen.get("reply"), seen["is_last_message"]) == ("completed", "on main", False), seen)

    async with check("turn-without-reply"), scene.lead() as lead, worker(lead) as number:
        seen = await poll(lead, await send(lead, number, 'say="I am done."'), *ended)
        expect((seen["state"], seen.get("reply"), seen["is_last_message"]) == ("completed", "I am done.", True), seen)

    async with check("permission-allowed"), scene.lead() as lead, worker(lead) as number:
        ticket = await send(lead, number, 'shell="touch allowed" reply=touched')
        question = await answer(lead, ticket, ("Allow", "Yes"))
        expect("touch allowed" in question["text"] and question["only_options"], question)
        seen = await poll(lead, ticket, *ended)
        expect((seen["state"], seen.get("reply")) == ("completed", "touched"), seen)
        expect((scene.project / "allowed").exists(), question)

    async with check("permission-denied-and-reply-not"), scene.lead() as lead, worker(lead, "denying") as number:
        # Gemini and Claude end a turn of which a tool was denied; what comes after is another turn.
        seen = await poll(lead, await send(lead, number, 'shell="touch denied" say=refused'), *ended)
        expect(seen["state"] == "completed" and not (scene.project / "denied").exists(), seen)
        seen = await poll(lead, await send(lead, number, "reply=still"), *ended)
        expect((seen["state"], seen.get("reply"), seen["is_last_message"]) == ("completed", "still", False), seen)

    async with check("cancelled-turn-ends-and-next-one-comes"), scene.lead() as lead, worker(lead) as number:
        model.hold_next()
        first = await send(lead, number, "hold reply=late")
        await scene.held()
        second = await send(lead, number, "reply=next")
        await call(lead, "fleet_stop", ticket=first)
        seen = await poll(lead, second, *ended)
        expect((seen["state"], seen.get("reply")) == ("completed", "next"), seen)
        model.let_go.set()
        expect((await poll(lead, first, *ended))["state"] == "cancelled", first)

    async with check("killed-mid-turn"), scene.lead() as lead:
        number = (await call(lead, "fleet_spawn", kind="asking"))["worker"]
        await poll(lead, await send(lead, number, "say=up"), *ended)
        model.hold_next()
        ticket = await send(lead, number, "hold reply=never")
        await scene.held()
        daemon = scene.daemon()
        (leader,) = [process for process, parent in scene.processes().items() if parent == daemon and process != daemon]
        os.kill(leader, signal.SIGKILL)
        seen = await poll(lead, ticket, *ended)
        expect(seen["state"] == "failed" and "signal: 9 (SIGKILL)" in seen["reason"], seen)
        model.let_go.set()
        await scene.gone(lead, number)

    async with check("stop-leaves-nobody"), scene.lead() as lead:
        number = (await call(lead, "fleet_spawn", kind="asking"))["worker"]
        model.hold_next()
        ticket = await send(lead, number, "hold reply=never")
        await scene.held()
        expect(len(scene.processes()) >= 1, "no process")
        await call(lead, "fleet_stop", worker=number)
        expect((await poll(lead, ticket, *ended))["state"] == "cancelled", ticket)
        await scene.gone(lead, number)
        model.let_go.set()

    async with check("trace-holds"):
        scene.run("fleet", "stop", "--config", str(scene.file))
        checked = scene.run("trace", "check", str(scene.trace))
        expect("every step allowed" in checked, checked)
        expect(not model.problems, model.problems)


async def main(lastword: str, agent: str, command: list[str]) -> None:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        scene = Scene(lastword, agent, command, Path(folder))
        try:
            await drive(scene)
        except Failed:
            for problem in scene.model.problems:
                print(f"the model: {problem}", flush=True)
            for words in ("status", "log"):
                subprocess.run([lastword, "fleet", words, "--config", scene.file], timeout=CHECK_S)
            raise
        finally:
            # Where all went well it has ended before.
            subprocess.run([lastword, "fleet", "stop", "--config", scene.file], capture_output=True, timeout=CHECK_S)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit("usage: real.py LASTWORD AGENT COMMAND...")
    try:
        asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
    except Failed:
        sys.exit(1)
