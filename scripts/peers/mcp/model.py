"""A model for real agents that needs no key: an HTTP server on this machine whose turns are scripted by the task itself.

It speaks as much of two interfaces as the agents use: Gemini's, and Anthropic's messages. The words of a line `script: WORD...` in
the prompt of a ticket are its turns, one after the other, each once the one before has its result:

    ask=TEXT    calls fleet_ask
    reply=TEXT  calls fleet_reply; {} in TEXT is the answer that was heard last
    shell=TEXT  calls the agent's own tool for commands, for which it must ask for permission
    say=TEXT    says TEXT, which ends the turn
    hold        says nothing until it is let go

Where an ask gets no answer in time, the turn ends, and the prompt that brings the answer goes on with the words after the ask. It
calls only tools that the agent offered to it, under the name that the agent gave them.
"""

import itertools
import json
import re
import shlex
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

# What a worker is told, as `Assignment::brief` and the words of fleet_ask say it.
TASK = re.compile(r"^script: (.*?)\n\nThis is ticket (\d+)\.", re.MULTILINE | re.DOTALL)
LATE_ANSWER = re.compile(r"The answer is:\n\n(.*?)\n\nGo on with ticket (\d+)\.", re.DOTALL)
# An agent shows its model the words of a result or its data.
ANSWER = re.compile(r'The answer to your question \d+ of ticket \d+:\s+(.*)|"answer":"([^"]*)"')
NO_ANSWER = "without a reply and without asking again"

# What agents call their tool for commands.
SHELLS = ("run_shell_command", "bash")

# Nobody lets go of a model that holds longer than this.
HOLD_S_MAX = 120


@dataclass
class Talk:
    """A request, whatever its interface."""

    # What was said to the model and what its calls brought, in order: ("prompt" or "result", text).
    heard: list[tuple[str, str]] = field(default_factory=list)
    tools: list[str] = field(default_factory=list)

    def tool(self, *ends: str) -> str:
        """The tool whose name, as the agent gives it, is one of these or ends with it."""
        for name in self.tools:
            if name.lower().endswith(ends):
                return name
        raise LookupError(f"the agent offered no tool {ends[0]}, only {self.tools}")


@dataclass
class Move:
    """What the model does next: it says something, or calls a tool."""

    text: str = ""
    tool: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)


class Model:
    """The server. Its checks wait for `holding`, and let it go with `let_go`."""

    def __init__(self) -> None:
        self.holding = threading.Event()
        self.let_go = threading.Event()
        # What it could not make sense of: a check that fails says so.
        self.problems: list[str] = []
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self.handler())
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def hold_next(self) -> None:
        self.holding.clear()
        self.let_go.clear()

    def move(self, talk: Talk) -> Move:
        prompts = [place for place, (kind, text) in enumerate(talk.heard) if kind == "prompt" and TASK.search(text)]
        if not talk.tools or not prompts:
            # What an agent asks besides, for a title say.
            return Move(text="nothing")
        script = TASK.search(talk.heard[prompts[-1]][1])
        assert script
        ticket, words, answer = int(script[2]), shlex.split(script[1]), ""
        results = iter(talk.heard[prompts[-1] + 1 :])
        for word in words:
            name, _, text = word.partition("=")
            if name == "say":
                return Move(text=text)
            if name == "hold":
                self.holding.set()
                self.let_go.wait(HOLD_S_MAX)
                continue
            result = next((text for kind, text in results if kind == "result"), None)
            if result is None:
                if name == "ask":
                    return Move(tool=talk.tool("fleet_ask"), arguments={"ticket": ticket, "question": text})
                if name == "reply":
                    arguments = {"ticket": ticket, "content": text.replace("{}", answer)}
                    return Move(tool=talk.tool("fleet_reply"), arguments=arguments)
                assert name == "shell", word
                return Move(tool=talk.tool(*SHELLS), arguments={"command": text, "description": "what the task says"})
            if NO_ANSWER in result:
                late = next((found for _, text in results if (found := LATE_ANSWER.search(text))), None)
                if late is None:
                    return Move(text="I wait for the answer.")
                answer = late[1]
            elif heard := ANSWER.search(result):
                answer = (heard[1] or heard[2]).strip()
        return Move(text="That is all.")

    def handler(model) -> type[BaseHTTPRequestHandler]:  # noqa: N805
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                try:
                    read, write = interface(self.path)
                    events = "".join(write(model.move(read(body))))
                except Exception as error:
                    model.problems.append(f"{self.path}: {error!r}")
                    self.send_error(400, str(error))
                    return
                try:
                    self.send_response(200)
                    self.send_header("Content-Type", "text/event-stream")
                    self.end_headers()
                    self.wfile.write(events.encode())
                except ConnectionError:
                    # The agent gave the turn up, or is gone.
                    pass

            def log_message(self, *_: Any) -> None:
                pass

        return Handler


