// The list: every experiment with its state and headline numbers, current without a reload.

import { api } from "../api.js";
import { swatch } from "../chart-swatch.js";
import { methodStyle, methodTitle } from "../colours.js";
import { all, fill, h, one, pageData, setQuery, setText, stateChip } from "../dom.js";
import { live, perFrame } from "../live.js";
import { applyRound } from "../series.js";
import { notice, working } from "../shell.js";
import { datasetText, experimentTitle, partitionText } from "../spec.js";
import { ago, clock, duration, formatBytes, formatFlops, integer, percentNumber } from "../units.js";

const data = pageData();
const query = new URLSearchParams(location.search);

/** @type {Map<string, any>} */
const experiments = new Map(data.items.map((item) => [item.id, item]));
const rows = new Map();
const selected = new Set((query.get("selected") ?? "").split(",").filter(Boolean));
let next = data.next;
let sort = { key: query.get("sort") ?? "created", down: query.get("order") !== "up" };

const body = one("#experiments tbody");
const search = /** @type {HTMLInputElement} */ (one("#search"));
const stateFilter = /** @type {HTMLSelectElement} */ (one("#state-filter"));

/** What each sortable column compares. */
const KEYS = {
  created: (e) => e.id,
  name: (e) => experimentTitle(e, methodTitle).toLowerCase(),
  method: (e) => e.spec.algorithm.name,
  data: (e) => datasetText(e.spec.dataset),
  clients: (e) => e.spec.clients,
  progress: (e) => e.next_round / (e.rounds + 1),
  best: (e) => e.headline?.best_accuracy ?? -1,
  bytes: (e) => (e.totals?.bytes_up ?? 0) + (e.totals?.bytes_down ?? 0),
  flops: (e) => e.totals?.client_flops ?? 0,
  time: (e) => e.seconds ?? 0,
};

function filters() {
  return { state: stateFilter.value, search: search.value.trim() };
}

function done(experiment) {
  return Math.max(0, Math.min(experiment.rounds, experiment.next_round - 1));
}

/** A row is made once; later only its cells change, so that focus and selection stay. */
function makeRow(experiment) {
  const box = h("input", {
    type: "checkbox",
    "aria-label": `Select ${experimentTitle(experiment, methodTitle)}`,
    on: { change: () => choose(experiment.id, box.checked) },
  });
  const style = methodStyle(experiment.spec.algorithm.name);
  const method = h("span", { class: "method" }, swatch(style), methodTitle(experiment.spec.algorithm.name));
  const cells = {
    state: h("td", {}),
    progress: h("progress", { max: experiment.rounds, value: 0 }),
    progressText: h("span", { class: "num" }),
    best: h("td", { class: "num right" }),
    bytes: h("td", { class: "num right" }),
    flops: h("td", { class: "num right" }),
    time: h("td", { class: "num right" }),
    created: h("td", { class: "num right muted" }),
  };
  const { spec } = experiment;
  const row = h(
    "tr",
    {
      tabindex: -1,
      data: { id: experiment.id },
      on: {
        click: (event) => {
          if (event.target.closest("a, input, label, button") || String(getSelection())) return;
          location.assign(`/experiments/${experiment.id}`);
        },
      },
    },
    h("td", { class: "pick" }, h("label", { class: "pick-area" }, box)),
    h(
      "td",
      { class: "name" },
      h("a", { href: `/experiments/${experiment.id}`, class: "name-link" }, experimentTitle(experiment, methodTitle)),
      experiment.tags.map((tag) => h("span", { class: "tag" }, tag)),
    ),
    cells.state,
    h("td", {}, method),
    h("td", {}, datasetText(spec.dataset)),
    h("td", { class: "muted" }, partitionText(spec.partition)),
    h("td", { class: "num right" }, integer(spec.clients)),
    h("td", { class: "num right" }, String(spec.participation)),
    h("td", {}, h("div", { class: "progress" }, cells.progress, cells.progressText)),
    cells.best,
    cells.bytes,
    cells.flops,
    cells.time,
    cells.created,
  );
  return { row, box, cells, state: "" };
}

