// Plots without a numeric breakdown: how many in each second, groups upon each other, hits above and
// misses below, and two statistics together.

import { type Plot, RIGHT, TOP, innerHeight, xOf } from "./axes";
import type { Domain } from "./heat-map";
import { type Rgb, css } from "./palettes";
import type { Column } from "./samples";

export interface Line {
  key: string;
  colour: Rgb;
}

/** How the sums of columns are read: of how long a column, and whether they are means. */
export interface Counted {
  columnMs: number;
  isMean: boolean;
}

const perSecond = (sum: number, { columnMs, isMean }: Counted): number => (isMean ? sum : (sum * 1000) / columnMs);

const partOf = (column: Column, key: string | undefined): number =>
  key === undefined ? column.total.sum : (column.groups.get(key)?.sum ?? 0);

/** The highest of all columns. */
export function linesDomain(columns: Column[], counted: Counted): Domain {
  const most = columns.reduce((most, column) => Math.max(most, column.total.sum), 0);
  return { low: 0, high: Math.max(perSecond(most, counted) * 1.08, 1), scale: "linear" };
}

const heightOf = (plot: Plot, domain: Domain, value: number): number =>
  TOP + innerHeight(plot) * (1 - (value - domain.low) / (domain.high - domain.low));

/** A line of steps, with gaps where nothing was collected. */
function trace(plot: Plot, columns: Column[], columnMs: number, domain: Domain, of: (column: Column) => number): Path2D {
  const path = new Path2D();
  let isOpen = false;
  for (const column of columns) {
    if (column.state === 0) {
      isOpen = false;
      continue;
    }
    const y = heightOf(plot, domain, of(column));
    const [x0, x1] = [xOf(plot, column.at), xOf(plot, column.at + columnMs)];
    if (isOpen) path.lineTo(x0, y);
    else path.moveTo(x0, y);
    path.lineTo(x1, y);
    isOpen = true;
  }
  return path;
}

/** Draws the total as a mountain, and groups as lines above it. */
export function drawLines(plot: Plot, columns: Column[], counted: Counted, domain: Domain, lines: Line[]): void {
  const { context } = plot;
  const { columnMs } = counted;
  const of = (key: string | undefined) => (column: Column): number => perSecond(partOf(column, key), counted);
  context.fillStyle = plot.isDark ? "#4b3a24" : "#f7ddc2";
  const foot = heightOf(plot, domain, domain.low);
  for (const column of columns) {
    if (column.state === 0) continue;
    const y = heightOf(plot, domain, of(undefined)(column));
    const x = xOf(plot, column.at);
    context.fillRect(x, y, xOf(plot, column.at + columnMs) - x + 0.5, foot - y);
  }
  context.lineWidth = 1.25;
  context.strokeStyle = plot.isDark ? "#ff9b45" : "#c95f00";
  context.stroke(trace(plot, columns, columnMs, domain, of(undefined)));
  for (const line of lines) {
    context.strokeStyle = css(line.colour);
    context.lineWidth = 1.75;
    context.stroke(trace(plot, columns, columnMs, domain, of(line.key)));
  }
}

/** Draws groups upon each other; what is in none of them lies on top, grey. */
export function drawStack(plot: Plot, columns: Column[], counted: Counted, domain: Domain, lines: Line[]): void {
  const { context } = plot;
  const grey = plot.isDark ? "#59616d" : "#c4cad2";
  for (const column of columns) {
    if (column.state === 0) continue;
    const x = xOf(plot, column.at);
    const width = xOf(plot, column.at + counted.columnMs) - x + 0.5;
    let below = 0;
    const put = (sum: number, colour: string): void => {
      const [y0, y1] = [heightOf(plot, domain, perSecond(below, counted)), heightOf(plot, domain, perSecond(below + sum, counted))];
      context.fillStyle = colour;
      context.fillRect(x, y1, width, y0 - y1);
      below += sum;
    };
    for (const line of lines) put(partOf(column, line.key), css(line.colour));
    if (column.total.sum > below) put(column.total.sum - below, grey);
  }
}

/** The colour of a second statistic. */
const secondColour = (plot: Plot): string => (plot.isDark ? "#7fb2ff" : "#1257c4");

