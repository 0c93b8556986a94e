// Requests to tarnd. What changes something carries the command that it is, for the history of the
// pool and for the person who learns it.

export interface Refusal {
  kind: string;
  action: string;
  reason: string;
  hints?: string[];
}

/** What tarnd refused. */
export class Refused extends Error {
  constructor(
    readonly status: number,
    readonly refusal: Refusal,
  ) {
    const parts = [refusal.action, refusal.reason].filter((part) => part);
    super([parts.join(": "), ...(refusal.hints ?? [])].join("\n"));
  }
}

export type Role = "administrator" | "viewer";

let role: Role | undefined;
let latencyMs = 0;
let onLoggedOut: () => void = () => {};

export const currentRole = (): Role | undefined => role;
export const isViewer = (): boolean => role === "viewer";
/** How long the last request took. */
export const lastLatencyMs = (): number => latencyMs;

/** Calls when the session has ended. */
export function whenLoggedOut(then: () => void): void {
  onLoggedOut = then;
}

/** Guids have more digits than a number here: those are kept as texts, where the browser can. */
const keepWhole = ((_key: string, value: unknown, context?: { source?: string }): unknown =>
  typeof value === "number" && Number.isInteger(value) && !Number.isSafeInteger(value)
    ? (context?.source ?? value)
    : value) as (key: string, value: unknown) => unknown;

async function send(path: string, init: RequestInit): Promise<unknown> {
  const began = performance.now();
  let response: Response;
  try {
    response = await fetch(`/api/v1/${path}`, init);
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new Refused(0, { kind: "unreachable", action: "", reason: "tarnd does not answer" });
  }
  latencyMs = performance.now() - began;
  const text = await response.text();
  let value: unknown = {};
  try {
    value = path.startsWith("analytics/") ? JSON.parse(text) : JSON.parse(text, keepWhole);
  } catch {
    value = { kind: "invalid", action: "", reason: text || response.statusText };
  }
  if (response.ok) return value;
  if (response.status === 401 && path !== "session/login") {
    role = undefined;
    onLoggedOut();
  }
  throw new Refused(response.status, value as Refusal);
}

function post(path: string, body: unknown, signal?: AbortSignal): Promise<unknown> {
  const headers = { "content-type": "application/json" };
  return send(path, { method: "POST", headers, body: JSON.stringify(body), signal: signal ?? null });
}

/** Asks an operation that changes nothing. */
export function ask<T>(path: string, request: object, signal?: AbortSignal): Promise<T> {
  return post(path, { command: "", request }, signal) as Promise<T>;
}

/** Makes a change. `command` is what a person would have typed. */
export async function change<T>(command: string, path: string, request: object): Promise<T> {
  const entry: CommandEntry = { command, at: new Date(), state: "runs", said: "" };
  commands.push(entry);
  if (commands.length > 200) commands.shift();
  notify();
  try {
    const reply = (await post(path, { command, request })) as T;
    entry.state = "done";
    return reply;
  } catch (error) {
    entry.state = "failed";
    entry.said = error instanceof Error ? error.message : String(error);
    throw error;
  } finally {
    notify();
  }
}

export interface CommandEntry {
  command: string;
  at: Date;
  state: "runs" | "done" | "failed";
  said: string;
}

/** The commands that clicks were, oldest first. */
export const commands: CommandEntry[] = [];
const listeners = new Set<() => void>();
const notify = (): void => listeners.forEach((listener) => listener());

/** Calls when the list of commands changes. */
export function whenCommandsChange(then: () => void): void {
  listeners.add(then);
}

/** Whether there is a session. */
export async function findSession(): Promise<boolean> {
  try {
    role = ((await send("session", {})) as { role: Role }).role;
    return true;
  } catch (error) {
    if (error instanceof Refused && error.status === 401) return false;
    throw error;
  }
}

export async function logIn(token: string): Promise<void> {
  role = ((await post("session/login", { token })) as { role: Role }).role;
}

export async function logOut(): Promise<void> {
  await post("session/logout", {});
  role = undefined;
  onLoggedOut();
}

/** Worksheets that are kept by the server. */
export async function worksheets(
  verb: "list" | "save" | "remove",
  body: object = {},
): Promise<Record<string, unknown>> {
  const reply = (await post(`worksheets/${verb}`, body)) as { worksheets: Record<string, unknown> };
  return reply.worksheets;
}
