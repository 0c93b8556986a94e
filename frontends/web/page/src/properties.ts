// Properties of pools and datasets, as replies have them.

import { bytes, dateTime } from "./units";

export type Value = { kind: "number"; value: number } | { kind: "text"; value: string } | { kind: "absent" };
export type Source = { type: "none" | "default" | "local" | "temporary" | "received" } | { type: "inherited"; from: string };

export interface Property {
  value: Value;
  source: Source;
  received?: string | null;
}

export type Properties = Record<string, Property>;

const BYTES = new Set([
  "used", "available", "referenced", "quota", "reservation", "refquota", "refreservation", "volsize", "volblocksize",
  "recordsize", "usedbysnapshots", "usedbydataset", "usedbychildren", "usedbyrefreservation", "written", "logicalused",
  "logicalreferenced", "special_small_blocks", "size", "allocated", "free", "checkpoint", "freeing", "leaked", "expandsize",
]);
const RATIOS = new Set(["compressratio", "refcompressratio", "dedupratio"]);
const PERCENTS = new Set(["capacity", "fragmentation"]);
/** Zero means that there is none. */
const NONES = new Set(["quota", "reservation", "refquota", "refreservation"]);

export const numberOf = (property: Property | undefined): number =>
  property?.value.kind === "number" ? property.value.value : Number.NaN;

export const textOf = (property: Property | undefined): string =>
  property?.value.kind === "text" ? property.value.value : property?.value.kind === "number" ? String(property.value.value) : "-";

/** A value as `zfs get` shows it. */
export function shownValue(name: string, property: Property | undefined): string {
  if (!property || property.value.kind === "absent") return "-";
  if (property.value.kind === "text") return property.value.value;
  const value = property.value.value;
  if (NONES.has(name) && value === 0) return "none";
  if (BYTES.has(name) || name.startsWith("written@")) return bytes(value);
  if (RATIOS.has(name)) return `${(value / 100).toFixed(2)}x`;
  if (PERCENTS.has(name)) return `${value}%`;
  if (name === "creation") return dateTime(value * 1000);
  return String(value);
}

export function sourceText(source: Source): string {
  if (source.type === "none") return "-";
  return source.type === "inherited" ? `inherited from ${source.from}` : source.type;
}
