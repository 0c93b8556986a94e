// Worksheets: which statistics, of which operations, drawn how. One is JSON; a link has all of it.

import type { Predicate } from "./contract";
import type { Scale } from "./heat-map";
import type { Normal, Palette } from "./palettes";

/** One filter: what the chip in the left panel shows. */
export interface Chip {
  field: string;
  operator: "eq" | "ne" | "lt" | "le" | "gt" | "ge" | "prefix";
  value: string | number;
}

export type RowView = "plot" | "stack" | "mirror" | "tree";
/** How a second statistic is drawn: over the first, or what the first has more than it. */
export type Combine = "over" | "minus";

/** One row of a worksheet. */
export interface RowState {
  id: string;
  statistic: string;
  by: string;
  numeric: string;
  chips: Chip[];
  view: RowView;
  scale: Scale;
  crop: number;
  palette: Palette;
  normal: Normal;
  /** Colours by cause. */
  tint: boolean;
  /** All groups have their colours. */
  rainbow: boolean;
  highlighted: string[];
  excluded: string[];
  /** Values that are drawn, where they were chosen. */
  values?: [number, number];
  /** A window of its own: what was asked after the fact. */
  window?: { from: number; until: number };
  compare: "off" | "before" | "hour" | "day" | "week";
  /** Another statistic in the same plot; empty for none. */
  second: string;
  combine: Combine;
  height: number;
}

/** The time that all rows show. */
export interface Range {
  /** Seconds up to now, while live. */
  last: number;
  /** Unix milliseconds, where it does not move. */
  from?: number;
  until?: number;
}

export interface Worksheet {
  name: string;
  range: Range;
  rows: RowState[];
}

let numbers = 0;
const newId = (): string => `r${Date.now().toString(36)}${numbers++}`;

export function newRow(statistic: string, some: Partial<RowState> = {}): RowState {
  return {
    by: "",
    numeric: "latency",
    chips: [],
    view: "plot",
    scale: "log",
    crop: 0.001,
    palette: "orange",
    normal: "rank",
    tint: false,
    rainbow: false,
    highlighted: [],
    excluded: [],
    compare: "off",
    second: "",
    combine: "over",
    height: 220,
    ...some,
    statistic,
    id: newId(),
  };
}

/** The statement of a row: `nfs.ops[client]:latency`. */
export function statementOf(row: RowState, by = row.by): string {
  const breakdown = by ? `[${by}]` : "";
  const numeric = row.view === "plot" && row.numeric ? `:${row.numeric}` : "";
  return `${row.statistic}${breakdown}${numeric}`;
}

/** The filter of chips. */
export function predicateOf(chips: Chip[]): Predicate | undefined {
  const all = chips.map((chip) => ({ [chip.operator]: [chip.field, chip.value] }));
  return all.length > 1 ? { and: all } : all[0];
}

const SIGNS = { eq: "=", ne: "≠", lt: "<", le: "≤", gt: ">", ge: "≥", prefix: "begins with" };

export const chipText = (chip: Chip, value: string): string =>
  `${chip.field} ${SIGNS[chip.operator]} ${value}`;

const live = (last = 900): Range => ({ last });

/** Worksheets that are there from the beginning. */
export const TEMPLATES: Record<string, () => Worksheet> = {
  "NFS, from the client to the file": () => ({
    name: "NFS, from the client to the file",
    range: live(),
    rows: [newRow("nfs.ops", { by: "client", numeric: "", rainbow: true }), newRow("nfs.ops", { by: "cause", tint: true, height: 260 })],
  }),
  "Who is loading me": () => ({
    name: "Who is loading me",
    range: live(),
    rows: [
      newRow("all.ops", { by: "protocol", rainbow: true }),
      newRow("all.ops", { by: "client", numeric: "" }),
      newRow("all.bytes", { by: "dataset", numeric: "" }),
      newRow("all.ops", { by: "file", view: "tree", numeric: "" }),
    ],
  }),
  "NFS latency by cause": () => ({
    name: "NFS latency by cause",
    range: live(),
    rows: [newRow("nfs.ops", { by: "cause", tint: true, height: 300 }), newRow("nfs.ops", { by: "op", numeric: "" })],
  }),
  "Is it the disks": () => ({
    name: "Is it the disks",
    range: live(),
    rows: [
      newRow("all.ops", { by: "slowest_stage", rainbow: true }),
      newRow("all.ops", { numeric: "device_time" }),
      newRow("all.ops", { numeric: "device_queue_time" }),
    ],
  }),
  "Sync writes": () => ({
    name: "Sync writes",
    range: live(),
    rows: [
      newRow("all.ops", { by: "synchronous", chips: [{ field: "op", operator: "eq", value: "write" }], rainbow: true }),
      newRow("all.ops", { numeric: "log_time" }),
    ],
  }),
  Cache: () => ({
    name: "Cache",
    range: live(),
    rows: [
      newRow("arc.accesses", { by: "result", view: "stack", numeric: "" }),
      newRow("arc.accesses", { by: "result", view: "mirror", numeric: "" }),
      newRow("arc.size", { numeric: "", second: "arc.target" }),
      newRow("all.ops", { by: "cause", tint: true, chips: [{ field: "op", operator: "eq", value: "read" }] }),
    ],
  }),
  "iSCSI volumes": () => ({
    name: "iSCSI volumes",
    range: live(),
    rows: [
      newRow("iscsi.ops", { by: "dataset", rainbow: true }),
      newRow("iscsi.ops", { numeric: "size" }),
      newRow("iscsi.ops", { numeric: "offset", scale: "linear", crop: 0 }),
    ],
  }),
};

export const initial = (): Worksheet => TEMPLATES["NFS, from the client to the file"]!();

/** The text of a link. */
export function encode(sheet: Worksheet): string {
  const bytes = new TextEncoder().encode(JSON.stringify(sheet));
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return btoa(text).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

/** The worksheet of a link, or nothing where it is none. */
export function decode(text: string): Worksheet | undefined {
  try {
    const bytes = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
    const array = Uint8Array.from(bytes, (letter) => letter.charCodeAt(0));
    return parse(JSON.parse(new TextDecoder().decode(array)));
  } catch {
    return undefined;
  }
}

/** A worksheet of JSON from elsewhere: what is missing gets its usual value. */
export function parse(value: unknown): Worksheet | undefined {
  const sheet = value as Partial<Worksheet> | null;
  if (!sheet || !Array.isArray(sheet.rows) || sheet.rows.length > 40) return undefined;
  const rows: RowState[] = [];
  for (const row of sheet.rows as Partial<RowState>[]) {
    if (typeof row?.statistic !== "string") return undefined;
    rows.push(newRow(row.statistic, row));
  }
  const given = sheet.range as Partial<Range> | undefined;
  const range: Range = { last: Number(given?.last) || 900 };
  if (typeof given?.from === "number" && typeof given.until === "number" && given.from < given.until) {
    range.from = given.from;
    range.until = given.until;
  }
  return { name: typeof sheet.name === "string" ? sheet.name : "", range, rows };
}

const KEY = "tarn-worksheet";

/** Keeps the worksheet in the browser, for the next visit. */
export function remember(sheet: Worksheet): void {
  try {
    localStorage.setItem(KEY, JSON.stringify(sheet));
  } catch {
    // Without room the next visit begins anew.
  }
}

export function recall(): Worksheet | undefined {
  try {
    return parse(JSON.parse(localStorage.getItem(KEY) ?? "null"));
  } catch {
    return undefined;
  }
}
