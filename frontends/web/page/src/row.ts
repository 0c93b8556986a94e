// One row: a statistic with its left panel, its plot, and what was selected in it. Its parts have
// files of their own: what is asked (row-source), the plot (row-picture), the left panel
// (row-components), the tools, the box, pointer and keys, and exports.

import type { Size } from "./axes";
import { announce, button, fill, h } from "./dom";
import { renderTree } from "./hierarchy";
import { PALETTES, type Rgb, groupColour } from "./palettes";
import { RowBox } from "./row-box";
import { RowComponents } from "./row-components";
import { saveCsv } from "./row-export";
import { type At, COMPARED, type Host } from "./row-host";
import { RowPicture } from "./row-picture";
import { RowPointer } from "./row-pointer";
import { RowSource, known } from "./row-source";
import { discreteOf, renderTools, rowActions } from "./row-tools";
import { clock, count, dateTime, valueOf } from "./units";
import { type Chip, type RowState, chipText } from "./worksheet";

/** How old what is answered from may be while live: the archive has a second when it is over. */
const NEWEST_MS = 4000;

export class Row {
  readonly element: HTMLElement;
  readonly canvas = h("canvas", { tabindex: 0, role: "img" });
  readonly tools = h("div", { class: "tools", role: "group", "aria-label": "How it is drawn" });
  readonly readout = h("div", { class: "readout", "aria-live": "off" });
  readonly said = h("p", { class: "said bad", role: "alert" });
  readonly source: RowSource;
  readonly picture: RowPicture;
  readonly boxes: RowBox;
  size: Size = { width: 0, height: 0 };
  /** Where the keys have gone to. */
  cursor: At | undefined;
  /** The time that the pointer is at, in any row. */
  pointed: number | undefined;
  private readonly components: RowComponents;
  private readonly pointer: RowPointer;
  private readonly title = h("h2");
  private readonly tag = h("span", { class: "tag" });
  private readonly chips = h("div", { class: "chips" });
  private readonly tree = h("div", { class: "tree-place" });
  private readonly open = new Set<string>();
  private order: string[] = [];
  private isSeen = true;

  constructor(
    readonly state: RowState,
    readonly host: Host,
  ) {
    this.source = new RowSource(state, host, () => this.size.width, (refused) => {
      if (this.said.textContent !== refused) this.said.textContent = refused;
      host.drawSoon(this);
    });
    this.picture = new RowPicture(this);
    this.boxes = new RowBox(this);
    this.components = new RowComponents(this);
    this.element = h("section", { class: "row", "data-statistic": state.statistic },
      h("header", {}, this.tag, this.title, rowActions(this), this.tools),
      this.said,
      h("div", { class: "row-body" },
        h("aside", { class: "panel" }, this.chips, this.components.list, this.components.note),
        h("div", { class: "plot" }, this.canvas, this.tree, this.readout, this.boxes.element)));
    this.pointer = new RowPointer(this);
    new ResizeObserver((entries) => {
      const { width, height } = entries.at(-1)!.contentRect;
      this.size = { width, height };
      this.load();
    }).observe(this.canvas);
    // A row that is not on the screen asks when it comes there.
    new IntersectionObserver((entries) => {
      this.isSeen = entries.at(-1)!.isIntersecting;
      if (this.isSeen) this.load();
    }, { rootMargin: "100px" }).observe(this.element);
    renderTools(this);
    this.renderChips();
  }

  focus(): void {
    this.canvas.focus();
  }

  has(node: Node | null): boolean {
    return node !== null && this.element.contains(node);
  }

  /** What the row shows, in Unix milliseconds. */
  range(): { from: number; until: number } {
    return this.source.range();
  }

  /** Asks for what is missing. */
  load(isForced = false): void {
    if (this.isSeen && !this.source.load(isForced)) this.draw();
  }

  /** The catalogue is known. */
  learn(): void {
    renderTools(this);
  }

  /** Something about the row changed. */
  update(isReload: boolean): void {
    this.host.changed();
    renderTools(this);
    this.renderChips();
    if (isReload) this.load();
    else this.draw();
  }

  draw(): void {
    if (!this.isSeen) return;
    const { from, until } = this.range();
    const isTree = this.state.view === "tree";
    this.renderTitle();
    if (this.canvas.style.height !== `${this.state.height}px`) this.canvas.style.height = `${this.state.height}px`;
    this.canvas.hidden = isTree;
    this.tree.hidden = !isTree;
    const columns = this.source.samples.within(from, until);
    // While live, the newest seconds are not missing, nor have they fewer: they come.
    const least = this.isMap() ? 1 : 2;
    while (this.host.isLive() && !this.state.window && columns.length && columns.at(-1)!.state < least && columns.at(-1)!.at > until - NEWEST_MS) columns.pop();
    if (isTree) {
      renderTree(this.tree, this.source.samples, from, until, this.open, (prefix) =>
        this.addChip({ field: this.source.by(), operator: "prefix", value: prefix }));
    } else this.picture.draw(columns);
    this.components.render(columns);
    this.boxes.render();
  }

