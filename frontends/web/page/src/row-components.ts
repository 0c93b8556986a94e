// The left panel: components with colour, average over the shown time and share, or ranges of
// values; and what is known of the time.

import { isViewer } from "./client";
import { menu } from "./dialogs";
import { announce, button, fill, h } from "./dom";
import { cellsWithin } from "./heat-map";
import { hitsAndMisses } from "./line-chart";
import { css } from "./palettes";
import type { Row } from "./row";
import { type Column, OTHER } from "./samples";
import { count, rate, share, span, valueOf } from "./units";
import type { Chip } from "./worksheet";

/** What one asks next: who, what, of which file; then how long it took. */
const DRILL = ["client", "op", "file"];
/** Fields whose values are names of people, machines and files. */
const PERSONAL = ["client", "user", "file"];
const ITEMS_MAX = 2000;

/** A text that changes seldom. */
function say(element: Element, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

export class RowComponents {
  readonly list = h("ul", { class: "groups", "aria-label": "Components" });
  readonly note = h("p", { class: "note" });
  private readonly items = new Map<string, HTMLLIElement>();

  constructor(private readonly row: Row) {}

  render(columns: Column[]): void {
    const { row } = this;
    const { samples } = row.source;
    const { from, until } = row.range();
    const collected = columns.filter((column) => column.state > 0).length;
    const seconds = Math.max(1, collected * samples.columnMs) / 1000;
    // Means are not divided by time, but by how many there are.
    const divisor = row.source.isMean() ? Math.max(1, collected) : seconds;
    if (row.state.view === "mirror") this.renderMirror(columns, seconds);
    else if (row.source.by()) {
      const total = row.source.isMean() ? 0 : samples.totalSum(from, until);
      const wanted = samples.sums(from, until).map(({ key, sum }) => this.item(key, sum / divisor, sum, total));
      const present = this.list.children;
      if (present.length !== wanted.length || wanted.some((one, place) => one !== present[place])) this.list.replaceChildren(...wanted);
    } else if (row.isMap()) this.renderRanges(columns);
    else this.renderPlain([["plain", `average ${this.amount(samples.totalSum(from, until) / divisor)}`]]);
    this.renderNote(columns, seconds);
  }

  /** An average of the row's statistic. */
  private amount(average: number): string {
    const unit = this.row.unit();
    return `${unit ? valueOf(unit, average) : rate(average)}${this.row.source.isMean() ? "" : "/s"}`;
  }

  private renderPlain(lines: [string, string][]): void {
    const same = this.list.childElementCount === lines.length && lines.every(([name], place) => this.list.children[place]!.className === name);
    if (!same) fill(this.list, lines.map(([name]) => h("li", { class: name })));
    lines.forEach(([, text], place) => say(this.list.children[place]!, text));
  }

  private renderMirror(columns: Column[], seconds: number): void {
    let [hits, misses] = [0, 0];
    for (const column of columns) {
      const [up, down] = hitsAndMisses(column);
      hits += up;
      misses += down;
    }
    this.renderPlain([
      ["plain hit", `hits ${rate(hits / seconds)}/s · ${share(hits, hits + misses)}`],
      ["plain miss", `misses ${rate(misses / seconds)}/s · ${share(misses, hits + misses)}`],
    ]);
  }

  private item(key: string, average: number, sum: number, total: number): HTMLLIElement {
    let item = this.items.get(key);
    if (!item) {
      if (this.items.size > ITEMS_MAX) this.items.clear();
      item = this.make(key);
      this.items.set(key, item);
    }
    const { row } = this;
    const { tint, rainbow, view, highlighted, excluded } = row.state;
    const isHighlighted = highlighted.includes(key);
    const isExcluded = excluded.includes(key);
    const isColoured = key !== OTHER && !isExcluded && (tint || rainbow || view === "stack" || isHighlighted);
    const group = item.firstElementChild as HTMLElement;
    const [swatch, , number, part] = group.children as unknown as HTMLElement[];
    const background = isColoured ? css(row.colourOf(key)) : "transparent";
    if (swatch!.dataset["colour"] !== background) {
      swatch!.dataset["colour"] = background;
      swatch!.style.background = background;
    }
    say(number!, this.amount(average));
    say(part!, total > 0 ? share(sum, total) : "");
    if (group.getAttribute("aria-pressed") !== String(isHighlighted)) group.setAttribute("aria-pressed", String(isHighlighted));
    group.classList.toggle("excluded", isExcluded);
    const next = item.querySelector<HTMLButtonElement>(".drill");
    if (next) {
      const into = this.next();
      next.hidden = row.source.isSampled() || !this.mayFilter(row.source.by());
      const text = `Only ${key}, by ${into || "latency"}`;
      if (next.title !== text) {
        next.title = text;
        next.setAttribute("aria-label", text);
      }
    }
    return item;
  }

  private make(key: string): HTMLLIElement {
    const isOther = key === OTHER;
    // The end of a path tells more than its beginning: names that are too long lose that.
    const name = h("span", { class: key.includes("/") ? "name path" : "name", title: isOther ? "all that are not listed" : key }, h("bdi", {}, isOther ? "other" : key));
    const group = h("button", { type: "button", class: "group", title: isOther ? undefined : "click: highlight · shift: one more · alt: exclude · twice: filter · right: menu" },
      h("span", { class: "swatch" }), name, h("span", { class: "number" }), h("span", { class: "share" }));
    if (isOther) return h("li", {}, group);
    group.addEventListener("click", (event) => this.choose(key, event));
    group.addEventListener("contextmenu", (event) => {
      event.preventDefault();
      this.menuOf(key, event.clientX, event.clientY);
    });
    group.addEventListener("keydown", (event) => {
      const box = group.getBoundingClientRect();
      if (event.key === "x") this.exclude(key);
      else if (event.key === "f") this.filterBy(key);
      else if (event.key === "d") this.drill(key);
      else if (event.key === "m") this.menuOf(key, box.left, box.bottom);
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
    return h("li", {}, group, button("▸", () => this.drill(key), { class: "drill" }));
  }

  /** Counts and shares of ranges of values, for which no one has to add up by hand. */
  private renderRanges(columns: Column[]): void {
    const { row } = this;
    const { numeric } = row.source.samples;
    const base = numeric === "size" || numeric === "offset" ? 16 : 10;
    const cells = cellsWithin(columns, 0, Infinity);
    const total = cells.reduce((sum, cell) => sum + cell.count, 0);
    const ranges = new Map<number, number>();
    for (const cell of cells) {
      const power = Math.floor(Math.log(Math.max(cell.low, 1)) / Math.log(base) + 1e-9);
      ranges.set(power, (ranges.get(power) ?? 0) + cell.count);
    }
    const sorted = [...ranges].sort((one, other) => other[0] - one[0]);
    const known = [...this.list.children].map((item) => (item as HTMLElement).dataset["power"]).join();
    if (known !== sorted.map(([power]) => power).join()) fill(this.list, sorted.map(([power]) => this.range(power, base)));
    sorted.forEach(([, sum], place) => {
      const [, number, part] = this.list.children[place]!.firstElementChild!.children;
      say(number!, count(Math.round(sum)));
      say(part!, share(sum, total));
    });
  }

  private range(power: number, base: number): HTMLElement {
    const { row } = this;
    const { numeric } = row.source.samples;
    const [low, high] = [power ? base ** power : 0, base ** (power + 1)];
    const text = `${valueOf(numeric, low)} – ${valueOf(numeric, high)}`;
    return h("li", { "data-power": power }, h("button", { type: "button", class: "group", title: "click: select as a box", onclick: () => row.boxes.select({ ...row.range(), low, high }) },
      h("span", { class: "name" }, text), h("span", { class: "number" }), h("span", { class: "share" })));
  }

  private renderNote(columns: Column[], seconds: number): void {
    const { samples } = this.row.source;
    const parts = [`average of ${span(Math.round(seconds))}`];
    const { source } = samples;
    if (source.startsWith("archive-") && source !== "archive-1s") parts.push(`${source.slice(8)} histograms`);
    else if (source) parts.push(source);
    if (samples.columnMs > 1000) parts.push(`a column is ${span(samples.columnMs / 1000)}`);
    if (samples.columnMs < 1000) parts.push(`a column is ${samples.columnMs} ms`);
    if (samples.dropped) parts.push(`${count(samples.dropped)} dropped`);
    if (samples.unranked) parts.push(`±${count(samples.unranked)}: more keys than are ranked`);
    if (samples.keysFound > samples.ids.size) parts.push(`${count(samples.keysFound)} keys`);
    const missing = columns.filter((column) => column.state === 0).length;
    if (missing) parts.push(`${missing} columns not collected`);
    say(this.note, parts.join(" · "));
  }

  // ---- what is done with a component ----

  private choose(key: string, event: MouseEvent): void {
    if (event.detail >= 2) return this.filterBy(key);
    if (event.altKey) return this.exclude(key);
    const { state } = this.row;
    const is = state.highlighted.includes(key);
    if (event.shiftKey) state.highlighted = is ? state.highlighted.filter((one) => one !== key) : [...state.highlighted, key];
    else state.highlighted = is && state.highlighted.length === 1 ? [] : [key];
    this.row.host.changed();
    this.row.draw();
  }

  private exclude(key: string): void {
    const { state } = this.row;
    state.excluded = state.excluded.includes(key) ? state.excluded.filter((one) => one !== key) : [...state.excluded, key];
    this.row.host.changed();
    this.row.draw();
  }

  /** Whether filters may name values of a field: those of viewers may not name people. */
  private mayFilter(field: string): boolean {
    return !isViewer() || !PERSONAL.includes(field);
  }

  private filterBy(key: string): void {
    const field = this.row.source.by();
    if (!this.mayFilter(field)) return announce("A viewer cannot filter by names");
    this.row.addChip({ field, operator: "eq", value: key });
  }

  /** What one breaks down by next; nothing when all of it was asked. */
  private next(): string {
    const { row } = this;
    const asked = new Set(row.state.chips.filter((chip) => chip.operator === "eq").map((chip) => chip.field));
    asked.add(row.source.by());
    return DRILL.find((field) => !asked.has(field) && row.discrete().includes(field)) ?? "";
  }

  /** Only this one, broken down by what one asks next; at last by latency. */
  private drill(key: string): void {
    const { row } = this;
    const field = row.source.by();
    if (row.source.isSampled() || !this.mayFilter(field)) return announce("There is nothing to drill down into");
    const next = this.next();
    row.state.chips.push({ field, operator: "eq", value: key });
    if (!next) Object.assign(row.state, { numeric: "latency", view: "plot" });
    row.breakDown(next);
    announce(`Only ${key}, by ${next || "latency"}`);
    (row.element.querySelector<HTMLElement>(".groups .drill, .groups .group") ?? row.canvas).focus();
  }

  private menuOf(key: string, x: number, y: number): void {
    const { row } = this;
    const field = row.source.by();
    const chip: Chip = { field, operator: "eq", value: key };
    const may = this.mayFilter(field) && !row.source.isSampled();
    menu(x, y, `${field} ${key}`, [
      ...(may ? row.discrete().filter((one) => one !== field).map((one) => ({
        text: `break down by ${one}`,
        run: () => {
          row.state.chips.push(chip);
          row.breakDown(one);
        },
      })) : []),
      ...(may ? [{ text: "filter by it", run: () => this.filterBy(key) }] : []),
      ...(may ? [{ text: "leave it out", run: () => row.addChip({ ...chip, operator: "ne" }) }] : []),
      { text: row.state.excluded.includes(key) ? "draw it again" : "do not draw it", run: () => this.exclude(key) },
    ]);
  }
}
