// Pointer, wheel and keys in the plot of a row: what is pointed at, boxes, zoom, maxima.

import { BOTTOM, LEFT, RIGHT, TOP, valueAtY } from "./axes";
import { announce } from "./dom";
import { placeOf } from "./heat-map";
import type { Row } from "./row";
import type { At, Box } from "./row-host";
import { OTHER, type Part } from "./samples";
import { clock, rate, valueOf } from "./units";

/** Pixels that a pointer may move while it is still a click. */
const STILL = 4;
/** What an arrow moves: parts of the range of time and of values. */
const STRIDE = 0.01;
const CLIMB = 0.04;

export class RowPointer {
  private anchor: At | undefined;

  constructor(private readonly row: Row) {
    this.listen();
  }

  private at(event: MouseEvent): At {
    const box = this.row.canvas.getBoundingClientRect();
    const { from, until } = this.row.range();
    const x = Math.max(0, Math.min(1, (event.clientX - box.left - LEFT) / (box.width - LEFT - RIGHT)));
    const y = Math.max(TOP, Math.min(box.height - BOTTOM, event.clientY - box.top));
    return { ms: from + x * (until - from), value: valueAtY({ height: box.height }, this.row.picture.domain, y) };
  }

  private boxOf(one: At, other: At): Box {
    const step = this.row.source.samples.columnMs;
    const isMap = this.row.isMap();
    return {
      from: Math.floor(Math.min(one.ms, other.ms) / step) * step,
      until: Math.ceil(Math.max(one.ms, other.ms) / step) * step || step,
      low: isMap ? Math.max(0, Math.min(one.value, other.value)) : 0,
      high: isMap ? Math.max(one.value, other.value) : Infinity,
    };
  }

