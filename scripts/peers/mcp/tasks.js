// Delegates through `lastword fleet` with the official requester of the tasks extension: tasks.js LASTWORD
//
// It validates each task against the schemas of the extension, and sees it through by itself. Over HTTP: what the SDK's client does
// not pass on, the package wants its host to send. The names of the checks and their order are in the file `fleet-requester-checks`.

import { execFileSync, spawn as start } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { createTaskSessionFromClient, resultFromTaskOutcome } from "@modelcontextprotocol/ext-tasks/client";

import { Failed, check, expect } from "../check.mjs";

// Far more than any check needs on a busy machine.
const CHECK_MS = 60_000;
const REVISION = "2026-07-28";

// Sends a request as the host of the package, and reads its one response.
function dispatcher(url, authorization) {
  let id = 0;
  return async (request, { context, signal } = {}) => {
    const { method, params } = request;
    const headers = {
      Authorization: authorization,
      "Content-Type": "application/json",
      Accept: "application/json, text/event-stream",
      "MCP-Protocol-Version": REVISION,
      "Mcp-Method": method,
      ...(params.name && { "Mcp-Name": params.name }),
      ...context?.headers,
    };
    const body = JSON.stringify({ jsonrpc: "2.0", id: (id += 1), method, params });
    const text = await (await fetch(url, { method: "POST", headers, body, signal })).text();
    // It is the last event, or all of it.
    const last = text.trimEnd().split("\n").findLast((line) => /^(data: )?\{/.test(line));
    const { error, result } = JSON.parse(last.replace(/^data: /, ""));
    return error ? { kind: "error", error } : { kind: "result", result };
  };
}

async function drive(url, token) {
  const authorization = `Bearer ${token}`;
  const clientInfo = { name: "lead", version: "1.0.0" };
  const clientCapabilities = { elicitation: {} };
  const client = new Client(clientInfo, { versionNegotiation: { mode: { pin: REVISION } }, capabilities: clientCapabilities });
  const requestInit = { headers: { Authorization: authorization } };
  await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit }));
  const session = (onInputRequest) =>
    createTaskSessionFromClient(client, {
      endpointId: url,
      rawDispatch: dispatcher(url, authorization),
      v2RequestFraming: { protocolVersion: REVISION, clientInfo, clientCapabilities },
      onInputRequest,
    });
  const settle = async (lead, tool, args) => {
    const execution = await lead.callTool(tool, args);
    return { kind: execution.kind, ...(await execution.settle()) };
  };
  const spawn = async (lead) => {
    const { kind, outcome } = await settle(lead, "fleet_spawn", { kind: "scripted" });
    expect(kind === "immediate", kind);
    return resultFromTaskOutcome(outcome).structuredContent.worker;
  };

  await check("question", CHECK_MS, async () => {
    const asked = [];
    const lead = session((request) => {
      asked.push(request);
      return { action: "accept", content: { answer: "this" } };
    });
    const worker = await spawn(lead);
    const { kind, outcome, lastTask } = await settle(lead, "fleet_send", { worker, content: "ask=which wait=100 reply=done" });
    const { reply, state } = resultFromTaskOutcome(outcome).structuredContent;
    expect(kind === "task" && reply === "done" && state === "completed" && lastTask.retentionMs === null, { kind, outcome, lastTask });
    expect(asked.length === 1 && asked[0].kind === "elicitation" && asked[0].params.message === "which", asked);
    await lead.close();
  });

  await check("nobody-to-ask", CHECK_MS, async () => {
    // It says "cancel" for an application that takes no questions: the question stays, and the lead hears of it.
    const lead = session(undefined);
    const worker = await spawn(lead);
    const execution = await lead.callTool("fleet_send", { worker, content: "ask=which reply=late" });
    const error = await execution.settle().then(({ outcome }) => outcome.error, (error) => error);
    expect(error?.message.includes("still waits for an answer"), String(error));
    const ticket = Number(execution.handle.taskId.replace("ticket-", ""));
    await settle(lead, "fleet_send", { ticket, content: "this" });
    const outcome = await lead.task(execution.handle.taskId).result();
    expect(resultFromTaskOutcome(outcome).structuredContent.reply === "late", outcome);
    await lead.close();
  });

  await check("cancel-and-fail", CHECK_MS, async () => {
    const lead = session(undefined);
    const worker = await spawn(lead);
    const cancelled = await lead.callTool("fleet_send", { worker, content: "wait=60000" });
    await lead.cancelTask(cancelled.handle.taskId);
    const seen = await lead.task(cancelled.handle.taskId).result();
    expect(seen.status === "cancelled", seen);
    const failed = await settle(lead, "fleet_send", { worker, content: "fail" });
    expect(failed.outcome.status === "failed" && failed.outcome.error.code === -32603, failed);
    await lead.close();
  });
  await client.close();
}

async function main(lastword) {
  const folder = mkdtempSync(join(tmpdir(), "lastword-lead-"));
  const file = join(folder, "fleet.toml");
  writeFileSync(file, `listen = "127.0.0.1:0"\n[workers.scripted]\ncommand = ${JSON.stringify(lastword)}\nargs = ["agent"]\n`);
  const said = (...words) => execFileSync(lastword, ["fleet", ...words, "--config", file], { encoding: "utf8" });
  const daemon = start(lastword, ["fleet", "serve", "--config", file], { stdio: ["ignore", "pipe", "inherit"] });
  try {
    const [line] = await once(daemon.stdout, "data");
    await drive(String(line).trim().replace("the fleet is at ", ""), said("token").trim());
  } finally {
    daemon.kill();
    await once(daemon, "exit");
    rmSync(folder, { recursive: true });
  }
}

if (process.argv.length !== 3) {
  console.error("usage: tasks.js LASTWORD");
  process.exit(1);
}
await main(process.argv[2]).catch((error) => {
  if (!(error instanceof Failed)) console.error(error);
  process.exitCode = 1;
});
