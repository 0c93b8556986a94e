// The selected box: how many operations lie in it, how long they took, in which stages, and what can
// be asked of them.

import { ask } from "./client";
import type { Operations } from "./contract";
import { dialog, menu, messageOf } from "./dialogs";
import { announce, button, fill, h, select } from "./dom";
import { LEFT } from "./axes";
import { cellsWithin } from "./heat-map";
import { css, groupColour } from "./palettes";
import type { Row } from "./row";
import type { Box } from "./row-host";
import { type Cell, percentile } from "./samples";
import { bytes, clock, count, duration, share, valueOf } from "./units";
import { type Chip, newRow, predicateOf } from "./worksheet";

/** Stages with less than this part of the time are told together. */
const STAGE_LEAST = 0.001;

export class RowBox {
  readonly element = h("div", { class: "box-bar", role: "region", "aria-label": "Selected box", hidden: true });
  box: Box | undefined;
  private exact = "";
  private stages: [string, number][] = [];
  private shown = "";

  constructor(private readonly row: Row) {}

  /** Draws a box that is not chosen yet. */
  sketch(box: Box): void {
    this.box = box;
    this.exact = "";
    this.stages = [];
    this.row.draw();
  }

  select(box: Box | undefined): void {
    this.box = box;
    this.exact = "";
    this.stages = [];
    this.shown = "";
    this.row.draw();
    if (box) {
      announce(this.text());
      void this.askExactly(box);
    }
  }

  private cells(): { cells: Cell[]; total: number } {
    const box = this.box!;
    const columns = this.row.source.samples.within(box.from + 1, box.until - 1);
    const total = columns.reduce((sum, column) => sum + column.total.sum, 0);
    return { cells: cellsWithin(columns, box.low, box.high), total };
  }

  private text(): string {
    const { samples } = this.row.source;
    const { cells, total } = this.cells();
    if (!samples.numeric) return this.row.amount(total);
    const selected = cells.reduce((sum, cell) => sum + cell.count, 0);
    const text = [`${count(Math.round(selected))} operations = ${share(selected, samples.measure === "operations" ? total : selected)} of them`];
    if (cells.length) {
      const at = (part: number): string => valueOf(samples.numeric, percentile(cells, part));
      text.push(`p50 ${at(0.5)}, p90 ${at(0.9)}, p99 ${at(0.99)}`);
    }
    return text.join(", ");
  }

  /** The filters of the row and those of the box. */
  private predicate(): Chip[] {
    const box = this.box!;
    const field = this.row.state.numeric;
    const { chips } = this.row.state;
    if (!field || !this.row.isMap()) return chips;
    const bounds: Chip[] = [];
    if (box.low > 0) bounds.push({ field, operator: "ge", value: Math.floor(box.low) });
    if (Number.isFinite(box.high)) bounds.push({ field, operator: "lt", value: Math.ceil(box.high) });
    return [...chips, ...bounds];
  }

  private operations(chips: Chip[], box: Box, limit: number, withStages = false): Promise<Operations> {
    const filter = predicateOf(chips);
    return ask<Operations>("analytics/operations", {
      statement: this.row.state.statistic, ...(filter ? { filter } : {}), from: box.from / 1000, until: box.until / 1000,
      order: "slowest", limit, with_stages: withStages,
    });
  }

  /** Asks the recorder: the wait and its stages are known to it alone, and percentiles exactly. */
  private async askExactly(box: Box): Promise<void> {
    if (this.row.source.isSampled()) return;
    try {
      const [inside, all] = await Promise.all([this.operations(this.predicate(), box, 1, true), this.operations(this.row.state.chips, box, 1)]);
      if (this.box !== box) return;
      const { p50, p99, p999, max } = inside.percentiles;
      this.exact = `${share(inside.wait_ns, all.wait_ns)} of the wait time (${duration(inside.wait_ns)}); ` +
        `latency p50 ${duration(p50)}, p99 ${duration(p99)}, p99.9 ${duration(p999)}, longest ${duration(max)}`;
      this.stages = Object.entries(inside.stages_ns ?? {}).sort((one, other) => other[1] - one[1]);
      if (inside.unaccounted_ns) this.stages.push(["in no stage", inside.unaccounted_ns]);
    } catch (error) {
      if (this.box !== box) return;
      this.exact = `the recorder: ${messageOf(error)}`;
    }
    this.shown = "";
    this.render();
  }

  render(): void {
    const { box, row } = this;
    this.element.hidden = !box;
    if (!box) return;
    const { numeric } = row.source.samples;
    const values = row.isMap() ? `, ${valueOf(numeric, box.low)} – ${Number.isFinite(box.high) ? valueOf(numeric, box.high) : "…"}` : "";
    const text = `${clock(box.from)} – ${clock(box.until)}${values}: ${this.text()}`;
    if (this.shown === text + this.exact) return;
    this.shown = text + this.exact;
    // While one chooses in it, it stays.
    if (this.element.contains(document.activeElement) && this.element.querySelector("p")) {
      this.element.querySelector("p")!.replaceWith(this.line(text));
      return;
    }
    fill(this.element, this.line(text), this.stages.length > 0 && this.flame(), this.actions(box));
  }