/** Draws another line over a plot: upon the same values, or with its own at the right. */
export function drawOverlay(plot: Plot, columns: Column[], counted: Counted, text: (value: number) => string, same?: Domain): void {
  const { context } = plot;
  const domain = same ?? linesDomain(columns, counted);
  const colour = secondColour(plot);
  context.strokeStyle = colour;
  context.lineWidth = 2;
  context.stroke(trace(plot, columns, counted.columnMs, domain, (column) => perSecond(column.total.sum, counted)));
  if (same) return;
  context.font = "11px system-ui, sans-serif";
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (const part of [0.25, 0.5, 0.75, 1]) {
    const value = (domain.high / 1.08) * part;
    const words = text(value);
    const y = heightOf(plot, domain, value);
    const width = context.measureText(words).width;
    context.fillStyle = plot.isDark ? "#14171ccc" : "#ffffffcc";
    context.fillRect(plot.width - RIGHT - width - 10, y - 7, width + 6, 14);
    context.fillStyle = colour;
    context.fillText(words, plot.width - RIGHT - 7, y);
  }
}

/** The differences of columns to those of another statistic at the same times. */
export function differences(columns: Column[], counted: Counted, others: Column[], other: Counted): Column[] {
  const at = new Map(others.map((column) => [column.at, column]));
  return columns.map((column) => {
    const second = at.get(column.at);
    const state = second ? Math.min(column.state, second.state) : 0;
    const sum = second ? perSecond(column.total.sum, counted) - perSecond(second.total.sum, other) : 0;
    return { at: column.at, state, total: { sum, cells: [] }, groups: new Map() };
  });
}

/** Room for what is more and what is less. */
export function differenceDomain(columns: Column[]): Domain {
  const most = columns.reduce((most, column) => Math.max(most, Math.abs(column.total.sum)), 1) * 1.08;
  return { low: -most, high: most, scale: "linear" };
}

/** Draws what is more upwards in orange, and what is less downwards in blue. */
export function drawDifferences(plot: Plot, columns: Column[], columnMs: number, domain: Domain): void {
  const middle = heightOf(plot, domain, 0);
  for (const column of columns) {
    if (column.state === 0) continue;
    const y = heightOf(plot, domain, column.total.sum);
    const x = xOf(plot, column.at);
    plot.context.fillStyle = column.total.sum > 0 ? "#eb690a" : "#1e64e1";
    plot.context.fillRect(x, Math.min(y, middle), xOf(plot, column.at + columnMs) - x + 0.5, Math.abs(middle - y));
  }
  drawMiddle(plot, middle);
}

function drawMiddle(plot: Plot, y: number): void {
  plot.context.fillStyle = plot.isDark ? "#b9c0ca" : "#454b54";
  plot.context.fillRect(xOf(plot, plot.from), y, xOf(plot, plot.until) - xOf(plot, plot.from), 1);
}

/** Which groups are hits and misses of a cache, by the cause that operations have. */
export const HITS = ["cache_hit", "cache_in_flight", "dirty", "hit", "iohit"];
export const MISSES = ["second_level", "special", "disk", "scan", "miss"];

/** Sums of one column, up and down. */
export function hitsAndMisses(column: Column): [number, number] {
  const sum = (keys: string[]): number => keys.reduce((all, key) => all + partOf(column, key), 0);
  return [sum(HITS), sum(MISSES)];
}

export function mirrorDomain(columns: Column[], columnMs: number): Domain {
  let most = 1;
  for (const column of columns) most = Math.max(most, ...hitsAndMisses(column));
  const high = ((most * 1000) / columnMs) * 1.08;
  return { low: -high, high, scale: "linear" };
}

/** Draws hits upwards in green and misses downwards in red: the spread is the load. */
export function drawMirror(plot: Plot, columns: Column[], columnMs: number, domain: Domain): void {
  const { context } = plot;
  const middle = TOP + innerHeight(plot) / 2;
  const scale = innerHeight(plot) / 2 / domain.high;
  for (const column of columns) {
    if (column.state === 0) continue;
    const [hits, misses] = hitsAndMisses(column).map((sum) => ((sum * 1000) / columnMs) * scale);
    const x = xOf(plot, column.at);
    const width = xOf(plot, column.at + columnMs) - x + 0.5;
    context.fillStyle = plot.isDark ? "#3fae62" : "#2c8f4c";
    context.fillRect(x, middle - hits!, width, hits!);
    context.fillStyle = plot.isDark ? "#ef6259" : "#c9342c";
    context.fillRect(x, middle, width, misses!);
  }
  drawMiddle(plot, middle);
}
