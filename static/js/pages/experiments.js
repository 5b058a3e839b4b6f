// The list: every experiment with its state and headline numbers, filtered and sorted by the server, current without a reload.

/** @import { Experiment, ListPage } from "../types.d.ts" */

import { api, messageOf } from "../api.js";
import { swatch } from "../chart-swatch.js";
import { methodStyle, methodTitle } from "../colours.js";
import { convergenceNode, NO_CONVERGENCE, NOTE } from "../convergence.js";
import { all, fill, h, nameLink, one, pageData, setQuery, setText, stateChip } from "../dom.js";
import { keepList } from "../editor.js";
import { live, perFrame } from "../live.js";
import { applyRound, headlineOf } from "../series.js";
import { notice, working } from "../shell.js";
import { cohortSize, datasetText, experimentTitle, nameParts, partitionText } from "../spec.js";
import { actionButtons, ask, offerUndo } from "../steering.js";
import { ago, clock, duration, formatBytes, formatFlops, integer, percentNumber } from "../units.js";

const PAGE = 50;
const REMEMBERED = "fedarena.columns";
/** @type {ListPage} */
const data = pageData();
const query = new URLSearchParams(location.search);

/** In the order of the server. @type {Map<string, any>} */
const experiments = new Map(data.items.map((item) => [item.id, item]));
/** @type {Map<string, Row>} */
const rows = new Map();
const selected = new Set((query.get("selected") ?? "").split(",").filter(Boolean));
let total = data.total;
let sort = { key: query.get("sort") ?? "created", down: query.get("order") !== "up" };

/**
 * How a column is written into the cells of its rows; `usual` ones are shown at first.
 * @typedef {object} Column
 * @property {string} title
 * @property {string} [help]
 * @property {string} [sort] what the server sorts by
 * @property {boolean} [usual]
 * @property {string} [kind] classes of its cells
 * @property {(cell: HTMLElement, experiment: Experiment) => void} write
 */

/**
 * @typedef {object} Row
 * @property {HTMLElement} row
 * @property {HTMLInputElement} box
 * @property {HTMLElement} link
 * @property {HTMLElement} tags
 * @property {Map<string, HTMLElement>} cells
 */

/**
 * A row of the body: an experiment, or the name of those that follow.
 * @typedef {Experiment|{method: string, count: number}} Entry
 */

const body = one("#experiments tbody");
/** @param {string} id */
const input = (id) => /** @type {HTMLInputElement} */ (one(`#${id}`));
const FILTERS = {
  search: input("search"),
  state: input("state-filter"),
  algorithm: input("algorithm-filter"),
  dataset: input("dataset-filter"),
  tag: input("tag-filter"),
};
const group = input("group");

/** @param {Experiment} experiment */
function done(experiment) {
  return Math.max(0, Math.min(experiment.rounds, experiment.next_round - 1));
}

/** @param {Experiment} experiment @param {string} text */
const started = (experiment, text) => (experiment.next_round ? text : "–");
/** @type {(write: (experiment: Experiment) => string) => Column["write"]} */
const number = (write) => (cell, experiment) => setText(cell, write(experiment));

/**
 * Every column: its title, what the server sorts by, and how a cell is written. `usual` ones are shown at first.
 * @type {Record<string, Column>}
 */
