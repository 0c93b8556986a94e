// Alerts: conditions on statistics, how they are now, added and removed as `tarn alert` does.

import { ask, change } from "./client";
import { confirmCommand, dialog, messageOf, quoted } from "./dialogs";
import { button, fill, h, select } from "./dom";
import { count, dateTime, duration, rate, span } from "./units";

interface Alert {
  name: string;
  statement: string;
  measure: string;
  slower_ns?: number | null;
  of?: string | null;
  side: "above" | "below";
  threshold: number;
  for_s: number;
}

interface Status {
  alert: Alert;
  state: "quiet" | "pending" | "firing";
  since_ms?: number | null;
  value?: number | null;
  problem?: string | null;
}

/** Measures that need no second statement and no time. */
const MEASURES = ["rate", "mean", "p50", "p90", "p99", "p999", "max", "value"];
const TIMES = ["mean", "p50", "p90", "p99", "p999", "max"];
const UNITS: Record<string, number> = { "": 1, ns: 1, us: 1e3, ms: 1e6, s: 1e9 };

/** A number, or a time in nanoseconds: `0.01`, `10ms`. */
export function thresholdOf(text: string): number | undefined {
  const [, number, unit] = /^\s*(\d+(?:\.\d+)?)\s*(ns|us|ms|s|)\s*$/.exec(text) ?? [];
  return number === undefined ? undefined : Number(number) * UNITS[unit!]!;
}

export class AlertsCard {
  readonly element = h("div");
  private shown = "";

  async load(): Promise<void> {
    try {
      const { alerts } = await ask<{ alerts: Status[] }>("analytics/list-alerts", {});
      const text = JSON.stringify(alerts);
      // What has the focus keeps it.
      if (text === this.shown) return;
      this.shown = text;
      const head = ["state", "name", "condition", "now", "since", "action"].map((text) => h("th", { scope: "col" }, text));
      fill(this.element, h("section", { class: "card", "aria-label": "Alerts" },
        h("header", {}, h("h2", {}, `${count(alerts.length)} alerts`), h("span", { class: "end" }, button("Add an alert", () => this.add()))),
        alerts.length ? h("table", {}, h("thead", {}, h("tr", {}, head)), h("tbody", {}, alerts.map((one) => this.line(one))))
          : h("p", { class: "hint" }, "None: an alert tells when a statistic is beyond a threshold for long enough.")));
    } catch (error) {
      this.shown = "";
      fill(this.element, h("p", { class: "bad", role: "alert" }, messageOf(error)));
    }
  }

  private line({ alert, state, since_ms, value, problem }: Status): HTMLElement {
    const shown = (number: number): string => (TIMES.includes(alert.measure) && alert.statement.includes(":latency") ? duration(number) : rate(number));
    const condition = `${alert.measure} of ${alert.statement}${alert.of ? ` / ${alert.of}` : ""}${alert.slower_ns ? ` slower than ${duration(alert.slower_ns)}` : ""} ` +
      `${alert.side === "above" ? ">" : "<"} ${shown(alert.threshold)}${alert.for_s ? ` for ${span(alert.for_s)}` : ""}`;
    return h("tr", {},
      h("td", { class: state === "firing" ? "bad" : "" }, state), h("td", {}, alert.name), h("td", {}, h("code", {}, condition)),
      h("td", {}, problem ?? (typeof value === "number" ? shown(value) : "–")), h("td", {}, since_ms ? dateTime(since_ms) : ""),
      h("td", {}, button("remove", () => confirmCommand(`Remove the alert ${alert.name}`, `tarn alert remove ${quoted(alert.name)}`, "analytics/remove-alert", { name: alert.name }, () => void this.load(), { isDanger: true }),
        { "aria-label": `Remove ${alert.name}` })));
  }

  private add(): void {
    const field = (label: string, value: string): HTMLInputElement => h("input", { type: "text", required: true, value, "aria-label": label });
    const name = field("Name", "");
    const statement = field("Statement", "nfs.ops[op=read]:latency");
    const threshold = field("Threshold", "10ms");
    const seconds = field("For how many seconds", "30");
    let [measure, side] = ["p99", "above"];
    const command = h("pre", { class: "command" });
    const text = (): string => `tarn alert add -d ${quoted(seconds.value)}s ${quoted(name.value || "NAME")} ${measure} ${quoted(statement.value)} '${side === "above" ? ">" : "<"}' ${quoted(threshold.value)}`;
    const show = (): void => void (command.textContent = text());
    [name, statement, threshold, seconds].forEach((one) => one.addEventListener("input", show));
    show();
    dialog("Add an alert", [
      h("label", {}, "Name", name), h("label", {}, "Statement", statement),
      h("p", {}, select("What of it", MEASURES, measure, (value) => { measure = value; show(); }), " is ",
        select("Which side is bad", ["above", "below"], side, (value) => { side = value; show(); })),
      h("label", {}, "Threshold: a number, or a time as 10ms", threshold), h("label", {}, "For so many seconds", seconds), command], [{
      text: "Add",
      run: async () => {
        const limit = thresholdOf(threshold.value);
        if (limit === undefined) throw new Error(`'${threshold.value}' is no threshold, as 0.5 and 10ms are`);
        if (!/^\d{1,6}$/.test(seconds.value)) throw new Error(`'${seconds.value}' is no count of seconds`);
        const alert = { name: name.value, statement: statement.value, measure, side, threshold: limit, for_s: Number(seconds.value) };
        await change(text(), "analytics/add-alert", { alert });
        void this.load();
      },
    }]);
  }
}