  private listen(): void {
    const { row } = this;
    const { canvas } = row;
    let begun: (At & { x: number; y: number }) | undefined;
    const moved = (event: MouseEvent): boolean => begun !== undefined && Math.hypot(event.clientX - begun.x, event.clientY - begun.y) > STILL;
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      canvas.setPointerCapture(event.pointerId);
      begun = { ...this.at(event), x: event.clientX, y: event.clientY };
    });
    canvas.addEventListener("pointermove", (event) => {
      const at = this.at(event);
      row.readout.textContent = this.cellAt(at);
      row.host.point(at.ms);
      if (begun && moved(event)) row.boxes.sketch(this.boxOf(begun, at));
    });
    canvas.addEventListener("pointerup", (event) => {
      if (begun && moved(event)) row.boxes.select(this.boxOf(begun, this.at(event)));
      begun = undefined;
    });
    canvas.addEventListener("pointerleave", () => {
      row.readout.textContent = "";
      row.host.point(undefined);
    });
    canvas.addEventListener("dblclick", () => {
      delete row.state.values;
      row.boxes.select(undefined);
      row.host.goLive();
    });
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      const factor = Math.exp(Math.max(-1, Math.min(1, (event.deltaY || event.deltaX) / 200)));
      event.shiftKey ? this.zoomValues(this.at(event).value, factor) : this.zoomTime(this.at(event).ms, factor);
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => this.key(event));
    canvas.addEventListener("blur", () => row.draw());
  }

  private zoomTime(around: number, factor: number): void {
    if (this.row.state.window) return;
    const { from, until } = this.row.host.range();
    const length = Math.max(1000, Math.min(90 * 864e5, (until - from) * factor));
    const part = (around - from) / (until - from);
    this.row.host.setRange(around - part * length, around + (1 - part) * length);
  }

  private zoomValues(around: number, factor: number): void {
    const { row } = this;
    if (!row.isMap()) return;
    const { domain } = row.picture;
    if (domain.scale === "linear") {
      row.state.values = [Math.max(0, around - (around - domain.low) * factor), around + (domain.high - around) * factor];
    } else {
      const low = Math.exp(Math.log(around) - (Math.log(around) - Math.log(Math.max(domain.low, 1))) * factor);
      const high = Math.exp(Math.log(around) + (Math.log(domain.high) - Math.log(around)) * factor);
      row.state.values = [Math.max(1, low), Math.max(low * 1.1, high)];
    }
    row.host.changed();
    row.draw();
  }

  /** What is at a place: time, values, how many, and of whom most. */
  private cellAt(at: At): string {
    const { row } = this;
    const { samples } = row.source;
    const step = samples.columnMs;
    const column = samples.columns.find((one) => at.ms >= one.at && at.ms < one.at + step);
    if (!column) return "";
    if (column.state === 0) return `${clock(column.at)} not collected`;
    const isMap = row.isMap();
    const of = (part: Part): number =>
      isMap ? part.cells.filter((cell) => at.value >= cell.low && at.value < cell.high).reduce((sum, cell) => sum + cell.count, 0) : part.sum;
    const cell = column.total.cells.find((one) => at.value >= one.low && at.value < one.high);
    const top = [...column.groups].map(([key, part]) => [key, of(part)] as const).filter(([, sum]) => sum > 0)
      .sort((one, other) => other[1] - one[1]).slice(0, 3)
      .map(([key, sum]) => `${key === OTHER ? "other" : key} ${rate(sum)}`);
    const values = isMap ? ` ${valueOf(samples.numeric, cell?.low ?? at.value)}${cell ? ` – ${valueOf(samples.numeric, cell.high)}` : ""}` : "";
    const unit = row.unit();
    const amount = unit ? valueOf(unit, of(column.total)) : rate(of(column.total));
    return `${clock(column.at, step < 1000)}${values}: ${amount}${top.length ? ` (${top.join(", ")})` : ""}`;
  }

  private key(event: KeyboardEvent): void {
    const { row } = this;
    const moves: Record<string, [number, number]> = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
    const move = moves[event.key];
    if (move && !event.ctrlKey && !event.altKey && !event.metaKey) this.move(move, event.shiftKey);
    else if (event.key === "Enter" && row.boxes.box) row.boxes.menu();
    else if (event.key === "Escape") {
      this.anchor = undefined;
      row.boxes.select(undefined);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  private move([right, up]: [number, number], isSelecting: boolean): void {
    const { row } = this;
    const { from, until } = row.range();
    const { domain } = row.picture;
    const tall = { height: 1000 + TOP + BOTTOM };
    const before = row.cursor ?? { ms: (from + until) / 2, value: valueAtY(tall, domain, TOP + 500) };
    const stride = Math.max(row.source.samples.columnMs, (until - from) * STRIDE);
    const place = Math.max(0, Math.min(1, placeOf(domain, before.value) + up * CLIMB));
    const next = {
      ms: Math.max(from, Math.min(until - 1, before.ms + right * stride)),
      value: up ? valueAtY(tall, domain, TOP + 1000 * (1 - place)) : before.value,
    };
    row.cursor = next;
    if (isSelecting) {
      this.anchor ??= before;
      row.boxes.select(this.boxOf(this.anchor, next));
    } else {
      this.anchor = undefined;
      this.tell(next);
    }
  }

  private tell(at: At): void {
    this.row.readout.textContent = this.cellAt(at);
    announce(this.row.readout.textContent);
    this.row.draw();
  }

  /** Goes to the next time with more than its neighbours, or the one before. */
  seekMaximum(step: number): void {
    const { row } = this;
    const { from, until } = row.range();
    const columns = row.source.samples.within(from, until);
    const { columnMs } = row.source.samples;
    const at = row.cursor?.ms ?? (step > 0 ? from : until);
    const peaks = columns.filter((column, place) => {
      const around = columns.slice(Math.max(0, place - 5), place + 6);
      return column.total.sum > 0 && around.every((other) => other.total.sum <= column.total.sum);
    });
    const next = step > 0 ? peaks.find((column) => column.at > at) : peaks.findLast((column) => column.at + columnMs < at);
    if (!next) return announce("no further maximum");
    const cell = [...next.total.cells].sort((one, other) => other.count - one.count)[0];
    row.cursor = { ms: next.at + columnMs / 2, value: cell ? (cell.low + cell.high) / 2 : next.total.sum };
    this.tell(row.cursor);
  }
}