const COLUMNS = {
  state: {
    title: "State",
    sort: "state",
    usual: true,
    write(cell, experiment) {
      if (cell.dataset.state === experiment.state) return;
      cell.dataset.state = experiment.state;
      fill(cell, stateChip(experiment.state));
      cell.title = experiment.error?.reason ?? (experiment.no_convergence ? NO_CONVERGENCE : "");
    },
  },
  method: {
    title: "Method",
    sort: "method",
    usual: true,
    write(cell, { spec }) {
      if (!cell.firstChild) {
        fill(
          cell,
          h("span", { class: "method" }, swatch(methodStyle(spec.algorithm.name)), methodTitle(spec.algorithm.name)),
        );
      }
    },
  },
  data: { title: "Data set", sort: "data", usual: true, write: number((e) => datasetText(e.spec.dataset)) },
  partition: { title: "Partition", usual: true, kind: "muted", write: number((e) => partitionText(e.spec.partition)) },
  models: { title: "Models", write: number((e) => e.spec.models.family) },
  clients: {
    title: "N",
    help: "Number of clients (clients)",
    sort: "clients",
    usual: true,
    kind: "num right",
    write: number((e) => integer(e.spec.clients)),
  },
  participation: {
    title: "K",
    help: "Clients in each round (participants)",
    usual: true,
    kind: "num right",
    write: number((e) => integer(cohortSize(e.spec))),
  },
  seed: { title: "Seed", kind: "num right", write: number((e) => String(e.spec.seed)) },
  progress: {
    title: "Rounds",
    sort: "progress",
    usual: true,
    write(cell, experiment) {
      if (!cell.firstChild) fill(cell, h("div", { class: "progress" }, h("progress", {}), h("span", { class: "num" })));
      const bar = /** @type {HTMLProgressElement} */ (one("progress", cell));
      bar.max = experiment.rounds;
      bar.value = done(experiment);
      bar.setAttribute("aria-label", `${done(experiment)} of ${experiment.rounds} rounds`);
      setText(one("span", cell), `${integer(done(experiment))} / ${integer(experiment.rounds)}`);
    },
  },
  accuracy: {
    title: "Accuracy (%)",
    help: "The test accuracy that the protocol names: of the best round under A and B, of the last one under C",
    sort: "accuracy",
    usual: true,
    kind: "num right",
    write(cell, experiment) {
      const text = percentNumber(headlineOf(experiment));
      if (cell.dataset.shown === `${text} ${experiment.no_convergence}`) return;
      cell.dataset.shown = `${text} ${experiment.no_convergence}`;
      fill(cell, text, convergenceNode(Number(experiment.no_convergence)));
    },
  },
  best: {
    title: "Best (%)",
    help: "Best test accuracy of any round",
    sort: "best",
    kind: "num right",
    write(cell, experiment) {
      setText(cell, percentNumber(experiment.headline?.best_accuracy));
      cell.title = experiment.headline?.best_round ? `best in round ${experiment.headline.best_round}` : "";
    },
  },
  final: {
    title: "Final (%)",
    help: "Test accuracy of the last tested round",
    sort: "final",
    kind: "num right",
    write: number((e) => percentNumber(e.headline?.final_accuracy)),
  },
  bytes: {
    title: "Bytes",
    help: "Bytes sent and received so far, all clients",
    sort: "bytes",
    usual: true,
    kind: "num right",
    write: number((e) => started(e, formatBytes((e.totals?.bytes_up ?? 0) + (e.totals?.bytes_down ?? 0)))),
  },
  flops: {
    title: "FLOPs",
    help: "FLOPs of local training so far, all clients",
    sort: "flops",
    usual: true,
    kind: "num right",
    write: number((e) => started(e, formatFlops(e.totals?.client_flops ?? 0))),
  },
  time: {
    title: "Time",
    help: "Wall time of the rounds so far",
    sort: "time",
    usual: true,
    kind: "num right",
    write: number((e) => started(e, duration(e.seconds))),
  },
  created: {
    title: "Created",
    sort: "created",
    usual: true,
    kind: "num right muted",
    write(cell, experiment) {
      setText(cell, ago(experiment.created_at));
      cell.title = clock(experiment.created_at);
    },
  },
  finished: {
    title: "Finished",
    sort: "finished",
    kind: "num right muted",
    write(cell, experiment) {
      setText(cell, experiment.finished_at ? ago(experiment.finished_at) : "–");
      cell.title = clock(experiment.finished_at);
    },
  },
};

let chosen = remembered();

/** @returns {string[]} */
function remembered() {
  try {
    const kept = JSON.parse(localStorage.getItem(REMEMBERED) ?? "null");
    if (Array.isArray(kept)) return kept.filter((key) => key in COLUMNS);
  } catch (error) {
    console.info("The columns are not remembered because storage is blocked.", error);
  }
  return Object.keys(COLUMNS).filter((key) => COLUMNS[key].usual);
}

