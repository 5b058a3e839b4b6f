// A new sweep: write the document, see what it would run and cost while writing, queue it.

import { api } from "../api.js";
import { fill, h, one, pageData, setText } from "../dom.js";
import { makeEditor } from "../editor.js";
import { live } from "../live.js";
import { notice, working } from "../shell.js";
import { duration, formatBytes, integer } from "../units.js";

const DRAFT = "fedarena.sweep-draft";
const EXAMPLE = `name: who learns from whom
base:
  dataset: {name: digits}
  partition: {name: pathological, classes_per_client: 2}
  models: {family: cnn-5}
  clients: 10
  rounds: 10
  training: {epochs: 1, batch_size: 32, augment: false}
grid:
  algorithm:
    - {name: standalone}
    - {name: fedavg}
    - {name: fedprox, mu: 0.1}
  training.lr: [0.01, 0.05]
seeds: [42, 43, 44]
`;
const data = pageData();
const area = /** @type {HTMLTextAreaElement} */ (one("#document"));
const button = /** @type {HTMLButtonElement} */ (one("#queue-it"));
const { showProblems, drawLines } = makeEditor(area);

let controller = new AbortController();
let timer = 0;
/** @type {string|null} the text that was found good */
let good = null;

function verdict(state, text) {
  const box = one("#verdict");
  box.dataset.state = state;
  setText(box, text);
  button.disabled = state !== "good";
}

function plural(count, word) {
  return `${integer(count)} ${word}${count === 1 ? "" : "s"}`;
}

function costText({ seconds, unknown_seconds: unknown, slots }, count) {
  if (!count) return "nothing to run";
  if (seconds === null) return "no measurement yet";
  const place = slots ? `on ${plural(slots, "slot")}` : "on one slot";
  return `about ${duration(seconds)} ${place}${unknown ? `; no measurement yet for ${integer(unknown)} of ${integer(count)}` : ""}`;
}

function showPlan(plan) {
  const reused = Object.values(plan.reused).reduce((sum, count) => sum + count, 0);
  const notApplicable = plan.not_applicable.reduce((sum, item) => sum + item.experiments, 0);
  const { cost } = plan;
  const facts = [
    ["Cells", integer(plan.cells)],
    ["Experiments", integer(plan.experiments)],
    ["To run", integer(plan.to_run)],
    reused ? ["There already", Object.entries(plan.reused).map(([state, count]) => `${integer(count)} ${state}`).join(", ")] : null,
    notApplicable ? ["Not applicable", integer(notApplicable)] : null,
    plan.excluded ? ["Excluded", integer(plan.excluded)] : null,
    ["Time", costText(cost, plan.to_run)],
    ["Communication", cost.bytes === null ? "no measurement yet" : `${formatBytes(cost.bytes)}${cost.unknown_bytes ? `; no measurement yet for ${integer(cost.unknown_bytes)}` : ""}`],
  ];
  fill(one("#dry-run"), facts.filter(Boolean).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", { class: "num" }, value))));
  one("#not-applicable").hidden = plan.not_applicable.length === 0;
  fill(
    one("#not-applicable .reasons"),
    plan.not_applicable.map((item) => h("li", {}, h("code", {}, item.cell), h("span", {}, `${item.reason} (${plural(item.experiments, "experiment")})`))),
  );
}

async function check() {
  controller.abort();
  controller = new AbortController();
  good = null;
  const text = area.value;
  if (!text.trim()) {
    showProblems([{ field: "", message: "The document is empty. Start from the example." }]);
    verdict("bad", "1 problem");
    return;
  }
  verdict("busy", "Checking…");
  try {
    const plan = await api.checkSweep(text, controller.signal);
    showPlan(plan);
    const problems = plan.refused.map((item) => ({ field: item.field, message: item.experiments ? `${item.message} (in ${item.example || "all"}${item.experiments > 1 ? ` and ${integer(item.experiments - 1)} more` : ""})` : item.message }));
    showProblems(problems);
    if (!plan.ok) {
      setText(button, "Queue the sweep");
      verdict("bad", plural(problems.length, "problem"));
      return;
    }
    good = text;
    const time = plan.cost.seconds === null ? "" : `, about ${duration(plan.cost.seconds)}`;
    setText(button, plan.to_run ? `Queue ${plural(plan.to_run, "experiment")}${time}` : "Collect what is there");
    verdict("good", plan.cost.seconds === null && plan.to_run ? "Ready; no measurement of its time yet" : "Ready");
  } catch (error) {
    if (error.name === "AbortError") return;
    const errors = error.errors ?? [{ field: "", message: error.message }];
    showProblems(errors);
    setText(button, "Queue the sweep");
    verdict("bad", plural(errors.length, "problem"));
  }
}

function checkSoon() {
  clearTimeout(timer);
  button.disabled = true;
  sessionStorage.setItem(DRAFT, area.value);
  drawLines();
  timer = window.setTimeout(check, 400);
}

async function submit() {
  if (good === null) return;
  button.disabled = true;
  try {
    const made = await working(api.submitSweep(good, crypto.randomUUID()));
    sessionStorage.removeItem(DRAFT);
    location.assign(`/sweeps/${made.id}`);
  } catch (error) {
    showProblems(error.errors ?? [{ field: "", message: error.message }]);
    verdict("bad", "Not queued");
    notice(`Not queued: ${error.message}`, "error");
  }
}

area.value = data.yaml ?? sessionStorage.getItem(DRAFT) ?? EXAMPLE;
area.addEventListener("input", checkSoon);
area.addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key === "Enter") submit();
});
button.addEventListener("click", submit);
one("#start-over").addEventListener("click", () => {
  area.value = EXAMPLE;
  sessionStorage.removeItem(DRAFT);
  check();
});
drawLines();
check();
live.start({ after: data.seq });
