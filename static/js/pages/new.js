// A new experiment: the form and the text are two views of one spec; it is checked, priced and drawn while it is written.

import { load } from "../../vendor/js-yaml/js-yaml.esm.min.mjs";
import { api } from "../api.js";
import { FAMILIES, FAMILY_TITLES } from "../colours.js";
import { all, fill, h, one, pageData, setText } from "../dom.js";
import { makeEditor } from "../editor.js";
import { Block, Field, valueAt, withValue } from "../form.js";
import { Heatmap } from "../heatmap.js";
import { live } from "../live.js";
import { notice, working } from "../shell.js";
import { specYaml } from "../spec.js";
import { duration, formatBytes, formatFlops, integer } from "../units.js";

const data = pageData();
const catalogue = data.catalogue;
const area = /** @type {HTMLTextAreaElement} */ (one("#spec"));
const button = /** @type {HTMLButtonElement} */ (one("#queue-it"));
const select = (id) => /** @type {HTMLSelectElement} */ (one(`#${id}`));
const method = select("method");
const DRAFT = "fedarena.draft";

/** A block with its name and the defaults its schema knows. */
function blockOf(entry, name) {
  const block = { name };
  for (const [key, schema] of Object.entries(entry?.parameters.properties ?? {})) {
    if (key !== "name" && schema.const === undefined && schema.default !== undefined) block[key] = schema.default;
  }
  return block;
}

const algorithmOf = (id) => catalogue.algorithms.find((item) => item.id === id);
const partitionOf = (id) => catalogue.partitions.find((item) => item.id === id);
const datasetKey = (item) => (item.set ? `imported:${item.set}` : item.id);
const datasetOf = (dataset) => catalogue.datasets.find((item) => (dataset?.name === "imported" ? item.set === dataset.set : item.id === dataset?.name));

/** A small spec that runs on any machine within a minute: always valid, since its parts come from the catalogue. */
function example(id) {
  const families = catalogue.models.map((item) => item.id);
  return {
    name: `my-first-${id}`,
    algorithm: blockOf(algorithmOf(id), id),
    dataset: { name: "digits" },
    partition: { name: "pathological", classes_per_client: 2 },
    models: { family: families.includes("cnn-5") ? "cnn-5" : families[0] },
    clients: 10,
    participation: 1.0,
    rounds: 20,
    training: { epochs: 1, batch_size: 32, lr: 0.01, momentum: 0.9, weight_decay: 0.001, clip: 50, augment: false },
    evaluation: { protocol: "A", every: 1 },
    seed: 42,
  };
}

// --- the text -------------------------------------------------------------------------------------------------------

/** @returns {{spec: any, problem: {field: string, message: string}|null}} */
function parse() {
  if (!area.value.trim()) return { spec: null, problem: { field: "", message: "The spec is empty. Choose a method above to start from an example." } };
  try {
    const spec = load(area.value);
    if (spec === null || typeof spec !== "object" || Array.isArray(spec)) {
      return { spec: null, problem: { field: "", message: "A spec is a list of fields, each as `name: value`." } };
    }
    return { spec, problem: null };
  } catch (error) {
    return { spec: null, problem: { field: error.mark ? `line ${error.mark.line + 1}` : "", message: `Not readable as YAML or JSON: ${error.reason ?? error.message}.` } };
  }
}

// --- the form -------------------------------------------------------------------------------------------------------

/** What the text says, as far as it could be read; the form changes it and writes the text anew. */
let current = /** @type {any} */ ({});

function change(path, value) {
  current = withValue(current, path, value);
  write();
}

function write() {
  area.value = specYaml(current);
  checkSoon();
}

const blocks = {
  algorithm: new Block(one("#block-algorithm"), "algorithm", change),
  dataset: new Block(one("#block-dataset"), "dataset", change),
  partition: new Block(one("#block-partition"), "partition", change),
  federation: new Block(one("#block-federation"), "", change),
  models: new Block(one("#block-models"), "models", change),
  training: new Block(one("#block-training"), "training", change),
  evaluation: new Block(one("#block-evaluation"), "evaluation", change),
  labels: new Block(one("#block-labels"), "", change),
};
const { name: nameSchema, topology, clients, participation, rounds, seed, ...groups } = catalogue.fields;
blocks.federation.use("fixed", { clients, participation, rounds, seed, topology }, []);
blocks.models.use("fixed", groups.models, ["family", "pretrained"]);
blocks.training.use("fixed", groups.training);
blocks.evaluation.use("fixed", groups.evaluation);
blocks.labels.use("fixed", { name: nameSchema }, []);
blocks.labels.root.append(listField("tags", "Tags", "Words to find it again, separated by commas"), textField());