  /** Whether values are drawn upwards. */
  isMap(): boolean {
    return this.source.samples.numeric !== undefined && this.state.view === "plot";
  }

  /** Fields with names that it can be broken down by. */
  discrete(): string[] {
    return discreteOf(this);
  }

  /** The colour of a group, which it keeps. */
  colourOf(key: string): Rgb {
    const place = this.order.indexOf(key);
    return groupColour(key, place < 0 ? this.order.push(key) - 1 : place);
  }

  /** The field by whose unit sums are shown. */
  unit(statistic = this.state.statistic, measure = this.source.samples.measure): string | undefined {
    const unit = known(this.host.catalogue(), statistic)?.unit;
    if (measure === "bytes" || unit === "bytes" || unit === "bytes/s") return "size";
    return measure === "wait-time" ? "latency" : undefined;
  }

  /** A sum in words. */
  amount(sum: number): string {
    const unit = this.unit();
    if (unit) return valueOf(unit, sum);
    return `${count(Math.round(sum))} ${known(this.host.catalogue(), this.state.statistic)?.unit ?? "operations"}`;
  }

  // ---- what it says ----

  /** The whole sentence. */
  sentence(): string {
    const { state, source } = this;
    const titleOf = (name: string): string => known(this.host.catalogue(), name)?.title ?? name;
    let text = titleOf(state.statistic);
    const names = state.chips.map((chip) => this.shown(chip));
    if (names.length) text += `, only ${names.join(" and ")}`;
    if (source.by()) text += `, by ${source.by()}`;
    if (this.isMap()) text += `, by ${source.samples.numeric}`;
    if (state.view === "stack") text += ", stacked";
    if (state.view === "mirror") text += ", hits above and misses below";
    if (state.tint) text += ", tinted by cause";
    if (state.second && state.view !== "tree" && state.view !== "mirror") text += `, ${state.combine === "minus" ? "minus" : "with"} ${titleOf(state.second)}`;
    if (source.reference) text += `, compared with ${COMPARED[state.compare]}`;
    return text;
  }

  private renderTitle(): void {
    const sentence = this.sentence();
    if (this.title.textContent !== sentence) {
      this.title.textContent = sentence;
      this.canvas.setAttribute("aria-label", `${sentence}. Arrow keys move the cursor, with shift they select a box, enter breaks it down.`);
      this.element.setAttribute("aria-label", sentence);
    }
    const { window } = this.state;
    const tag = window ? `RETROSPECTIVE ${dateTime(window.from)} – ${clock(window.until)}` : "";
    if (this.tag.textContent !== tag) this.tag.textContent = tag;
    this.tag.hidden = !tag;
  }

  private shown(chip: Chip): string {
    return chipText(chip, typeof chip.value === "number" ? valueOf(chip.field, chip.value) : chip.value);
  }

  private renderChips(): void {
    fill(this.chips, this.state.chips.map((chip, place) =>
      h("span", { class: "chip" }, this.shown(chip),
        button("×", () => {
          this.state.chips.splice(place, 1);
          this.update(true);
        }, { "aria-label": `Remove the filter ${this.shown(chip)}` }))));
  }

  // ---- what is done with it ----

  breakDown(field: string): void {
    Object.assign(this.state, { by: field, highlighted: [], excluded: [] });
    this.order = [];
    this.update(true);
  }

  /** Adds a filter. */
  addChip(chip: Chip): void {
    this.state.chips.push(chip);
    this.state.highlighted = [];
    this.update(true);
    announce(`Only ${this.shown(chip)}`);
  }

  /** Shows a time that is pointed at in some row. */
  point(ms: number | undefined): void {
    if (this.pointed === ms) return;
    this.pointed = ms;
    this.draw();
  }

  seekMaximum(step: number): void {
    this.pointer.seekMaximum(step);
  }

  /** Changes by one key: the next crop, scale or palette. */
  cycle(what: "crop" | "scale" | "palette"): void {
    const { state } = this;
    const after = <T>(all: readonly T[], now: T): T => all[(all.indexOf(now) + 1) % all.length]!;
    if (what === "crop") state.crop = after([0, 0.0001, 0.001, 0.01], state.crop);
    else if (what === "scale") state.scale = after(["log", "linear"] as const, state.scale);
    else state.palette = after(PALETTES, state.palette);
    delete state.values;
    this.update(false);
    announce(`${what} ${String(state[what])}`);
  }

  /** Saves what is shown as CSV. */
  export(): void {
    saveCsv(this);
  }
}
