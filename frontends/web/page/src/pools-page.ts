// Pools and their devices: state, a picture of the vdev tree, scrub and replace with progress.

import { ask, change } from "./client";
import { confirmCommand, dialog, mayChange, menu, messageOf, quoted, runCommand } from "./dialogs";
import { button, fill, h, select } from "./dom";
import { type Properties, numberOf, shownValue } from "./properties";
import { bytes, count, dateTime, share, span } from "./units";

interface Vdev {
  name: string;
  kind: string;
  path?: string | null;
  guid: number;
  role: string;
  state: string;
  remark?: string | null;
  read_errors: number;
  write_errors: number;
  checksum_errors: number;
  slow_ios: number;
  scan_note?: string | null;
  scan_written_bytes: number;
  size_bytes: number;
  allocated_bytes: number;
  children: Vdev[];
}

interface Scan {
  function: string;
  state: string;
  start_time_s: number;
  end_time_s: number;
  to_examine_bytes: number;
  skipped_bytes: number;
  examined_bytes: number;
  issued_bytes: number;
  processed_bytes: number;
  errors: number;
  pass_issued_bytes: number;
  pass_start_s: number;
  paused_since_s: number;
  spent_paused_s: number;
}

interface Rebuild {
  name: string;
  state: string;
  issued_bytes: number;
  estimated_bytes: number;
  errors: number;
}

interface Pool {
  name: string;
  guid: number;
  state: string;
  status?: string | null;
  action?: string | null;
  scan?: string | null;
  scan_stats?: Scan | null;
  rebuild_stats?: Rebuild[];
  sections: [string, string][];
  properties: Properties;
  layout: Vdev[];
  error_count: number;
  errors: string[];
}

const GOOD = new Set(["ONLINE", "AVAIL", "INUSE"]);

export class PoolsPage {
  readonly element = h("div");
  private timer = 0;
  private shown = "";
  private readonly said = h("p", { class: "said bad", role: "alert" });
  private readonly cards = h("div");

  begin(): void {
    fill(this.element, h("div", { class: "toolbar" },
      mayChange() && button("Create a pool", () => this.create())), this.said, this.cards);
    void this.load();
    this.timer = window.setInterval(() => void this.load(), 2000);
  }

  end(): void {
    clearInterval(this.timer);
  }

  private async load(): Promise<void> {
    if (document.hidden) return;
    try {
      const { pools } = await ask<{ pools: Pool[] }>("pool/describe", { names: [], with_errors: true });
      this.said.textContent = "";
      const text = JSON.stringify(pools);
      if (text === this.shown) return;
      this.shown = text;
      // What has the focus keeps it.
      const focused = (document.activeElement as HTMLElement | null)?.dataset?.["key"];
      fill(this.cards, pools.length ? pools.map((pool) => this.card(pool)) : h("p", { class: "hint" }, "no pools available"));
      if (focused) this.cards.querySelector<HTMLElement>(`[data-key="${CSS.escape(focused)}"]`)?.focus();
    } catch (error) {
      this.said.textContent = messageOf(error);
    }
  }

  private again(): void {
    this.shown = "";
    void this.load();
  }

  private card(pool: Pool): HTMLElement {
    const { name } = pool;
    const scan = pool.scan_stats;
    const runs = scan?.state === "SCANNING";
    const isScrub = runs && scan.function === "SCRUB";
    const scrub = (text: string, flag: string, action: string): HTMLElement =>
      button(text, () => void runCommand(`zpool scrub ${flag}${name}`, "pool/scrub", { name, action }, () => this.again()), { "data-key": `${name}-${action}` });
    const [size, used] = [numberOf(pool.properties["size"]), numberOf(pool.properties["allocated"])];
    return h("section", { class: "card", "aria-label": `Pool ${name}` },
      h("header", {}, h("h2", {}, name), badge(pool.state),
        h("span", {}, `${bytes(used)} of ${bytes(size)} used (${share(used, size)}), ${shownValue("fragmentation", pool.properties["fragmentation"])} fragmented`),
        mayChange() && h("span", { class: "end" },
          !runs || (isScrub && scan.paused_since_s) ? scrub(runs ? "resume scrub" : "scrub", "", "start") : null,
          isScrub && !scan.paused_since_s && scrub("pause scrub", "-p ", "pause"),
          isScrub && scrub("stop scrub", "-s ", "stop"),
          button("clear errors", () => void runCommand(`zpool clear ${name}`, "pool/clear", { name }, () => this.again()), { "data-key": `${name}-clear` }),
          button("history", () => void this.history(name), { "data-key": `${name}-history` }),
          button("export", () => confirmCommand(`Export ${name}`, `zpool export ${name}`, "pool/export", { name }, () => this.again(), {
            explain: [h("p", {}, "Its file systems are unmounted, and it is no longer imported here.")], isDanger: true,
          }), { "data-key": `${name}-export` }))),
      pool.status && h("p", { class: "said" }, pool.status.replace(/\s+/g, " ")),
      pool.action && h("p", { class: "hint" }, pool.action.replace(/\s+/g, " ")),
      scan && this.progress(scan),
      (pool.rebuild_stats ?? []).filter((one) => one.state === "ACTIVE").map((one) =>
        meter(`sequential resilver of ${one.name}`, one.issued_bytes, one.estimated_bytes, `${bytes(one.issued_bytes)} of about ${bytes(one.estimated_bytes)}, ${count(one.errors)} errors`)),
      pool.sections.map(([word, text]) => h("p", {}, `${word}: ${text.replace(/\s+/g, " ")}`)),
      this.picture(pool),
      pool.error_count > 0 && h("details", {}, h("summary", { class: "bad" }, `${count(pool.error_count)} data errors`),
        h("ul", {}, pool.errors.slice(0, 200).map((path) => h("li", {}, h("code", {}, path))))));
  }