/** Tags are a list in the spec and a line of text in the form. */
function listField(path, title, help) {
  const field = new Field(path, { type: "string", description: help }, (_, value) => change(path, String(value ?? "").split(",").map((part) => part.trim()).filter(Boolean)));
  const show = field.show.bind(field);
  field.show = (value) => show(Array.isArray(value) ? value.join(", ") : "");
  blocks.labels.fields.push(field);
  return field.root;
}

function textField() {
  const field = new Field("notes", { type: "string", default: "", description: "Free text; not part of the fingerprint" }, (path, value) => change(path, value ?? ""));
  blocks.labels.fields.push(field);
  return field.root;
}

function syncForm(spec) {
  const algorithm = algorithmOf(spec?.algorithm?.name);
  method.value = algorithm?.id ?? "";
  blocks.algorithm.use(algorithm?.id ?? "", algorithm?.parameters.properties);
  const dataset = datasetOf(spec?.dataset);
  select("dataset").value = dataset ? datasetKey(dataset) : "";
  blocks.dataset.use(dataset ? datasetKey(dataset) : "", dataset?.parameters.properties, ["name", "set"]);
  const partition = partitionOf(spec?.partition?.name);
  select("partition").value = partition?.id ?? "";
  blocks.partition.use(partition?.id ?? "", partition?.parameters.properties);
  const family = catalogue.models.find((item) => item.id === spec?.models?.family);
  select("models").value = family?.id ?? "";
  for (const block of Object.values(blocks)) block.show(spec ?? {});
  helpTexts(algorithm, dataset, partition, family);
}

function helpTexts(algorithm, dataset, partition, family) {
  const link = /** @type {HTMLAnchorElement} */ (one("#method-link"));
  link.href = algorithm ? `/methods/${algorithm.id}` : "/methods";
  setText(link, algorithm ? `About ${algorithm.title}` : "All methods");
  setText(one("#method-help"), algorithm ? `Shares ${algorithm.shares}; ${algorithm.heterogeneous}.` : "");
  const shape = dataset ? `${integer(dataset.samples)} images of ${dataset.shape.join(" × ")}, ${integer(dataset.classes)} classes${dataset.available ? "" : ", not on this machine yet"}. ` : "";
  setText(one("#data-help"), `${shape}${partition?.title ?? ""}`);
  setText(one("#models-help"), family ? family.members.map((member) => `${member.id} ${formatCount(member.parameters)}`).join(" · ") : "");
}

function formatCount(count) {
  return count >= 1e6 ? `${(count / 1e6).toFixed(2)} M` : `${(count / 1e3).toFixed(1)} k`;
}

// --- check, price and partition -------------------------------------------------------------------------------------

const map = new Heatmap(one("#partition-map"), { name: "partition", title: "Who holds what", empty: "The partition is drawn once the spec is valid." });
let controller = new AbortController();
let timer = 0;
let pricing = 0;
let drawn = "";
/** @type {any} the spec that was found good, as it was sent */
let good = null;
/** @type {any} the same, complete */
let expanded = null;

const editor = makeEditor(area);

/** Below the text, in its margin, and at the form's fields. */
function showProblems(problems) {
  const fields = new Map(Object.values(blocks).flatMap((block) => block.fields.map((field) => [field.path, field])));
  for (const field of fields.values()) field.complain("");
  for (const { field, message } of problems) fields.get(field)?.complain(message);
  editor.showProblems(problems);
}

function verdict(state, text) {
  const box = one("#verdict");
  box.dataset.state = state;
  setText(box, text);
  button.disabled = state !== "good";
}

