// An ACP agent on the TypeScript SDK: agent.js [--late]
//
// It runs the text of a prompt as a script, with the words that `lastword agent` knows too: `wait=MS` waits and ends when
// it is cancelled, `say=TEXT` says it, `updates=N` says N numbers, `permission` asks and says the outcome, and any other
// word is echoed.
//
// The SDK keeps no books of prompts and cancels, so that is left to the agent's author. This is how one would write it
// first: a prompt registers its turn first thing, which ends the older one of its session, and a cancel ends the turn that
// is registered. With `--late` one await comes before that, as when a session is loaded first: then a cancel that arrives
// at once finds no turn, and is lost.

import { Readable, Writable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import * as acp from "@agentclientprotocol/sdk";

const late = process.argv[2] === "--late";
if (process.argv.length > (late ? 3 : 2)) {
  console.error("usage: agent.js [--late]");
  process.exit(2);
}

const sessions = new Set();
/** The turn that runs in each session, by what ends it. */
const turns = new Map();

const { methods } = acp;

/** What the work gives; it throws as soon as the turn is ended. */
const unlessEnded = (ended, work) =>
  new Promise((resolve, reject) => {
    ended.addEventListener("abort", () => reject(ended.reason), { once: true });
    work.then(resolve, reject);
  });

async function run({ client, sessionId, script, ended }) {
  const say = (text) =>
    client.notify(methods.client.session.update, {
      sessionId,
      update: { sessionUpdate: "agent_message_chunk", content: { type: "text", text } },
    });
  const ask = async () => {
    const { outcome } = await client.request(methods.client.session.requestPermission, {
      sessionId,
      toolCall: { toolCallId: "permission", title: "Do what the prompt says" },
      options: [
        { optionId: "allow", name: "Allow", kind: "allow_once" },
        { optionId: "reject", name: "Reject", kind: "reject_once" },
      ],
    });
    return outcome.outcome === "selected" ? outcome.optionId : "cancelled";
  };
  const step = async (word) => {
    const [, name, value] = word.match(/^(wait|say|updates)=(.*)$/) ?? [];
    if (name === "wait") await sleep(Number(value), undefined, { signal: ended });
    else if (name === "say") await say(value);
    else if (name === "updates") for (let number = 1; number <= Number(value); number++) await say(`${number}`);
    else if (word === "permission") await say(await unlessEnded(ended, ask()));
    else await say(word);
  };
  try {
    for (const word of script.split(/\s+/).filter(Boolean)) {
      ended.throwIfAborted();
      await step(word);
    }
    ended.throwIfAborted();
    return { stopReason: "end_turn" };
  } catch (error) {
    if (ended.aborted) return { stopReason: "cancelled" };
    throw error;
  }
}

acp
  .agent({ name: "peer" })
  .onRequest(methods.agent.initialize, () => ({ protocolVersion: acp.PROTOCOL_VERSION }))
  .onRequest(methods.agent.session.new, () => {
    const sessionId = `session-${sessions.size + 1}`;
    sessions.add(sessionId);
    return { sessionId };
  })
  .onRequest(methods.agent.session.prompt, async ({ params: { sessionId, prompt }, client, signal }) => {
    if (late) await sleep(0);
    if (!sessions.has(sessionId)) throw acp.RequestError.invalidParams({ sessionId });
    const turn = new AbortController();
    turns.get(sessionId)?.abort();
    turns.set(sessionId, turn);
    try {
      const script = prompt.map((block) => block.text).join(" ");
      return await run({ client, sessionId, script, ended: AbortSignal.any([turn.signal, signal]) });
    } finally {
      if (turns.get(sessionId) === turn) turns.delete(sessionId);
    }
  })
  .onNotification(methods.agent.session.cancel, ({ params: { sessionId } }) => turns.get(sessionId)?.abort())
  .connect(acp.ndJsonStream(Writable.toWeb(process.stdout), Readable.toWeb(process.stdin)));
