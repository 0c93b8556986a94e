// The tools of a row: which statistic, broken down how, drawn how, beside what.

import { button, fill, h, select } from "./dom";
import { NORMALS, PALETTES } from "./palettes";
import type { Row } from "./row";
import { exportMenu } from "./row-export";
import { DISCRETE } from "./row-host";
import { known } from "./row-source";
import type { RowState, RowView } from "./worksheet";

type Choice = [string, string];

const VIEWS: Choice[] = [["plot", "plot"], ["stack", "stacked"], ["mirror", "hits and misses"], ["tree", "hierarchy"]];
const SCALES: Choice[] = [["log", "log"], ["linear", "linear"]];
const CROPS: Choice[] = [["0", "all values"], ["0.0001", "crop 0.01 %"], ["0.001", "crop 0.1 %"], ["0.01", "crop 1 %"]];
const COMPARE: Choice[] = [
  ["off", "compare: –"], ["before", "with the time before"], ["hour", "with an hour ago"], ["day", "with yesterday"], ["week", "with last week"],
];

const isNumeric = (row: Row, field: string): boolean => {
  const kind = row.host.catalogue().fields.find((one) => one.name === field)?.kind;
  return kind === "durations" || kind === "bytes";
};

/** The fields with names that a row may be broken down by. */
export function discreteOf(row: Row): string[] {
  const fields = (known(row.host.catalogue(), row.state.statistic)?.fields ?? []).filter((field) => !isNumeric(row, field));
  return fields.length || row.source.isSampled() ? fields : DISCRETE;
}

function numericOf(row: Row): string[] {
  const fields = known(row.host.catalogue(), row.state.statistic)?.fields ?? [];
  return fields.length ? fields.filter((field) => isNumeric(row, field)) : ["latency", "size", "offset"];
}

/** The field whose values say what was a hit and what a miss. */
export const hitField = (row: Row): string => (row.discrete().includes("result") ? "result" : "cause");

export function renderTools(row: Row): void {
  const { state } = row;
  const isSampled = row.source.isSampled();
  const isMap = state.view === "plot" && state.numeric !== "" && !isSampled;
  fill(row.tools,
    choices(row, isSampled),
    isMap && mapTools(row),
    row.source.by() !== "" && state.view === "plot" && toggle(row, "rainbow", "rainbow", false),
    state.view !== "tree" && beside(row));
}

/** What is done with the whole row. */
export function rowActions(row: Row): HTMLElement {
  return h("span", { class: "row-actions" },
    button("export", (event) => exportMenu(row, event), { title: "Save as CSV (e), JSON or a picture", "aria-haspopup": "menu" }),
    button("↑", () => row.host.moveRow(row, -1), { "aria-label": "Move up" }),
    button("↓", () => row.host.moveRow(row, 1), { "aria-label": "Move down" }),
    button("×", () => row.host.removeRow(row), { "aria-label": "Close this statistic" }));
}

function toggle(row: Row, text: string, key: "tint" | "rainbow", isReload: boolean): HTMLElement {
  const flip = (): void => {
    row.state[key] = !row.state[key];
    row.update(isReload);
  };
  return button(text, flip, { "aria-pressed": String(row.state[key]), class: "toggle" });
}

/** What is asked. */
function choices(row: Row, isSampled: boolean): HTMLElement[] {
  const { state } = row;
  const statistics = row.host.catalogue().statistics.map((one): Choice => [one.name, one.name]);
  if (!statistics.some(([name]) => name === state.statistic)) statistics.unshift([state.statistic, state.statistic]);
  const views = VIEWS.filter(([view]) => view !== "mirror" || !isSampled || row.discrete().includes("result"));
  const all = [
    select("Statistic", statistics, state.statistic, (value) => {
      Object.assign(state, { statistic: value, highlighted: [], excluded: [] });
      if (row.source.isSampled() && !row.discrete().includes(state.by)) state.by = "";
      row.update(true);
    }),
    select("Broken down by", [["", "by: –"], ...row.discrete().map((field): Choice => [field, `by ${field}`])], state.by, (value) => row.breakDown(value)),
  ];
  if (!isSampled) {
    all.push(select("Values", [["", "how many"], ...numericOf(row).map((field): Choice => [field, `by ${field}`])], state.numeric, (value) => {
      state.numeric = value;
      delete state.values;
      row.update(true);
    }));
  }
  all.push(select("View", views, state.view, (value) => {
    state.view = value as RowView;
    if (value === "mirror") state.by = hitField(row);
    row.update(true);
  }));
  return all;
}

/** How a heat map is drawn. */
function mapTools(row: Row): HTMLElement[] {
  const { state } = row;
  const draw = (some: Partial<RowState>): void => {
    Object.assign(state, some);
    if ("scale" in some || "crop" in some) delete state.values;
    row.update(false);
  };
  return [
    select("Scale", SCALES, state.scale, (value) => draw({ scale: value as RowState["scale"] })),
    select("Outliers left out", CROPS, String(state.crop), (value) => draw({ crop: Number(value) })),
    select("Palette", PALETTES.map((one): Choice => [one, one]), state.palette, (value) => draw({ palette: value as RowState["palette"] })),
    select("Strength of colour", NORMALS.map((one): Choice => [one, `by ${one}`]), state.normal, (value) => draw({ normal: value as RowState["normal"] })),
    toggle(row, "tint by cause", "tint", true),
  ];
}

/** What it is drawn together with: another time, another statistic. */
function beside(row: Row): HTMLElement[] {
  const { state } = row;
  const all: HTMLElement[] = [];
  if (!state.window && state.view !== "mirror") {
    all.push(select("Compare", COMPARE, state.compare, (value) => {
      state.compare = value as RowState["compare"];
      row.update(true);
    }));
  }
  if (state.view === "mirror") return all;
  const others = row.host.catalogue().statistics.filter((one) => one.name !== state.statistic);
  all.push(select("Second statistic", [["", "with: –"], ...others.map((one): Choice => [one.name, `with ${one.name}`])], state.second, (value) => {
    state.second = value;
    row.update(true);
  }));
  if (state.second) {
    all.push(select("Second statistic is drawn", [["over", "drawn over"], ["minus", "taken away"]], state.combine, (value) => {
      state.combine = value as RowState["combine"];
      row.update(true);
    }));
  }
  return all;
}