async function check() {
  controller.abort();
  controller = new AbortController();
  const { signal } = controller;
  good = null;
  const { spec, problem } = parse();
  if (problem) {
    showProblems([problem]);
    verdict("bad", "1 problem");
    showCost(null);
    return;
  }
  current = spec;
  syncForm(spec);
  verdict("busy", "Checking…");
  try {
    const answer = await api.check(spec, signal);
    good = spec;
    expanded = answer.spec;
    showProblems([]);
    const { clients: count, participation: share, rounds: total } = answer.spec;
    const cohort = Math.max(1, Math.floor(count * share + 1e-6));
    verdict("good", `Ready to run: ${integer(total)} rounds, ${integer(cohort)} of ${integer(count)} clients in each`);
    showCopies();
    clearTimeout(pricing);
    pricing = window.setTimeout(() => Promise.all([price(spec, signal), drawPartition(spec, answer.spec, signal)]), 300);
  } catch (error) {
    if (error.name === "AbortError") return;
    const errors = error.errors ?? [{ field: "", message: error.message }];
    showProblems(errors);
    verdict("bad", `${errors.length} ${errors.length === 1 ? "problem" : "problems"}`);
    showCost(null);
  }
}

const BASIS = {
  measured: (count) => `Measured: ${integer(count)} ${count === 1 ? "experiment" : "experiments"} with the same method, data and training`,
  rate: (count) => `Rough: from the FLOPs and the speed of ${integer(count)} other ${count === 1 ? "experiment" : "experiments"} here`,
  guess: () => "A guess from the FLOPs: no experiment has run here yet",
};

function showCost(estimate) {
  const box = one(".strip-figures");
  delete box.dataset.state;
  setText(one("#cost-bytes"), estimate ? formatBytes(estimate.round.bytes_up + estimate.round.bytes_down) : "–");
  setText(one("#cost-flops"), estimate ? formatFlops(estimate.round.client_flops) : "–");
  setText(one("#cost-total"), estimate ? `${formatBytes(estimate.total.bytes_up + estimate.total.bytes_down)} · ${formatFlops(estimate.total.client_flops)}` : "–");
  const rough = estimate && estimate.basis !== "measured";
  setText(one("#cost-time"), estimate ? `${rough ? "roughly" : "about"} ${duration(estimate.seconds)}` : "–");
  one("#cost-time-box").title = estimate ? BASIS[estimate.basis](estimate.experiments) : "";
  setText(button, estimate ? `Queue 1 experiment (${rough ? "roughly" : "about"} ${duration(estimate.seconds)})` : "Queue 1 experiment");
}

async function price(spec, signal) {
  one(".strip-figures").dataset.state = "busy";
  try {
    showCost((await api.estimate(spec, signal)).estimate);
  } catch (error) {
    if (error.name !== "AbortError") showCost(null);
  }
}

async function drawPartition(spec, whole, signal) {
  const key = JSON.stringify([whole.dataset, whole.partition, whole.clients, whole.partition.seed ?? whole.seed]);
  if (key === drawn) return;
  try {
    const found = await api.partition(spec, signal);
    drawn = key;
    map.set({ values: found.counts, rowTitle: "Client", columnTitle: "Class", unit: "samples" });
    setText(one("#partition-notes"), found.notes.join(" "));
  } catch (error) {
    if (error.name !== "AbortError") map.set(null);
  }
}

function checkSoon() {
  clearTimeout(timer);
  clearTimeout(pricing);
  button.disabled = true;
  sessionStorage.setItem(DRAFT, area.value);
  editor.drawLines();
  timer = window.setTimeout(check, 250);
}

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
const COPIES = {
  yaml: (spec) => specYaml(spec),
  json: (spec) => JSON.stringify(spec, null, 2),
  curl: (spec) => `curl -X POST ${location.origin}/api/experiments -H 'content-type: application/json' -d ${quoted(JSON.stringify(spec))}`,
  python: (spec) => `from engine.run import Run\nfrom engine.spec import ExperimentSpec\n\nspec = ExperimentSpec.from_yaml("""\n${specYaml(spec).replaceAll("\\", "\\\\")}""")\nfor record in Run(spec, data_root=None).rounds():\n    print(record.round, record.accuracy, record.bytes_up)\n`,
};

function showCopies() {
  const chosen = /** @type {HTMLInputElement} */ (one('input[name="copy-as"]:checked')).value;
  setText(one("#expanded"), expanded ? COPIES[chosen](expanded) : "");
}

// --- choices --------------------------------------------------------------------------------------------------------

function base() {
  const { spec, problem } = parse();
  return problem || !spec ? example(method.value || first.id) : spec;
}