function filters() {
  return Object.fromEntries(Object.entries(FILTERS).map(([key, control]) => [key, control.value.trim()]));
}

function request() {
  return { ...filters(), sort: sort.key === "created" ? "" : sort.key, order: sort.down ? "" : "up" };
}

// --- rows -----------------------------------------------------------------------------------------------------------

function makeHead() {
  const heads = chosen.map((key) => {
    const column = COLUMNS[key];
    const text = column.sort
      ? h("button", {
        type: "button",
        title: column.help,
        data: { sort: column.sort },
        on: { click: () => sortBy(column.sort ?? key) },
      }, column.title)
      : h("abbr", { title: column.help }, column.title);
    return h(
      "th",
      { scope: "col", class: column.kind?.includes("right") ? "right" : null, data: { column: key } },
      text,
    );
  });
  const whole = h("input", { id: "select-all", type: "checkbox", "aria-label": "Select all loaded" });
  whole.addEventListener("change", () => chooseAll(whole.checked));
  const name = h("button", { type: "button", data: { sort: "name" }, on: { click: () => sortBy("name") } }, "Name");
  fill(
    one("#experiments thead tr"),
    h("th", { scope: "col", class: "pick" }, h("label", { class: "pick-area" }, whole)),
    h("th", { scope: "col", class: "name" }, name),
    heads,
  );
}

/**
 * A row is made once; later only its cells change, so that focus and selection stay.
 * @param {Experiment} experiment @returns {Row}
 */
function makeRow(experiment) {
  const box = h("input", { type: "checkbox" });
  box.addEventListener("click", (event) => pick(experiment.id, box.checked, event.shiftKey));
  const link = h("span", { class: "name-slot" });
  const tags = h("span", { class: "tags" });
  const cells = new Map(chosen.map((key) => [key, h("td", { class: COLUMNS[key].kind, data: { column: key } })]));
  const row = h(
    "tr",
    {
      tabindex: -1,
      data: { id: experiment.id },
      on: {
        click: (event) => {
          const target = /** @type {HTMLElement} */ (event.target);
          if (target.closest("a, input, label, button") || String(getSelection())) return;
          location.assign(`/experiments/${experiment.id}`);
        },
      },
    },
    h("td", { class: "pick" }, h("label", { class: "pick-area" }, box)),
    h("td", { class: "name" }, h("div", { class: "name-line" }, link, tags)),
    [...cells.values()],
  );
  return { row, box, link, tags, cells };
}

/** @param {Row} entry @param {Experiment} experiment */
function updateRow(entry, experiment) {
  const title = experimentTitle(experiment, methodTitle);
  entry.row.dataset.state = experiment.state;
  if (entry.link.textContent !== title) fill(entry.link, nameLink(`/experiments/${experiment.id}`, nameParts(title)));
  entry.box.setAttribute("aria-label", `Select ${title}`);
  const words = experiment.tags.join("\n");
  if (entry.tags.dataset.words !== words) {
    entry.tags.dataset.words = words;
    fill(entry.tags, experiment.tags.map((tag) => h("span", { class: "tag" }, tag)));
  }
  for (const [key, cell] of entry.cells) COLUMNS[key].write(cell, experiment);
  entry.box.checked = selected.has(experiment.id);
  entry.row.classList.toggle("selected", entry.box.checked);
}

/** What the body shows from top to bottom; with groups, each method's rows under its name. @returns {Entry[]} */
function layout() {
  const list = [...experiments.values()];
  if (!group.checked) return list;
  const byMethod = [...Map.groupBy(list, (experiment) => experiment.spec.algorithm.name)];
  byMethod.sort(([a], [b]) => (a < b ? -1 : 1));
  return byMethod.flatMap(([method, members]) => [{ method, count: members.length }, ...members]);
}

