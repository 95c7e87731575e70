// Drives an ACP agent through the client of the TypeScript SDK: driver.js AGENT [ARG...]
//
// The client belongs to another team, so what it accepts is evidence that the agent speaks the protocol and not a dialect
// that only its own tests understand. Each check prints one line; the first one that fails ends the program with status
// 1. The names and the order of the checks are in the file `checks`, which is shared with the drivers in other languages.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { Readable, Writable } from "node:stream";
import * as acp from "@agentclientprotocol/sdk";

import { Failed, check, expect } from "../check.mjs";

// Far more than any check needs on a busy machine, and less than a long turn: a turn that nobody ended is noticed.
const WAIT_MS = 15_000;
const LONG_TURN = "wait=60000";
const UPDATES = 20;
const INVALID_PARAMS = -32602;

const { session: methods } = acp.methods.agent;

/** What a session says until as many of its prompts have stopped: the chunks, and the reasons. */
async function until(session, stops) {
  const said = [];
  const reasons = [];
  while (reasons.length < stops) {
    const message = await session.nextUpdate();
    if (message.kind === "stop") reasons.push(message.stopReason);
    else if (message.update.sessionUpdate === "agent_message_chunk") said.push(message.update.content.text);
  }
  return { said, reasons };
}

/** Waits for the first chunk of a turn, which says that its handler runs. */
async function running(session) {
  const { update } = await session.nextUpdate();
  expect(update?.content?.text === "running", update);
}

const stopReason = async (response) => (await response).stopReason;

const same = (found, expected) => expect(JSON.stringify(found) === JSON.stringify(expected), found);

async function drive(command, args) {
  const child = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] });
  const exited = once(child, "exit");
  const stream = acp.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout));
  let grant = true;
  let offered;

  const client = acp
    .client({ name: "peer" })
    .onRequest(acp.methods.client.session.requestPermission, ({ params }) => {
      offered = params.options.at(-1).optionId;
      return { outcome: grant ? { outcome: "selected", optionId: offered } : { outcome: "cancelled" } };
    });

  const workflow = async (agent) => {
    await check("initialize", WAIT_MS, async () => {
      const answer = await agent.request(acp.methods.agent.initialize, { protocolVersion: acp.PROTOCOL_VERSION });
      expect(answer.protocolVersion === acp.PROTOCOL_VERSION, answer);
    });

    let session;
    let other;
    await check("new-session", WAIT_MS, async () => {
      session = await agent.buildSession(process.cwd()).start();
      other = await agent.buildSession(process.cwd()).start();
      expect(session.sessionId && session.sessionId !== other.sessionId, [session.sessionId, other.sessionId]);
    });
    const cancel = () => agent.notify(methods.cancel, { sessionId: session.sessionId });

    await check("updates", WAIT_MS, async () => {
      session.prompt(`updates=${UPDATES} say=done`);
      const numbers = Array.from({ length: UPDATES }, (_, index) => `${index + 1}`);
      same(await until(session, 1), { said: [...numbers, "done"], reasons: ["end_turn"] });
    });

    await check("permission", WAIT_MS, async () => {
      session.prompt("permission");
      const granted = await until(session, 1);
      expect(granted.reasons[0] === "end_turn" && granted.said.length === 1, granted);
      expect(granted.said[0].includes(offered), { granted, offered });
      grant = false;
      session.prompt("permission");
      const refused = await until(session, 1);
      expect(refused.reasons[0] === "end_turn" && refused.said.length === 1, refused);
      expect(refused.said[0].includes("cancelled"), refused);
    });

    await check("overlap-running", WAIT_MS, async () => {
      const older = session.prompt(`say=running ${LONG_TURN}`);
      await running(session);
      const newer = session.prompt("say=newer");
      same([await stopReason(older), await stopReason(newer)], ["cancelled", "end_turn"]);
      same((await until(session, 2)).said, ["newer"]);
    });

    await check("overlap-at-once", WAIT_MS, async () => {
      const older = session.prompt(LONG_TURN);
      const newer = session.prompt("say=newer");
      same([await stopReason(older), await stopReason(newer)], ["cancelled", "end_turn"]);
      same((await until(session, 2)).said, ["newer"]);
    });

    await check("cancel", WAIT_MS, async () => {
      session.prompt(`say=running ${LONG_TURN}`);
      await running(session);
      await cancel();
      same(await until(session, 1), { said: [], reasons: ["cancelled"] });
    });

    await check("cancel-at-once", WAIT_MS, async () => {
      session.prompt(LONG_TURN);
      await cancel();
      same(await until(session, 1), { said: [], reasons: ["cancelled"] });
    });

    await check("prompt-after-cancel", WAIT_MS, async () => {
      const ended = session.prompt(LONG_TURN);
      const sent = cancel();
      const later = session.prompt("say=later");
      same([await stopReason(ended), await stopReason(later)], ["cancelled", "end_turn"]);
      same((await until(session, 2)).said, ["later"]);
      await sent;
    });

    await check("close", WAIT_MS, async () => {
      session.prompt(`say=running ${LONG_TURN}`);
      await running(session);
      await agent.request(methods.close, { sessionId: session.sessionId });
      same(await until(session, 1), { said: [], reasons: ["cancelled"] });
      other.prompt("say=alive");
      same(await until(other, 1), { said: ["alive"], reasons: ["end_turn"] });
    });

    await check("closed-session", WAIT_MS, async () => {
      const answer = await session.prompt("say=ghost").catch(({ code, message, data }) => ({ code, message, data }));
      expect(answer.code === INVALID_PARAMS && JSON.stringify(answer).includes(session.sessionId), answer);
    });
  };

  try {
    await client.connectWith(stream, workflow);
    await check("exit", WAIT_MS, async () => {
      child.stdin.end();
      same(await exited, [0, null]);
    });
  } finally {
    // Only a failure finds it alive.
    child.kill();
  }
}

const [command, ...args] = process.argv.slice(2);
if (command === undefined) {
  console.error("usage: driver.js AGENT [ARG...]");
  process.exit(1);
}
await drive(command, args).catch((error) => {
  if (!(error instanceof Failed)) console.error(error);
  process.exit(1);
});
