// What the plots of all rows have in common: margins, axes, gaps.

import type { Column } from "./samples";
import type { Domain } from "./heat-map";
import { placeOf, valueAt } from "./heat-map";
import { clock, dateTime, valueOf } from "./units";

export const LEFT = 64;
export const RIGHT = 10;
export const TOP = 6;
export const BOTTOM = 20;

export interface Plot {
  context: CanvasRenderingContext2D;
  width: number;
  height: number;
  from: number;
  until: number;
  isDark: boolean;
}

/** How large a canvas is on the page: looking there makes the browser lay the page out. */
export interface Size {
  width: number;
  height: number;
}

/** Makes a canvas as sharp as the screen, and clears it. */
export function prepare(canvas: HTMLCanvasElement, size: Size, from: number, until: number, isDark: boolean): Plot {
  const scale = window.devicePixelRatio || 1;
  const width = Math.max(200, size.width);
  const height = Math.max(80, size.height);
  const [w, h] = [Math.round(width * scale), Math.round(height * scale)];
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
  }
  const context = canvas.getContext("2d")!;
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.fillStyle = isDark ? "#14171c" : "#ffffff";
  context.fillRect(0, 0, width, height);
  return { context, width, height, from, until, isDark };
}

export const innerWidth = (plot: { width: number }): number => plot.width - LEFT - RIGHT;
export const innerHeight = (plot: { height: number }): number => plot.height - TOP - BOTTOM;
export const xOf = (plot: Plot, ms: number): number =>
  LEFT + ((ms - plot.from) / (plot.until - plot.from)) * innerWidth(plot);

const ink = (plot: Plot): string => (plot.isDark ? "#b9c0ca" : "#454b54");

/** Hatches what was not collected, and what was collected in part. */
export function drawGaps(plot: Plot, columns: Column[], columnMs: number): void {
  const { context } = plot;
  const hatch = (from: number, until: number, step: number): void => {
    const [x0, x1] = [Math.max(LEFT, xOf(plot, from)), Math.min(plot.width - RIGHT, xOf(plot, until))];
    if (x1 <= x0) return;
    context.save();
    context.beginPath();
    context.rect(x0, TOP, x1 - x0, innerHeight(plot));
    context.clip();
    context.strokeStyle = plot.isDark ? "#3a414c" : "#d3d8df";
    context.lineWidth = 1;
    context.beginPath();
    for (let x = x0 - innerHeight(plot); x < x1; x += step) {
      context.moveTo(x, TOP + innerHeight(plot));
      context.lineTo(x + innerHeight(plot), TOP);
    }
    context.stroke();
    context.restore();
  };
  // Neighbours of one kind are hatched at once.
  const run = (wanted: number, step: number): void => {
    let begin: number | undefined;
    let end = plot.from;
    for (const column of columns) {
      const is = column.state === wanted;
      if (is && begin === undefined) begin = column.at;
      if (!is && begin !== undefined) {
        hatch(begin, column.at, step);
        begin = undefined;
      }
      end = column.at + columnMs;
    }
    if (begin !== undefined) hatch(begin, end, step);
  };
  run(0, 7);
  run(1, 21);
  const first = columns[0];
  if (!first) hatch(plot.from, plot.until, 7);
  else if (first.at > plot.from + columnMs) hatch(plot.from, first.at, 7);
}

/** Times below the plot. */
export function drawTimes(plot: Plot): void {
  const { context } = plot;
  const steps = [1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400, 604800];
  const seconds = (plot.until - plot.from) / 1000;
  const most = Math.max(2, innerWidth(plot) / 90);
  const step = 1000 * (steps.find((step) => seconds / step <= most) ?? 2592000);
  const zone = new Date(plot.from).getTimezoneOffset() * 60000;
  context.fillStyle = ink(plot);
  context.font = "11px system-ui, sans-serif";
  context.textAlign = "center";
  context.textBaseline = "top";
  const first = Math.ceil((plot.from - zone) / step) * step + zone;
  for (let at = first; at <= plot.until; at += step) {
    const x = xOf(plot, at);
    context.fillRect(x, plot.height - BOTTOM, 1, 4);
    if (x < LEFT + 20 || x > plot.width - 24) continue;
    const text = step >= 86400000 ? dateTime(at).slice(0, 10) : clock(at).slice(0, step % 60000 ? 8 : 5);
    context.fillText(text, x, plot.height - BOTTOM + 5);
  }
}

/** Values beside the plot. */
export function drawValues(plot: Plot, domain: Domain, field: string | undefined): void {
  const { context } = plot;
  context.fillStyle = ink(plot);
  context.font = "11px system-ui, sans-serif";
  context.textAlign = "right";
  context.textBaseline = "middle";
  const at = (value: number): void => {
    const y = TOP + innerHeight(plot) * (1 - placeOf(domain, value));
    if (y < TOP + 4 || y > plot.height - BOTTOM - 2) return;
    context.fillText(valueOf(field, value), LEFT - 8, y);
    context.fillRect(LEFT - 5, y, 4, 1);
  };
  const isBytes = field === "size" || field === "offset";
  if (domain.scale === "log") {
    const base = isBytes ? 4 : 10;
    const first = Math.pow(base, Math.ceil(Math.log(Math.max(domain.low, 1)) / Math.log(base)));
    for (let value = first; value <= domain.high; value *= base) at(value);
  } else {
    const raw = (domain.high - domain.low) / Math.max(2, innerHeight(plot) / 40);
    const power = Math.pow(isBytes ? 2 : 10, Math.floor(Math.log(raw) / Math.log(isBytes ? 2 : 10)));
    const step = power * (isBytes ? 2 : [1, 2, 5, 10].find((part) => part * power >= raw)!);
    for (let value = Math.ceil(domain.low / step) * step; value <= domain.high; value += step) at(value);
  }
  context.strokeStyle = plot.isDark ? "#3a414c" : "#c3c9d1";
  context.lineWidth = 1;
  context.strokeRect(LEFT - 0.5, TOP - 0.5, innerWidth(plot) + 1, innerHeight(plot) + 1);
}

/** The value at a height of the canvas. */
export const valueAtY = (plot: { height: number }, domain: Domain, y: number): number =>
  valueAt(domain, 1 - (y - TOP) / innerHeight(plot));
