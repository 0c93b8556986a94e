// Elements of the document, made in one expression.

type Child = Node | string | number | null | undefined | false | Child[];
type Attributes = Record<string, unknown>;

/** Makes an element: attributes by their names, listeners as `onclick`, properties as `.value`. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  assign(element, attributes);
  append(element, children);
  return element;
}

/** The same for SVG. */
export function svg(tag: string, attributes: Attributes = {}, ...children: Child[]): SVGElement {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  assign(element, attributes);
  append(element, children);
  return element;
}

function assign(element: Element, attributes: Attributes): void {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value as EventListener);
    else if (name.startsWith(".")) Reflect.set(element, name.slice(1), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
}

function append(element: Element, children: Child[]): void {
  for (const child of children) {
    if (Array.isArray(child)) append(element, child);
    else if (child === null || child === undefined || child === false) continue;
    else element.append(child instanceof Node ? child : String(child));
  }
}

/** Replaces what is in an element. */
export function fill(element: Element, ...children: Child[]): void {
  element.replaceChildren();
  append(element, children);
}

/** A list of choices. */
export function select(
  label: string,
  options: (string | [string, string])[],
  value: string,
  change: (value: string) => void,
  attributes: Attributes = {},
): HTMLSelectElement {
  const items = options.map((option) => {
    const [key, text] = typeof option === "string" ? [option, option] : option;
    return h("option", { value: key, ".selected": key === value }, text);
  });
  const element = h("select", { "aria-label": label, title: label, ...attributes }, items);
  element.addEventListener("change", () => change(element.value));
  return element;
}

/** A button with a text. */
export function button(
  text: string,
  click: (event: MouseEvent) => void,
  attributes: Attributes = {},
): HTMLButtonElement {
  return h("button", { type: "button", onclick: click, ...attributes }, text);
}

let region: HTMLElement | undefined;

/** Tells a screen reader. */
export function announce(text: string): void {
  if (!region) {
    region = h("div", { class: "unseen", role: "status", "aria-live": "polite" });
    document.body.append(region);
  }
  region.textContent = text;
}
