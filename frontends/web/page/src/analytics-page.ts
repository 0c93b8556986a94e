// The page of Analytics: a worksheet of rows upon one time axis.

import { ask, isViewer, lastLatencyMs, worksheets } from "./client";
import type { Catalogue, Mark, RecorderState } from "./contract";
import { dialog, messageOf } from "./dialogs";
import { announce, button, fill, h, select } from "./dom";
import { EventStrip } from "./event-strip";
import { Row } from "./row";
import type { Host } from "./row-host";
import { bytes, clock, count, dateTime, duration, span } from "./units";
import { type RowState, TEMPLATES, type Worksheet, decode, encode, initial, newRow, parse, recall, remember } from "./worksheet";

const RANGES: [number, string][] = [[60, "1 min"], [900, "15 min"], [3600, "1 h"], [86400, "1 d"], [604800, "7 d"]];

/** How long rows wait for each other while live. */
const TOGETHER_MS = 80;

/** After so long what happened in a second is known everywhere. */
const SETTLED_MS = 3000;

/** Until the server has told what there is. */
const NO_CATALOGUE: Catalogue = { statistics: [], fields: [] };

export class AnalyticsPage implements Host {
  readonly element: HTMLElement;
  private sheet: Worksheet;
  private rows: Row[] = [];
  private known = NO_CATALOGUE;
  private state: RecorderState | undefined;
  private saved: Record<string, unknown> = {};
  /** How far the server's clock is ahead. */
  private aheadMs = 0;
  private liveUntil = Date.now();
  private readonly bar = h("div", { class: "toolbar", role: "toolbar", "aria-label": "Worksheet" });
  private readonly times = h("div", { class: "toolbar", role: "toolbar", "aria-label": "Time" });
  private readonly place = h("div", { class: "rows" });
  private readonly footer = h("footer", { class: "state" });
  private readonly where = h("span", { class: "where" });
  private readonly strip: EventStrip;
  private timer = 0;
  private ticks = 0;
  /** Plots have colours of their own. */
  private readonly theme = new MutationObserver(() => this.rows.forEach((row) => row.draw()));
  private readonly onKey = (event: KeyboardEvent): void => this.key(event);

  constructor(link: string | undefined) {
    this.sheet = (link ? decode(link) : undefined) ?? recall() ?? initial();
    this.strip = new EventStrip((marks) => this.explain(marks));
    this.element = h("div", { class: "analytics" }, this.bar, this.times, this.strip.element, this.place, this.footer);
    this.build();
  }

  begin(): void {
    document.addEventListener("keydown", this.onKey);
    this.theme.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    this.timer = window.setInterval(() => this.tick(), 1000);
    void this.start();
  }

  end(): void {
    document.removeEventListener("keydown", this.onKey);
    this.theme.disconnect();
    clearInterval(this.timer);
  }

  private async start(): Promise<void> {
    const catalogue = ask<Catalogue>("analytics/catalogue", {}).catch(() => NO_CATALOGUE);
    [this.known] = await Promise.all([catalogue, this.learnState()]);
    if (!isViewer()) this.saved = await worksheets("list").catch(() => ({}));
    this.rows.forEach((row) => row.learn());
    this.build();
    this.reload();
  }

  // ---- what rows ask ----

  range(): { from: number; until: number } {
    const { range } = this.sheet;
    if (range.from !== undefined && range.until !== undefined) return { from: range.from, until: range.until };
    return { from: this.liveUntil - range.last * 1000, until: this.liveUntil };
  }

  isLive(): boolean {
    return this.sheet.range.until === undefined;
  }

  isDark(): boolean {
    return document.documentElement.dataset["theme"] === "dark";
  }

  catalogue(): Catalogue {
    return this.known;
  }

  setRange(from: number, until: number): void {
    this.past.push({ ...this.sheet.range });
    if (this.past.length > 50) this.past.shift();
    const now = this.now();
    const length = until - from;
    if (until > now) [from, until] = [now - length, now];
    this.sheet.range = { last: this.sheet.range.last, from: Math.round(from), until: Math.round(until) };
    this.changed();
    this.renderTimes();
    this.reload();
  }

  goLive(): void {
    this.sheet.range = { last: this.sheet.range.last };
    this.liveUntil = this.alignedNow();
    this.changed();
    this.renderTimes();
    this.reload();
  }

  addRow(state: RowState, after: Row | undefined): void {
    const place = after ? this.sheet.rows.indexOf(after.state) + 1 : this.sheet.rows.length;
    this.sheet.rows.splice(place, 0, state);
    this.changed();
    this.build();
    const row = this.rows[place];
    row?.load();
    row?.element.scrollIntoView({ block: "nearest" });
    row?.focus();
  }

