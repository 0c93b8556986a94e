// Dialogs and menus.

import { Refused, change, currentRole } from "./client";
import { button, fill, h } from "./dom";

/** Shows a dialog with a form; what the form is submitted with decides. */
export function dialog(
  title: string,
  content: (Node | string)[],
  actions: { text: string; run: () => Promise<void> | void; isDanger?: boolean }[],
): HTMLDialogElement {
  const said = h("p", { class: "said bad", role: "alert" });
  const id = `d${Math.random().toString(36).slice(2)}`;
  const element = h("dialog", { "aria-labelledby": id });
  const close = (): void => element.close();
  const buttons = actions.map(({ text, run, isDanger }) =>
    h("button", {
      type: "button",
      class: isDanger ? "danger" : "primary",
      onclick: async (event: MouseEvent) => {
        const target = event.currentTarget as HTMLButtonElement;
        target.disabled = true;
        said.textContent = "";
        try {
          await run();
          close();
        } catch (error) {
          said.textContent = error instanceof Error ? error.message : String(error);
          target.disabled = false;
        }
      },
    }, text),
  );
  const form = h("form", { method: "dialog" }, h("h2", { id }, title), content, said,
    h("div", { class: "actions" }, buttons, button(actions.length ? "Cancel" : "Close", close)));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    buttons[0]?.click();
  });
  fill(element, form);
  element.addEventListener("close", () => element.remove());
  document.body.append(element);
  element.showModal();
  return element;
}

/** Asks before a command runs, and shows it. */
export function confirmCommand(
  title: string,
  command: string,
  path: string,
  request: object,
  then: () => void,
  more: { explain?: (Node | string)[]; isDanger?: boolean } = {},
): void {
  dialog(title, [...(more.explain ?? []), h("p", { class: "hint" }, "This is the command:"), h("pre", { class: "command" }, command)], [
    {
      text: title,
      isDanger: more.isDanger ?? false,
      run: async () => {
        await change(command, path, request);
        then();
      },
    },
  ]);
}

/** Runs a command at once, and tells where it fails. */
export async function runCommand(command: string, path: string, request: object, then: () => void): Promise<void> {
  try {
    await change(command, path, request);
  } catch (error) {
    dialog("It was refused", [h("pre", { class: "command" }, command), h("p", { class: "bad" }, messageOf(error))], []);
  }
  then();
}

export const messageOf = (error: unknown): string =>
  error instanceof Refused || error instanceof Error ? error.message : String(error);

/** True for people that may change something. */
export const mayChange = (): boolean => currentRole() === "administrator";

/** A menu at a place of the window. */
export function menu(x: number, y: number, title: string, items: { text: string; run: () => void }[]): void {
  const element = h("div", { class: "menu", role: "menu", "aria-label": title });
  const before = document.activeElement as HTMLElement | null;
  const close = (): void => {
    element.remove();
    document.removeEventListener("pointerdown", outside, true);
    before?.focus();
  };
  const outside = (event: Event): void => {
    if (!element.contains(event.target as Node)) close();
  };
  const entries = items.map((item) =>
    h("button", { type: "button", role: "menuitem", onclick: () => { close(); item.run(); } }, item.text),
  );
  fill(element, h("div", { class: "menu-title", "aria-hidden": "true" }, title), entries);
  element.addEventListener("keydown", (event) => {
    const at = entries.indexOf(document.activeElement as HTMLButtonElement);
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) entries[(at + step + entries.length) % entries.length]?.focus();
    else if (event.key === "Escape") close();
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  document.body.append(element);
  element.style.left = `${Math.max(4, Math.min(x, innerWidth - element.offsetWidth - 8))}px`;
  element.style.top = `${Math.max(4, Math.min(y, innerHeight - element.offsetHeight - 8))}px`;
  document.addEventListener("pointerdown", outside, true);
  entries[0]?.focus();
}

/** Quotes a word of a command where the shell would read it otherwise. */
export const quoted = (word: string): string =>
  /^[A-Za-z0-9_@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
