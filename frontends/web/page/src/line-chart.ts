// Plots without a numeric breakdown: how many in each second, and hits above and misses below.

import { type Plot, TOP, innerHeight, xOf } from "./axes";
import type { Domain } from "./heat-map";
import { type Rgb, css } from "./palettes";
import type { Column } from "./samples";

export interface Line {
  key: string;
  colour: Rgb;
}

const perSecond = (sum: number, columnMs: number, isValue: boolean): number =>
  isValue ? sum : (sum * 1000) / columnMs;

const partOf = (column: Column, key: string | undefined): number =>
  key === undefined ? column.total.sum : (column.groups.get(key)?.sum ?? 0);

/** The highest of all columns. */
export function linesDomain(columns: Column[], columnMs: number, isValue: boolean): Domain {
  const most = columns.reduce((most, column) => Math.max(most, column.total.sum), 0);
  return { low: 0, high: Math.max(perSecond(most, columnMs, isValue) * 1.08, 1), scale: "linear" };
}

/** Draws the total as a mountain, and groups as lines above it. */
export function drawLines(
  plot: Plot,
  columns: Column[],
  columnMs: number,
  domain: Domain,
  lines: Line[],
  isValue: boolean,
): void {
  const height = (value: number): number => TOP + innerHeight(plot) * (1 - value / domain.high);
  const trace = (key: string | undefined): Path2D => {
    const path = new Path2D();
    let isOpen = false;
    for (const column of columns) {
      if (column.state === 0) {
        isOpen = false;
        continue;
      }
      const y = height(perSecond(partOf(column, key), columnMs, isValue));
      const [x0, x1] = [xOf(plot, column.at), xOf(plot, column.at + columnMs)];
      if (isOpen) path.lineTo(x0, y);
      else path.moveTo(x0, y);
      path.lineTo(x1, y);
      isOpen = true;
    }
    return path;
  };
  const { context } = plot;
  context.fillStyle = plot.isDark ? "#4b3a24" : "#f7ddc2";
  for (const column of columns) {
    if (column.state === 0) continue;
    const y = height(perSecond(column.total.sum, columnMs, isValue));
    const x = xOf(plot, column.at);
    context.fillRect(x, y, xOf(plot, column.at + columnMs) - x + 0.5, TOP + innerHeight(plot) - y);
  }
  context.lineWidth = 1.25;
  context.strokeStyle = plot.isDark ? "#ff9b45" : "#c95f00";
  context.stroke(trace(undefined));
  for (const line of lines) {
    context.strokeStyle = css(line.colour);
    context.lineWidth = 1.75;
    context.stroke(trace(line.key));
  }
}

/** Which groups are hits and misses of a cache, by the cause that operations have. */
export const HITS = ["cache_hit", "cache_in_flight", "dirty", "second_level", "hit", "iohit"];
export const MISSES = ["disk", "miss"];

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
  context.fillStyle = plot.isDark ? "#b9c0ca" : "#454b54";
  context.fillRect(xOf(plot, plot.from), middle, xOf(plot, plot.until) - xOf(plot, plot.from), 1);
}
