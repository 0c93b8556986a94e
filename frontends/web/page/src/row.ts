// One row: a statistic with its left panel, its plot, and what was selected in it.

import { BOTTOM, LEFT, RIGHT, TOP, drawGaps, drawTimes, drawValues, innerHeight, innerWidth, prepare, valueAtY, xOf } from "./axes";
import { ask, isViewer, lastLatencyMs } from "./client";
import type { Answer, Catalogue, Operations } from "./contract";
import { dialog, menu, messageOf } from "./dialogs";
import { announce, button, fill, h, select } from "./dom";
import { type Domain, type Layer, cellsWithin, domainOf, paint, paintDifference, placeOf, rasterize } from "./heat-map";
import { renderTree } from "./hierarchy";
import { drawLines, drawMirror, hitsAndMisses, linesDomain, mirrorDomain } from "./line-chart";
import { NORMALS, PALETTES, css, groupColour } from "./palettes";
import { type Cell, type Column, OTHER, Samples, percentile } from "./samples";
import { bytes, clock, count, dateTime, duration, rate, share, span, valueOf } from "./units";
import { type Chip, type RowState, chipText, newRow, predicateOf, statementOf } from "./worksheet";

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
  /** The pointer is at a time; all rows show it. */
  point(ms: number | undefined): void;
}

/** A rectangle of time and value. */
interface Box {
  from: number;
  until: number;
  low: number;
  high: number;
}

const COLUMN_MS = [10, 100, 1000, 2000, 5000, 10000, 30000, 60000, 120000, 300000, 600000, 1800000, 3600000, 21600000, 86400000];
const KEYS = 24;
const DISCRETE = ["client", "user", "op", "file", "dataset", "protocol", "cause", "slowest_stage", "synchronous", "sequential", "failed"];
const SHIFTS: Record<string, number> = { hour: 3.6e6, day: 864e5, week: 6048e5 };

export class Row {
  readonly element: HTMLElement;
  private readonly samples = new Samples();
  private readonly causes = new Samples();
  private reference: Samples | undefined;
  private loadedFor = "";
  private loadedAt = 0;
  private request: AbortController | undefined;
  private isLoading = false;
  private isStale = false;
  private domain: Domain = { low: 1, high: 10, scale: "linear" };
  private box: Box | undefined;
  private exact = "";
  private cursor: { ms: number; value: number } | undefined;
  private pointed: number | undefined;
  private readonly title = h("h2");
  private readonly tag = h("span", { class: "tag" });
  private readonly tools = h("div", { class: "tools", role: "group", "aria-label": "How it is drawn" });
  private readonly chips = h("div", { class: "chips" });
  private readonly list = h("ul", { class: "groups", "aria-label": "Components" });
  private readonly note = h("p", { class: "note" });
  private readonly canvas = h("canvas", { tabindex: 0, role: "img" });
  private readonly readout = h("div", { class: "readout", "aria-live": "off" });
  private readonly boxBar = h("div", { class: "box-bar", role: "region", "aria-label": "Selected box" });
  private readonly tree = h("div", { class: "tree-place" });
  private readonly said = h("p", { class: "said bad", role: "alert" });
  private readonly items = new Map<string, HTMLButtonElement>();
  private readonly open = new Set<string>();

  constructor(
    readonly state: RowState,
    private readonly host: Host,
  ) {
    const plot = h("div", { class: "plot" }, this.canvas, this.tree, this.readout, this.boxBar);
    this.element = h("section", { class: "row", "data-statistic": state.statistic },
      h("header", {}, this.tag, this.title, this.tools),
      this.said,
      h("div", { class: "row-body" },
        h("aside", { class: "panel" }, this.chips, this.list, this.note),
        plot));
    this.listen();
    this.renderTools();
    this.renderChips();
  }

  focus(): void {
    this.canvas.focus();
  }

  has(node: Node | null): boolean {
    return node !== null && this.element.contains(node);
  }

  // ---- what is asked ----

  /** What the row shows, in Unix milliseconds. */
  private range(): { from: number; until: number } {
    return this.state.window ?? this.host.range();
  }

  private columnMs(): number {
    const { from, until } = this.range();
    // A column may be a little narrower than a pixel of the page.
    const most = Math.max(120, Math.min(1000, 1.02 * (this.canvas.clientWidth - LEFT - RIGHT) || 900));
    const wanted = (until - from) / most;
    // Below a second only of a short time: the recorder alone has it.
    const least = until - from <= 20_000 ? 10 : until - from <= 120_000 ? 100 : 1000;
    return COLUMN_MS.find((ms) => ms >= Math.max(wanted, least)) ?? 86400000;
  }

  private by(): string {
    if (this.state.by) return this.state.by;
    return this.state.tint && !this.isSampled() ? "cause" : "";
  }

  private isSampled(): boolean {
    return this.host.catalogue().statistics.find((one) => one.name === this.state.statistic)?.is_sampled ?? false;
  }

  private query(by: string, from: number, until: number, columnMs: number): object {
    const sampled = this.isSampled();
    const row = sampled ? { ...this.state, numeric: "" } : this.state;
    const filter = predicateOf(this.state.chips);
    return {
      statement: statementOf(row, by),
      ...(filter ? { filter } : {}),
      from: from / 1000,
      until: until / 1000,
      column_ms: columnMs,
      keys: this.state.view === "tree" ? 200 : KEYS,
    };
  }