  removeRow(row: Row): void {
    this.sheet.rows = this.sheet.rows.filter((one) => one !== row.state);
    this.changed();
    this.build();
  }

  moveRow(row: Row, step: number): void {
    const { rows } = this.sheet;
    const place = rows.indexOf(row.state);
    const other = place + step;
    if (other < 0 || other >= rows.length) return;
    [rows[place], rows[other]] = [rows[other]!, rows[place]!];
    this.changed();
    this.build();
    row.focus();
  }

  changed(): void {
    remember(this.sheet);
  }

  private readonly undrawn = new Set<Row>();

  drawSoon(row: Row): void {
    this.undrawn.add(row);
    if (this.undrawn.size > 1) return;
    // While live, what the others are answered comes right after.
    const draw = (): void => {
      const rows = [...this.undrawn];
      this.undrawn.clear();
      rows.forEach((one) => one.draw());
    };
    if (this.isLive()) setTimeout(draw, TOGETHER_MS);
    else requestAnimationFrame(draw);
  }

  point(ms: number | undefined): void {
    this.where.textContent = ms === undefined ? "" : dateTime(ms);
    this.rows.forEach((row) => row.point(ms));
  }

  // ---- time ----

  private past: Worksheet["range"][] = [];

  private now(): number {
    return Date.now() + this.aheadMs;
  }

  private alignedNow(): number {
    return Math.floor(this.now() / 1000) * 1000;
  }

  private tick(): void {
    this.ticks++;
    if (document.hidden) return;
    if (this.isLive()) {
      this.liveUntil = this.alignedNow();
      this.rows.forEach((row) => row.load());
    } else this.renderBehind();
    if (this.ticks % 5 === 0) {
      void this.learnState();
      if (this.isLive()) void this.loadMarks();
    }
  }

  private reload(): void {
    this.rows.forEach((row) => row.load());
    void this.loadMarks();
  }

  private pause(): void {
    if (!this.isLive()) return this.goLive();
    const { from, until } = this.range();
    this.sheet.range = { last: this.sheet.range.last, from, until };
    this.changed();
    this.renderTimes();
    announce("paused; collection goes on");
    // The newest seconds are archived when they are over.
    setTimeout(() => {
      if (!this.isLive()) this.rows.forEach((row) => row.load(true));
    }, SETTLED_MS);
  }

  private move(part: number): void {
    const { from, until } = this.range();
    const by = (until - from) * part;
    this.setRange(from + by, until + by);
  }

  private async loadMarks(): Promise<void> {
    const { from, until } = this.range();
    try {
      const { events } = await ask<{ events: Mark[] }>("analytics/events", { from: from / 1000, until: until / 1000 });
      this.strip.show(events, from, until);
    } catch {
      this.strip.show([], from, until);
    }
  }

  private async learnState(): Promise<void> {
    try {
      this.state = await ask<RecorderState>("analytics/state", {});
      const ahead = this.state.held_until_ms - Date.now();
      this.aheadMs = this.state.is_on && Math.abs(ahead) > 5000 ? ahead : 0;
      this.renderFooter();
    } catch (error) {
      fill(this.footer, h("span", { class: "bad" }, `Analytics: ${messageOf(error)}`));
    }
  }

  // ---- what is drawn ----

  /** Makes the rows of the worksheet; those that stay keep what they know. */
  private build(): void {
    const before = new Map(this.rows.map((row) => [row.state, row]));
    this.rows = this.sheet.rows.map((state) => before.get(state) ?? new Row(state, this));
    fill(this.place, this.rows.map((row) => row.element), this.rows.length ? null : h("p", { class: "hint" }, "This worksheet is empty: add a statistic."));
    this.renderBar();
    this.renderTimes();
    this.rows.forEach((row) => row.draw());
  }

  private renderBar(): void {
    const options: [string, string][] = [["", "open…"]];
    for (const name of Object.keys(TEMPLATES)) options.push([`template:${name}`, `template: ${name}`]);
    for (const name of Object.keys(this.saved)) options.push([`saved:${name}`, name]);
    const name = h("input", { type: "text", value: this.sheet.name, "aria-label": "Name of the worksheet", maxlength: 80 });
    name.addEventListener("change", () => {
      this.sheet.name = name.value;
      this.changed();
    });
    fill(this.bar, name,
      select("Open a worksheet", options, "", (value) => this.openSheet(value)),
      !isViewer() && button("save", () => void this.save(), { title: "Save on the server" }),
      !isViewer() && this.sheet.name in this.saved && button("remove", () => void this.forget()),
      button("+ add statistic", () => this.addStatistic()),
      button("share", () => this.share(), { title: "A link that has this worksheet" }),
      button("keys", () => this.showKeys()));
  }

