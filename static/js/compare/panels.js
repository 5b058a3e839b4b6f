// The panels below the curves, each filled when it is opened; their module is fetched when the first of them is.

/**
 * @import { Compared, Measure, ResultRow } from "./model.js"
 * @import { Boxes } from "./views/boxes.js"
 * @import { ClientTable } from "./views/clients.js"
 * @import { Price } from "./views/price.js"
 * @import { Significance } from "./views/significance.js"
 * @import { Sweep } from "./views/sweep.js"
 * @import { Wins } from "./views/wins.js"
 */

import { methodStyle, methodTitle } from "../colours.js";
import { all, h, one, setQuery, setText } from "../dom.js";
import { working } from "../shell.js";
import { MOMENTS } from "./address.js";
import { costNames, judgedOf, reachedByAll, ruleWord } from "./model.js";
import { exportSignificance, fillWhenNew } from "./results.js";

/**
 * @typedef {object} Views
 * @property {typeof import("./views.js")} module
 * @property {ClientTable} table
 * @property {Boxes} boxes
 * @property {Wins} wins
 * @property {Price} price
 * @property {Sweep} sweep
 * @property {Significance} significance
 */

/**
 * Options of a select; the present choice stays.
 * @param {HTMLElement} element @param {[string, string][]} options @param {string} value
 */
export function choose(element, options, value) {
  const select = /** @type {HTMLSelectElement} */ (element);
  fillWhenNew(select, options, () => options.map(([key, text]) => h("option", { value: key }, text)));
  select.value = options.some(([key]) => key === value) ? value : (options[0]?.[0] ?? "");
  return select.value;
}

export class Panels {
  /**
   * @param {Compared} compared
   * @param {() => void} render draws the page again, at once
   * @param {() => void} arrived an answer has come that some panel waits for
   */
  constructor(compared, render, arrived) {
    this.compared = compared;
    this.render = render;
    this.arrived = arrived;
    /** @type {Views|null} */
    this.views = null;
    for (const panel of all("details[data-view]")) this.follow(/** @type {HTMLDetailsElement} */ (panel));
  }

  /** Opening and closing goes into the address. @param {HTMLDetailsElement} panel */
  follow(panel) {
    const { open } = this.compared.choices;
    const name = panel.dataset.view ?? "";
    panel.open = open.has(name);
    panel.addEventListener("toggle", () => {
      if (panel.open === open.has(name)) return;
      if (panel.open) open.add(name);
      else open.delete(name);
      setQuery({ open: [...open].join(",") });
      if (panel.open) this.render();
    });
  }

  async fetch() {
    const module = await working(import("./views.js"));
    if (this.views) return;
    this.views = {
      module,
      table: new module.ClientTable(this.arrived),
      boxes: new module.Boxes(one("#boxes")),
      wins: new module.Wins(one("#wins"), one("#scatter")),
      price: new module.Price(one("#price")),
      sweep: new module.Sweep(one("#sweep")),
      significance: new module.Significance(one("#significance"), this.arrived),
    };
    this.render();
  }

  /** @param {ResultRow[]} rows */
  show(rows) {
    const { open } = this.compared.choices;
    if (!open.size) return;
    if (!this.views) {
      this.fetch();
      return;
    }
    if (open.has("boxes") || open.has("wins")) this.showClients(this.views, rows);
    if (open.has("price")) this.showPrice(this.views, rows);
    if (open.has("sweep")) this.showSweep(this.views, rows);
    if (open.has("significance")) this.showSignificance(this.views, rows);
  }

  /** @param {Views} views @param {ResultRow[]} rows */
  showClients(views, rows) {
    const { choices, experiments } = this.compared;
    const started = [...experiments.values()].filter((item) => item.next_round > 0);
    if (!views.table.need(started, choices.at)) return;
    const groups = rows.map((row) => row.group);
    const moment = MOMENTS[choices.at];
    if (choices.open.has("boxes")) views.boxes.update(groups, views.table, moment);
    if (!choices.open.has("wins")) return;
    /** @type {[string, string][]} */
    const options = groups.map((group) => [group.label, group.label]);
    const a = choose(one("#wins-a"), options, choices.first);
    const rest = options.filter(([label]) => label !== a);
    const b = choose(one("#wins-b"), rest, choices.second);
    /** @param {string} label */
    const find = (label) => groups.find((group) => group.label === label);
    setText(one("#wins-text"), views.wins.update(find(a), find(b), views.table, moment));
  }

  /** @param {Views} views @param {ResultRow[]} rows */
  showPrice(views, rows) {
    const { target } = this.compared.choices;
    const { bytes, flops } = costNames(this.compared.choices);
    /** @param {Measure} measure */
    const cost = (measure) => (target === null || reachedByAll(measure) ? measure.mean : null);
    views.price.update(
      rows.map(({ group, numbers }) => ({
        group,
        accuracy: numbers.judged.mean,
        bytes: cost(numbers[bytes]),
        flops: cost(numbers[flops]),
        spentBytes: cost(numbers.spentBytes),
        spentFlops: cost(numbers.spentFlops),
      })),
      target,
      ruleWord(this.compared),
    );
  }

  /** @param {Views} views @param {ResultRow[]} rows */
  showSweep(views, rows) {
    const { choices, experiments } = this.compared;
    const fields = views.module.sweptFields([...experiments.values()]);
    const field = choose(one("#sweep-field"), fields.map((name) => [name, name]), choices.field);
    views.sweep.update(
      rows.flatMap((row) => row.group.settledMembers),
      field,
      (member) => judgedOf(this.compared, member),
      (method) => ({ label: methodTitle(method), style: methodStyle(method) }),
      ruleWord(this.compared),
    );
  }

  /** @param {Views} views @param {ResultRow[]} rows */
  showSignificance(views, rows) {
    const { choices, experiments } = this.compared;
    const groups = rows.map((row) => row.group);
    const pairs = (groups.length * (groups.length - 1)) / 2;
    /** @type {[string, string][]} */
    const options = groups.length > 2 ? groups.map(({ label }) => [label, `${label} against the others`]) : [];
    options.push(["all", groups.length > 2 ? `all ${pairs} pairs` : "the pair"]);
    const chosen = choose(one("#reference"), options, choices.reference);
    const reference = chosen === "all" ? "" : chosen;
    views.significance.update(groups, [...experiments.values()], { at: choices.at, by: choices.by, reference });
    exportSignificance(views.significance.rows);
  }
}