  /** Asks for what is missing: all, or only the newest columns. */
  async load(isForced = false): Promise<void> {
    // A row that is not on the screen asks when it comes there.
    if (!this.isSeen) return;
    const { from, until } = this.range();
    const columnMs = this.columnMs();
    const start = Math.floor(from / columnMs) * columnMs;
    const end = Math.ceil(until / columnMs) * columnMs;
    const { statistic, chips, numeric, tint, compare, view } = this.state;
    const shape = JSON.stringify([statistic, this.by(), chips, numeric, tint, compare, view, columnMs, end - start]);
    const moves = !this.state.window && this.host.isLive();
    const isSame = shape === this.loadedFor && !isForced;
    if (isSame && !moves && this.loadedAt === start) return this.draw();
    if (this.isLoading) {
      if (isSame) {
        this.isStale = true;
        return;
      }
      this.request?.abort();
    }
    const request = new AbortController();
    this.request = request;
    this.isLoading = true;
    this.isStale = false;
    // Groups are ranked anew now and then.
    const isNews = isSame && moves && columnMs >= 1000 && Date.now() - this.refreshedAt < 30_000;
    // The last whole column comes again: it may have been told before it was.
    const newsFrom = isNews ? Math.max(start, Math.min(this.samples.end(), end) - columnMs) : start;
    try {
      const fetched = (by: string, begin: number, finish: number): Promise<Answer> =>
        ask<Answer>("analytics/query", this.query(by, begin, finish, columnMs), request.signal);
      const by = this.by();
      const wantsCauses = tint && by !== "cause" && view === "plot";
      const shift = compare === "before" ? end - start : SHIFTS[compare];
      const [answer, causes, before] = await Promise.all([
        fetched(by, newsFrom, end),
        wantsCauses ? fetched("cause", newsFrom, end) : undefined,
        shift && !isNews ? fetched(by, start - shift, end - shift) : undefined,
      ]);
      if (isNews) this.samples.join(answer);
      else this.samples.reset(answer);
      if (causes) isNews ? this.causes.join(causes) : this.causes.reset(causes);
      if (!isNews) {
        this.refreshedAt = Date.now();
        this.reference = undefined;
        if (before && shift) {
          this.reference = new Samples();
          this.reference.reset({ ...before, from_ms: before.from_ms + shift });
        }
      }
      this.samples.forgetBefore(start - 2 * columnMs);
      this.causes.forgetBefore(start - 2 * columnMs);
      this.loadedFor = shape;
      this.loadedAt = start;
      this.said.textContent = "";
    } catch (error) {
      if (request.signal.aborted) return;
      this.said.textContent = messageOf(error);
      this.loadedFor = "";
    }
    this.isLoading = false;
    this.draw();
    // While live, the next second asks again.
    if (this.isStale && !this.host.isLive()) void this.load();
  }

  private refreshedAt = 0;
  private isSeen = true;

  /** Something about the row changed. */
  private update(isReload = true): void {
    this.host.changed();
    this.renderTools();
    this.renderChips();
    if (isReload) void this.load();
    else this.draw();
  }

  // ---- what is drawn ----

  draw(): void {
    if (!this.isSeen) return;
    const { from, until } = this.range();
    const plot = prepare(this.canvas, from, until, this.host.isDark());
    const columns = this.samples.within(from, until);
    this.renderTitle();
    this.canvas.style.height = `${this.state.height}px`;
    this.canvas.hidden = this.state.view === "tree";
    this.tree.hidden = this.state.view !== "tree";
    if (this.state.view === "tree") {
      renderTree(this.tree, this.samples, from, until, this.open, (prefix) => {
        const field = this.by();
        this.addChip({ field, operator: "prefix", value: prefix });
      });
    } else if (this.state.view === "mirror") this.drawMirrored(plot, columns);
    else if (this.samples.numeric) this.drawHeatMap(plot, columns);
    else this.drawLinesOf(plot, columns);
    drawTimes(plot);
    this.drawCursor(plot);
    this.drawBox(plot);
    this.renderList(from, until, columns);
    this.renderBox();
  }

  private drawHeatMap(plot: ReturnType<typeof prepare>, columns: Column[]): void {
    const { state } = this;
    const found = domainOf(columns, state.scale, state.crop);
    // The other range lies on the same scale.
    if (this.reference) {
      const other = domainOf(this.reference.columns, state.scale, state.crop);
      found.low = Math.min(found.low, other.low);
      found.high = Math.max(found.high, other.high);
    }
    this.domain = state.values ? { low: state.values[0], high: state.values[1], scale: state.scale } : found;
    const rows = Math.max(20, Math.floor(innerHeight(plot) / 3));
    const excluded = new Set(state.excluded);
    const { from, until } = plot;
    const tinted = state.tint && this.by() !== "cause";
    const source = tinted ? this.causes : this.samples;
    const layers = this.layers(source, from, until);
    const drawn = tinted ? this.causes.within(from, until) : columns;
    const raster = rasterize(drawn, this.samples.columnMs, from, until, rows, this.domain, layers, excluded);
    let image: ImageData;
    if (this.reference) {
      const before = rasterize(this.reference.columns, this.samples.columnMs, from, until, rows, this.domain, [], excluded);
      image = paintDifference(raster, before, state.normal, plot.isDark);
    } else {
      image = paint(raster, { palette: state.palette, normal: state.normal, isDark: plot.isDark, layers });
    }
    drawGaps(plot, columns, this.samples.columnMs);
    const small = document.createElement("canvas");
    small.width = image.width;
    small.height = image.height;
    small.getContext("2d")!.putImageData(image, 0, 0);
    plot.context.imageSmoothingEnabled = innerWidth(plot) * (window.devicePixelRatio || 1) < image.width;
    plot.context.drawImage(small, LEFT, TOP, innerWidth(plot), innerHeight(plot));
    drawValues(plot, this.domain, this.samples.numeric);
  }

