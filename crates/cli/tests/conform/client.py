"""A client that keeps every promise that shows at the wire, or breaks one: client.py [BUG]

It prompts for ever. It says what its handlers do, and cancels when it is told to.
"""

import json
import re
import sys

BUG = sys.argv[1] if len(sys.argv) > 1 else "none"
BUGS = {
    "none", "handles-late", "out-of-order", "returns-late", "dies-at-garbage", "answers-twice", "one-prompt", "no-prompt",
    "never-cancels", "drops-updates",
}
assert BUG in BUGS, f"unknown bug {BUG}"

# The raw id: whatever stands behind the first `"id":`.
ID = re.compile(rb'"id":\s*("(?:[^"\\]|\\.)*"|[^,}\s]+)')
last = 0
session = None
# Texts whose handlers begin only later.
waiting = []


def write(line):
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


def respond(raw, answer):
    write(b'{"jsonrpc":"2.0","id":' + raw + b"," + json.dumps(answer)[1:].encode())


def call(method, params):
    global last
    last += 1
    write(json.dumps({"jsonrpc": "2.0", "id": last, "method": method, "params": params}).encode())
    return last


def tell(method, params):
    write(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode())


def handle(text):
    tell("_lastword/echo", {"handling": text})
    if text == "cancel" and BUG != "never-cancels":
        tell("session/cancel", {"sessionId": session})
    tell("_lastword/echo", {"handled": text})


def handle_waiting():
    texts = waiting[::-1] if BUG == "out-of-order" else waiting[:]
    waiting.clear()
    for text in texts:
        handle(text)


def prompt():
    global turn
    turn = call("session/prompt", {"sessionId": session, "prompt": [{"type": "text", "text": "go"}]})


def returned(reason):
    tell("_lastword/echo", {"returned": reason})
    handle_waiting()
    if BUG == "one-prompt":
        sys.exit()
    prompt()


def take(line):
    global session
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        if BUG == "dies-at-garbage":
            sys.exit("this is not JSON")
        return respond(b"null", {"error": {"code": -32700, "message": "this is not JSON"}})
    if not isinstance(message, dict):
        return respond(b"null", {"error": {"code": -32600, "message": "this is no message"}})
    method = message.get("method")
    if method == "session/update":
        text = message["params"]["update"]["content"]["text"]
        if BUG == "drops-updates" and text == "7":
            return
        waiting.append(text)
        if BUG == "returns-late" or BUG not in ("handles-late", "out-of-order"):
            handle_waiting()
    elif method is not None and "id" in message:
        if BUG != "handles-late":
            handle_waiting()
        if method == "session/request_permission":
            outcome = {"outcome": "selected", "optionId": message["params"]["options"][0]["optionId"]}
            answer = {"result": {"outcome": outcome}}
        else:
            answer = {"error": {"code": -32601, "message": f"there is no {method}"}}
        for _ in range(2 if BUG == "answers-twice" else 1):
            respond(ID.search(line)[1], answer)
        handle_waiting()
    elif method is None and message.get("id") == opened:
        session = message["result"]["sessionId"]
        prompt()
    elif method is None and message.get("id") == turn:
        reason = message["result"]["stopReason"]
        if BUG == "returns-late":
            # The next line, if it is there, comes first.
            line = sys.stdin.buffer.readline()
            if b"session/update" in line:
                take(line.rstrip(b"\n"))
                line = b""
            returned(reason)
            if line:
                take(line.rstrip(b"\n"))
            return
        if BUG != "handles-late":
            handle_waiting()
        returned(reason)


turn = opened = None
call("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
sys.stdin.buffer.readline()
if BUG == "no-prompt":
    sys.stdin.buffer.read()
    sys.exit()
opened = call("session/new", {"cwd": "/", "mcpServers": []})
for line in sys.stdin.buffer:
    take(line.rstrip(b"\n"))