function render() {
  const wanted = layout().map((item) => {
    if ("method" in item) {
      return h(
        "tr",
        { class: "group" },
        h(
          "th",
          { scope: "rowgroup", colspan: chosen.length + 2 },
          `${methodTitle(item.method)} · ${integer(item.count)}${
            experiments.size < total ? " (loaded rows only)" : ""
          }`,
        ),
      );
    }
    const entry = rows.get(item.id) ?? makeRow(item);
    rows.set(item.id, entry);
    updateRow(entry, item);
    return entry.row;
  });
  for (const [id] of rows) if (!experiments.has(id)) rows.delete(id);
  const rowsOfBody = new Set(wanted);
  for (const child of all(":scope > tr", body)) if (!rowsOfBody.has(child)) child.remove();
  wanted.forEach((row, index) => {
    if (body.children[index] !== row) body.insertBefore(row, body.children[index] ?? null);
  });
  const first = body.querySelector("tr[data-id]");
  if (!body.querySelector('tr[tabindex="0"]') && first) first.setAttribute("tabindex", "0");
  const filtered = Object.values(filters()).some(Boolean);
  one("#experiments").hidden = experiments.size === 0;
  one("#empty").hidden = experiments.size > 0 || filtered;
  one("#no-match").hidden = experiments.size > 0 || !filtered;
  one("#more-row").hidden = experiments.size >= total;
  one("#no-convergence").hidden = !chosen.includes("accuracy") ||
    ![...experiments.values()].some((item) => item.no_convergence);
  setText(one("#no-convergence"), NOTE);
  const many = experiments.size < total ? `${integer(experiments.size)} of ${integer(total)}` : integer(total);
  setText(
    one("#count"),
    `${many} ${total === 1 ? "experiment" : "experiments"}${filtered ? ` ${total === 1 ? "matches" : "match"}` : ""}`,
  );
  for (const button of all("[data-sort]")) {
    const mine = button.dataset.sort === sort.key;
    button.closest("th")?.setAttribute("aria-sort", mine ? (sort.down ? "descending" : "ascending") : "none");
  }
  renderSelection();
}

// --- selection ------------------------------------------------------------------------------------------------------

function chosenOnes() {
  return [...selected].map((id) => experiments.get(id)).filter(Boolean);
}

const actions = actionButtons("-selected", chosenOnes, (done) => {
  for (const experiment of done) {
    if (experiment.deleted_at) selected.delete(experiment.id);
  }
  reload();
});
fill(one("#actions"), actions.buttons);

function renderSelection() {
  const compare = /** @type {HTMLAnchorElement} */ (one("#compare-selected"));
  const count = selected.size;
  const away = count - chosenOnes().length;
  const whole = input("select-all");
  const shown = chosenOnes().length;
  whole.checked = shown > 0 && shown === experiments.size;
  whole.indeterminate = shown > 0 && shown < experiments.size;
  const part = whole.checked && experiments.size < total ? ` loaded of ${integer(total)}` : "";
  setText(
    one("#selection-count"),
    count
      ? `${integer(count)}${part} selected${away ? `, ${integer(away)} not in this list` : ""}`
      : "Nothing selected",
  );
  compare.textContent = count ? `Compare ${count} selected` : "Compare selected";
  if (count) {
    compare.href = `/compare?ids=${[...selected].join(",")}`;
    compare.removeAttribute("aria-disabled");
  } else {
    compare.removeAttribute("href");
    compare.setAttribute("aria-disabled", "true");
  }
  actions.update((action, fitting, button) => {
    button.disabled = !fitting.length;
    setText(button, fitting.length ? `${action.word} ${fitting.length}` : action.word);
  });
  input("add-tag").disabled = input("remove-tag").disabled = count === away; // actions are about those that are shown
  one("#clear-selection").hidden = count === 0;
}

function keepSelection() {
  setQuery({ selected: [...selected].join(",") });
  render();
}

/** The row whose box was ticked or cleared last: a range begins there. */
let lastPicked = "";

/**
 * With Shift, all rows from the one before to this one become like this one.
 * @param {string} id @param {boolean} yes @param {boolean} range
 */
