// What happened to pools: the events that `zpool events` lists, newest first.

import { AlertsCard } from "./alerts-card";
import { ask } from "./client";
import { dialog, mayChange, messageOf } from "./dialogs";
import { button, fill, h } from "./dom";
import { dateTime } from "./units";

interface EventValue {
  kind: string;
  value?: unknown;
}

interface EventRecord {
  id: number;
  values: { name: string; value: EventValue }[];
}

/** Answers have some hundred events each; so many of them are asked for at most. */
const ANSWERS_MAX = 40;

export class EventsPage {
  private readonly alerts = new AlertsCard();
  private readonly events = h("div");
  readonly element = h("div", {}, this.alerts.element, this.events);
  private timer = 0;

  begin(): void {
    void this.load();
    if (!mayChange()) return;
    void this.alerts.load();
    this.timer = window.setInterval(() => void this.alerts.load(), 5000);
  }

  end(): void {
    clearInterval(this.timer);
  }

  private async load(): Promise<void> {
    try {
      const events: EventRecord[] = [];
      let dropped = 0;
      for (let turn = 0; turn < ANSWERS_MAX; turn++) {
        const reply = await ask<{ events: EventRecord[]; dropped?: number }>("pool/list-events", { after: events.at(-1)?.id ?? 0 });
        if (!reply.events.length) break;
        events.push(...reply.events);
        dropped += reply.dropped ?? 0;
      }
      events.reverse();
      fill(this.events, h("section", { class: "card" },
        h("header", {}, h("h2", {}, `${events.length} events`), dropped ? h("span", {}, `${dropped} older ones were dropped`) : null,
          h("span", { class: "end" }, button("refresh", () => void this.load()))),
        events.length ? h("table", {}, h("thead", {}, h("tr", {}, ["time", "class", "pool", "more"].map((text) => h("th", { scope: "col" }, text)))),
          h("tbody", {}, events.slice(0, 1000).map((event) => this.line(event)))) : h("p", { class: "hint" }, "There are none.")));
    } catch (error) {
      fill(this.events, h("p", { class: "bad", role: "alert" }, messageOf(error)));
    }
  }

  private line(event: EventRecord): HTMLElement {
    const value = (name: string): EventValue | undefined => event.values.find((pair) => pair.name === name)?.value;
    const text = (name: string): string => String(value(name)?.value ?? "");
    const time = value("time")?.value;
    const seconds = Array.isArray(time) ? Number(time[0]) : Number.NaN;
    return h("tr", {}, h("td", {}, Number.isFinite(seconds) ? dateTime(seconds * 1000) : "–"), h("td", {}, text("class")), h("td", {}, text("pool")),
      h("td", {}, button("all values", () => {
        dialog(text("class"), [h("div", { class: "scroll", tabindex: 0 }, h("table", {}, h("tbody", {}, event.values.map((pair) =>
          h("tr", {}, h("th", { scope: "row" }, pair.name), h("td", {}, h("code", {}, JSON.stringify(pair.value.value ?? "-"))))))))], []).classList.add("wide");
      }, { "aria-label": `All values of ${text("class")}` })));
  }
}
