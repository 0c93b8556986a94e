// Datasets: create, properties with their sources, snapshots on a time line, rollback with what it
// would cost, clone.

import { ask, change } from "./client";
import { confirmCommand, dialog, mayChange, messageOf, quoted } from "./dialogs";
import { button, fill, h, select } from "./dom";
import { type Properties, numberOf, shownValue, sourceText, textOf } from "./properties";
import { bytes, count, dateTime } from "./units";

interface Dataset {
  name: string;
  kind: "filesystem" | "snapshot" | "volume" | "bookmark";
  pool: string;
  created_txg: number;
  properties: Properties;
}

interface Described {
  datasets: Dataset[];
  refused?: { reason: string }[];
}

/** What most people ask about comes first. */
const FIRST = ["used", "available", "referenced", "compressratio", "mountpoint", "mounted", "quota", "reservation", "recordsize", "volsize", "compression", "checksum", "atime", "sync", "readonly", "sharenfs", "origin"];

export class DatasetsPage {
  readonly element = h("div", { class: "two" });
  private readonly list = h("nav", { "aria-label": "Datasets" });
  private readonly detail = h("div");
  private names: Dataset[] = [];
  private snapshots: Dataset[] = [];
  private chosen: string;
  private snapshot: string | undefined;

  constructor(name: string) {
    this.chosen = name;
  }

  begin(): void {
    fill(this.element, this.list, this.detail);
    void this.load();
  }

  end(): void {
    this.detail.replaceChildren();
  }

  private async load(): Promise<void> {
    try {
      const described = await ask<Described>("dataset/describe", { names: [], kinds: ["filesystem", "volume"], properties: ["used", "available", "type"] });
      this.names = described.datasets;
      if (!this.names.some((one) => one.name === this.chosen)) this.chosen = this.names[0]?.name ?? "";
      this.renderList();
      await this.show();
    } catch (error) {
      fill(this.detail, h("p", { class: "bad", role: "alert" }, messageOf(error)));
    }
  }

  private readonly again = (): void => void this.load();

  private renderList(): void {
    fill(this.list,
      mayChange() && h("div", { class: "toolbar" }, button("Create", () => this.create())),
      this.names.map((one) => {
        const depth = one.name.split("/").length - 1;
        const line = h("button", {
          type: "button", class: "dataset", "aria-current": String(one.name === this.chosen), title: one.name,
          onclick: () => {
            this.chosen = one.name;
            this.snapshot = undefined;
            history.replaceState(null, "", `#/datasets/${encodeURIComponent(one.name)}`);
            this.renderList();
            void this.show();
            this.list.querySelector<HTMLElement>("[aria-current=true]")?.focus();
          },
        }, h("span", {}, `${one.kind === "volume" ? "▦" : "▤"} ${one.name.split("/").at(-1)}`), h("span", { class: "used" }, shownValue("used", one.properties["used"])));
        line.style.paddingLeft = `${6 + depth * 14}px`;
        return line;
      }),
      this.names.length ? null : h("p", { class: "hint" }, "no datasets available"));
  }

  private async show(): Promise<void> {
    const name = this.chosen;
    if (!name) return fill(this.detail);
    try {
      const [own, below] = await Promise.all([
        ask<Described>("dataset/describe", { names: [name], depth: 0, kinds: ["filesystem", "volume"] }),
        ask<Described>("dataset/describe", { names: [name], depth: 1, kinds: ["snapshot"], properties: ["used", "referenced", "creation", "written", "clones", "userrefs"] }),
      ]);
      const dataset = own.datasets[0];
      if (name !== this.chosen) return;
      if (!dataset) throw new Error(own.refused?.[0]?.reason ?? "it is gone");
      this.snapshots = below.datasets.filter((one) => one.kind === "snapshot");
      this.snapshots.sort((one, other) => one.created_txg - other.created_txg);
      fill(this.detail, this.head(dataset), this.timeline(), this.snapshotDetail(), this.properties(dataset));
    } catch (error) {
      fill(this.detail, h("p", { class: "bad", role: "alert" }, messageOf(error)));
    }
  }