  /** The groups that have colours: those that are highlighted, or all of them. */
  private layers(samples: Samples, from: number, until: number): Layer[] {
    const { state } = this;
    if (state.tint || state.rainbow) {
      return samples.sums(from, until).filter((one) => one.key !== OTHER)
        .map((one, place) => ({ key: one.key, colour: groupColour(one.key, place) }));
    }
    return state.highlighted.map((key) => ({ key, colour: this.colourOf(key) }));
  }

  private order: string[] = [];

  private colourOf(key: string): ReturnType<typeof groupColour> {
    const place = this.order.indexOf(key);
    return groupColour(key, place < 0 ? this.order.push(key) - 1 : place);
  }

  private drawLinesOf(plot: ReturnType<typeof prepare>, columns: Column[]): void {
    const isValue = this.samples.measure === "value";
    const columnMs = this.samples.columnMs;
    this.domain = linesDomain(columns, columnMs, isValue);
    if (this.reference) {
      const other = linesDomain(this.reference.columns, columnMs, isValue);
      this.domain.high = Math.max(this.domain.high, other.high);
    }
    drawGaps(plot, columns, columnMs);
    const keys = this.state.rainbow
      ? this.samples.sums(plot.from, plot.until).map((one) => one.key).filter((key) => key !== OTHER)
      : this.state.highlighted;
    const lines = keys.filter((key) => !this.state.excluded.includes(key))
      .map((key) => ({ key, colour: this.colourOf(key) }));
    drawLines(plot, columns, columnMs, this.domain, lines, isValue);
    drawValues(plot, this.domain, this.unit());
  }

  private drawMirrored(plot: ReturnType<typeof prepare>, columns: Column[]): void {
    this.domain = mirrorDomain(columns, this.samples.columnMs);
    drawGaps(plot, columns, this.samples.columnMs);
    drawMirror(plot, columns, this.samples.columnMs, this.domain);
    drawValues(plot, this.domain, undefined);
  }

  /** The field by whose unit sums are shown. */
  private unit(): string | undefined {
    const sampled = this.host.catalogue().statistics.find((one) => one.name === this.state.statistic);
    if (this.samples.measure === "bytes" || sampled?.unit === "bytes" || sampled?.unit === "bytes/s") return "size";
    return this.samples.measure === "wait-time" ? "latency" : undefined;
  }

  private drawCursor(plot: ReturnType<typeof prepare>): void {
    const at = this.pointed ?? this.cursor?.ms;
    if (at === undefined || at < plot.from || at > plot.until) return;
    const x = xOf(plot, at);
    plot.context.fillStyle = plot.isDark ? "#ffffff80" : "#00000070";
    plot.context.fillRect(x, TOP, 1, innerHeight(plot));
    if (this.cursor && document.activeElement === this.canvas && this.pointed === undefined) {
      const y = TOP + innerHeight(plot) * (1 - placeOf(this.domain, this.cursor.value));
      plot.context.fillRect(LEFT, y, innerWidth(plot), 1);
    }
  }

  private drawBox(plot: ReturnType<typeof prepare>): void {
    if (!this.box) return;
    const inside = (ms: number): number => xOf(plot, Math.max(plot.from, Math.min(plot.until, ms)));
    const [x0, x1] = [inside(this.box.from), inside(this.box.until)];
    if (x1 <= x0) return;
    const y = (value: number): number =>
      TOP + innerHeight(plot) * (1 - Math.max(0, Math.min(1, placeOf(this.domain, value))));
    const [y0, y1] = [y(this.box.high), y(this.box.low)];
    plot.context.strokeStyle = plot.isDark ? "#ffffff" : "#000000";
    plot.context.setLineDash([4, 3]);
    plot.context.strokeRect(x0 + 0.5, y0 + 0.5, Math.max(2, x1 - x0), Math.max(2, y1 - y0));
    plot.context.setLineDash([]);
  }

  // ---- texts ----

  /** The whole sentence. */
  private sentence(): string {
    const { state } = this;
    const known = this.host.catalogue().statistics.find((one) => one.name === state.statistic);
    let text = known?.title ?? state.statistic;
    const names = state.chips.map((chip) => this.shown(chip));
    if (names.length) text += `, only ${names.join(" and ")}`;
    if (this.by()) text += `, by ${this.by()}`;
    if (state.view === "plot" && this.samples.numeric) text += `, by ${this.samples.numeric}`;
    if (state.view === "mirror") text += ", hits above and misses below";
    if (this.state.tint) text += ", tinted by cause";
    if (this.reference) text += `, compared with ${COMPARED[this.state.compare]}`;
    return text;
  }

  private renderTitle(): void {
    const sentence = this.sentence();
    if (this.title.textContent !== sentence) this.title.textContent = sentence;
    const window = this.state.window;
    const tag = window ? `RETROSPECTIVE ${dateTime(window.from)} – ${clock(window.until)}` : "";
    if (this.tag.textContent !== tag) this.tag.textContent = tag;
    this.tag.hidden = !tag;
    const total = this.samples.totalSum(this.range().from, this.range().until);
    this.canvas.setAttribute("aria-label", `${sentence}. ${this.amount(total)} in the shown time. Arrow keys move the cursor, with shift they select a box, enter breaks it down.`);
    this.element.setAttribute("aria-label", sentence);
  }

  private amount(sum: number): string {
    const unit = this.unit();
    return unit ? valueOf(unit, sum) : `${count(Math.round(sum))} operations`;
  }

  private shown(chip: Chip): string {
    const value = typeof chip.value === "number" ? valueOf(chip.field, chip.value) : chip.value;
    return chipText(chip, value);
  }

