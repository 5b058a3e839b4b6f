// The list of sweeps with their progress, current without a reload.

/** @import { SweepSummary } from "../api.d.ts" */

import { api, messageOf } from "../api.js";
import { countOf, countsText, sweepTitle, sweptText } from "../cells.js";
import { all, fill, h, one, pageData, setText, stateChip } from "../dom.js";
import { live } from "../live.js";
import { notice, working } from "../shell.js";
import { ago, clock, integer } from "../units.js";
import { ENDED } from "../vocabulary.js";

const REFRESH = 2000;
/** @type {{seq: number, items: SweepSummary[], next: string|null}} */
const data = pageData();
let items = data.items;
let next = data.next;
const body = one("#sweeps tbody");

/** @param {SweepSummary} sweep */
function row(sweep) {
  const ended = countOf(sweep.counts, ENDED);
  return h(
    "tr",
    {
      data: { state: sweep.state, id: sweep.id },
      on: {
        click: (event) => {
          const target = /** @type {HTMLElement} */ (event.target);
          if (!target.closest("a") && !String(getSelection())) location.assign(`/sweeps/${sweep.id}`);
        },
      },
    },
    h(
      "td",
      {},
      h("a", { href: `/sweeps/${sweep.id}`, class: "name-link" }, sweepTitle(sweep)),
      sweep.tags.map((tag) => h("span", { class: "tag" }, tag)),
    ),
    h("td", {}, stateChip(sweep.state)),
    h(
      "td",
      { class: "muted swept", title: sweep.paths.join(", ") },
      `${sweptText(sweep) || "–"} · ${sweep.seeds.length} ${sweep.seeds.length === 1 ? "seed" : "seeds"}`,
    ),
    h(
      "td",
      { class: "num right", title: `${countsText(sweep.counts)}${sweep.reused ? `; ${sweep.reused} reused` : ""}` },
      `${integer(ended)} / ${integer(sweep.experiments)}`,
    ),
    h(
      "td",
      {},
      h(
        "div",
        { class: "progress" },
        h("progress", {
          max: Math.max(1, sweep.rounds_total),
          value: sweep.rounds_done,
          "aria-label": `${sweep.rounds_done} of ${sweep.rounds_total} rounds`,
        }),
        h("span", { class: "num" }, `${integer(sweep.rounds_done)} / ${integer(sweep.rounds_total)}`),
      ),
    ),
    h("td", { class: "num right muted", title: clock(sweep.created_at) }, ago(sweep.created_at)),
  );
}

function render() {
  const focused = document.activeElement?.closest("tr")?.dataset.id;
  fill(body, items.map(row));
  if (focused) all(`tr[data-id="${focused}"] a`, body)[0]?.focus();
  one("#sweeps").hidden = items.length === 0;
  one("#empty").hidden = items.length > 0;
  one("#new-sweep").hidden = items.length === 0; // the empty page has its own button
  one("#more").hidden = next === null;
  setText(
    one("#count"),
    `${integer(items.length)}${next === null ? "" : " newest"} ${items.length === 1 ? "sweep" : "sweeps"}`,
  );
}

let timer = 0;
/** Events tell that something changed; what that means for the sweeps is counted by the server. */
function refreshSoon() {
  if (timer) return;
  timer = window.setTimeout(async () => {
    try {
      const answer = await api.sweeps({ limit: Math.min(100, Math.max(50, items.length)) });
      items = answer.items;
      next = answer.next;
      render();
    } catch (error) {
      console.info("The list could not be refreshed.", error); // the live dot shows that the server is away
    }
    timer = 0;
  }, REFRESH);
}

one("#more").addEventListener("click", async () => {
  try {
    const answer = await working(api.sweeps({ before: next }));
    items = [...items, ...answer.items];
    next = answer.next;
    render();
  } catch (error) {
    notice(`The next page could not be loaded. ${messageOf(error)}`, "error");
  }
});
live.onState(refreshSoon);
live.onRound(refreshSoon);
render();
live.start({ after: data.seq });