function replace(changes) {
  current = { ...base(), ...changes };
  if (typeof current.name === "string" && current.name.startsWith("my-first-")) current.name = `my-first-${current.algorithm?.name ?? ""}`;
  area.value = specYaml(current);
  sessionStorage.setItem(DRAFT, area.value);
  check();
}

/** Puts a paper's values into the spec: what the preset names is overwritten, the rest stays. */
function applyPreset(name) {
  const values = catalogue.presets[name];
  if (!values) return;
  const spec = base();
  const own = algorithmOf(spec.algorithm?.name)?.presets?.[name] ?? {};
  const merged = { ...spec, algorithm: { ...spec.algorithm, ...own } };
  for (const [key, value] of Object.entries(values)) merged[key] = value !== null && typeof value === "object" ? { ...merged[key], ...value } : value;
  replace(merged);
}

async function submit() {
  if (!good) return;
  button.disabled = true;
  const spec = good;
  try {
    const made = await working(api.submit(spec, crypto.randomUUID()));
    sessionStorage.removeItem(DRAFT);
    location.assign(`/experiments/${made.id}`);
  } catch (error) {
    const errors = error.errors ?? [{ field: "", message: error.message }];
    showProblems(errors);
    verdict("bad", "Not queued");
    notice(`Not queued: ${error.message}`, "error");
  }
}

const known = new Set(FAMILIES);
for (const [family, title] of [...Object.entries(FAMILY_TITLES), ["", "Other"]]) {
  const members = catalogue.algorithms.filter((item) => (family ? item.family === family : !known.has(item.family)));
  if (members.length) method.append(h("optgroup", { label: title }, members.map((item) => h("option", { value: item.id }, item.title))));
}
fill(select("preset"), h("option", { value: "" }, "none"), Object.entries({ A: "A: pFedAFM, pFedES", B: "B: FedARC", C: "C: CompFL" }).filter(([id]) => id in catalogue.presets).map(([id, title]) => h("option", { value: id }, title)));
fill(select("dataset"), catalogue.datasets.map((item) => h("option", { value: datasetKey(item) }, `${item.title}${item.available ? "" : " (missing)"}`)));
fill(select("partition"), catalogue.partitions.map((item) => h("option", { value: item.id }, item.id)));
const several = catalogue.models.filter((item) => item.members.length > 1);
fill(
  select("models"),
  h("optgroup", { label: "Heterogeneous" }, several.map((item) => h("option", { value: item.id }, item.title))),
  h("optgroup", { label: "One architecture" }, catalogue.models.filter((item) => item.members.length === 1).map((item) => h("option", { value: item.id }, item.title))),
);

const first = algorithmOf(data.algorithm) ?? algorithmOf("fedavg") ?? catalogue.algorithms[0];
const draft = data.algorithm ? null : sessionStorage.getItem(DRAFT);
area.value = data.spec ? specYaml(data.spec) : draft ?? specYaml(example(first.id));
area.addEventListener("input", checkSoon);
document.addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key === "Enter") submit();
});
one("#form").addEventListener("submit", (event) => event.preventDefault());
method.addEventListener("change", () => method.value && replace({ algorithm: blockOf(algorithmOf(method.value), method.value) }));
select("preset").addEventListener("change", () => applyPreset(select("preset").value));
select("dataset").addEventListener("change", () => {
  const item = catalogue.datasets.find((entry) => datasetKey(entry) === select("dataset").value);
  const transform = valueAt(current, "dataset.transform");
  replace({ dataset: { name: item.id, ...(item.set ? { set: item.set } : {}), ...(transform ? { transform } : {}) }, ...(item.set ? { partition: { name: "imported" } } : {}) });
});
select("partition").addEventListener("change", () => {
  const id = select("partition").value;
  const { labels, split, seed: own, ...block } = blockOf(partitionOf(id), id);
  replace({ partition: { ...block, ...(valueAt(current, "partition.split") && split ? { split: valueAt(current, "partition.split") } : {}) } });
});
select("models").addEventListener("change", () => replace({ models: { ...valueAt(current, "models"), family: select("models").value } }));
button.addEventListener("click", submit);
one("#start-over").addEventListener("click", () => {
  area.value = specYaml(example(method.value || first.id));
  sessionStorage.removeItem(DRAFT);
  check();
});
for (const radio of all('input[name="copy-as"]')) radio.addEventListener("change", showCopies);
editor.drawLines();
check();
live.start({ after: data.seq });