  private renderTools(): void {
    const { state } = this;
    const catalogue = this.host.catalogue();
    const known = catalogue.statistics.find((one) => one.name === state.statistic);
    const names = catalogue.statistics.map((one) => [one.name, one.name] as [string, string]);
    if (!known) names.unshift([state.statistic, state.statistic]);
    const kinds = new Map(catalogue.fields.map((field) => [field.name, field.kind]));
    const isNumeric = (field: string): boolean => kinds.get(field) === "durations" || kinds.get(field) === "bytes";
    const fields = known?.fields.length ? known.fields : [...kinds.keys()];
    const discrete = (fields.length ? fields.filter((field) => !isNumeric(field)) : DISCRETE);
    const numeric = fields.length ? fields.filter(isNumeric) : ["latency", "size", "offset"];
    const set = <K extends keyof RowState>(key: K, reload = false) => (value: RowState[K]): void => {
      state[key] = value;
      this.update(reload);
    };
    const toggle = (text: string, key: "tint" | "rainbow", reload: boolean): HTMLElement =>
      button(text, () => set(key, reload)(!state[key]), { "aria-pressed": String(state[key]), class: "toggle" });
    const isMap = state.view === "plot" && state.numeric !== "" && !known?.is_sampled;
    fill(this.tools,
      select("Statistic", names, state.statistic, (value) => {
        Object.assign(state, { statistic: value, highlighted: [], excluded: [] });
        this.update();
      }),
      select("Broken down by", [["", "by: nothing"], ...discrete.map((field) => [field, `by ${field}`] as [string, string])], state.by, (value) => this.breakDown(value)),
      !known?.is_sampled && select("Values", [["", "how many"], ...numeric.map((field) => [field, `by ${field}`] as [string, string])], state.numeric, (value) => {
        state.numeric = value;
        delete state.values;
        this.update();
      }),
      select("View", [["plot", "plot"], ["mirror", "hits and misses"], ["tree", "hierarchy"]], state.view, (value) => {
        state.view = value as RowState["view"];
        if (value === "mirror") state.by = "cause";
        this.update();
      }),
      isMap && [
        select("Scale", [["log", "log"], ["linear", "linear"]], state.scale, (value) => {
          state.scale = value as RowState["scale"];
          delete state.values;
          this.update(false);
        }),
        select("Outliers left out", [["0", "all values"], ["0.0001", "crop 0.01 %"], ["0.001", "crop 0.1 %"], ["0.01", "crop 1 %"]], String(state.crop), (value) => {
          state.crop = Number(value);
          delete state.values;
          this.update(false);
        }),
        select("Palette", PALETTES.map((one) => [one, one] as [string, string]), state.palette, (value) => set("palette")(value as RowState["palette"])),
        select("Strength of colour", NORMALS.map((one) => [one, `by ${one}`] as [string, string]), state.normal, (value) => set("normal")(value as RowState["normal"])),
        toggle("tint by cause", "tint", true),
      ],
      this.by() !== "" && state.view === "plot" && toggle("rainbow", "rainbow", false),
      state.view === "plot" && !state.window && select("Compare", [["off", "compare: off"], ["before", "with the time before"], ["hour", "with an hour ago"], ["day", "with yesterday"], ["week", "with last week"]], state.compare, (value) => {
        state.compare = value as RowState["compare"];
        this.update();
      }),
      h("span", { class: "end" },
        button("export", () => this.export(), { title: "Save as CSV (e)" }),
        button("↑", () => this.host.moveRow(this, -1), { "aria-label": "Move up" }),
        button("↓", () => this.host.moveRow(this, 1), { "aria-label": "Move down" }),
        button("×", () => this.host.removeRow(this), { "aria-label": "Close this statistic" })));
  }

  private breakDown(field: string): void {
    Object.assign(this.state, { by: field, highlighted: [], excluded: [] });
    this.order = [];
    this.update();
  }

  private renderChips(): void {
    fill(this.chips, this.state.chips.map((chip, place) =>
      h("span", { class: "chip" }, this.shown(chip),
        button("×", () => {
          this.state.chips.splice(place, 1);
          this.update();
        }, { "aria-label": `Remove the filter ${this.shown(chip)}` }))));
  }

  /** Adds a filter. */
  addChip(chip: Chip): void {
    this.state.chips.push(chip);
    this.state.highlighted = [];
    this.update();
    announce(`Only ${this.shown(chip)}`);
  }

  private renderList(from: number, until: number, columns: Column[]): void {
    const by = this.by();
    const isValue = this.samples.measure === "value";
    const seconds = Math.max(1, columns.filter((column) => column.state > 0).length * this.samples.columnMs) / 1000;
    if (this.state.view === "mirror") {
      let [hits, misses] = [0, 0];
      for (const column of columns) {
        const [up, down] = hitsAndMisses(column);
        hits += up;
        misses += down;
      }
      fill(this.list, h("li", { class: "plain hit" }, `hits ${rate(hits / seconds)}/s · ${share(hits, hits + misses)}`),
        h("li", { class: "plain miss" }, `misses ${rate(misses / seconds)}/s · ${share(misses, hits + misses)}`));
    } else if (by) {
      const sums = this.samples.sums(from, until);
      const total = isValue ? 0 : this.samples.totalSum(from, until);
      const wanted = sums.map(({ key, sum }, place) => this.item(key, place, sum, total, isValue ? Math.max(1, columns.length) : seconds));
      const present = [...this.list.children];
      if (present.length !== wanted.length || present.some((one, place) => one !== wanted[place])) {
        this.list.replaceChildren(...wanted);
      }
    } else if (this.samples.numeric && this.state.view === "plot") {
      this.renderRanges(columns);
    } else {
      const total = this.samples.totalSum(from, until);
      const average = total / (isValue ? Math.max(1, columns.length) : seconds);
      fill(this.list, h("li", { class: "plain" }, `average ${this.unit() ? valueOf(this.unit(), average) : rate(average)}${isValue ? "" : "/s"}`));
    }
    this.renderNote(columns, seconds);
  }