  private progress(scan: Scan): HTMLElement {
    const what = scan.function.toLowerCase();
    const whole = Math.max(1, scan.to_examine_bytes - scan.skipped_bytes);
    if (scan.state !== "SCANNING") {
      const took = scan.end_time_s - scan.start_time_s;
      return h("p", {}, `${what} ${scan.state.toLowerCase()} ${dateTime(scan.end_time_s * 1000)}: ${bytes(scan.processed_bytes)} ${what === "scrub" ? "repaired" : "resilvered"} in ${span(took)} with ${count(scan.errors)} errors`);
    }
    const seconds = Math.max(1, Date.now() / 1000 - scan.pass_start_s - scan.spent_paused_s);
    const perSecond = scan.pass_issued_bytes / seconds;
    const left = perSecond > 0 ? `, about ${span(Math.max(1, Math.round((whole - scan.issued_bytes) / perSecond)))} left` : "";
    const pace = scan.paused_since_s ? `paused since ${dateTime(scan.paused_since_s * 1000)}` : `${bytes(perSecond)}/s${left}`;
    return meter(what, scan.issued_bytes, whole, `${bytes(scan.issued_bytes)} of ${bytes(whole)}, ${bytes(scan.processed_bytes)} ${what === "scrub" ? "repaired" : "resilvered"}, ${count(scan.errors)} errors, ${pace}`);
  }

  /** The vdev tree as boxes. */
  private picture(pool: Pool): HTMLElement {
    const roles = [...new Set(pool.layout.map((vdev) => vdev.role))];
    return h("div", {}, roles.map((role) => [
      roles.length > 1 || role !== "data" ? h("h3", {}, role) : null,
      h("div", { class: "vdevs" }, pool.layout.filter((vdev) => vdev.role === role).map((vdev) => this.vdev(pool, vdev))),
    ]));
  }

  private vdev(pool: Pool, vdev: Vdev): HTMLElement {
    if (!vdev.children.length) return h("div", { class: `vdev${GOOD.has(vdev.state) ? "" : " bad-state"}` }, this.disk(pool, vdev, []));
    return h("div", { class: `vdev${GOOD.has(vdev.state) ? "" : " bad-state"}` },
      h("strong", {}, vdev.name), " ", badge(vdev.state),
      vdev.size_bytes > 0 && h("small", {}, `${bytes(vdev.allocated_bytes)} of ${bytes(vdev.size_bytes)}`),
      h("div", { class: "members" }, vdev.children.map((child) =>
        child.children.length ? this.vdev(pool, child) : this.disk(pool, child, vdev.children))));
  }

  private disk(pool: Pool, disk: Vdev, siblings: Vdev[]): HTMLElement {
    const errors = disk.read_errors + disk.write_errors + disk.checksum_errors;
    const note = [disk.remark, disk.scan_note && `${disk.scan_note}, ${bytes(disk.scan_written_bytes)} written`].filter((part) => part);
    return h("div", { class: `disk${GOOD.has(disk.state) ? "" : " bad-state"}`, title: disk.path ?? "" },
      h("strong", {}, disk.name), " ", badge(disk.state),
      h("small", { class: errors ? "bad" : "" }, `errors: ${count(disk.read_errors)} read, ${count(disk.write_errors)} write, ${count(disk.checksum_errors)} checksum`),
      disk.slow_ios > 0 && h("small", {}, `${count(disk.slow_ios)} slow`),
      note.map((text) => h("small", {}, text)),
      mayChange() && button("actions…", (event) => {
        const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
        menu(box.left, box.bottom, disk.path ?? disk.name, this.actions(pool.name, disk, siblings));
      }, { "data-key": `${pool.name}-${disk.guid}`, "aria-haspopup": "menu", "aria-label": `Actions for ${disk.name}` }));
  }