  private head(dataset: Dataset): HTMLElement {
    const { name } = dataset;
    const [used, available] = [numberOf(dataset.properties["used"]), numberOf(dataset.properties["available"])];
    return h("section", { class: "card" }, h("header", {}, h("h2", {}, name),
      h("span", {}, `${dataset.kind}, ${bytes(used)} used, ${bytes(available)} available`),
      mayChange() && h("span", { class: "end" },
        button("Take a snapshot", () => this.takeSnapshot(name)),
        textOf(dataset.properties["origin"]) !== "-" && button("Promote", () =>
          confirmCommand(`Promote ${name}`, `zfs promote ${quoted(name)}`, "dataset/promote", { name }, this.again, { explain: [h("p", {}, `It no longer depends on ${textOf(dataset.properties["origin"])}, which depends on it instead.`)] })),
        name.includes("/") && button("Destroy", () => void this.destroy(name, true)))));
  }

  /** Snapshots from the first to now: the bar says what each alone holds. */
  private timeline(): HTMLElement {
    const { snapshots } = this;
    if (!snapshots.length) return h("section", { class: "card" }, h("p", { class: "hint" }, "It has no snapshots."));
    const time = (one: Dataset): number => numberOf(one.properties["creation"]) * 1000;
    const [first, last] = [time(snapshots[0]!), Math.max(Date.now(), time(snapshots.at(-1)!) + 1)];
    const most = Math.max(1, ...snapshots.map((one) => numberOf(one.properties["used"]) || 0));
    const shown = snapshots.slice(-400);
    const places = apart(shown.map((one) => (time(one) - first) / Math.max(1, last - first)));
    const marks = shown.flatMap((one, place) => {
      const at = `${(2 + 94 * places[place]!).toFixed(2)}%`;
      const text = `${one.name.split("@")[1]}, ${dateTime(time(one))}, ${shownValue("used", one.properties["used"])} of its own`;
      const mark = h("button", { type: "button", title: text, "aria-label": text, "aria-pressed": String(one.name === this.snapshot), onclick: () => {
        this.snapshot = one.name;
        void this.show().then(() => this.detail.querySelector<HTMLElement>(".timeline [aria-pressed=true]")?.focus());
      } });
      const size = h("span", { class: "size", "aria-hidden": "true" });
      mark.style.left = size.style.left = at;
      size.style.height = `${2 + (44 * (numberOf(one.properties["used"]) || 0)) / most}px`;
      return [size, mark];
    });
    const end = h("span", { class: "ends" }, "now");
    end.style.right = "0";
    return h("section", { class: "card", "aria-label": "Snapshots" }, h("h3", {}, `${count(snapshots.length)} snapshots`),
      h("div", { class: "timeline" }, h("span", { class: "ends" }, dateTime(first)), end, marks));
  }

  private snapshotDetail(): HTMLElement | null {
    const one = this.snapshots.find((snapshot) => snapshot.name === this.snapshot);
    if (!one) return null;
    const { name } = one;
    return h("section", { class: "card" }, h("header", {}, h("h2", {}, name),
      h("span", {}, `${shownValue("creation", one.properties["creation"])}, refers to ${shownValue("referenced", one.properties["referenced"])}, ${shownValue("used", one.properties["used"])} of its own`),
      mayChange() && h("span", { class: "end" },
        button("Roll back", () => void this.rollBack(one)), button("Clone", () => this.clone(name)),
        button("Send", () => void this.planSend(one)),
        button("Destroy", () => void this.destroy(name, false)))));
  }

