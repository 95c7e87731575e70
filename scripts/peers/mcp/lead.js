// Delegates through `lastword fleet` with the client of the TypeScript MCP SDK: lead.js LASTWORD
//
// The same checks as those of lead.py, in the words of another team's client. It validates what a tool gives against the schema
// that the tool declared.

import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { isDeepStrictEqual } from "node:util";

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ErrorCode } from "@modelcontextprotocol/sdk/types.js";

import { Failed, check, expect } from "../check.mjs";

// Far more than any check needs on a busy machine.
const CHECK_MS = 60_000;
// The windows: what is 45 s and 25 s for people, scaled down by configuration.
const WINDOW_S = 2;
const SHORT_WINDOW_S = 0.3;
const PROGRESS_S = 0.2;
const RACES = 6;

async function call(lead, tool, args = {}, options = {}) {
  const result = await lead.callTool({ name: tool, arguments: args }, undefined, options);
  expect(!result.isError, result);
  return result.structuredContent;
}

// Polls a ticket until it is in one of the states.
async function poll(lead, ticket, ...states) {
  for (;;) {
    const [seen] = (await call(lead, "fleet_poll", { ticket, wait: WINDOW_S })).tickets;
    if (states.includes(seen.state)) return seen;
  }
}

const spawn = async (lead) => (await call(lead, "fleet_spawn", { kind: "scripted" })).worker;

// Runs the body with as many sessions as it takes.
async function sessions(connect, body) {
  const leads = await Promise.all(Array.from({ length: body.length }, connect));
  try {
    await body(...leads);
  } finally {
    await Promise.all(leads.map((lead) => lead.close()));
  }
}