  private item(key: string, place: number, sum: number, total: number, seconds: number): HTMLLIElement {
    let item = this.items.get(key);
    if (!item) {
      item = h("button", { type: "button", class: "group" },
        h("span", { class: "swatch" }), h("span", { class: "name" }), h("span", { class: "number" }), h("span", { class: "share" }));
      const element = item;
      if (key !== OTHER) {
        item.addEventListener("click", (event) => this.choose(key, event));
        item.addEventListener("contextmenu", (event) => {
          event.preventDefault();
          this.menuOf(key, event.clientX, event.clientY);
        });
        item.addEventListener("keydown", (event) => {
          const box = element.getBoundingClientRect();
          if (event.key === "x") this.exclude(key);
          else if (event.key === "f") this.filterBy(key);
          else if (event.key === "m") this.menuOf(key, box.left, box.bottom);
          else return;
          event.preventDefault();
          event.stopPropagation();
        });
      }
      h("li", {}, item);
      this.items.set(key, item);
      if (this.items.size > 2000) this.items.clear();
    }
    const isHighlighted = this.state.highlighted.includes(key);
    const isExcluded = this.state.excluded.includes(key);
    const isColoured = this.state.tint || this.state.rainbow || isHighlighted;
    const [swatch, name, number, part] = item.children as unknown as HTMLElement[];
    const colour = this.state.tint || this.state.rainbow ? groupColour(key, place) : this.colourOf(key);
    swatch!.style.background = isColoured && key !== OTHER && !isExcluded ? css(colour) : "transparent";
    name!.textContent = key === OTHER ? "other" : shortened(key);
    name!.title = key === OTHER ? "all that are not listed" : key;
    const average = sum / seconds;
    const isValue = this.samples.measure === "value";
    number!.textContent = `${this.unit() ? valueOf(this.unit(), average) : rate(average)}${isValue ? "" : "/s"}`;
    part!.textContent = total > 0 ? share(sum, total) : "";
    item.setAttribute("aria-pressed", String(isHighlighted));
    item.classList.toggle("excluded", isExcluded);
    item.title = "click: highlight · shift: one more · alt: exclude · twice: filter · right: menu";
    return item.parentElement as HTMLLIElement;
  }

  /** Counts and shares of ranges of values, for which no one has to add up by hand. */
  private renderRanges(columns: Column[]): void {
    const base = this.samples.numeric === "size" || this.samples.numeric === "offset" ? 16 : 10;
    const cells = cellsWithin(columns, 0, Infinity);
    const total = cells.reduce((sum, cell) => sum + cell.count, 0);
    const ranges = new Map<number, number>();
    for (const cell of cells) {
      const power = Math.floor(Math.log(Math.max(cell.low, 1)) / Math.log(base) + 1e-9);
      ranges.set(power, (ranges.get(power) ?? 0) + cell.count);
    }
    const { from, until } = this.range();
    const items = [...ranges].sort((one, other) => other[0] - one[0]).map(([power, sum]) => {
      const [low, high] = [power ? base ** power : 0, base ** (power + 1)];
      const text = `${valueOf(this.samples.numeric, low)} – ${valueOf(this.samples.numeric, high)}`;
      return h("li", {}, h("button", { type: "button", class: "group", onclick: () => this.selectBox({ from, until, low, high }) },
        h("span", { class: "name" }, text), h("span", { class: "number" }, count(Math.round(sum))), h("span", { class: "share" }, share(sum, total))));
    });
    // A button that has the focus keeps it.
    if (this.list.contains(document.activeElement) && this.list.childElementCount === items.length) {
      items.forEach((item, place) => {
        const now = this.list.children[place]!.querySelectorAll("span");
        item.querySelectorAll("span").forEach((part, at) => (now[at]!.textContent = part.textContent));
      });
    } else fill(this.list, items);
  }

  private renderNote(columns: Column[], seconds: number): void {
    const parts = [`average of ${span(Math.round(seconds))}`];
    const source = this.samples.source;
    if (source.startsWith("archive-") && source !== "archive-1s") parts.push(`${source.slice(8)} histograms`);
    else if (source) parts.push(source);
    if (this.samples.columnMs > 1000) parts.push(`a column is ${span(this.samples.columnMs / 1000)}`);
    if (this.samples.columnMs < 1000) parts.push(`a column is ${this.samples.columnMs} ms`);
    if (this.samples.dropped) parts.push(`${count(this.samples.dropped)} dropped`);
    if (this.samples.unranked) parts.push(`±${count(this.samples.unranked)}: more keys than are ranked`);
    if (this.samples.keysFound > this.samples.ids.size) parts.push(`${count(this.samples.keysFound)} keys`);
    const missing = columns.filter((column) => column.state === 0).length;
    if (missing) parts.push(`${missing} columns not collected`);
    const text = parts.join(" · ");
    if (this.note.textContent !== text) this.note.textContent = text;
  }

  // ---- groups ----

  private choose(key: string, event: MouseEvent): void {
    if (event.detail >= 2) return this.filterBy(key);
    if (event.altKey) return this.exclude(key);
    const { state } = this;
    const is = state.highlighted.includes(key);
    if (event.shiftKey) state.highlighted = is ? state.highlighted.filter((one) => one !== key) : [...state.highlighted, key];
    else state.highlighted = is && state.highlighted.length === 1 ? [] : [key];
    this.host.changed();
    this.draw();
  }

  private exclude(key: string): void {
    const { state } = this;
    state.excluded = state.excluded.includes(key) ? state.excluded.filter((one) => one !== key) : [...state.excluded, key];
    this.host.changed();
    this.draw();
  }

  /** Whether filters may name values of a field: those of viewers may not name people. */
  private mayFilter(field: string): boolean {
    return !isViewer() || !["client", "user", "file"].includes(field);
  }