  private actions(pool: string, disk: Vdev, siblings: Vdev[]): { text: string; run: () => void }[] {
    // The name of a device that is not there is its guid, whole as no number here would be.
    const device = disk.path ?? disk.name;
    const run = (verb: string, path: string, request: object) => (): void =>
      void runCommand(`zpool ${verb} ${pool} ${quoted(device)}`, path, request, () => this.again());
    const all = [{ text: "replace…", run: () => this.join(pool, device, true) }];
    if (disk.role === "spare" || disk.role === "cache") {
      return [{ text: "remove", run: run("remove", "pool/remove", { name: pool, devices: [device] }) }];
    }
    if (disk.state === "ONLINE" || disk.state === "DEGRADED") all.push({ text: "take offline", run: run("offline", "pool/offline", { name: pool, devices: [device] }) });
    else all.push({ text: "bring online", run: run("online", "pool/online", { name: pool, devices: [device] }) });
    all.push({ text: "attach a mirror…", run: () => this.join(pool, device, false) });
    if (siblings.length > 1) all.push({ text: "detach", run: run("detach", "pool/detach", { name: pool, device }) });
    all.push({ text: "clear errors", run: run("clear", "pool/clear", { name: pool, device }) });
    return all;
  }

  private join(pool: string, device: string, replaces: boolean): void {
    const path = h("input", { type: "text", required: true, "aria-label": "Path of the new device", placeholder: "/dev/disk/by-id/…" });
    const sequential = h("input", { type: "checkbox" });
    const command = h("pre", { class: "command" });
    const verb = replaces ? "replace" : "attach";
    const text = (): string => `zpool ${verb} ${sequential.checked ? "-s " : ""}${pool} ${quoted(device)} ${quoted(path.value || "NEW")}`;
    const show = (): void => void (command.textContent = text());
    path.addEventListener("input", show);
    sequential.addEventListener("change", show);
    show();
    dialog(replaces ? "Replace a device" : "Attach a device", [
      h("p", {}, replaces ? `${device} is replaced by` : `${device} is mirrored by`), path,
      h("label", {}, sequential, " in the order of offsets (-s), without checking checksums"), command], [{
      text: replaces ? "Replace" : "Attach",
      run: async () => {
        if (!path.value) throw new Error("name the new device");
        await change(text(), "pool/attach", { name: pool, device, new_device: path.value, replaces, sequential: sequential.checked });
        this.again();
      },
    }]);
  }

  private create(): void {
    const name = h("input", { type: "text", required: true });
    const devices = h("textarea", { rows: 4, placeholder: "/dev/disk/by-id/…" });
    const command = h("pre", { class: "command" });
    let kind = "mirror";
    const paths = (): string[] => devices.value.split(/\s+/).filter((path) => path);
    const text = (): string => `zpool create ${quoted(name.value || "NAME")} ${[kind === "leaf" ? "" : kind, ...paths().map(quoted)].filter((part) => part).join(" ")}`;
    const show = (): void => void (command.textContent = text());
    const choose = select("Layout", [["leaf", "no redundancy"], "mirror", "raidz1", "raidz2", "raidz3"], kind, (value) => {
      kind = value;
      show();
    });
    name.addEventListener("input", show);
    devices.addEventListener("input", show);
    show();
    dialog("Create a pool", [h("label", {}, "Name", name), h("label", {}, "Layout ", choose), h("label", {}, "Devices, a line each", devices), command], [{
      text: "Create",
      run: async () => {
        const leaves = paths().map((path) => ({ kind: "leaf", path }));
        const vdevs = kind === "leaf" ? leaves : [{ kind, children: leaves }];
        await change(text(), "pool/create", { name: name.value, vdevs });
        this.again();
      },
    }]);
  }

  private async history(name: string): Promise<void> {
    try {
      const { records } = await ask<{ records: { time_s: number; command?: string | null }[] }>("pool/history", { name });
      const typed = records.filter((record) => record.command).slice(-300).reverse();
      dialog(`History of ${name}`, [h("div", { class: "scroll", tabindex: 0 }, h("table", {}, h("tbody", {}, typed.map((record) =>
        h("tr", {}, h("td", {}, dateTime(record.time_s * 1000)), h("td", {}, h("code", {}, record.command!)))))))], []).classList.add("wide");
    } catch (error) {
      this.said.textContent = messageOf(error);
    }
  }
}

const badge = (state: string): HTMLElement => h("span", { class: `badge ${GOOD.has(state) ? "ok" : "bad"}` }, state);

function meter(what: string, part: number, whole: number, text: string): HTMLElement {
  const percent = Math.max(0, Math.min(100, (100 * part) / Math.max(whole, 1)));
  const bar = h("span");
  bar.style.width = `${percent}%`;
  return h("div", {}, `${what}: ${percent.toFixed(1)} %, ${text}`,
    h("div", { class: "meter", role: "progressbar", "aria-label": what, "aria-valuenow": Math.round(percent), "aria-valuemin": 0, "aria-valuemax": 100 }, bar));
}
