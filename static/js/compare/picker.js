// Picking further experiments for a comparison.

/** @import { Experiment } from "../types.d.ts" */

import { api, messageOf } from "../api.js";
import { swatch } from "../chart-swatch.js";
import { methodStyle, methodTitle } from "../colours.js";
import { fill, h, one, setText, stateChip } from "../dom.js";
import { headlineOf } from "../series.js";
import { notice } from "../shell.js";
import { datasetText, experimentTitle } from "../spec.js";
import { percent } from "../units.js";

const MOST = 30;
const search = /** @type {HTMLInputElement} */ (one("#add-search"));
const panel = /** @type {HTMLDetailsElement} */ (one("#add"));
let timer = 0;

/** @param {Experiment} item @param {(id: string) => Promise<void>} add */
function candidate(item, add) {
  const method = item.spec.algorithm.name;
  const row = h("li", {});
  const click = async () => {
    row.remove();
    try {
      await add(item.id);
    } catch (error) {
      notice(`Not added: ${messageOf(error)}`, "error");
    }
  };
  row.append(
    h(
      "button",
      { type: "button", class: "candidate", on: { click } },
      swatch(methodStyle(method)),
      h("span", { class: "candidate-name" }, experimentTitle(item, methodTitle)),
      h(
        "span",
        { class: "muted" },
        `${methodTitle(method)} · ${datasetText(item.spec.dataset)} · seed ${item.spec.seed}`,
      ),
      h("span", { class: "num" }, percent(headlineOf(item))),
      stateChip(item.state),
    ),
  );
  return row;
}

/** In an empty store there is nothing to choose from. */
function nextStep() {
  const link = /** @type {HTMLAnchorElement} */ (one("#empty a"));
  link.href = "/new";
  setText(link, "New experiment");
}

/** @param {(id: string) => boolean} isThere @param {(id: string) => Promise<void>} add */
async function listCandidates(isThere, add) {
  try {
    const answer = await api.experiments({ search: search.value.trim(), limit: MOST });
    const rows = answer.items.filter((item) => !isThere(item.id));
    const nothing = !search.value.trim() && !answer.items.length;
    fill(
      one("#candidates"),
      rows.length
        ? rows.map((item) => candidate(item, add))
        : h("li", { class: "muted" }, nothing ? "There are no experiments yet." : "No further experiments match."),
    );
    if (nothing) nextStep();
  } catch (error) {
    notice(`The experiments could not be listed. ${messageOf(error)}`, "error");
  }
}

/** @param {(id: string) => boolean} isThere @param {(id: string) => Promise<void>} add @param {boolean} open */
export function offerExperiments(isThere, add, open) {
  panel.addEventListener("toggle", () => {
    if (!panel.open) return;
    listCandidates(isThere, add);
    search.focus();
  });
  search.addEventListener("input", () => {
    clearTimeout(timer);
    timer = window.setTimeout(() => listCandidates(isThere, add), 200);
  });
  if (open) panel.open = true;
}
