// The methods, all or one, with the swatch of each and what a round of it costs.

/** @import { MethodCost } from "../types.d.ts" */

import { swatch } from "../chart-swatch.js";
import { methodStyle } from "../colours.js";
import { all, one, pageData, setText } from "../dom.js";
import { live } from "../live.js";
import { formatBytes, formatFlops } from "../units.js";

const data = pageData();

/** @param {ParentNode} root @param {MethodCost} cost */
function show(root, { round, opening, reason }) {
  /** @type {Record<string, string>|null} */
  const texts = round && opening && {
    bytes: formatBytes(round.bytes_up + round.bytes_down),
    up: formatBytes(round.bytes_up),
    down: formatBytes(round.bytes_down),
    flops: formatFlops(round.client_flops),
    opening: `${formatBytes(opening.bytes_up + opening.bytes_down)} · ${formatFlops(opening.client_flops)}`,
  };
  for (const cell of all("[data-cost]", root)) {
    setText(cell, texts ? texts[cell.dataset.cost ?? ""] : "–");
    cell.title = texts ? "" : `Not in this set-up: ${reason}`;
  }
  for (const row of all('[data-cost-row="opening"]', root)) {
    row.hidden = !opening || opening.client_flops + opening.bytes_up === 0;
  }
}

/** @param {HTMLElement} element that names a method */
function sample({ dataset }) {
  return swatch(methodStyle(dataset.method ?? ""));
}

for (const row of all("tr[data-method]")) {
  one(".method-name", row).prepend(sample(row));
  row.addEventListener("click", (event) => {
    if (!(/** @type {HTMLElement} */ (event.target).closest("a")) && !String(getSelection())) {
      location.assign(`/methods/${row.dataset.method}`);
    }
  });
}
const head = document.querySelector(".page-head[data-method]");
if (head instanceof HTMLElement) head.prepend(sample(head));

for (const [id, cost] of Object.entries(data.costs)) {
  show(document.querySelector(`tr[data-method="${CSS.escape(id)}"]`) ?? document, cost);
}

live.start({ after: data.seq });