  private line(text: string): HTMLElement {
    return h("p", {}, h("strong", {}, "selected box "), text, this.exact ? h("span", {}, `; ${this.exact}`) : null);
  }

  /** In which stages the time was. */
  private flame(): HTMLElement {
    const whole = this.stages.reduce((sum, [, ns]) => sum + ns, 0);
    const told = this.stages.filter(([, ns]) => ns >= whole * STAGE_LEAST);
    const colour = (name: string, place: number): string => (name === "in no stage" ? "#8a919b" : css(groupColour(`stage ${name}`, place)));
    const bar = h("div", { class: "flame", "aria-hidden": "true" }, told.map(([name, ns], place) => {
      const part = h("span", { title: `${name} ${duration(ns)}` });
      part.style.width = `${(100 * ns) / whole}%`;
      part.style.background = colour(name, place);
      return part;
    }));
    const legend = told.map(([name, ns], place) => {
      const swatch = h("span", { class: "swatch" });
      swatch.style.background = colour(name, place);
      return h("li", {}, swatch, `${name} ${share(ns, whole)} (${duration(ns)})`);
    });
    return h("div", {}, bar, h("ul", { class: "stages", "aria-label": "Stages of their time" }, legend));
  }

  private actions(box: Box): HTMLElement {
    const { row } = this;
    const fields: [string, string][] = [["", "break down these by…"], ...row.discrete().map((field): [string, string] => [field, field])];
    const isSampled = row.source.isSampled();
    const choose = select("Break down these by", fields, "", (field) => {
      choose.value = "";
      this.breakDown(field);
    });
    return h("div", { class: "actions" },
      !isSampled && choose,
      !isSampled && button("slowest 20", () => void this.slowest()),
      button("keep as statistic", () => row.host.addRow(newRow(row.state.statistic, { ...row.state, chips: this.predicate(), highlighted: [], excluded: [] }), row)),
      button("zoom", () => {
        if (row.isMap() && Number.isFinite(box.high)) row.state.values = [Math.max(box.low, row.state.scale === "log" ? 1 : 0), box.high];
        row.host.setRange(box.from, box.until);
      }),
      button("clear", () => this.select(undefined), { title: "Escape" }));
  }

  /** A menu of what it can be broken down by. */
  menu(): void {
    const place = this.row.canvas.getBoundingClientRect();
    menu(place.left + LEFT, place.top + 40, "break down these by", this.row.discrete().map((field) => ({ text: field, run: () => this.breakDown(field) })));
  }

  /** A new row of the operations in the box, from the recorder. */
  private breakDown(field: string): void {
    if (!field || !this.box) return;
    const { from, until } = this.box;
    const isTree = field === "file" || field === "dataset";
    this.row.host.addRow(newRow(this.row.state.statistic, {
      by: field,
      numeric: isTree ? "" : this.row.state.numeric,
      view: isTree ? "tree" : "plot",
      rainbow: true,
      chips: this.predicate(),
      window: { from, until },
      height: 160,
    }), this.row);
  }

  private async slowest(): Promise<void> {
    const { box, row } = this;
    if (!box) return;
    let reply: Operations;
    try {
      reply = await this.operations(this.predicate(), box, 20);
    } catch (error) {
      row.said.textContent = messageOf(error);
      return;
    }
    const rows = reply.operations.map((one) => {
      const stages = Object.entries(one.stages).sort((a, b) => b[1] - a[1]);
      const told = [...stages.map(([name, ns]) => `${name} ${duration(ns)}`), one.unaccounted_ns ? `in no stage ${duration(one.unaccounted_ns)}` : ""].filter((part) => part);
      return h("tr", {},
        h("td", {}, clock(one.ended_ms, true)), h("td", { class: "right" }, duration(one.latency_ns)),
        h("td", {}, `${one.protocol} ${one.operation}`), h("td", {}, one.client), h("td", {}, one.file ?? `${one.dataset} #${one.object}`),
        h("td", { class: "right" }, one.size ? bytes(one.size) : ""), h("td", {}, one.cause), h("td", {}, told.join(", ")));
    });
    const head = ["ended", "latency", "operation", "client", "file", "size", "cause", "stages"].map((text) => h("th", { scope: "col" }, text));
    dialog(`The slowest of ${count(reply.count)} operations`, [h("div", { class: "scroll", tabindex: 0 }, h("table", {}, h("thead", {}, h("tr", {}, head)), h("tbody", {}, rows)))], []).classList.add("wide");
  }
}