  private renderTimes(): void {
    const { range } = this.sheet;
    const isLive = this.isLive();
    const label = isLive ? "" : `${dateTime(range.from!)} – ${clock(range.until!)}`;
    fill(this.times,
      RANGES.map(([seconds, text]) => button(text, () => {
        this.sheet.range.last = seconds;
        if (this.isLive()) this.goLive();
        else this.setRange(this.range().until - seconds * 1000, this.range().until);
      }, { "aria-pressed": String(isLive ? range.last === seconds : Math.abs(range.until! - range.from! - seconds * 1000) < 1) })),
      button("«", () => this.move(-1), { "aria-label": "Back by the whole range" }),
      button("‹", () => this.move(-0.25), { "aria-label": "Back by a quarter" }),
      button(isLive ? "❚❚ pause" : "▶ live", () => this.pause(), { "aria-pressed": String(!isLive), title: "space" }),
      button("›", () => this.move(0.25), { "aria-label": "Forward by a quarter" }),
      button("»", () => this.move(1), { "aria-label": "Forward by the whole range" }),
      this.past.length > 0 && button("undo zoom", () => {
        const before = this.past.pop();
        if (!before) return;
        this.sheet.range = before;
        this.changed();
        this.renderTimes();
        this.reload();
      }),
      h("span", { class: isLive ? "live" : "paused" }, isLive ? "LIVE" : label),
      this.behind, this.where);
    this.renderBehind();
  }

  private readonly behind = h("span", { class: "behind" });

  private renderBehind(): void {
    const seconds = Math.round((this.now() - this.range().until) / 1000);
    this.behind.textContent = this.isLive() || seconds < 1 ? "" : `${span(seconds)} behind live`;
  }

  private renderFooter(): void {
    const { state } = this;
    if (!state) return;
    if (!state.is_on) return fill(this.footer, "Analytics are off: tarnd was started with --analytics off");
    const held = Math.max(0, (state.held_until_ms - state.held_from_ms) / 1000);
    const perRecord = state.drained ? state.pass_ns / state.drained : 0;
    const archive = state.archive ? `archive ${bytes(state.archive.bytes)} of ${bytes(state.archive.cap_bytes)}` : "no archive";
    fill(this.footer,
      h("span", {}, `recorder: ${span(Math.round(held))} held, ${count(state.records)} operations in ${bytes(state.bytes)} of ${bytes(state.budget_bytes)}`),
      h("span", { class: state.dropped ? "bad" : "" }, `${count(state.dropped)} dropped`),
      h("span", {}, archive),
      h("span", {}, `collector ${duration(perRecord)} an operation`),
      h("span", {}, `${state.live} live`),
      h("span", {}, `${lastLatencyMs().toFixed(0)} ms api`));
  }

  // ---- worksheets ----

  private openSheet(value: string): void {
    const [kind, name] = [value.slice(0, value.indexOf(":")), value.slice(value.indexOf(":") + 1)];
    const sheet = kind === "template" ? TEMPLATES[name]?.() : parse(this.saved[name]);
    if (!sheet) return;
    this.sheet = sheet;
    this.rows = [];
    this.changed();
    this.build();
    this.goLiveUnlessFixed();
  }

  private goLiveUnlessFixed(): void {
    if (this.isLive()) this.goLive();
    else this.reload();
  }

  /** Opens the worksheet of a link. */
  openLink(link: string): void {
    const sheet = decode(link);
    if (!sheet) return announce("the link has no worksheet");
    this.sheet = sheet;
    this.rows = [];
    this.changed();
    this.build();
    this.goLiveUnlessFixed();
  }

  private async save(): Promise<void> {
    try {
      this.saved = await worksheets("save", { name: this.sheet.name, worksheet: this.sheet });
      announce("saved");
      this.renderBar();
    } catch (error) {
      dialog("It was not saved", [h("p", { class: "bad" }, messageOf(error))], []);
    }
  }

  private async forget(): Promise<void> {
    this.saved = await worksheets("remove", { name: this.sheet.name }).catch(() => this.saved);
    this.renderBar();
  }

  private share(): void {
    const url = `${location.origin}/#/analytics?w=${encode(this.sheet)}`;
    const field = h("input", { type: "text", value: url, readonly: true, "aria-label": "Link" });
    const text = h("textarea", { rows: 6, "aria-label": "The worksheet as JSON" });
    text.value = JSON.stringify(this.sheet);
    dialog("Share this worksheet", [
      h("p", {}, "The link has the whole worksheet; who opens it logs in first."), field,
      h("details", {}, h("summary", {}, "as JSON, to keep or to import"), text)], [
      { text: "Copy the link", run: () => navigator.clipboard.writeText(url).catch(() => field.select()) },
      { text: "Import the JSON", run: () => {
        const sheet = parse(JSON.parse(text.value));
        if (!sheet) throw new Error("this is no worksheet");
        this.sheet = sheet;
        this.rows = [];
        this.build();
        this.goLiveUnlessFixed();
      } },
    ]).classList.add("wide");
  }