async function drive(transport, connect) {
  const checks = {
    tools: async (lead) => {
      const { tools } = await lead.listTools();
      const names = ["fleet_spawn", "fleet_list", "fleet_send", "fleet_poll", "fleet_inbox", "fleet_stop"];
      expect(isDeepStrictEqual(tools.map((tool) => tool.name), names) && tools.every((tool) => tool.outputSchema), tools);
    },

    "reply-after-window": async (lead) => {
      await lead.listTools();
      const worker = await spawn(lead);
      const sent = await call(lead, "fleet_send", { worker, content: "ask=which wait=1200 reply=done" });
      const { ticket } = sent;
      expect(["queued", "working"].includes(sent.state) && !sent.timed_out, sent);
      const [{ question, text }] = (await poll(lead, ticket, "input_required")).questions;
      expect(text === "which", text);
      // The window of the answer runs out before the worker replies.
      let seen = await call(lead, "fleet_send", { question, content: "this", wait: SHORT_WINDOW_S });
      expect(seen.ticket === ticket && seen.state === "working" && seen.timed_out, seen);
      seen = await poll(lead, ticket, "completed", "failed", "cancelled");
      expect(seen.state === "completed" && seen.reply === "done" && !seen.is_last_message, seen);
      await call(lead, "fleet_stop", { worker });
      expect((await poll(lead, ticket, "completed")).reply === "done", ticket);
    },

    "answer-after-window": async (lead) => {
      const worker = await spawn(lead);
      const { ticket } = await call(lead, "fleet_send", { worker, content: "say=before ask=which say=unreached" });
      await poll(lead, ticket, "input_required");
      // The worker's own window, which began before, is over after that; its turn ends, and the question stays.
      await new Promise((resolve) => setTimeout(resolve, (WINDOW_S + SHORT_WINDOW_S) * 1000));
      const { questions } = await poll(lead, ticket, "input_required");
      expect(questions[0].text === "which", questions);
      await call(lead, "fleet_send", { ticket, content: "reply=later" });
      const { reply } = await poll(lead, ticket, "completed");
      expect(reply === "later", reply);
      await call(lead, "fleet_stop", { worker });
    },

    "client-times-out": async (lead) => {
      const worker = await spawn(lead);
      const work = { worker, content: "wait=1000 reply=slow", request_key: `${transport} slow` };
      const error = await call(lead, "fleet_send", { ...work, wait: WINDOW_S }, { timeout: SHORT_WINDOW_S * 1000 }).then(
        (seen) => expect(false, seen),
        (error) => error,
      );
      expect(error.code === ErrorCode.RequestTimeout, error);
      await sessions(connect, async (later) => {
        const { ticket } = await call(later, "fleet_send", work);
        const { reply } = await poll(later, ticket, "completed");
        expect(reply === "slow", reply);
        const { tickets } = await call(later, "fleet_poll");
        const its = tickets.filter((seen) => seen.worker === worker).map((seen) => seen.ticket);
        expect(isDeepStrictEqual(its, [ticket]), tickets);
        await call(later, "fleet_stop", { worker });
      });
    },

    progress: async (lead) => {
      const worker = await spawn(lead);
      const heard = [];
      const onprogress = ({ message }) => heard.push(message);
      const seen = await call(lead, "fleet_send", { worker, content: "wait=60000", wait: 1 }, { onprogress });
      expect(seen.timed_out && heard.length >= 2 && heard[0].includes(`ticket ${seen.ticket}`), { seen, heard });
      await call(lead, "fleet_stop", { worker });
      expect((await poll(lead, seen.ticket, "cancelled")).reply === undefined, seen);
    },

    "two-leads": async (one, two) => {
      const delegate = async (lead, name) => {
        const worker = await spawn(lead);
        const tickets = [];
        for (let number = 0; number < 5; number++) {
          tickets.push((await call(lead, "fleet_send", { worker, content: `reply=${name}${number}` })).ticket);
        }
        const replies = [];
        for (const ticket of tickets) replies.push((await poll(lead, ticket, "completed")).reply);
        await call(lead, "fleet_stop", { worker });
        expect(isDeepStrictEqual(replies, [0, 1, 2, 3, 4].map((number) => `${name}${number}`)), replies);
      };
      await Promise.all([delegate(one, "one"), delegate(two, "two")]);
    },

    "stop-races-reply": async (lead) => {
      for (let race = 0; race < RACES; race++) {
        const worker = await spawn(lead);
        const content = `wait=${30 * race} reply=raced`;
        const { ticket } = await call(lead, "fleet_send", { worker, content, wait: 0.03 * race });
        await call(lead, "fleet_stop", { worker });
        const seen = await poll(lead, ticket, "completed", "failed", "cancelled");
        const outcome = [seen.state, seen.reply];
        const allowed = [["completed", "raced"], ["cancelled", undefined]];
        expect(allowed.some((one) => isDeepStrictEqual(one, outcome)), seen);
        // What is final stays so.
        expect((await poll(lead, ticket, seen.state)).reply === seen.reply, seen);
      }
    },
  };
  for (const [name, body] of Object.entries(checks)) {
    await check(`${transport}-${name}`, CHECK_MS, () => sessions(connect, body));
  }
}

async function main(lastword) {
  const folder = mkdtempSync(join(tmpdir(), "lastword-lead-"));
  const file = join(folder, "fleet.toml");
  const limits = `[limits]\nwait_seconds = ${WINDOW_S}\nprogress_seconds = ${PROGRESS_S}\n`;
  const worker = `[workers.scripted]\ncommand = ${JSON.stringify(lastword)}\nargs = ["agent"]\n`;
  writeFileSync(file, `listen = "127.0.0.1:0"\n${limits}${worker}`);
  const said = (...words) => execFileSync(lastword, ["fleet", ...words, "--config", file], { encoding: "utf8" });
  const connected = async (transport) => {
    const lead = new Client({ name: "lead", version: "1.0.0" });
    await lead.connect(transport);
    return lead;
  };
  const bridge = () => connected(new StdioClientTransport({ command: lastword, args: ["fleet", "mcp", "--config", file] }));
  const http = () => {
    const headers = { Authorization: `Bearer ${said("token").trim()}` };
    const { url } = JSON.parse(said("status", "--json"));
    return connected(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } }));
  };
  try {
    await drive("bridge", bridge);
    await drive("http", http);
  } finally {
    said("stop");
    rmSync(folder, { recursive: true });
  }
}

if (process.argv.length !== 3) {
  console.error("usage: lead.js LASTWORD");
  process.exit(1);
}
await main(process.argv[2]).catch((error) => {
  if (!(error instanceof Failed)) console.error(error);
  process.exitCode = 1;
});