function pick(id, yes, range) {
  const ids = all("tr[data-id]", body).map((row) => row.dataset.id ?? "");
  const ends = [ids.indexOf(range ? lastPicked : id), ids.indexOf(id)];
  const [from, to] = ends[0] < 0 ? [ends[1], ends[1]] : ends.sort((a, b) => a - b);
  for (const key of ids.slice(from, to + 1)) yes ? selected.add(key) : selected.delete(key);
  lastPicked = id;
  keepSelection();
}

/** @param {boolean} yes */
function chooseAll(yes) {
  for (const id of experiments.keys()) {
    if (yes) selected.add(id);
    else selected.delete(id);
  }
  keepSelection();
}

/** @param {SubmitEvent} event */
async function tagSelected(event) {
  event.preventDefault();
  const tag = input("tag-input").value.trim();
  if (!tag) return input("tag-input").focus();
  const remove = event.submitter?.getAttribute("value") === "remove";
  const list = chosenOnes();
  /** @type {(experiment: Experiment) => string[]} */
  const tags = ({ tags: own }) => (remove ? own.filter((other) => other !== tag) : [...new Set([...own, tag])]);
  const told = `${remove ? "Removed" : "Added"} “${tag}” ${remove ? "from" : "to"} ${list.length}.`;
  for (
    const experiment of await ask({
      act: (id) => api.relabel(id, { tags: tags(experiments.get(id)) }),
      told: () => told,
    }, list)
  ) experiments.set(experiment.id, experiment);
  return render();
}

// --- loading --------------------------------------------------------------------------------------------------------

let asked = 0;

/** What came live after the server had read its answer is newer than the answer. @param {Experiment} item */
function newer(item) {
  const known = experiments.get(item.id);
  return known && (known.seq > item.seq || known.next_round > item.next_round) ? known : item;
}

/**
 * Whether a filter whose meaning is plain leaves it in; the others are the server's to judge.
 * @param {Experiment} experiment
 */
function fits(experiment) {
  const { state, algorithm, dataset } = filters();
  /** @type {[string, string][]} */
  const plain = [[state, experiment.state], [algorithm, experiment.spec.algorithm.name], [
    dataset,
    experiment.spec.dataset.name,
  ]];
  return !experiment.deleted_at && plain.every(([wanted, value]) => !wanted || wanted === value);
}

async function reload() {
  const mine = ++asked;
  setQuery({ ...request(), group: group.checked ? "method" : "" });
  try {
    const answer = await working(
      api.experiments({ ...request(), limit: Math.min(500, Math.max(PAGE, experiments.size)) }),
    );
    if (mine !== asked) return;
    const items = answer.items.map(newer).filter(fits);
    experiments.clear();
    for (const item of items) experiments.set(item.id, item);
    total = answer.total;
    render();
  } catch (error) {
    notice(`The list could not be loaded. ${messageOf(error)}`, "error");
  }
}

async function loadMore() {
  const mine = asked;
  try {
    const answer = await working(api.experiments({ ...request(), limit: PAGE, offset: experiments.size }));
    if (mine !== asked) return; // another list was asked for since
    for (const item of answer.items.map(newer).filter(fits)) experiments.set(item.id, item);
    total = answer.total;
    render();
  } catch (error) {
    notice(`The next page could not be loaded. ${messageOf(error)}`, "error");
  }
}

/** @param {string} key */
function sortBy(key) {
  sort = { key, down: sort.key === key ? !sort.down : true };
  reload();
}

const renderSoon = perFrame(render);
let timer = 0;
/** @param {number} wait */
const reloadSoon = (wait = 250) => {
  clearTimeout(timer);
  timer = window.setTimeout(reload, wait);
};

live.onState((experiment) => {
  const known = experiments.get(experiment.id);
  if (!known) {
    // whether it belongs here and where, only the server knows; what clearly does not is left out
    if (fits(experiment)) reloadSoon();
  } else if (!fits(experiment)) {
    experiments.delete(experiment.id);
    total -= 1;
    renderSoon();
    reloadSoon(); // an answer on its way may still have it
  } else if (experiment.seq >= known.seq) {
    experiments.set(experiment.id, experiment);
    renderSoon();
  }
});
live.onRound((record) => {
  const experiment = experiments.get(record.experiment);
  if (experiment && applyRound(experiment, record)) renderSoon();
});