  private addStatistic(): void {
    const all = this.known.statistics.length
      ? this.known.statistics.map((one) => [one.name, `${one.name}: ${one.title}`] as [string, string])
      : ["nfs.ops", "nfs.bytes", "iscsi.ops", "fuse.ops", "all.ops"].map((name) => [name, name] as [string, string]);
    let chosen = all[0]![0];
    const choose = select("Statistic", all, chosen, (value) => (chosen = value));
    dialog("Add a statistic", [choose], [{
      text: "Add",
      run: () => {
        const known = this.known.statistics.find((one) => one.name === chosen);
        this.addRow(newRow(chosen, known?.is_sampled ? { numeric: "" } : {}), undefined);
      },
    }]);
  }

  private explain(marks: Mark[]): void {
    const first = marks[0]!;
    const until = Math.max(...marks.map((mark) => mark.until_ms ?? mark.at_ms));
    const told = marks.map((mark) => h("tr", {},
      h("td", {}, `${dateTime(mark.at_ms)}${mark.until_ms ? ` – ${clock(mark.until_ms)}` : ""}`), h("td", {}, mark.kind), h("td", {}, mark.pool), h("td", {}, mark.text)));
    dialog(marks.length > 1 ? `${marks.length} events` : `${first.kind}${first.pool ? ` of ${first.pool}` : ""}`, [
      h("div", { class: "scroll", tabindex: 0 }, h("table", {}, h("tbody", {}, told)))], [
      { text: "Show this time", run: () => {
        const around = Math.max(60_000, (until - first.at_ms) * 0.5);
        this.setRange(first.at_ms - around, until + around);
      } },
    ]).classList.add("wide");
  }

  // ---- keys ----

  private row(): Row | undefined {
    return this.rows.find((row) => row.has(document.activeElement)) ?? this.rows[0];
  }

  private key(event: KeyboardEvent): void {
    const target = event.target as HTMLElement;
    if (event.ctrlKey || event.altKey || event.metaKey || target.closest("input, select, textarea, dialog, [role=menu]")) return;
    if (event.key === " " && target.closest("button, summary, a")) return;
    const actions: Record<string, () => void> = {
      " ": () => this.pause(),
      "[": () => this.row()?.seekMaximum(-1),
      "]": () => this.row()?.seekMaximum(1),
      g: () => this.goTo(),
      c: () => this.row()?.cycle("crop"),
      l: () => this.row()?.cycle("scale"),
      p: () => this.row()?.cycle("palette"),
      e: () => this.row()?.export(),
      a: () => this.addStatistic(),
      "+": () => this.zoom(0.5),
      "-": () => this.zoom(2),
      "?": () => this.showKeys(),
    };
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  }

  private zoom(factor: number): void {
    const { from, until } = this.range();
    const [middle, half] = [(from + until) / 2, Math.max(500, ((until - from) / 2) * factor)];
    this.setRange(middle - half, middle + half);
  }

  private goTo(): void {
    const { from, until } = this.range();
    const local = new Date(from - new Date(from).getTimezoneOffset() * 60000).toISOString().slice(0, 19);
    const field = h("input", { type: "datetime-local", step: 1, value: local, "aria-label": "Time" });
    dialog("Go to a time", [field], [{
      text: "Go",
      run: () => {
        const at = new Date(field.value).getTime();
        if (!Number.isFinite(at)) throw new Error("give a date and a time");
        this.setRange(at, at + until - from);
      },
    }]);
  }

  private showKeys(): void {
    const keys: [string, string][] = [
      ["space", "pause, or go on live"], ["[ ]", "the maximum before, the next one"], ["g", "go to a time"],
      ["c", "crop outliers"], ["l", "logarithmic or linear"], ["p", "the next palette"], ["e", "export as CSV"],
      ["+ -", "zoom"], ["a", "add a statistic"], ["arrows", "move the cursor of a plot"], ["shift + arrows", "select a box"],
      ["enter", "break the box down"], ["escape", "clear the box"], ["d, x, f, m", "on a component: drill down, do not draw it, filter by it, menu"],
      ["wheel, shift + wheel", "zoom time, zoom values"],
    ];
    dialog("Keys", [h("table", {}, h("tbody", {}, keys.map(([key, what]) => h("tr", {}, h("th", { scope: "row" }, h("kbd", {}, key)), h("td", {}, what)))))], []);
  }
}
