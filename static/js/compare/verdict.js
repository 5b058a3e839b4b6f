// The answer of a comparison: one sentence, and five figures below it.

/**
 * @import { Choices } from "./address.js"
 * @import { Compared, Fair, MeasureName, ResultRow } from "./model.js"
 */

import { one, setText } from "../dom.js";
import { formatBytes, formatFlops, NONE, percent } from "../units.js";
import { cheapest, costNames, doubt, inSlices, lead, listed, PAPERS_COUNT, ruleWord, verdictText } from "./model.js";

/** What is known of the costs to the target. @typedef {{known: boolean, error: string}} CostState */

/**
 * @param {string} name @param {string} value @param {string} detail @param {string} mark
 * @param {string} help more than there is room for
 */
function figure(name, value, detail, mark = "", help = "") {
  const root = one(`[data-figure="${name}"]`);
  setText(one(".figure-value", root), value);
  const small = one(".figure-detail", root);
  setText(small, detail);
  small.title = help ? `${detail}, ${help}` : detail;
  if (mark) root.dataset.state = mark;
  else delete root.dataset.state;
}

/** @param {Compared} compared @param {ResultRow[]} rows @param {Fair} fair @param {CostState} costs */
export function showVerdict(compared, rows, fair, costs) {
  setText(one("#verdict"), verdictText(compared, rows, fair));
  setText(one('[data-figure="best"] .figure-title'), ruleWord(compared));
  const { warnings } = fair;
  const unranked = warnings.length ? "not comparable" : inSlices(rows) ? "bold below: best under equal conditions" : "";
  if (unranked) {
    for (const name of ["best", "lead", "bytes", "flops"]) figure(name, NONE, unranked);
  } else {
    showLeader(rows);
    showCosts(compared.choices, rows, costs);
  }
  showFairness(fair);
}

/** @param {ResultRow[]} rows */
function showLeader(rows) {
  const [first, second] = rows.filter((row) => row.numbers.judged.mean !== null);
  if (!first) {
    figure("best", NONE, "no tested round yet");
    figure("lead", NONE, "no other method");
    return;
  }
  const top = first.numbers.judged;
  const spread = top.std === null ? "" : ` ± ${(100 * top.std).toFixed(2)}, ${top.count} seeds`;
  figure("best", percent(top.mean, 2), `${first.group.label}${spread}`);
  figure(
    "lead",
    second ? `${(100 * lead(first, second)).toFixed(2)} points` : NONE,
    second ? `ahead of ${second.group.label}${doubt(first, second)}` : "no other method",
  );
}

/** @param {Fair} fair */
function showFairness({ warnings, notes, swept, alone }) {
  const count = warnings.length;
  if (alone) figure("fair", NONE, "one group only");
  else if (count) {
    figure("fair", "Not comparable", `${count} ${count === 1 ? "difference" : "differences"}, named above`, "unfair");
  } else if (swept.length) figure("fair", "Settings differ", `compare rows with equal ${listed(swept)}`);
  else figure("fair", "Comparable", notes.length ? "with remarks, see below" : "same data, models and budget", "fair");
}

/** @param {Choices} choices @param {ResultRow[]} rows @param {CostState} costs */
function showCosts(choices, rows, costs) {
  const names = costNames(choices);
  showCost("bytes", names.bytes, "spentBytes", formatBytes, choices, rows, costs);
  showCost("flops", names.flops, "spentFlops", formatFlops, choices, rows, costs);
}

/**
 * @param {string} name @param {MeasureName} column @param {MeasureName} spent until the target
 * @param {(value: number|null) => string} format @param {Choices} choices @param {ResultRow[]} rows
 * @param {CostState} costs
 */
function showCost(name, column, spent, format, choices, rows, costs) {
  if (!costs.known) {
    figure(name, costs.error ? NONE : "…", costs.error ? "could not be read" : "being computed");
    return;
  }
  /** @param {ResultRow} row */
  const cost = (row) => row.numbers[column].mean;
  const { target } = choices;
  const least = cheapest(rows, column, choices);
  if (target !== null) {
    const some = rows.some((row) => cost(row) !== null);
    figure(
      name,
      least ? format(cost(least)) : "not reached",
      least
        ? `${least.group.label}, least to ${percent(target)}`
        : `no method reaches ${percent(target)}${some ? " with all seeds" : ""}`,
      "",
      least ? `${PAPERS_COUNT}; spent until then: ${format(least.numbers[spent].mean)}` : "",
    );
    return;
  }
  const first = rows.find((row) => row.numbers.judged.mean !== null);
  const other = least && least !== first
    ? `; least: ${least.group.label} ${format(cost(least))}`
    : ", the least of all";
  figure(name, first ? format(cost(first)) : NONE, first && least ? `${first.group.label}${other}` : "");
}