for (const [key, control] of Object.entries(FILTERS)) {
  control.value = query.get(key) ?? "";
  control.addEventListener(key === "search" ? "input" : "change", () => reloadSoon(key === "search" ? 250 : 0));
}
group.checked = query.get("group") === "method";
group.addEventListener("change", () => {
  setQuery({ group: group.checked ? "method" : "" });
  render();
});
one("#more").addEventListener("click", loadMore);
one("#clear-filters").addEventListener("click", () => {
  for (const control of Object.values(FILTERS)) control.value = "";
  reload();
});
one("#clear-selection").addEventListener("click", () => {
  selected.clear();
  keepSelection();
});
one("#tag-form").addEventListener("submit", tagSelected);
document.addEventListener("fedarena:compare", () => {
  if (selected.size) location.assign(`/compare?ids=${[...selected].join(",")}`);
  else notice("Select experiments first: tick their boxes, or press the space bar on a row.");
});

/** @param {string[]} keys */
function showColumns(keys) {
  chosen = Object.keys(COLUMNS).filter((key) => keys.includes(key));
  rows.clear();
  makeHead();
  fill(
    one("#column-list"),
    Object.entries(COLUMNS).map(([key, column]) => {
      const box = h("input", { type: "checkbox" });
      box.checked = chosen.includes(key);
      box.addEventListener(
        "change",
        () => keepColumns(box.checked ? [...chosen, key] : chosen.filter((other) => other !== key)),
      );
      return h(
        "label",
        {},
        box,
        column.help && column.title.length < 3
          ? `${column.title}: ${column.help.replace(/ \(.*/, "").toLowerCase()}`
          : column.title,
      );
    }),
  );
  render();
}

/** @param {string[]} keys */
function keepColumns(keys) {
  try {
    localStorage.setItem(REMEMBERED, JSON.stringify(keys));
  } catch (error) {
    console.info("The columns are not remembered because storage is blocked.", error);
  }
  showColumns(keys);
}
one("#reset-columns").addEventListener(
  "click",
  () => keepColumns(Object.keys(COLUMNS).filter((key) => COLUMNS[key].usual)),
);
document.addEventListener("click", (event) => {
  const menu = /** @type {HTMLDetailsElement} */ (one("#columns"));
  const target = /** @type {HTMLElement} */ (event.target);
  if (menu.open && target.isConnected && !menu.contains(target)) menu.open = false;
});

/** The row with the focus in it is the one that the keys mean, however the focus came there. */
body.addEventListener("focusin", (event) => {
  const row = /** @type {HTMLElement} */ (event.target).closest("tr[data-id]");
  if (!(row instanceof HTMLElement)) return;
  for (const other of all('tr[tabindex="0"]', body)) other.tabIndex = -1;
  row.tabIndex = 0;
});
body.addEventListener("keydown", (event) => {
  const target_ = /** @type {HTMLElement} */ (event.target);
  const row = target_.closest("tr");
  const boxed = target_.matches("input[type=checkbox]");
  if (!row || (target_ !== row && !boxed)) return;
  const list = all("tr[data-id]", body);
  const place = list.indexOf(row);
  /** @type {Record<string, HTMLElement|undefined>} */
  const move = { ArrowDown: list[place + 1], ArrowUp: list[place - 1], Home: list[0], End: list[list.length - 1] };
  const target = move[event.key];
  if (target) {
    event.preventDefault();
    target.focus();
  } else if (event.key === " " && !boxed) {
    event.preventDefault();
    const id = row.dataset.id ?? "";
    pick(id, !selected.has(id), false);
  } else if (event.key === "Enter") {
    location.assign(`/experiments/${row.dataset.id}`);
  }
});
window.addEventListener("pagehide", keepList);
setInterval(renderSoon, 30_000);
showColumns(chosen);
live.start({ after: data.seq });
const deleted = query.get("undo"); // on the page from which one comes
if (deleted) {
  setQuery({ undo: "" });
  offerUndo([{ id: deleted }]);
}