function updateRow(entry, experiment) {
  const { cells } = entry;
  if (entry.state !== experiment.state) {
    entry.state = experiment.state;
    entry.row.dataset.state = experiment.state;
    fill(cells.state, stateChip(experiment.state));
    cells.state.title = experiment.error?.reason ?? "";
  }
  cells.progress.value = done(experiment);
  cells.progress.setAttribute("aria-label", `${done(experiment)} of ${experiment.rounds} rounds`);
  setText(cells.progressText, `${integer(done(experiment))} / ${integer(experiment.rounds)}`);
  setText(cells.best, percentNumber(experiment.headline?.best_accuracy));
  cells.best.title = experiment.headline?.best_round ? `best in round ${experiment.headline.best_round}` : "";
  const { bytes_up: up = 0, bytes_down: down = 0, client_flops: flops = 0 } = experiment.totals ?? {};
  setText(cells.bytes, experiment.next_round ? formatBytes(up + down) : "–");
  cells.bytes.title = `${integer(up)} bytes up, ${integer(down)} bytes down`;
  setText(cells.flops, experiment.next_round ? formatFlops(flops) : "–");
  setText(cells.time, experiment.next_round ? duration(experiment.seconds) : "–");
  setText(cells.created, ago(experiment.created_at));
  cells.created.title = clock(experiment.created_at);
  entry.box.checked = selected.has(experiment.id);
  entry.row.classList.toggle("selected", entry.box.checked);
}

function ordered() {
  const key = KEYS[sort.key] ?? KEYS.created;
  const sign = sort.down ? -1 : 1;
  return [...experiments.values()].sort((a, b) => {
    const [left, right] = [key(a), key(b)];
    if (left === right) return a.id < b.id ? 1 : -1;
    return left < right ? -sign : sign;
  });
}

function render() {
  const list = ordered();
  list.forEach((experiment, index) => {
    let entry = rows.get(experiment.id);
    if (!entry) rows.set(experiment.id, (entry = makeRow(experiment)));
    updateRow(entry, experiment);
    if (body.children[index] !== entry.row) body.insertBefore(entry.row, body.children[index] ?? null);
  });
  for (const [id, entry] of rows) {
    if (experiments.has(id)) continue;
    entry.row.remove();
    rows.delete(id);
  }
  if (!body.querySelector('tr[tabindex="0"]') && body.firstElementChild) body.firstElementChild.setAttribute("tabindex", "0");
  const filtered = Boolean(filters().state || filters().search);
  one("#experiments").hidden = list.length === 0;
  one("#empty").hidden = list.length > 0 || filtered;
  one("#no-match").hidden = list.length > 0 || !filtered;
  one("#more").hidden = next === null;
  const many = next === null ? integer(list.length) : `${integer(list.length)} newest`;
  setText(one("#count"), `${many} ${list.length === 1 ? "experiment" : "experiments"}${filtered ? " match" + (list.length === 1 ? "es" : "") : ""}`);
  for (const button of all("[data-sort]")) {
    const mine = button.dataset.sort === sort.key;
    button.closest("th")?.setAttribute("aria-sort", mine ? (sort.down ? "descending" : "ascending") : "none");
  }
  renderSelection();
}

function renderSelection() {
  const button = /** @type {HTMLAnchorElement} */ (one("#compare-selected"));
  const count = selected.size;
  button.textContent = count ? `Compare ${count} selected` : "Compare selected";
  if (count) {
    button.href = `/compare?ids=${[...selected].join(",")}`;
    button.removeAttribute("aria-disabled");
  } else {
    button.removeAttribute("href");
    button.setAttribute("aria-disabled", "true");
  }
  one("#clear-selection").hidden = count === 0;
  const whole = /** @type {HTMLInputElement} */ (one("#select-all"));
  const shown = [...experiments.keys()].filter((id) => selected.has(id)).length;
  whole.checked = shown > 0 && shown === experiments.size;
  whole.indeterminate = shown > 0 && shown < experiments.size;
}

