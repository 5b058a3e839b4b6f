// Paired tests between the groups.

/**
 * @import { Pair } from "../../api.d.ts"
 * @import { Shown } from "./clients.js"
 * @import { Experiment } from "../../types.d.ts"
 */

import { Answer } from "../../answer.js";
import { api } from "../../api.js";
import { swatch } from "../../chart-swatch.js";
import { fill, h, one, setText } from "../../dom.js";
import { points } from "./scale.js";

/** @param {number|null} value */
const pText = (value) => (value === null ? "–" : value < 0.001 ? "< 0.001" : value.toFixed(3));
/** @param {number|null} value @param {number} digits */
const number = (value, digits = 2) =>
  value === null ? "–" : `${value < 0 ? "−" : ""}${Math.abs(value).toFixed(digits)}`;

/**
 * A number in words; `p` makes it stand out, the title says more.
 * @typedef {object} TestCell
 * @property {string} text
 * @property {number|null} [p]
 * @property {string} [title]
 */

/** @param {number|null} value */
const gap = (value) => (value === null ? "–" : points(value));

/** @param {Pair} pair @param {boolean} corrected for several pairs @returns {TestCell[]} */
function cellsOf({ clients, seeds }, corrected) {
  /** @param {{p: number|null, p_holm: number|null, note: string}} test @returns {TestCell} */
  const chance = (test) => {
    const p = corrected ? test.p_holm : test.p;
    return { text: pText(p), p, title: test.note };
  };
  const { low, high } = seeds;
  const interval = low === null || high === null ? "" : `95 % interval ${points(low)} to ${points(high)}`;
  return [
    { text: String(clients.n) },
    { text: String(clients.wins) },
    { text: String(clients.losses) },
    { text: gap(clients.mean_difference) },
    chance(clients),
    { text: number(clients.rank_biserial) },
    { text: String(seeds.n) },
    { text: gap(seeds.mean_difference), title: interval },
    chance(seeds),
    { text: number(seeds.d_z) },
  ];
}

/** @param {TestCell} cell */
function cellNode({ text, p = null, title }) {
  return h("td", { class: `num right${p !== null && p < 0.05 ? " best" : ""}`, title: title || null }, text);
}

/** What the columns are in a file. @param {string} p */
function exportHeads(p) {
  return [
    ...["Method A", "Method B", "Clients", "Wins", "Losses", "Mean difference (points)", `Wilcoxon ${p}`],
    ...["Rank-biserial r", "Seeds", "Mean difference (points)", `Paired t ${p}`, "d_z"],
  ];
}

/** @param {string} p @param {boolean} special whether some pairs have remarks of their own */
function headRows(p, special) {
  const heads = ["Clients", "Wins", "Losses", "Difference", p, "r", "Seeds", "Difference", p, "d"];
  return [
    h(
      "tr",
      {},
      h("td", { colspan: 2 }),
      h("th", { scope: "colgroup", colspan: 6, class: "group" }, "Over clients: Wilcoxon signed-rank"),
      h("th", { scope: "colgroup", colspan: 4, class: "group" }, "Over seeds: paired t"),
      special ? h("td", {}) : null,
    ),
    h(
      "tr",
      {},
      ["Method A", "Method B"].map((text) => h("th", { scope: "col" }, text)),
      heads.map((text, place) =>
        h("th", { scope: "col", class: "right", title: HELP[place] }, text === "d" ? ["d", h("sub", {}, "z")] : text)
      ),
      special ? h("th", { scope: "col" }, "Remarks") : null,
    ),
  ];
}

/** Paired tests between the groups, computed by the server. */
export class Significance {
  /** @param {HTMLElement} root @param {() => void} arrived */
  constructor(root, arrived) {
    this.root = root;
    this.answer = new Answer(({ ids, ...options }) => api.significance(ids, options), arrived, { pause: 5000 });
    /** @type {unknown[][]} */
    this.rows = [];
  }

  /**
   * @param {Shown[]} groups @param {Experiment[]} experiments
   * @param {{at: string, by: string, reference: string}} options
   */
  update(groups, experiments, options) {
    this.answer.need({ ids: experiments.map((item) => item.id), ...options }, experiments);
    this.render(groups);
  }

  /** @param {Shown[]} groups */
  render(groups) {
    const note = one(".significance-note", this.root);
    const table = one("table", this.root);
    const { value: answer, error } = this.answer;
    table.hidden = !answer?.pairs.length;
    if (!answer?.pairs.length) {
      setText(note, error || (answer ? "There is one group only, so there is nothing to test." : "Computing …"));
      this.rows = [];
      return;
    }
    const look = new Map(groups.map((group) => [group.label, group.style]));
    const corrected = answer.pairs.length > 1;
    const rows = answer.pairs.map((pair) => ({ ...pair, cells: cellsOf(pair, corrected), remarks: remarksOf(pair) }));
    // what is true of all pairs is said once, below
    const common = corrected ? rows[0].remarks.filter((one) => rows.every(({ remarks }) => remarks.includes(one))) : [];
    const special = rows.some(({ remarks }) => remarks.length > common.length);
    /** @param {string} label */
    const name = (label) => {
      const style = look.get(label);
      return h("span", { class: "method" }, style ? swatch(style) : null, label);
    };
    const p = corrected ? "p (Holm)" : "p";
    this.rows = [
      exportHeads(p),
      ...rows.map(({ first, second, cells }) => [first, second, ...cells.map(({ text }) => text)]),
    ];
    fill(one("thead", table), headRows(p, special));
    fill(
      one("tbody", table),
      rows.map(({ first, second, cells, remarks }) =>
        h(
          "tr",
          {},
          h("th", { scope: "row" }, name(first)),
          h("td", {}, name(second)),
          cells.map(cellNode),
          special ? h("td", { class: "remark" }, remarks.filter((one) => !common.includes(one)).join(" ")) : null,
        )
      ),
    );
    setText(note, [...common, answer.note].join(" "));
  }
}

/** @param {Pick<Pair, "clients"|"seeds">} pair @returns {string[]} */
function remarksOf({ clients, seeds }) {
  /** @type {(who: string, note: string) => string[]} */
  const sentences = (who, note) => (note ? note.split(/(?<=[.]) /).map((one) => `${who}: ${one}`) : []);
  return [...sentences("Clients", clients.note), ...sentences("Seeds", seeds.note)];
}

const HELP = [
  "Clients that both were tested on",
  "Clients on which A is better",
  "Clients on which B is better",
  "Mean difference in accuracy, A minus B, in points",
  "Two-sided p value of Wilcoxon's signed-rank test over the clients; bold below 0.05",
  "Rank-biserial correlation: 1 when A is always better, −1 when B is",
  "Seeds that both ran with",
  "Mean difference in accuracy, A minus B, in points",
  "Two-sided p value of the paired t test over the seeds; bold below 0.05",
  "Cohen's d of the differences: their mean in their standard deviations",
];