  private filterBy(key: string): void {
    const field = this.by();
    if (!this.mayFilter(field)) return announce("A viewer cannot filter by names");
    if (!this.state.by) this.state.by = "";
    this.addChip({ field, operator: "eq", value: key });
  }

  private menuOf(key: string, x: number, y: number): void {
    const field = this.by();
    const fields = this.discrete().filter((one) => one !== field);
    const chip: Chip = { field, operator: "eq", value: key };
    menu(x, y, `${field} ${key}`, [
      ...(this.mayFilter(field) ? fields.map((one) => ({
        text: `break down by ${one}`,
        run: () => {
          this.state.chips.push(chip);
          this.breakDown(one);
        },
      })) : []),
      ...(this.mayFilter(field) ? [{ text: "filter by it", run: () => this.filterBy(key) }] : []),
      ...(this.mayFilter(field) ? [{ text: "leave it out", run: () => this.addChip({ ...chip, operator: "ne" }) }] : []),
      { text: this.state.excluded.includes(key) ? "draw it again" : "do not draw it", run: () => this.exclude(key) },
    ]);
  }

  private discrete(): string[] {
    const catalogue = this.host.catalogue();
    const known = catalogue.statistics.find((one) => one.name === this.state.statistic)?.fields ?? [];
    const numeric = new Set(catalogue.fields.filter((field) => field.kind === "durations" || field.kind === "bytes").map((field) => field.name));
    const fields = known.filter((field) => !numeric.has(field));
    return fields.length ? fields : DISCRETE;
  }

  // ---- the box ----

  private selectBox(box: Box | undefined): void {
    this.box = box;
    this.exact = "";
    this.boxShown = "";
    this.draw();
    if (box) {
      announce(this.boxText());
      void this.askExactly(box);
    }
  }

  private boxCells(): { cells: Cell[]; total: number } {
    const box = this.box!;
    const columns = this.samples.within(box.from + 1, box.until - 1);
    const total = columns.reduce((sum, column) => sum + column.total.sum, 0);
    return { cells: cellsWithin(columns, box.low, box.high), total };
  }

  private boxText(): string {
    const { cells, total } = this.boxCells();
    const selected = cells.reduce((sum, cell) => sum + cell.count, 0);
    const field = this.samples.numeric;
    const text = [
      `${count(Math.round(selected))} operations = ${share(selected, this.samples.measure === "operations" ? total : selected)} of them`,
    ];
    if (cells.length) {
      const at = (part: number): string => valueOf(field, percentile(cells, part));
      text.push(`p50 ${at(0.5)}, p90 ${at(0.9)}, p99 ${at(0.99)}`);
    }
    return text.join(", ");
  }

  private boxPredicate(): Chip[] {
    const box = this.box!;
    const field = this.state.numeric;
    if (!field) return this.state.chips;
    const bounds: Chip[] = [];
    if (box.low > 0) bounds.push({ field, operator: "ge", value: Math.floor(box.low) });
    if (Number.isFinite(box.high)) bounds.push({ field, operator: "lt", value: Math.ceil(box.high) });
    return [...this.state.chips, ...bounds];
  }

  private operations(chips: Chip[], box: Box, limit: number): Promise<Operations> {
    const filter = predicateOf(chips);
    const request = { statement: this.state.statistic, ...(filter ? { filter } : {}), from: box.from / 1000, until: box.until / 1000, order: "slowest", limit };
    return ask<Operations>("analytics/operations", request);
  }

  /** Asks the recorder: the wait is known to it alone, and percentiles exactly. */
  private async askExactly(box: Box): Promise<void> {
    if (this.isSampled()) return;
    try {
      const [inside, all] = await Promise.all([this.operations(this.boxPredicate(), box, 1), this.operations(this.state.chips, box, 1)]);
      if (this.box !== box) return;
      const { p50, p99, p999, max } = inside.percentiles;
      this.exact = `${share(inside.wait_ns, all.wait_ns)} of the wait time (${duration(inside.wait_ns)}); ` +
        `latency p50 ${duration(p50)}, p99 ${duration(p99)}, p99.9 ${duration(p999)}, longest ${duration(max)}`;
    } catch (error) {
      this.exact = `the recorder: ${messageOf(error)}`;
    }
    this.boxShown = "";
    this.renderBox();
  }

  private boxShown = "";

  private renderBox(): void {
    const { box } = this;
    this.boxBar.hidden = !box;
    if (!box) return;
    const values = this.samples.numeric && this.state.view === "plot"
      ? `, ${valueOf(this.samples.numeric, box.low)} – ${Number.isFinite(box.high) ? valueOf(this.samples.numeric, box.high) : "…"}` : "";
    const text = `${clock(box.from)} – ${clock(box.until)}${values}: ${this.boxText()}`;
    if (this.boxShown === text + this.exact) return;
    this.boxShown = text + this.exact;
    const fields = this.discrete();
    const choose = select("Break down these by", [["", "break down these by…"], ...fields.map((field) => [field, field] as [string, string])], "", (field) => this.breakDownBox(field));
    fill(this.boxBar,
      h("p", {}, h("strong", {}, "selected box "), text, this.exact ? h("span", {}, `; ${this.exact}`) : null),
      h("div", { class: "actions" },
        !this.isSampled() && choose,
        !this.isSampled() && button("slowest 20", () => void this.slowest()),
        button("keep as statistic", () => this.host.addRow(newRow(this.state.statistic, { ...this.state, chips: this.boxPredicate(), highlighted: [], excluded: [] }), this)),
        button("zoom", () => {
          if (this.state.numeric && Number.isFinite(box.high)) this.state.values = [Math.max(box.low, this.state.scale === "log" ? 1 : 0), box.high];
          this.host.setRange(box.from, box.until);
        }),
        button("clear", () => this.selectBox(undefined), { title: "Escape" })));
  }

