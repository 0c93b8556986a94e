// The frame of all pages: login, navigation, theme, and the commands that clicks were.

import { AnalyticsPage } from "./analytics-page";
import { commands, currentRole, findSession, logIn, logOut, whenCommandsChange, whenLoggedOut } from "./client";
import { DatasetsPage } from "./datasets-page";
import { dialog, messageOf } from "./dialogs";
import { button, fill, h } from "./dom";
import { EventsPage } from "./events-page";
import { PoolsPage } from "./pools-page";
import { SharesPage } from "./shares-page";
import { clock } from "./units";

/** What a page does when it is shown, and when another is. */
export interface Page {
  readonly element: HTMLElement;
  begin(): void;
  end(): void;
}

const PAGES: [string, string, (rest: string) => Page][] = [
  ["analytics", "Analytics", (rest) => new AnalyticsPage(new URLSearchParams(rest.replace(/^[^?]*\??/, "")).get("w") ?? undefined)],
  ["pools", "Pools", () => new PoolsPage()],
  ["datasets", "Datasets", (rest) => new DatasetsPage(decodeURIComponent(rest.replace(/^\//, "")))],
  ["shares", "Shares", () => new SharesPage()],
  ["events", "Events", () => new EventsPage()],
];

let shown: Page | undefined;

function theme(): void {
  let chosen: string | null = null;
  try {
    chosen = localStorage.getItem("tarn-theme");
  } catch {
    // As the system has it.
  }
  const isDark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset["theme"] = isDark ? "dark" : "light";
}

function flipTheme(): void {
  const next = document.documentElement.dataset["theme"] === "dark" ? "light" : "dark";
  document.documentElement.dataset["theme"] = next;
  try {
    localStorage.setItem("tarn-theme", next);
  } catch {
    // Until the next visit.
  }
}

function loginPage(why: string): void {
  shown?.end();
  shown = undefined;
  const field = h("input", { type: "password", id: "token", autocomplete: "off", required: true });
  const said = h("p", { class: "said bad", role: "alert" }, why);
  const form = h("form", {},
    h("label", { for: "token" }, "Token"), field, h("button", { type: "submit", class: "primary" }, "Log in"), said,
    h("p", { class: "hint" }, "On the server ", h("code", {}, "tarn web token"), " prints it, and ", h("code", {}, "tarn web url"), " a link that has it."));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      await logIn(field.value);
      frame();
    } catch (error) {
      said.textContent = messageOf(error);
    }
  });
  fill(document.body, h("main", { class: "login" }, h("h1", {}, "Tarn"), form));
  field.focus();
}

function frame(): void {
  const place = h("main", { id: "place", tabindex: -1 });
  const links = PAGES.map(([path, name]) => h("a", { href: `#/${path}`, "data-page": path }, name));
  const last = h("pre", { "aria-label": "The last command" });
  const renderCommands = (): void => {
    const entry = commands[commands.length - 1];
    const sign = entry?.state === "failed" ? "✗ " : entry?.state === "runs" ? "… " : "";
    last.textContent = entry ? `${sign}# ${entry.command}` : "# each change shows here the command that it was";
    last.classList.toggle("bad", entry?.state === "failed");
  };
  whenCommandsChange(renderCommands);
  renderCommands();
  fill(document.body,
    h("header", { class: "top" }, h("h1", {}, "Tarn"), h("nav", { "aria-label": "Pages" }, links),
      h("span", { class: "end" }, h("span", {}, currentRole() ?? ""),
        button("◐", flipTheme, { "aria-label": "Dark or light", title: "Dark or light" }),
        button("Log out", () => void logOut()))),
    place,
    h("div", { class: "commands", role: "region", "aria-label": "Commands" }, last,
      button("all", () => {
        const rows = [...commands].reverse().map((one) => h("tr", {}, h("td", {}, clock(one.at.getTime())), h("td", {}, one.state), h("td", {}, h("code", {}, one.command), one.said ? h("p", { class: "bad" }, one.said) : null)));
        dialog("Commands of this visit", [rows.length ? h("table", {}, h("tbody", {}, rows)) : h("p", {}, "None yet.")], []).classList.add("wide");
      }),
      button("copy", () => void navigator.clipboard?.writeText(commands[commands.length - 1]?.command ?? ""))));
  const route = (): void => {
    const [, path = "analytics", rest = ""] = /^#\/([a-z]*)(.*)$/.exec(location.hash) ?? [];
    const page = PAGES.find(([name]) => name === path) ?? PAGES[0]!;
    for (const link of links) {
      if (link.dataset["page"] === page[0]) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    document.title = `${page[1]} – Tarn`;
    shown?.end();
    shown = page[2](rest);
    fill(place, shown.element);
    shown.begin();
  };
  window.onhashchange = route;
  route();
}

async function start(): Promise<void> {
  theme();
  whenLoggedOut(() => loginPage(""));
  // The part behind # is never sent: a link with the token logs in, and leaves no trace of it.
  const token = /^#token=([0-9a-f]+)$/.exec(location.hash)?.[1];
  if (token) history.replaceState(null, "", "/");
  try {
    if (token) await logIn(token);
    if (token || (await findSession())) frame();
    else loginPage("");
  } catch (error) {
    loginPage(messageOf(error));
  }
}

void start();
