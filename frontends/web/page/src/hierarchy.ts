// Hierarchies: names with slashes as a tree, with sums of all that is below, and as a sunburst.

import { css, groupColour } from "./palettes";
import { fill, h, svg } from "./dom";
import { OTHER, type Samples } from "./samples";
import { count, share } from "./units";

interface Branch {
  name: string;
  path: string;
  sum: number;
  below: Map<string, Branch>;
}

function grow(samples: Samples, from: number, until: number): Branch {
  const root: Branch = { name: "", path: "", sum: 0, below: new Map() };
  for (const { key, sum } of samples.sums(from, until)) {
    root.sum += sum;
    const names = key === OTHER ? ["other"] : key.split("/").filter((part) => part);
    let branch = root;
    let path = key.startsWith("/") ? "" : undefined;
    for (const name of names) {
      path = path === undefined ? name : `${path}/${name}`;
      let next = branch.below.get(name);
      if (!next) {
        next = { name, path, sum: 0, below: new Map() };
        branch.below.set(name, next);
      }
      next.sum += sum;
      branch = next;
    }
  }
  return root;
}

const sorted = (branch: Branch): Branch[] => [...branch.below.values()].sort((one, other) => other.sum - one.sum);

/** Draws the tree. `open` has the paths that are open. */
export function renderTree(
  place: HTMLElement,
  samples: Samples,
  from: number,
  until: number,
  open: Set<string>,
  filter: (prefix: string) => void,
): void {
  const root = grow(samples, from, until);
  const focused = (document.activeElement as HTMLElement | null)?.dataset?.["path"];
  const again = (): void => renderTree(place, samples, from, until, open, filter);
  if (!open.has("\u0000begun") && root.below.size) {
    // The way to where most is lies open.
    open.add("\u0000begun");
    for (let branch = sorted(root)[0]; branch; branch = sorted(branch)[0]) open.add(branch.path);
  }
  const list = (branch: Branch, depth: number): HTMLElement =>
    h("ul", { role: depth ? "group" : "tree", "aria-label": depth ? undefined : "Hierarchy" },
      sorted(branch).slice(0, 200).map((one) => {
        const isOpen = open.has(one.path);
        const inner = one.below.size > 0;
        const bar = h("span", { class: "bar" });
        bar.style.width = `${Math.max(0.5, (100 * one.sum) / Math.max(root.sum, 1))}%`;
        const line = h("div", { class: "tree-line" },
          h("span", { class: "tree-name" }, h("span", { "aria-hidden": "true" }, inner ? (isOpen ? "▾ " : "▸ ") : "· "), one.name),
          h("span", { class: "tree-number" }, `${count(Math.round(one.sum))}`),
          h("span", { class: "tree-share" }, share(one.sum, root.sum)),
          h("span", { class: "bar-place", "aria-hidden": "true" }, bar));
        line.style.paddingLeft = `${depth * 18}px`;
        const flip = (): void => {
          isOpen ? open.delete(one.path) : open.add(one.path);
          again();
        };
        const item = h("li", {
          role: "treeitem", tabindex: 0, "data-path": one.path,
          "aria-expanded": inner ? String(isOpen) : undefined,
          onclick: (event: Event) => {
            event.stopPropagation();
            if (inner) flip();
          },
          ondblclick: (event: Event) => {
            event.stopPropagation();
            if (one.name !== "other") filter(one.path);
          },
          onkeydown: (event: KeyboardEvent) => {
            const items = [...place.querySelectorAll<HTMLElement>("[role=treeitem]")];
            const at = items.indexOf(event.currentTarget as HTMLElement);
            if (event.key === "ArrowDown") items[at + 1]?.focus();
            else if (event.key === "ArrowUp") items[at - 1]?.focus();
            else if (event.key === "ArrowRight" && inner && !isOpen) flip();
            else if (event.key === "ArrowLeft" && inner && isOpen) flip();
            else if (event.key === "Enter" && inner) flip();
            else if (event.key === "f" && one.name !== "other") filter(one.path);
            else return;
            event.preventDefault();
            event.stopPropagation();
          },
        }, line, inner && isOpen ? list(one, depth + 1) : null);
        return item;
      }));
  fill(place, root.below.size ? [h("div", { class: "tree" }, list(root, 0)), sunburst(root)] : h("p", { class: "hint" }, "nothing in this time"));
  if (focused !== undefined) place.querySelector<HTMLElement>(`[data-path="${CSS.escape(focused)}"]`)?.focus();
}

/** Rings from the root outwards: the angle of a piece is its share. */
function sunburst(root: Branch): SVGElement {
  const pieces: SVGElement[] = [];
  let hue = 0;
  const ring = (branch: Branch, from: number, until: number, depth: number, colour: string): void => {
    let at = from;
    for (const one of sorted(branch)) {
      const part = ((until - from) * one.sum) / Math.max(branch.sum, 1e-9);
      if (part < 0.01) break;
      const own = depth === 0 ? css(groupColour(one.path, hue++)) : colour;
      const piece = svg("path", { d: arc(at, at + part, 22 + depth * 18, 38 + depth * 18), fill: own, "fill-opacity": 1 - depth * 0.18 },
        svg("title", {}, `${one.path}: ${share(one.sum, root.sum)}`));
      pieces.push(piece);
      if (depth < 3) ring(one, at, at + part, depth + 1, own);
      at += part;
    }
  };
  ring(root, 0, 2 * Math.PI, 0, "");
  return svg("svg", { class: "sunburst", viewBox: "-100 -100 200 200", width: 200, height: 200, role: "img", "aria-label": "Shares, as in the tree" }, pieces);
}

function arc(from: number, until: number, inner: number, outer: number): string {
  const end = Math.min(until, from + 2 * Math.PI - 1e-3);
  const at = (angle: number, radius: number): string => `${(radius * Math.sin(angle)).toFixed(2)} ${(-radius * Math.cos(angle)).toFixed(2)}`;
  const large = end - from > Math.PI ? 1 : 0;
  return `M${at(from, outer)}A${outer} ${outer} 0 ${large} 1 ${at(end, outer)}L${at(end, inner)}A${inner} ${inner} 0 ${large} 0 ${at(from, inner)}Z`;
}
