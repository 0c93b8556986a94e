// The shapes of requests and replies of Analytics.

export interface Series {
  /** What is summed up, a number for each column. */
  sums: number[];
  /** Column, bucket, count; column, bucket, count; ... */
  cells: number[];
}

export interface Group {
  key: string[];
  ids: string[];
  sum: number;
  series: Series;
}

/** Reply of analytics/query and analytics/live. */
export interface Answer {
  statement: string;
  title: string;
  source: string;
  measure: string;
  from_ms: number;
  column_ms: number;
  columns: number;
  /** Of each column: 0 not collected, 1 partly, 2 whole. */
  states: number[];
  dropped: number;
  by: string[];
  numeric?: string | null;
  buckets: [number, number][];
  total: Series;
  groups: Group[];
  other: Series;
  keys_found: number;
  unranked: number;
}

export interface SlowOperation {
  ended_ms: number;
  latency_ns: number;
  operation: string;
  protocol: string;
  client: string;
  user: string | number;
  dataset: string;
  object: number | string;
  file?: string | null;
  offset: number;
  size: number;
  cause: string;
  outcomes: string[];
  stages: Record<string, number>;
  unaccounted_ns: number;
}

export interface Operations {
  count: number;
  wait_ns: number;
  percentiles: { p50: number; p90: number; p99: number; p999: number; max: number };
  /** The sums of stages, where they were asked for, and of what is in none. */
  stages_ns?: Record<string, number> | null;
  unaccounted_ns?: number | null;
  operations: SlowOperation[];
}

export interface RecorderState {
  is_on: boolean;
  held_from_ms: number;
  held_until_ms: number;
  records: number;
  bytes: number;
  budget_bytes: number;
  drained: number;
  dropped: number;
  pass_ns: number;
  passes: number;
  live: number;
  archive?: { bytes: number; cap_bytes: number; series: number } | null;
}

export interface Statistic {
  name: string;
  title: string;
  unit: string;
  fields: string[];
  is_sampled: boolean;
  /** Whether a column has the mean of its samples, not their sum. */
  is_mean?: boolean;
}

export interface FieldInfo {
  name: string;
  kind: "names" | "ids" | "durations" | "bytes";
  values?: string[] | null;
}

export interface Catalogue {
  statistics: Statistic[];
  fields: FieldInfo[];
}

export interface Mark {
  at_ms: number;
  until_ms?: number | null;
  kind: string;
  pool: string;
  text: string;
}

/** A JSON predicate. */
export type Predicate = Record<string, unknown>;
