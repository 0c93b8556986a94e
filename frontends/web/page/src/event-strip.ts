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

export class EventStrip {
  readonly element = h("div", { class: "event-strip", role: "group", "aria-label": "What happened" });

  constructor(private readonly open: (mark: Mark) => void) {}

  /** Shows marks of a range of time. */
  show(marks: Mark[], from: number, until: number): void {
    const width = this.element.clientWidth - LEFT - RIGHT;
    const x = (ms: number): number => LEFT + Math.max(0, Math.min(1, (ms - from) / (until - from))) * width;
    const ticks = marks.filter((mark) => mark.kind === "txg").slice(-TICKS_MAX);
    const others = marks.filter((mark) => mark.kind !== "txg").slice(-BUTTONS_MAX);
    const canvas = h("canvas", { "aria-hidden": "true" });
    const focused = (document.activeElement as HTMLElement | null)?.dataset?.["mark"];
    fill(this.element, h("span", { class: "strip-name" }, "events"), canvas, others.map((mark) => {
      const text = `${clock(mark.at_ms)} ${mark.kind}${mark.pool ? ` ${mark.pool}` : ""}: ${mark.text}`;
      const sign = h("button", {
        type: "button", class: `mark ${mark.kind}`, title: text, "aria-label": text,
        "data-mark": `${mark.at_ms}${mark.kind}`, onclick: () => this.open(mark),
      }, SIGNS[mark.kind] ?? "·");
      sign.style.left = `${x(mark.at_ms)}px`;
      if (mark.until_ms) sign.style.setProperty("--length", `${Math.max(0, x(mark.until_ms) - x(mark.at_ms))}px`);
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
