// Colours: of one heat map from faint to strong, and of groups that are told apart.

export type Rgb = [number, number, number];

export const PALETTES = ["orange", "viridis", "cividis", "inferno", "grey"] as const;
export type Palette = (typeof PALETTES)[number];
export const NORMALS = ["rank", "log", "linear"] as const;
export type Normal = (typeof NORMALS)[number];

const hex = (text: string): Rgb[] =>
  text.split(" ").map((one) => [0, 2, 4].map((at) => parseInt(one.slice(at, at + 2), 16)) as Rgb);

const STOPS: Record<Exclude<Palette, "orange" | "grey">, Rgb[]> = {
  viridis: hex("440154 482878 3e4a89 31688e 26828e 1f9e89 35b779 6ece58 b5de2b fde725"),
  cividis: hex("00224e 123570 3b496c 575d6d 707173 8a8678 a59c74 c3b369 e1cc55 fee838"),
  inferno: hex("160b39 420a68 6a176e 932667 bc3754 dd513a f37819 fca50a f6d746 fcffa4"),
};

export const mix = (one: Rgb, other: Rgb, part: number): Rgb => [
  one[0] + (other[0] - one[0]) * part,
  one[1] + (other[1] - one[1]) * part,
  one[2] + (other[2] - one[2]) * part,
];

/** Hue in degrees, saturation and value from 0 to 1. */
export function hsv(hue: number, saturation: number, value: number): Rgb {
  const part = (shift: number): number => {
    const k = (shift + hue / 60) % 6;
    return 255 * (value - value * saturation * Math.max(0, Math.min(k, 4 - k, 1)));
  };
  return [part(5), part(3), part(1)];
}

/** The colour of a palette, from 0 (faint) to 1 (strong), upon a background. */
export function shade(palette: Palette, at: number, isDark: boolean): Rgb {
  if (palette === "orange") {
    // Fishworks: saturation says how much there is. In the dark, brightness does.
    return isDark ? hsv(21 + 12 * at, 0.9 - 0.25 * at, 0.25 + 0.75 * at) : hsv(21, 0.12 + 0.78 * at, 0.95);
  }
  if (palette === "grey") {
    const level = isDark ? 60 + 195 * at : 215 - 215 * at;
    return [level, level, level];
  }
  const stops = STOPS[palette];
  const place = (isDark ? at : 1 - at) * (stops.length - 1);
  const low = Math.min(Math.floor(place), stops.length - 2);
  return mix(stops[low]!, stops[low + 1]!, place - low);
}

/** A hue, from faint to strong. */
export function tone(colour: Rgb, at: number, isDark: boolean): Rgb {
  const paper: Rgb = isDark ? [24, 27, 32] : [255, 255, 255];
  return mix(paper, colour, 0.25 + 0.75 * at);
}

/** Colours of causes: a cause keeps its colour everywhere. */
const CAUSES: Record<string, Rgb> = {
  none: [140, 140, 150],
  cache_hit: [110, 125, 145],
  dirty: [150, 110, 190],
  cache_in_flight: [60, 160, 160],
  second_level: [50, 110, 220],
  disk: [215, 50, 45],
  special: [240, 130, 100],
  scan: [165, 160, 40],
  log: [140, 90, 30],
  log_device: [40, 150, 70],
  txg: [20, 90, 130],
  lock: [80, 50, 90],
  throttled: [225, 150, 10],
  error: [220, 40, 150],
  // What accesses of the cache were.
  hit: [44, 143, 76],
  iohit: [60, 160, 160],
  miss: [201, 52, 44],
};

/** The colour of the group at a place; of a cause: its own. */
export function groupColour(key: string, place: number): Rgb {
  const cause = CAUSES[key.replaceAll("-", "_").replaceAll(" ", "_")];
  if (cause) return cause;
  // Each hue lies far from those before it, and a third of them is darker.
  return hsv((200 + place * 137.5) % 360, 0.78, place % 3 === 2 ? 0.6 : 0.85);
}

export const css = (colour: Rgb): string => `rgb(${colour.map(Math.round).join(" ")})`;
