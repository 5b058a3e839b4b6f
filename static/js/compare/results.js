// The tables of a comparison: results, differences of the specs, and the experiments; each with its exports.

/**
 * @import { Drawn, Fair, ResultCell, ResultColumn, ResultRow } from "./model.js"
 * @import { Difference } from "../series.js"
 * @import { Child, Experiment } from "../types.d.ts"
 */

import { swatch } from "../chart-swatch.js";
import { methodStyle, methodTitle } from "../colours.js";
import { NOTE } from "../convergence.js";
import { copy, download, fill, h, one, setText, stateChip } from "../dom.js";
import { differences, fairness, headlineOf, METHOD, show } from "../series.js";
import { datasetText, experimentTitle, partitionText } from "../spec.js";
import { csv, latex, markdown } from "../table.js";
import { integer, NONE, percent } from "../units.js";
import { plainTable, tableOf } from "./model.js";

/** The tables as last shown: cells for the exports. @type {Record<string, unknown[][]>} */
const shown = { table: [], differences: [], members: [], significance: [] };
/** The results with plain numbers, for programs. @type {unknown[][]} */
let numbers = [];

/**
 * Rebuilds a part of the page only when it would look different: focus and a selection of text survive.
 * @param {HTMLElement} element @param {unknown} signature @param {() => Child} build
 */
export function fillWhenNew(element, signature, build) {
  const text = JSON.stringify(signature);
  if (element.dataset.signature === text) return;
  element.dataset.signature = text;
  fill(element, build());
}

/** @param {Drawn} group */
function named(group) {
  return h("span", { class: "method" }, swatch(group.style), group.label);
}

/**
 * @param {ResultRow[]} rows @param {ResultColumn[]} columns @param {Fair} fair
 * @param {boolean} told whether the costs to the target are known
 */
export function showResults(rows, columns, fair, told) {
  const built = tableOf(rows, columns, fair, told);
  shown.table = [
    ["Method", "Seeds", ...columns.map((column) => column.title)],
    ...built.map((row) => [row.group.label, row.seeds, ...row.cells]),
  ];
  numbers = plainTable(rows, columns);
  one("#no-convergence").hidden = !rows.some(({ group }) => group.unlearned);
  setText(one("#no-convergence"), NOTE);
  fillWhenNew(
    one("#table thead"),
    columns.map((column) => column.key),
    () =>
      h(
        "tr",
        {},
        h("th", { scope: "col" }, "Method"),
        h("th", { scope: "col", class: "right" }, "Seeds"),
        columns.map(columnHead),
      ),
  );
  fillWhenNew(
    one("#table tbody"),
    built.map((row) => [row.group.label, row.group.variant, row.seeds, row.cells]),
    () =>
      built.map(({ group, seeds, cells }) =>
        h(
          "tr",
          {},
          h("th", { scope: "row" }, named(group)),
          h("td", { class: "num right" }, seeds),
          cells.map(cellNode),
        )
      ),
  );
}

/** @param {ResultColumn} column */
function columnHead({ gap, help, short, title }) {
  const hint = help ?? (short ? title : null);
  return h("th", { scope: "col", class: gap ? "right gapped" : "right", title: hint }, short ?? title);
}

/** @param {ResultCell} cell */
function cellNode({ text, gap, gapped, best, muted }) {
  const classes = ["num right", gapped && "gapped", best && "best", muted && "muted"].filter(Boolean);
  const behind = gap ? h("small", { class: "gap", title: "Difference to the best" }, gap) : null;
  return h("td", { class: classes.join(" ") }, text, behind);
}

/**
 * Differences and fairness are about the whole specs, however the lines are grouped.
 * @param {Drawn[]} groups by all fields @returns {Fair}
 */
