// What is shared: file systems by NFS, volumes by iSCSI.

import { ask, change } from "./client";
import { dialog, mayChange, messageOf, quoted } from "./dialogs";
import { button, fill, h } from "./dom";
import { type Properties, shownValue, sourceText, textOf } from "./properties";

interface Dataset {
  name: string;
  kind: string;
  properties: Properties;
}

export class SharesPage {
  readonly element = h("div");

  begin(): void {
    void this.load();
  }

  end(): void {
    this.element.replaceChildren();
  }

  private async load(): Promise<void> {
    try {
      const { datasets } = await ask<{ datasets: Dataset[] }>("dataset/describe", {
        names: [], kinds: ["filesystem", "volume"], properties: ["sharenfs", "mountpoint", "mounted", "tarn:shareiscsi", "volsize"],
      });
      fill(this.element,
        this.table("File systems over NFS", "sharenfs", "mountpoint", datasets.filter((one) => one.kind === "filesystem")),
        this.table("Volumes over iSCSI", "tarn:shareiscsi", "volsize", datasets.filter((one) => one.kind === "volume")));
    } catch (error) {
      fill(this.element, h("p", { class: "bad", role: "alert" }, messageOf(error)));
    }
  }

  private table(title: string, property: string, beside: string, datasets: Dataset[]): HTMLElement {
    const typed = property.replace("tarn:", "");
    const rows = datasets.map((one) => {
      const value = one.properties[property];
      const shown = value ? textOf(value) : "off";
      return h("tr", {}, h("th", { scope: "row" }, one.name), h("td", {}, shownValue(beside, one.properties[beside])),
        h("td", {}, h("span", { class: shown === "off" || shown === "-" ? "" : "good" }, shown)), h("td", {}, value ? sourceText(value.source) : "-"),
        mayChange() && h("td", {}, button("change", () => this.change(one.name, typed, shown === "-" ? "off" : shown), { "aria-label": `Change ${typed} of ${one.name}` })));
    });
    return h("section", { class: "card" }, h("h2", {}, title), rows.length
      ? h("table", {}, h("thead", {}, h("tr", {}, ["dataset", beside, typed, "source", mayChange() ? "" : null].filter((text) => text !== null).map((text) => text ? h("th", { scope: "col" }, text) : h("td")))), h("tbody", {}, rows))
      : h("p", { class: "hint" }, "There are none."));
  }

  private change(name: string, property: string, value: string): void {
    const field = h("input", { type: "text", value, required: true });
    const text = (): string => `zfs set ${quoted(`${property}=${field.value}`)} ${quoted(name)}`;
    const command = h("pre", { class: "command" }, text());
    field.addEventListener("input", () => (command.textContent = text()));
    const hint = property === "sharenfs" ? "on, off, or options of exports, such as rw=@192.168.1.0/24,ro,sec=krb5" : "on or off";
    dialog(`Share ${name}`, [h("label", {}, property, field), h("p", { class: "hint" }, hint), command], [{
      text: "Set",
      run: async () => {
        await change(text(), "dataset/set", { name, properties: [[property, field.value]] });
        await this.load();
      },
    }]);
  }
}