  /** A new row of the operations in the box, from the recorder. */
  private breakDownBox(field: string): void {
    if (!field || !this.box) return;
    const { from, until } = this.box;
    const isTree = field === "file" || field === "dataset";
    this.host.addRow(newRow(this.state.statistic, {
      by: field,
      numeric: isTree ? "" : this.state.numeric,
      view: isTree ? "tree" : "plot",
      rainbow: true,
      chips: this.boxPredicate(),
      window: { from, until },
      height: 160,
    }), this);
  }

  private async slowest(): Promise<void> {
    const box = this.box;
    if (!box) return;
    let reply: Operations;
    try {
      reply = await this.operations(this.boxPredicate(), box, 20);
    } catch (error) {
      this.said.textContent = messageOf(error);
      return;
    }
    const rows = reply.operations.map((one) => {
      const stages = Object.entries(one.stages).sort((a, b) => b[1] - a[1]);
      const told = [...stages.map(([name, ns]) => `${name} ${duration(ns)}`), one.unaccounted_ns ? `unaccounted ${duration(one.unaccounted_ns)}` : ""].filter((part) => part);
      return h("tr", {},
        h("td", {}, clock(one.ended_ms, true)), h("td", { class: "right" }, duration(one.latency_ns)),
        h("td", {}, `${one.protocol} ${one.operation}`), h("td", {}, one.client), h("td", {}, one.file ?? `${one.dataset} #${one.object}`),
        h("td", { class: "right" }, one.size ? bytes(one.size) : ""), h("td", {}, one.cause), h("td", {}, told.join(", ")));
    });
    const head = ["ended", "latency", "operation", "client", "file", "size", "cause", "stages"].map((text) => h("th", { scope: "col" }, text));
    dialog(`The slowest of ${count(reply.count)} operations`, [h("div", { class: "scroll", tabindex: 0 }, h("table", {}, h("thead", {}, h("tr", {}, head)), h("tbody", {}, rows)))], []).classList.add("wide");
  }

  // ---- pointer and keys ----

  private at(event: MouseEvent): { ms: number; value: number } {
    const box = this.canvas.getBoundingClientRect();
    const { from, until } = this.range();
    const x = Math.max(0, Math.min(1, (event.clientX - box.left - LEFT) / (box.width - LEFT - RIGHT)));
    const y = Math.max(TOP, Math.min(box.height - BOTTOM, event.clientY - box.top));
    return { ms: from + x * (until - from), value: valueAtY({ height: box.height }, this.domain, y) };
  }

  private isMap(): boolean {
    return this.samples.numeric !== undefined && this.state.view === "plot";
  }

  private boxOf(one: { ms: number; value: number }, other: { ms: number; value: number }): Box {
    const step = this.samples.columnMs;
    const isMap = this.isMap();
    return {
      from: Math.floor(Math.min(one.ms, other.ms) / step) * step,
      until: Math.ceil(Math.max(one.ms, other.ms) / step) * step || step,
      low: isMap ? Math.max(0, Math.min(one.value, other.value)) : 0,
      high: isMap ? Math.max(one.value, other.value) : Infinity,
    };
  }