  private properties(dataset: Dataset): HTMLElement {
    const names = Object.keys(dataset.properties);
    const rank = (name: string): number => (FIRST.includes(name) ? FIRST.indexOf(name) : 100);
    names.sort((one, other) => rank(one) - rank(other) || one.localeCompare(other));
    const rows = names.map((name) => {
      const property = dataset.properties[name]!;
      const isSet = property.source.type !== "none";
      return h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, shownValue(name, property)), h("td", {}, sourceText(property.source)),
        mayChange() && h("td", {}, isSet && button("set", () => this.set(dataset, name), { "aria-label": `Set ${name}` }), " ",
          (property.source.type === "local" || property.source.type === "received") && button("inherit", () =>
            confirmCommand(`Inherit ${name}`, `zfs inherit ${name} ${quoted(dataset.name)}`, "dataset/inherit", { name: dataset.name, property: name }, this.again), { "aria-label": `Inherit ${name}` })));
    });
    return h("section", { class: "card" }, h("table", { "aria-label": "Properties" },
      h("thead", {}, h("tr", {}, ["property", "value", "source", mayChange() ? "change" : null].filter((text) => text).map((text) => h("th", { scope: "col" }, text)))), h("tbody", {}, rows)));
  }

  // ---- changes ----

  /** A dialog with one text, which shows the command as it is typed. */
  private typed(title: string, label: string, value: string, verb: string, command: (text: string) => string, path: string, request: (text: string) => object, explain: string[] = []): void {
    const field = h("input", { type: "text", value, required: true });
    const shown = h("pre", { class: "command" }, command(value));
    field.addEventListener("input", () => (shown.textContent = command(field.value)));
    dialog(title, [...explain.map((text) => h("p", {}, text)), h("label", {}, label, field), shown], [{
      text: verb,
      run: async () => {
        await change(command(field.value), path, request(field.value));
        this.again();
      },
    }]);
    field.select();
  }

  private set(dataset: Dataset, property: string): void {
    const { name } = dataset;
    const now = dataset.properties[property]!;
    this.typed(`Set ${property} of ${name}`, property, textOf(now), "Set", (text) => `zfs set ${quoted(`${property}=${text}`)} ${quoted(name)}`,
      "dataset/set", (text) => ({ name, properties: [[property, text]] }), [`It is ${sourceText(now.source)} now.`]);
  }

  private takeSnapshot(name: string): void {
    const now = new Date(Date.now() - new Date().getTimezoneOffset() * 60000).toISOString();
    const label = `manual-${now.slice(0, 10)}_${now.slice(11, 19).replaceAll(":", "")}`;
    this.typed(`Snapshot of ${name}`, "Name behind @", label, "Take it", (text) => `zfs snapshot ${quoted(`${name}@${text}`)}`,
      "dataset/snapshot", (text) => ({ names: [`${name}@${text}`] }));
  }

  private clone(origin: string): void {
    const pool = origin.split(/[/@]/)[0]!;
    this.typed(`Clone ${origin}`, "Name of the clone", `${pool}/${origin.split("@")[0]!.split("/").at(-1)}-clone`, "Clone",
      (text) => `zfs clone ${quoted(origin)} ${quoted(text)}`, "dataset/clone", (text) => ({ origin, name: text }));
  }

  /** What a rollback gives up is asked for before it is offered. */
  private async rollBack(snapshot: Dataset): Promise<void> {
    const [dataset, label] = snapshot.name.split("@") as [string, string];
    const newer = this.snapshots.filter((one) => one.created_txg > snapshot.created_txg);
    let lost = "";
    try {
      const since = await ask<Described>("dataset/describe", { names: [dataset], depth: 0, kinds: ["filesystem", "volume"], properties: [`written@${label}`] });
      lost = `${shownValue(`written@${label}`, since.datasets[0]?.properties[`written@${label}`])} written since are given up.`;
    } catch (error) {
      lost = messageOf(error);
    }
    const clones = newer.map((one) => textOf(one.properties["clones"])).filter((text) => text && text !== "-").join(",");
    const explain = [h("p", {}, lost)];
    if (newer.length) explain.push(h("p", { class: "bad" }, `${count(newer.length)} newer snapshots are destroyed:`), h("ul", {}, newer.map((one) => h("li", {}, `${one.name} (${shownValue("used", one.properties["used"])} of its own)`))) as unknown as HTMLParagraphElement);
    else explain.push(h("p", {}, "It is the newest snapshot: no other is destroyed."));
    if (clones) explain.push(h("p", { class: "bad" }, `Clones are destroyed too: ${clones}`));
    const flag = clones ? "-R " : newer.length ? "-r " : "";
    confirmCommand("Roll back", `zfs rollback ${flag}${quoted(snapshot.name)}`, "dataset/rollback",
      { name: snapshot.name, newer: newer.length > 0, clones: clones !== "" }, this.again, { explain, isDanger: true });
  }

  private async destroy(name: string, isDataset: boolean): Promise<void> {
    const request = { name, recursive: isDataset };
    try {
      const plan = await ask<{ names: string[]; clones?: string[]; reclaimed_bytes?: number | null }>("dataset/destroy", { ...request, dry_run: true });
      const explain = [h("p", {}, `These are destroyed${plan.reclaimed_bytes ? `, and ${bytes(plan.reclaimed_bytes)} come free` : ""}:`),
        h("ul", {}, [...(plan.clones ?? []), ...plan.names].map((one) => h("li", {}, one)))];
      confirmCommand("Destroy", `zfs destroy ${isDataset ? "-r " : ""}${quoted(name)}`, "dataset/destroy", request, this.again, { explain, isDanger: true });
    } catch (error) {
      dialog("It cannot be destroyed", [h("p", { class: "bad" }, messageOf(error))], []);
    }
  }

  /** A stream needs the descriptor of a command: the page tells its size and the command. */
  private async planSend(snapshot: Dataset): Promise<void> {
    const older = this.snapshots.filter((one) => one.created_txg < snapshot.created_txg);
    const before = older.at(-1)?.name;
    const lines: Node[] = [];
    for (const [text, request] of [
      [`zfs send ${quoted(snapshot.name)} | ssh HOST zfs receive POOL/NAME`, { name: snapshot.name }],
      ...(before ? [[`zfs send -i ${quoted(`@${before.split("@")[1]}`)} ${quoted(snapshot.name)} | ssh HOST zfs receive POOL/NAME`, { name: snapshot.name, from: before }]] : []),
    ] as [string, object][]) {
      let size = "";
      try {
        const { steps } = await ask<{ steps: { estimated_bytes?: number | null }[] }>("dataset/plan-send", request);
        size = `about ${bytes(steps.reduce((sum, step) => sum + (step.estimated_bytes ?? 0), 0))}`;
      } catch (error) {
        size = messageOf(error);
      }
      lines.push(h("pre", { class: "command" }, text), h("p", { class: "hint" }, size));
    }
    dialog(`Send ${snapshot.name}`, ["A stream goes through the descriptor of a command, not through a browser. Type:", ...lines], []).classList.add("wide");
  }

  private create(): void {
    const name = h("input", { type: "text", value: this.chosen ? `${this.chosen}/` : "", required: true });
    const size = h("input", { type: "text", placeholder: "10G" });
    const more = h("textarea", { rows: 3, placeholder: "compression=zstd" });
    const command = h("pre", { class: "command" });
    let kind = "filesystem";
    const sizeLine = h("label", { hidden: true }, "Size", size);
    const pairs = (): [string, string][] => more.value.split("\n").filter((line) => line.includes("=")).map((line) => [line.slice(0, line.indexOf("=")).trim(), line.slice(line.indexOf("=") + 1).trim()]);
    const text = (): string => ["zfs create", ...pairs().map(([key, value]) => `-o ${quoted(`${key}=${value}`)}`), kind === "volume" ? `-V ${size.value || "SIZE"}` : "", quoted(name.value)].filter((part) => part).join(" ");
    const show = (): void => void (command.textContent = text());
    const choose = select("Kind", [["filesystem", "file system"], ["volume", "volume"]], kind, (value) => {
      kind = value;
      sizeLine.hidden = value !== "volume";
      show();
    });
    for (const field of [name, size, more]) field.addEventListener("input", show);
    show();
    dialog("Create a dataset", [h("label", {}, "Name", name), h("label", {}, "Kind ", choose), sizeLine, h("label", {}, "Properties, a line each", more), command], [{
      text: "Create",
      run: async () => {
        const request: Record<string, unknown> = { name: name.value, properties: pairs() };
        if (kind === "volume") {
          const parsed = /^([0-9.]+)\s*([KMGTP]?)(i?B)?$/i.exec(size.value.trim());
          if (!parsed) throw new Error("give a size, as 10G");
          const power = parsed[2] ? "KMGTP".indexOf(parsed[2].toUpperCase()) + 1 : 0;
          request["volume_bytes"] = Math.round(Number(parsed[1]) * 1024 ** power);
        }
        await change(text(), "dataset/create", request);
        this.chosen = name.value;
        this.again();
      },
    }]);
  }
}

/** Places from 0 to 1, ascending, moved until each can be clicked beside the one before. */
function apart(places: number[]): number[] {
  const gap = Math.min(0.026, 1 / Math.max(1, places.length - 1));
  const moved = [...places];
  for (let at = 1; at < moved.length; at++) moved[at] = Math.max(moved[at]!, moved[at - 1]! + gap);
  for (let at = moved.length - 1, most = 1; at >= 0; at--, most -= gap) moved[at] = Math.min(moved[at]!, most);
  return moved;
}
