// The workers: who is there, since when, and on what.

/** @import { WorkersPage } from "../types.d.ts" */

import { fillRows, h, one, pageData, setText } from "../dom.js";
import { live, perFrame } from "../live.js";
import { ago, clock, formatBytes, integer, NONE } from "../units.js";

/** @type {WorkersPage} */
let data = pageData();

/** Free of all. @param {number|undefined} free @param {number|undefined} total */
function memory(free, total) {
  return total ? `${formatBytes(free, "IEC")} of ${formatBytes(total, "IEC")}` : null;
}

function render() {
  const there = data.workers.filter((worker) => !worker.silent);
  const slots = there.reduce((sum, worker) => sum + worker.slots, 0);
  setText(
    one("#count"),
    `${integer(there.length)} connected, ${integer(slots)} ${slots === 1 ? "experiment" : "experiments"} at once`,
  );
  one("#workers").hidden = !data.workers.length;
  one("#empty").hidden = data.workers.length > 0;
  fillRows(
    one("#workers tbody"),
    data.workers.map((worker) =>
      h(
        "tr",
        { class: worker.silent ? "worker-silent" : null, data: { key: worker.name } },
        h(
          "th",
          { scope: "row", title: `process ${worker.pid}` },
          worker.name,
          worker.report.shortage ? h("div", { class: "small worker-short" }, worker.report.shortage) : null,
        ),
        h("td", {}, worker.host),
        h("td", {}, worker.device),
        h("td", { class: "num right" }, integer(worker.slots)),
        h(
          "td",
          { class: "num right" },
          memory(worker.report.memory_free, worker.report.memory_total) ?? NONE,
          worker.report.device_memory_total
            ? h(
              "div",
              { class: "muted" },
              `device ${memory(worker.report.device_memory_free, worker.report.device_memory_total)}`,
            )
            : null,
        ),
        h("td", { class: "num right" }, worker.report.rounds_per_minute ?? NONE),
        h("td", { class: "num right", title: clock(worker.started_at) }, ago(worker.started_at)),
        h(
          "td",
          { class: "num right", title: clock(worker.last_seen) },
          `${worker.silent ? "silent, " : ""}${ago(worker.last_seen, data.now)}`,
        ),
        h(
          "td",
          {},
          worker.experiments.length
            ? worker.experiments.map((item) =>
              h(
                "div",
                {},
                h("a", { href: `/experiments/${item.id}` }, item.name),
                ` ${integer(item.round)} / ${integer(item.of)}`,
              )
            )
            : h("span", { class: "muted" }, "nothing"),
        ),
      )
    ),
  );
}

const renderSoon = perFrame(render);
live.onRound((record) => {
  for (const item of data.workers.flatMap((worker) => worker.experiments)) {
    if (item.id === record.experiment) item.round = record.round;
  }
  renderSoon();
});

let timer = 0;
/** Who works where is the server's to say. */
async function reload() {
  if (document.hidden) return;
  try {
    const response = await fetch("/workers.json");
    if (!response.ok) throw new Error(`status ${response.status}`);
    data = await response.json();
    render();
  } catch (error) {
    console.info("The workers could not be read.", error); // the live dot shows that the server is away
  }
}
function reloadSoon() {
  clearTimeout(timer);
  timer = window.setTimeout(reload, 300);
}
live.onState(reloadSoon);
setInterval(reload, 15_000);
document.addEventListener("visibilitychange", reloadSoon); // what was not read while the tab was hidden
render();
live.start({ after: data.seq });
