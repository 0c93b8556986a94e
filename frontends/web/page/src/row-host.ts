// What a row knows of the page, and what its parts know of each other.

import type { Catalogue } from "./contract";
import type { Row } from "./row";
import type { RowState } from "./worksheet";

/** What a row knows of the page. */
export interface Host {
  /** What is shown, in Unix milliseconds. */
  range(): { from: number; until: number };
  isLive(): boolean;
  isDark(): boolean;
  catalogue(): Catalogue;
  setRange(from: number, until: number): void;
  goLive(): void;
  addRow(row: RowState, after: Row): void;
  removeRow(row: Row): void;
  moveRow(row: Row, step: number): void;
  /** The worksheet changed. */
  changed(): void;
  /** Draws a row together with others, so that the page is painted once. */
  drawSoon(row: Row): void;
  /** The pointer is at a time; all rows show it. */
  point(ms: number | undefined): void;
}

/** A rectangle of time and value. */
export interface Box {
  from: number;
  until: number;
  low: number;
  high: number;
}

/** A place in a plot. */
export interface At {
  ms: number;
  value: number;
}

/** Fields with names, while the catalogue is not known. */
export const DISCRETE = ["client", "user", "op", "file", "dataset", "protocol", "cause", "slowest_stage", "synchronous", "sequential", "failed"];

/** What the range before is called. */
export const COMPARED: Record<string, string> = {
  before: "the time before",
  hour: "an hour ago",
  day: "yesterday",
  week: "last week",
};
