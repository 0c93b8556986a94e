// Numbers as people read them.

const trim = (value: number, digits = 3): string => {
  if (value === 0) return "0";
  const rounded = Number(value.toPrecision(digits));
  return Math.abs(rounded) >= 1000 ? String(Math.round(rounded)) : String(rounded);
};

/** Bytes, with binary units. */
export function bytes(value: number): string {
  const units = ["B", "K", "M", "G", "T", "P", "E"];
  let unit = 0;
  while (Math.abs(value) >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit++;
  }
  return `${trim(value)}${units[unit]}`;
}

/** Nanoseconds. */
export function duration(ns: number): string {
  if (ns < 1e3) return `${trim(ns)} ns`;
  if (ns < 1e6) return `${trim(ns / 1e3)} µs`;
  if (ns < 1e9) return `${trim(ns / 1e6)} ms`;
  if (ns < 120e9) return `${trim(ns / 1e9)} s`;
  return span(ns / 1e9);
}

/** Seconds, as days, hours and minutes. */
export function span(seconds: number): string {
  const parts: [number, string][] = [
    [86400, "d"],
    [3600, "h"],
    [60, "min"],
    [1, "s"],
  ];
  for (let place = 0; place < parts.length; place++) {
    const [size, unit] = parts[place]!;
    if (seconds < size && size > 1) continue;
    const whole = Math.floor(seconds / size);
    const next = parts[place + 1];
    const rest = next ? Math.floor((seconds % size) / next[0]) : 0;
    return rest && next ? `${whole} ${unit} ${rest} ${next[1]}` : `${whole} ${unit}`;
  }
  return "0 s";
}

/** A count, with thousands apart. */
export const count = (value: number): string =>
  Number.isInteger(value) ? value.toLocaleString("en") : trim(value);

/** A rate. */
export const rate = (value: number): string => (value >= 100 ? count(Math.round(value)) : trim(value));

/** A part of a whole. */
export function share(part: number, whole: number): string {
  if (whole <= 0) return "–";
  const percent = (100 * part) / whole;
  if (part > 0 && percent < 0.01) return "<0.01 %";
  return `${percent < 10 ? percent.toFixed(2) : percent.toFixed(1)} %`;
}

/** Values of a numeric field. */
export function valueOf(field: string | undefined, value: number): string {
  if (field === "size" || field === "offset") return bytes(value);
  if (field === "latency" || field?.endsWith("_time")) return duration(value);
  return rate(value);
}

const pad = (value: number, digits = 2): string => String(value).padStart(digits, "0");

/** A time of the day, local. */
export function clock(ms: number, withMs = false): string {
  const date = new Date(ms);
  const text = `${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}`;
  return withMs ? `${text}.${pad(date.getMilliseconds(), 3)}` : text;
}

/** A day and time, local. */
export function dateTime(ms: number): string {
  const date = new Date(ms);
  const day = `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())}`;
  return `${day} ${clock(ms)}`;
}
