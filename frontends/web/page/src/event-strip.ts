// What happened in the pools, on the time axis of the plots.

import { LEFT, RIGHT } from "./axes";
import type { Mark } from "./contract";
import { fill, h } from "./dom";
import { clock } from "./units";

/** Marks that are buttons; of txgs there are many, and they are ticks. */
const BUTTONS_MAX = 120;
const TICKS_MAX = 2000;
const SIGNS: Record<string, string> = {
  scrub: "◎", resilver: "◉", snapshot: "◆", import: "⇥", fault: "!", history: "›", alert: "▲", note: "✎",
};

const SERIOUS = ["fault", "alert"];
/** Marks that are closer than so many pixels are one button. */
const CLOSE = 20;

/** Marks that would lie upon each other, together. */
export function clusters(marks: Mark[], x: (ms: number) => number): Mark[][] {
  const all: Mark[][] = [];
  for (const mark of [...marks].sort((one, other) => one.at_ms - other.at_ms)) {
    const last = all.at(-1);
    if (last && x(mark.at_ms) - x(last[0]!.at_ms) < CLOSE) last.push(mark);
    else all.push([mark]);
  }
  return all;
}

export class EventStrip {
  readonly element = h("div", { class: "event-strip", role: "group", "aria-label": "What happened" });

  constructor(private readonly open: (marks: Mark[]) => void) {}

  /** Shows marks of a range of time. */
  show(marks: Mark[], from: number, until: number): void {
    const width = this.element.clientWidth - LEFT - RIGHT;
    const x = (ms: number): number => LEFT + Math.max(0, Math.min(1, (ms - from) / (until - from))) * width;
    const ticks = marks.filter((mark) => mark.kind === "txg").slice(-TICKS_MAX);
    const others = marks.filter((mark) => mark.kind !== "txg").slice(-BUTTONS_MAX);
    const canvas = h("canvas", { "aria-hidden": "true" });
    const focused = (document.activeElement as HTMLElement | null)?.dataset?.["mark"];
    fill(this.element, h("span", { class: "strip-name" }, "events"), canvas, clusters(others, x).map((marks) => {
      const first = marks[0]!;
      const texts = marks.map((mark) => `${clock(mark.at_ms)} ${mark.kind}${mark.pool ? ` ${mark.pool}` : ""}: ${mark.text}`);
      // The most serious kind gives the colour.
      const kind = (marks.find((mark) => SERIOUS.includes(mark.kind)) ?? first).kind;
      const sign = h("button", {
        type: "button", class: `mark ${kind}`, title: texts.join("\n"), "aria-label": `${marks.length > 1 ? `${marks.length} events: ` : ""}${texts.join("; ")}`,
        "data-mark": `${first.at_ms}${first.kind}`, onclick: () => this.open(marks),
      }, marks.length > 1 ? String(marks.length) : (SIGNS[first.kind] ?? "·"));
      sign.style.left = `${x(first.at_ms)}px`;
      const until = Math.max(...marks.map((mark) => mark.until_ms ?? 0));
      if (until) sign.style.setProperty("--length", `${Math.max(0, x(until) - x(first.at_ms))}px`);
      return sign;
    }));
    if (focused) this.element.querySelector<HTMLElement>(`[data-mark="${CSS.escape(focused)}"]`)?.focus();
    canvas.width = Math.max(1, this.element.clientWidth);
    canvas.height = 10;
    const context = canvas.getContext("2d")!;
    context.fillStyle = "#7a8ca5";
    for (const tick of ticks) context.fillRect(x(tick.at_ms), 2, 1, 6);
  }
}