def interface(path: str) -> tuple[Callable[[Any], Talk], Callable[[Move], Iterator[str]]]:
    if "enerateContent" in path:
        return read_gemini, write_gemini
    if "/messages" in path:
        return read_anthropic, write_anthropic
    raise LookupError(f"no interface of a model has the path {path}")


def event(data: Any, name: str = "") -> str:
    return (f"event: {name}\n" if name else "") + f"data: {json.dumps(data)}\n\n"


def texts(content: Any) -> Iterator[str]:
    """The texts of a content, which is one text or a list of parts."""
    for part in [{"text": content}] if isinstance(content, str) else content or []:
        if isinstance(part.get("text"), str):
            yield part["text"]


def read_gemini(body: Any) -> Talk:
    talk = Talk()
    for content in body["contents"]:
        for part in content["parts"]:
            if "functionResponse" in part:
                response = part["functionResponse"]["response"]
                talk.heard.append(("result", str(response.get("output", response))))
            elif content["role"] == "user" and "text" in part:
                talk.heard.append(("prompt", part["text"]))
    for tool in body.get("tools", []):
        talk.tools += [one["name"] for one in tool.get("functionDeclarations", [])]
    return talk


def write_gemini(move: Move) -> Iterator[str]:
    part: Any = {"text": move.text}
    if move.tool:
        part = {"functionCall": {"name": move.tool, "args": move.arguments}}
    content = {"role": "model", "parts": [part]}
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    yield event({"candidates": [{"content": content, "finishReason": "STOP", "index": 0}], "usageMetadata": usage})


def read_anthropic(body: Any) -> Talk:
    talk = Talk(tools=[tool["name"] for tool in body.get("tools", [])])
    for message in body["messages"]:
        if message["role"] != "user":
            continue
        if isinstance(message["content"], str):
            talk.heard.append(("prompt", message["content"]))
            continue
        for part in message["content"]:
            if part["type"] == "tool_result":
                talk.heard.append(("result", "\n".join(texts(part.get("content")))))
            elif part["type"] == "text":
                talk.heard.append(("prompt", part["text"]))
    return talk


def write_anthropic(move: Move) -> Iterator[str]:
    def named(kind: str, **data: Any) -> str:
        return event({"type": kind, **data}, kind)

    message = {"id": next_id("msg"), "type": "message", "role": "assistant", "model": "m", "content": []}
    usage = {"input_tokens": 1, "output_tokens": 1}
    yield named("message_start", message=message | {"stop_reason": None, "stop_sequence": None, "usage": usage})
    if move.tool:
        block: Any = {"type": "tool_use", "id": next_id("toolu"), "name": move.tool, "input": {}}
        delta: Any = {"type": "input_json_delta", "partial_json": json.dumps(move.arguments)}
    else:
        block = {"type": "text", "text": ""}
        delta = {"type": "text_delta", "text": move.text}
    yield named("content_block_start", index=0, content_block=block)
    yield named("content_block_delta", index=0, delta=delta)
    yield named("content_block_stop", index=0)
    reason = "tool_use" if move.tool else "end_turn"
    yield named("message_delta", delta={"stop_reason": reason, "stop_sequence": None}, usage=usage)
    yield named("message_stop")


IDS = itertools.count(1)


def next_id(what: str) -> str:
    return f"{what}_{next(IDS)}"