function choose(id, yes) {
  if (yes) selected.add(id);
  else selected.delete(id);
  setQuery({ selected: [...selected].join(",") });
  render();
}

let request = 0;

async function reload() {
  const mine = ++request;
  setQuery(filters());
  try {
    const answer = await working(api.experiments({ ...filters(), limit: 50 }));
    if (mine !== request) return;
    experiments.clear();
    for (const item of answer.items) experiments.set(item.id, item);
    next = answer.next;
    render();
  } catch (error) {
    notice(`The list could not be loaded. ${error.message}`, "error");
  }
}

async function loadMore() {
  try {
    const answer = await working(api.experiments({ ...filters(), limit: 50, before: next }));
    for (const item of answer.items) experiments.set(item.id, item);
    next = answer.next;
    render();
  } catch (error) {
    notice(`The next page could not be loaded. ${error.message}`, "error");
  }
}

const renderSoon = perFrame(render);
let timer = 0;
const reloadSoon = () => {
  clearTimeout(timer);
  timer = window.setTimeout(reload, 250);
};

live.onState((experiment) => {
  const { state, search: words } = filters();
  const known = experiments.get(experiment.id);
  if (words && !known) return reloadSoon(); // only the server knows what the words match
  if (state && state !== experiment.state) experiments.delete(experiment.id);
  else if (!known || experiment.seq >= known.seq) experiments.set(experiment.id, experiment);
  renderSoon();
});
live.onRound((record) => {
  const experiment = experiments.get(record.experiment);
  if (experiment && applyRound(experiment, record)) renderSoon();
});

search.value = query.get("search") ?? "";
stateFilter.value = query.get("state") ?? "";
search.addEventListener("input", reloadSoon);
stateFilter.addEventListener("change", reload);
one("#more").addEventListener("click", loadMore);
one("#clear-filters").addEventListener("click", () => {
  search.value = "";
  stateFilter.value = "";
  reload();
});
one("#clear-selection").addEventListener("click", () => {
  selected.clear();
  setQuery({ selected: "" });
  render();
});
one("#select-all").addEventListener("change", (event) => {
  for (const id of experiments.keys()) {
    if (/** @type {HTMLInputElement} */ (event.target).checked) selected.add(id);
    else selected.delete(id);
  }
  setQuery({ selected: [...selected].join(",") });
  render();
});
for (const button of all("[data-sort]")) {
  button.addEventListener("click", () => {
    const key = button.dataset.sort;
    sort = { key, down: sort.key === key ? !sort.down : true };
    setQuery({ sort: key === "created" && sort.down ? "" : key, order: sort.down ? "" : "up" });
    render();
  });
}
document.addEventListener("fedarena:compare", () => {
  if (selected.size) location.assign(`/compare?ids=${[...selected].join(",")}`);
  else notice("Select experiments first: tick their boxes, or press the space bar on a row.");
});
body.addEventListener("keydown", (event) => {
  const row = /** @type {HTMLElement} */ (event.target).closest("tr");
  if (!row || event.target !== row) return;
  const move = { ArrowDown: row.nextElementSibling, ArrowUp: row.previousElementSibling, Home: body.firstElementChild, End: body.lastElementChild };
  const target = move[event.key];
  if (target instanceof HTMLElement) {
    event.preventDefault();
    row.tabIndex = -1;
    target.tabIndex = 0;
    target.focus();
  } else if (event.key === " ") {
    event.preventDefault();
    choose(row.dataset.id, !selected.has(row.dataset.id));
  } else if (event.key === "Enter") {
    location.assign(`/experiments/${row.dataset.id}`);
  }
});
setInterval(renderSoon, 30_000);
render();
live.start({ after: data.seq });
