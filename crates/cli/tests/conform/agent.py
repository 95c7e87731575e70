"""An agent that keeps every promise, or breaks one: agent.py [BUG]

It answers each line before it reads the next one. A prompt whose text begins with `wait` lasts until something ends it; any
other is answered at once when nothing else of its session waits to be.
"""

import json
import os
import re
import subprocess
import sys
import time

BUG = sys.argv[1] if len(sys.argv) > 1 else "none"
BUGS = {
    "none", "ignores-cancel", "answers-twice", "parses-ids", "drops-older", "cancels-newer", "spares-nothing",
    "says-error", "dies-at-garbage", "silent-at-garbage", "hangs", "no-cancel-request", "one-session", "leaves-child",
    "noise", "needs-login",
    "floods",
    "loses-first-cancel",
}
assert BUG in BUGS, f"unknown bug {BUG}"

# The raw id: whatever stands behind the first `"id":`.
ID = re.compile(rb'"id":\s*("(?:[^"\\]|\\.)*"|[^,}\s]+)')
sessions = {}
in_flight = {}
# A cancel came to this session; only the agent that spares nothing remembers it.
marked = set()
# Opened, and nothing came for it yet.
unused = set()


def write(line):
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


def respond(raw, **answer):
    in_flight.pop(raw, None)
    if BUG == "parses-ids":
        raw = json.dumps(json.loads(raw)).encode()
    body = json.dumps(answer)[1:].encode()
    line = b'{"jsonrpc":"2.0","id":' + raw + b"," + body
    write(line)
    if BUG == "answers-twice" and "stopReason" in answer.get("result", {}):
        write(line)


def fail(raw, code, message):
    respond(raw, error={"code": code, "message": message})


def end(session):
    """Ends the turn that waits."""
    raw = sessions.get(session)
    if raw is None or (BUG == "drops-older"):
        return
    sessions[session] = None
    if BUG == "says-error":
        fail(raw, -32603, "context canceled")
    else:
        respond(raw, result={"stopReason": "cancelled"})


def prompt(raw, session, text):
    if BUG in ("hangs", "leaves-child"):
        time.sleep(3600)
    while BUG == "floods":
        write(b'{"jsonrpc":"2.0","method":"session/update","params":{}}')
    if BUG == "cancels-newer" and sessions[session] is not None:
        return respond(raw, result={"stopReason": "cancelled"})
    if BUG == "drops-older":
        sessions[session] = None
    end(session)
    if BUG == "spares-nothing" and session in marked:
        return respond(raw, result={"stopReason": "cancelled"})
    if text.startswith("wait"):
        sessions[session] = raw
    else:
        respond(raw, result={"stopReason": "end_turn"})


def cancel(session):
    if BUG == "loses-first-cancel" and session not in marked:
        marked.add(session)
        return
    marked.add(session)
    if BUG == "drops-older":
        raw, sessions[session] = sessions.get(session), None
        if raw is not None:
            respond(raw, result={"stopReason": "cancelled"})
    elif BUG != "ignores-cancel":
        end(session)


def request(raw, method, params):
    if method == "initialize":
        respond(raw, result={"protocolVersion": 1})
    elif method == "session/new":
        if BUG == "needs-login":
            return fail(raw, -32000, "Authentication required")
        # Two in a row are for one scenario.
        if BUG == "one-session" and unused:
            unused.clear()
            return fail(raw, -32603, "one session is enough")
        name = f"s{len(sessions)}"
        sessions[name] = None
        unused.add(name)
        respond(raw, result={"sessionId": name})
    elif method == "session/prompt":
        blocks = params.get("prompt")
        if not isinstance(blocks, list):
            return fail(raw, -32602, "`prompt` is no list")
        unused.clear()
        in_flight[raw] = params["sessionId"]
        prompt(raw, params["sessionId"], blocks[0]["text"])
    elif method == "session/cancel" and BUG != "no-cancel-request":
        unused.clear()
        cancel(params["sessionId"])
        respond(raw, result={})
    else:
        fail(raw, -32601, f"there is no {method}")


def take(line):
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        if BUG == "dies-at-garbage":
            sys.exit("this is not JSON")
        if BUG != "silent-at-garbage":
            fail(b"null", -32700, "this is not JSON")
        return
    if not isinstance(message, dict):
        return fail(b"null", -32600, "this is no message")
    method, params = message.get("method"), message.get("params")
    if "id" in message and method is not None:
        raw = ID.search(line)[1]
        if raw in in_flight:
            write(b'{"jsonrpc":"2.0","id":' + raw + b',"error":{"code":-32600,"message":"this id is in use"}}')
        else:
            request(raw, method, params)
    elif method == "session/cancel":
        unused.clear()
        cancel(params["sessionId"])
    elif method == "$/cancel_request":
        session = in_flight.get(str(params["requestId"]).encode())
        if session is not None:
            end(session)


if BUG == "noise":
    for number in range(3):
        print(f"loading {number}...", flush=True)
if BUG == "leaves-child":
    # Whoever reads this file sees its end when both processes are gone.
    alive = os.open(os.environ["ALIVE"], os.O_WRONLY)
    subprocess.Popen(["sleep", "3600"], pass_fds=[alive])
    os.write(alive, b"started\n")
for line in sys.stdin.buffer:
    if BUG != "noise":
        take(line.rstrip(b"\n"))
for session in list(sessions):
    end(session)
