// What a row asks, and what it was answered: the statistic, its causes where they are colours, a
// second statistic, and the range that it is compared with.

import { LEFT, RIGHT } from "./axes";
import { ask } from "./client";
import type { Answer, Catalogue, Statistic } from "./contract";
import { messageOf } from "./dialogs";
import type { Host } from "./row-host";
import { Samples } from "./samples";
import { type RowState, predicateOf, statementOf } from "./worksheet";

const COLUMN_MS = [10, 100, 1000, 2000, 5000, 10000, 30000, 60000, 120000, 300000, 600000, 1800000, 3600000, 21600000, 86400000];
const KEYS = 24;
const KEYS_OF_TREE = 200;
const SHIFTS: Record<string, number> = { hour: 3.6e6, day: 864e5, week: 6048e5 };
/** How long the groups that were largest stay those that are shown. */
const RANKED_MS = 60_000;

/** A statistic of the catalogue. */
export const known = (catalogue: Catalogue, name: string): Statistic | undefined =>
  catalogue.statistics.find((one) => one.name === name);

export class RowSource {
  readonly samples = new Samples();
  readonly causes = new Samples();
  /** The statistic that is drawn over the first, or taken from it. */
  readonly second = new Samples();
  /** The range that is compared with, at the times of the one that is shown. */
  reference: Samples | undefined;
  private loadedFor = "";
  private loadedAt = 0;
  private rankedAt = 0;
  private request: AbortController | undefined;
  private isLoading = false;
  private isStale = false;

  constructor(
    private readonly state: RowState,
    private readonly host: Host,
    /** How wide the plot is, in pixels. */
    private readonly width: () => number,
    /** Draws, and tells what was refused. */
    private readonly loaded: (refused: string) => void,
  ) {}

  /** What the row shows, in Unix milliseconds. */
  range(): { from: number; until: number } {
    return this.state.window ?? this.host.range();
  }

  /** How long a column is. */
  columnMs(): number {
    const { from, until } = this.range();
    // A column may be a little narrower than a pixel of the page.
    const most = Math.max(120, Math.min(1000, 1.02 * (this.width() - LEFT - RIGHT) || 900));
    const wanted = (until - from) / most;
    // Below a second only of a short time: the recorder alone has it.
    const isShort = !this.isSampled() && !this.isSampled(this.state.second);
    // A column must hold some operations, or a heat map is a cloud of dots.
    const least = isShort && until - from <= 5000 ? 10 : isShort && until - from <= 30_000 ? 100 : 1000;
    return COLUMN_MS.find((ms) => ms >= Math.max(wanted, least)) ?? 86400000;
  }

  /** The field that it is broken down by. */
  by(): string {
    if (this.state.by) return this.state.by;
    return this.state.tint && !this.isSampled() ? "cause" : "";
  }

  isSampled(name = this.state.statistic): boolean {
    return known(this.host.catalogue(), name)?.is_sampled ?? false;
  }

  /** Whether the numbers are how something was, and no counts of a time. */
  isMean(name = this.state.statistic): boolean {
    return known(this.host.catalogue(), name)?.is_mean ?? false;
  }

  private query(row: RowState, by: string, from: number, until: number, columnMs: number): object {
    const isSampled = this.isSampled(row.statistic);
    const filter = isSampled ? undefined : predicateOf(row.chips);
    return {
      statement: statementOf(isSampled ? { ...row, numeric: "" } : row, by),
      ...(filter ? { filter } : {}),
      from: from / 1000,
      until: until / 1000,
      column_ms: columnMs,
      keys: row.view === "tree" ? KEYS_OF_TREE : KEYS,
    };
  }

  /** The row of the second statistic. */
  private secondRow(): RowState {
    const { combine, view, numeric, second } = this.state;
    const isMap = combine === "minus" && view === "plot" && numeric !== "" && !this.isSampled() && !this.isSampled(second);
    return { ...this.state, statistic: second, numeric: isMap ? numeric : "" };
  }

  private shape(columnMs: number, length: number): string {
    const { statistic, chips, numeric, tint, compare, view, second, combine } = this.state;
    return JSON.stringify([statistic, this.by(), chips, numeric, tint, compare, view, second, combine, columnMs, length]);
  }

  /** Asks for what is missing: all, or only the newest columns. Gives false where nothing was. */
  load(isForced: boolean): boolean {
    const { from, until } = this.range();
    const columnMs = this.columnMs();
    const start = Math.floor(from / columnMs) * columnMs;
    const end = Math.ceil(until / columnMs) * columnMs;
    const shape = this.shape(columnMs, end - start);
    const moves = !this.state.window && this.host.isLive();
    const isSame = shape === this.loadedFor && !isForced;
    if (isSame && !moves && this.loadedAt === start) return false;
    if (this.isLoading) {
      if (isSame) {
        this.isStale = true;
        return true;
      }
      this.request?.abort();
    }
    const isNews = isSame && moves && columnMs >= 1000 && Date.now() - this.rankedAt < RANKED_MS;
    void this.fetch(shape, start, end, columnMs, isNews);
    return true;
  }

  private async fetch(shape: string, start: number, end: number, columnMs: number, isNews: boolean): Promise<void> {
    const request = new AbortController();
    this.request = request;
    this.isLoading = true;
    this.isStale = false;
    const { state } = this;
    // The last whole column comes again: it may have been told before it was.
    const from = isNews ? Math.max(start, Math.min(this.samples.end(), end) - columnMs) : start;
    const asked = (row: RowState, by: string, begin: number, finish: number): Promise<Answer> =>
      ask<Answer>("analytics/query", this.query(row, by, begin, finish, columnMs), request.signal);
    const by = this.by();
    const wantsCauses = state.tint && by !== "cause" && state.view === "plot";
    const shift = state.compare === "before" ? end - start : SHIFTS[state.compare];
    let refused = "";
    try {
      const [answer, causes, second, before] = await Promise.all([
        asked(state, by, from, end),
        wantsCauses ? asked(state, "cause", from, end) : undefined,
        state.second ? asked(this.secondRow(), "", from, end) : undefined,
        shift && !isNews ? asked(state, by, start - shift, end - shift) : undefined,
      ]);
      const put = (samples: Samples, got: Answer | undefined): void => {
        if (!got) samples.clear();
        else if (isNews) samples.join(got);
        else samples.reset(got);
        samples.forgetBefore(start - 2 * columnMs);
      };
      put(this.samples, answer);
      put(this.causes, causes);
      put(this.second, second);
      if (!isNews) {
        this.rankedAt = Date.now();
        this.refer(before, shift);
      }
      this.loadedFor = shape;
      this.loadedAt = start;
    } catch (error) {
      if (request.signal.aborted) return;
      refused = messageOf(error);
      this.loadedFor = "";
    }
    this.isLoading = false;
    this.loaded(refused);
    // While live, the next second asks again.
    if (this.isStale && !this.host.isLive()) this.load(false);
  }

  private refer(before: Answer | undefined, shift: number | undefined): void {
    this.reference = undefined;
    if (!before || !shift) return;
    this.reference = new Samples();
    this.reference.reset({ ...before, from_ms: before.from_ms + shift });
  }
}