export function showDifferences(groups) {
  const rows = differences(groups).filter((row) => row.field !== METHOD);
  one("#differences").hidden = rows.length === 0;
  one("#differences-csv").parentElement?.toggleAttribute("hidden", rows.length === 0);
  setText(one("#same"), equalText(groups, rows));
  const cells = groups.map((group, place) => ({ group, values: rows.map((row) => show(row.values[place])) }));
  shown.differences = [
    ["Method", ...rows.map((row) => row.field)],
    ...cells.map(({ group, values }) => [group.label, ...values]),
  ];
  fillWhenNew(
    one("#differences thead"),
    rows.map((row) => row.field),
    () =>
      h(
        "tr",
        {},
        h("th", { scope: "col" }, "Method"),
        rows.map((row) => h("th", { scope: "col", class: "code" }, row.field)),
      ),
  );
  fillWhenNew(one("#differences tbody"), shown.differences, () =>
    cells.map(({ group, values }) =>
      h(
        "tr",
        {},
        h("th", { scope: "row" }, named(group)),
        values.map((value) => h("td", { class: value === NONE ? "num muted" : "num" }, value)),
      )
    ));
  const { warnings, notes, swept } = groups.length > 1 ? fairness(groups) : { warnings: [], notes: [], swept: [] };
  one("#unfair").hidden = warnings.length === 0;
  fillWhenNew(one("#unfair-list"), warnings, () => warnings.map((reason) => h("li", {}, reason)));
  fillWhenNew(one("#notes"), notes, () => notes.map((note) => h("li", {}, note)));
  return { warnings, notes, swept, alone: groups.length < 2 };
}

/** How much is equal, beside the fields that differ. @param {Drawn[]} groups @param {Difference[]} rows */
function equalText(groups, rows) {
  if (groups.length < 2) return "There is one group only, so nothing to compare.";
  if (!rows.length) return "The specs differ in nothing but the method with its own parameters and the seed.";
  /** @param {string} field */
  const common = (field) => !field.startsWith("algorithm.");
  const fields = Object.keys(groups[0].fields).filter(common).length;
  const shared = fields - rows.filter((row) => common(row.field)).length;
  return `${integer(Math.max(0, shared))} other fields are equal.`;
}

/** @param {Map<string, Experiment>} experiments @param {(id: string) => void} remove */
export function showMembers(experiments, remove) {
  const rows = [...experiments.values()].map((experiment) => {
    const done = Math.max(0, experiment.next_round - 1);
    return [
      experimentTitle(experiment, methodTitle),
      experiment.state,
      methodTitle(experiment.spec.algorithm.name),
      `${datasetText(experiment.spec.dataset)}, ${partitionText(experiment.spec.partition)}`,
      String(experiment.spec.seed),
      `${integer(done)} / ${integer(experiment.rounds)}`,
      percent(headlineOf(experiment)),
      experiment.id,
    ];
  });
  shown.members = [["Name", "State", "Method", "Data", "Seed", "Rounds", "Accuracy", "Id"], ...rows];
  fillWhenNew(one("#members tbody"), rows, () =>
    rows.map(([title, state, method, data, seed, rounds, best, id]) => {
      const style = methodStyle(experiments.get(id)?.spec.algorithm.name ?? "");
      const on = { click: () => remove(id) };
      return h(
        "tr",
        {},
        h("th", { scope: "row" }, h("a", { href: `/experiments/${id}` }, title)),
        h("td", {}, stateChip(state)),
        h("td", {}, h("span", { class: "method" }, swatch(style), method)),
        h("td", {}, data),
        [seed, rounds, best].map((text) => h("td", { class: "num right" }, text)),
        h(
          "td",
          { class: "right" },
          h("button", { type: "button", class: "tool", "aria-label": `Remove ${title}`, on }, "Remove"),
        ),
      );
    }));
}

/** The table of the tests is filled elsewhere. @param {unknown[][]} rows */
export function exportSignificance(rows) {
  shown.significance = rows;
}

/** What the mark in a table means, where there is one. @param {string} name */
function noteOf(name) {
  return name === "table" && !one("#no-convergence").hidden ? NOTE : "";
}

/** The buttons beside each table. */
export function offerExports() {
  for (const name of Object.keys(shown)) {
    const [asCsv, asMarkdown, asLatex] = ["csv", "markdown", "latex"].map((kind) => one(`#${name}-${kind}`));
    asCsv.addEventListener(
      "click",
      () => download(`compare-${name}.csv`, csv(name === "table" ? numbers : shown[name]), "text/csv"),
    );
    asMarkdown.addEventListener("click", () => copy(asMarkdown, markdown(shown[name], noteOf(name))));
    asLatex.addEventListener("click", () => copy(asLatex, latex(shown[name], noteOf(name))));
  }
}