  private listen(): void {
    const { canvas } = this;
    let begun: { ms: number; value: number; x: number; y: number } | undefined;
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      canvas.setPointerCapture(event.pointerId);
      begun = { ...this.at(event), x: event.clientX, y: event.clientY };
    });
    canvas.addEventListener("pointermove", (event) => {
      const at = this.at(event);
      this.hover(at);
      if (begun && Math.hypot(event.clientX - begun.x, event.clientY - begun.y) > 4) {
        this.box = this.boxOf(begun, at);
        this.exact = "";
        this.draw();
      }
    });
    canvas.addEventListener("pointerup", (event) => {
      const first = begun;
      begun = undefined;
      if (first && Math.hypot(event.clientX - first.x, event.clientY - first.y) > 4) this.selectBox(this.boxOf(first, this.at(event)));
    });
    canvas.addEventListener("pointerleave", () => {
      this.readout.textContent = "";
      this.host.point(undefined);
    });
    canvas.addEventListener("dblclick", () => {
      delete this.state.values;
      this.selectBox(undefined);
      this.host.goLive();
    });
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      const factor = Math.exp(Math.max(-1, Math.min(1, (event.deltaY || event.deltaX) / 200)));
      event.shiftKey ? this.zoomValues(this.at(event).value, factor) : this.zoomTime(this.at(event).ms, factor);
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => this.key(event));
    canvas.addEventListener("blur", () => this.draw());
    new ResizeObserver(() => this.draw()).observe(canvas);
    const seen = new IntersectionObserver((entries) => {
      this.isSeen = entries.at(-1)!.isIntersecting;
      if (this.isSeen) void this.load();
    }, { rootMargin: "100px" });
    seen.observe(this.element);
  }

  private zoomTime(around: number, factor: number): void {
    if (this.state.window) return;
    const { from, until } = this.host.range();
    const length = Math.max(1000, Math.min(90 * 864e5, (until - from) * factor));
    const part = (around - from) / (until - from);
    this.host.setRange(around - part * length, around + (1 - part) * length);
  }

  private zoomValues(around: number, factor: number): void {
    if (!this.isMap()) return;
    const { domain } = this;
    if (domain.scale === "linear") {
      this.state.values = [Math.max(0, around - (around - domain.low) * factor), around + (domain.high - around) * factor];
    } else {
      const low = Math.exp(Math.log(around) - (Math.log(around) - Math.log(Math.max(domain.low, 1))) * factor);
      const high = Math.exp(Math.log(around) + (Math.log(domain.high) - Math.log(around)) * factor);
      this.state.values = [Math.max(1, low), Math.max(low * 1.1, high)];
    }
    this.host.changed();
    this.draw();
  }

  private cellAt(at: { ms: number; value: number }): string {
    const step = this.samples.columnMs;
    const column = this.samples.columns.find((one) => at.ms >= one.at && at.ms < one.at + step);
    if (!column) return "";
    if (column.state === 0) return `${clock(column.at)} not collected`;
    const of = (part: { sum: number; cells: Cell[] } | undefined): number => {
      if (!part) return 0;
      if (!this.isMap()) return part.sum;
      return part.cells.filter((cell) => at.value >= cell.low && at.value < cell.high).reduce((sum, cell) => sum + cell.count, 0);
    };
    const cell = column.total.cells.find((one) => at.value >= one.low && at.value < one.high);
    const total = of(column.total);
    const top = [...column.groups].map(([key, part]) => [key, of(part)] as const).filter(([, sum]) => sum > 0)
      .sort((one, other) => other[1] - one[1]).slice(0, 3)
      .map(([key, sum]) => `${key === OTHER ? "other" : key} ${rate(sum)}`);
    const values = this.isMap() ? ` ${valueOf(this.samples.numeric, cell?.low ?? at.value)}${cell ? ` – ${valueOf(this.samples.numeric, cell.high)}` : ""}` : "";
    const amount = this.unit() ? valueOf(this.unit(), total) : rate(total);
    return `${clock(column.at, step < 1000)}${values}: ${amount}${top.length ? ` (${top.join(", ")})` : ""}`;
  }

  private hover(at: { ms: number; value: number }): void {
    this.readout.textContent = this.cellAt(at);
    this.host.point(at.ms);
  }

  /** Shows a time that is pointed at in some row. */
  point(ms: number | undefined): void {
    if (this.pointed === ms) return;
    this.pointed = ms;
    this.draw();
  }

  private key(event: KeyboardEvent): void {
    const { from, until } = this.range();
    const step = this.samples.columnMs;
    const moves: Record<string, [number, number]> = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
    const move = moves[event.key];
    if (move && !event.ctrlKey && !event.altKey && !event.metaKey) {
      const before = this.cursor ?? { ms: (from + until) / 2, value: valueAtY({ height: 100 + TOP + BOTTOM }, this.domain, TOP + 50) };
      const stride = Math.max(step, (until - from) / 100);
      const place = Math.max(0, Math.min(1, placeOf(this.domain, before.value) + move[1] * 0.04));
      const next = {
        ms: Math.max(from, Math.min(until - 1, before.ms + move[0] * stride)),
        value: move[1] ? valueAtY({ height: 1000 + TOP + BOTTOM }, this.domain, TOP + 1000 * (1 - place)) : before.value,
      };
      if (event.shiftKey) {
        this.anchor ??= before;
        this.cursor = next;
        this.selectBox(this.boxOf(this.anchor, next));
      } else {
        this.anchor = undefined;
        this.cursor = next;
        this.readout.textContent = this.cellAt(next);
        announce(this.readout.textContent);
        this.draw();
      }
    } else if (event.key === "Enter" && this.box) {
      const box = this.canvas.getBoundingClientRect();
      menu(box.left + LEFT, box.top + 40, "break down these by", this.discrete().map((field) => ({ text: field, run: () => this.breakDownBox(field) })));
    } else if (event.key === "Escape") {
      this.anchor = undefined;
      this.selectBox(undefined);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  private anchor: { ms: number; value: number } | undefined;

  /** Goes to the next time with more than its neighbours, or the one before. */
  seekMaximum(step: number): void {
    const { from, until } = this.range();
    const columns = this.samples.within(from, until);
    const at = this.cursor?.ms ?? (step > 0 ? from : until);
    const peaks = columns.filter((column, place) => {
      const around = columns.slice(Math.max(0, place - 5), place + 6);
      return column.total.sum > 0 && around.every((other) => other.total.sum <= column.total.sum);
    });
    const next = step > 0 ? peaks.find((column) => column.at > at) : peaks.findLast((column) => column.at + this.samples.columnMs < at);
    if (!next) return announce("no further maximum");
    const cell = [...next.total.cells].sort((one, other) => other.count - one.count)[0];
    this.cursor = { ms: next.at + this.samples.columnMs / 2, value: cell ? (cell.low + cell.high) / 2 : next.total.sum };
    this.readout.textContent = this.cellAt(this.cursor);
    announce(this.readout.textContent);
    this.draw();
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
    const { from, until } = this.range();
    const lines = [["time_ms", "state", "group", "low", "high", "count", "sum"].join(",")];
    const quote = (text: string): string => `"${text.replaceAll('"', '""')}"`;
    for (const column of this.samples.within(from, until)) {
      const series: [string, { sum: number; cells: Cell[] }][] = [["", column.total], ...column.groups];
      for (const [key, part] of series) {
        const name = quote(key === OTHER ? "other" : key);
        lines.push([column.at, column.state, name, "", "", "", part.sum].join(","));
        for (const cell of part.cells) lines.push([column.at, column.state, name, cell.low, cell.high, cell.count, ""].join(","));
      }
    }
    const url = URL.createObjectURL(new Blob([lines.join("\n") + "\n"], { type: "text/csv" }));
    h("a", { href: url, download: `${this.state.statistic}-${Math.round(from / 1000)}.csv` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  }

  /** How long the last answer took. */
  static latency(): string {
    return `${lastLatencyMs().toFixed(0)} ms`;
  }
}

const COMPARED: Record<string, string> = {
  before: "the time before",
  hour: "an hour ago",
  day: "yesterday",
  week: "last week",
};

/** A path's end tells more than its beginning. */
const shortened = (key: string): string => (key.includes("/") && key.length > 19 ? `…${key.slice(-18)}` : key);
