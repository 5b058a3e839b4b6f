// The methods, all or one: what a round costs comes after the page, since it has to be rehearsed.

import { swatch } from "../chart-swatch.js";
import { methodStyle } from "../colours.js";
import { all, one, pageData, setText } from "../dom.js";
import { live } from "../live.js";
import { formatBytes, formatFlops } from "../units.js";

const data = pageData();

async function costOf(id) {
  const response = await fetch(`/methods/${encodeURIComponent(id)}/cost.json`);
  if (!response.ok) throw new Error(`The cost of ${id} could not be read.`);
  return response.json();
}

function show(root, { cost, opening, reason }) {
  const texts = cost && {
    bytes: formatBytes(cost.bytes_up + cost.bytes_down),
    up: formatBytes(cost.bytes_up),
    down: formatBytes(cost.bytes_down),
    flops: formatFlops(cost.client_flops),
    opening: `${formatBytes(opening.bytes_up + opening.bytes_down)} · ${formatFlops(opening.client_flops)}`,
  };
  for (const cell of all("[data-cost]", root)) {
    setText(cell, texts ? texts[cell.dataset.cost] : "–");
    cell.title = texts ? "" : `Not in this set-up: ${reason}`;
  }
  for (const row of all('[data-cost-row="opening"]', root)) row.hidden = !opening || opening.client_flops + opening.bytes_up === 0;
}

for (const row of all("tr[data-method]")) {
  one(".method-name", row).prepend(swatch(methodStyle(row.dataset.method, row.dataset.family)));
  row.addEventListener("click", (event) => {
    if (!(/** @type {HTMLElement} */ (event.target).closest("a")) && !String(getSelection())) location.assign(`/methods/${row.dataset.method}`);
  });
}
const head = document.querySelector(".page-head[data-method]");
if (head instanceof HTMLElement) head.prepend(swatch(methodStyle(head.dataset.method, head.dataset.family)));

live.start({ after: data.seq });
for (const id of data.methods) {
  // one after the other: the server rehearses one at a time anyway, and the table fills from the top
  show(document.querySelector(`tr[data-method="${CSS.escape(id)}"]`) ?? document, await costOf(id));
}
