// A new experiment: write the spec, see what is wrong with it while writing, queue it.

import { load } from "../../vendor/js-yaml/js-yaml.esm.min.mjs";
import { api } from "../api.js";
import { FAMILIES, FAMILY_TITLES } from "../colours.js";
import { fill, h, one, pageData, setText } from "../dom.js";
import { live } from "../live.js";
import { notice, working } from "../shell.js";
import { specYaml } from "../spec.js";
import { integer } from "../units.js";

const data = pageData();
const catalogue = data.catalogue;
const area = /** @type {HTMLTextAreaElement} */ (one("#spec"));
const button = /** @type {HTMLButtonElement} */ (one("#queue-it"));
const method = /** @type {HTMLSelectElement} */ (one("#method"));
const DRAFT = "fedarena.draft";

/** A method's parameters with their defaults; the schema knows them. */
function algorithmBlock(id) {
  const algorithm = catalogue.algorithms.find((item) => item.id === id);
  const block = { name: id };
  for (const [key, schema] of Object.entries(algorithm?.parameters.properties ?? {})) {
    if (key !== "name" && schema.default !== undefined) block[key] = schema.default;
  }
  return block;
}

/** A small spec that runs on any machine within a minute: always valid, since its parts come from the catalogue. */
function example(id) {
  const families = catalogue.models.map((item) => item.id);
  return {
    name: `my-first-${id}`,
    algorithm: algorithmBlock(id),
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

/** The line of the text in which a field stands; 0 when it is not there. @param {string} path */
function lineOf(path) {
  const parts = path.split(".");
  const rows = area.value.split("\n");
  const top = rows.findIndex((row) => new RegExp(`^\\s{0,2}"?${escapePattern(parts[0])}"?\\s*:`).test(row));
  if (top < 0) return 0;
  for (const part of parts.slice(1).reverse()) {
    const inner = rows.findIndex((row, index) => index >= top && new RegExp(`(^|[\\s{,"])${escapePattern(part)}"?\\s*:`).test(row));
    if (inner >= 0) return inner + 1;
  }
  return top + 1;
}

function escapePattern(text) {
  return text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
}

function goTo(line) {
  const rows = area.value.split("\n");
  const start = rows.slice(0, line - 1).reduce((sum, row) => sum + row.length + 1, 0);
  area.focus();
  area.setSelectionRange(start, start + rows[line - 1].length);
}

function showProblems(problems) {
  const list = one("#problems");
  area.setAttribute("aria-invalid", String(problems.length > 0));
  const bad = new Set();
  fill(
    list,
    problems.map(({ field, message }) => {
      const line = /^line \d+$/.test(field) ? Number(field.slice(5)) : field ? lineOf(field) : 0;
      if (line) bad.add(line);
      return h(
        "li",
        { data: { field } },
        field ? h("code", {}, field) : null,
        h("span", {}, message),
        line ? h("button", { type: "button", class: "tool", on: { click: () => goTo(line) } }, `Go to line ${line}`) : null,
      );
    }),
  );
  drawLines(bad);
}

/** Line numbers beside the text, the wrong ones marked. @param {Set<number>} bad */
function drawLines(bad) {
  const count = area.value.split("\n").length;
  fill(one("#lines"), Array.from({ length: count }, (_, index) => h("span", { class: bad.has(index + 1) ? "bad" : null }, String(index + 1))));
  one("#lines").scrollTop = area.scrollTop;
}

let controller = new AbortController();
let timer = 0;
/** @type {any} the spec that was found good, as it was sent */
let good = null;

function verdict(state, text) {
  const box = one("#verdict");
  box.dataset.state = state;
  setText(box, text);
  button.disabled = state !== "good";
}

async function check() {
  controller.abort();
  controller = new AbortController();
  good = null;
  const { spec, problem } = parse();
  syncMethod(spec);
  if (problem) {
    showProblems([problem]);
    verdict("bad", "1 problem");
    return;
  }
  verdict("busy", "Checking…");
  try {
    const answer = await api.check(spec, controller.signal);
    good = spec;
    showProblems([]);
    const { clients, participation, rounds } = answer.spec;
    const cohort = Math.max(1, Math.floor(clients * participation + 1e-6));
    verdict("good", `Ready to run: ${integer(rounds)} rounds, ${integer(cohort)} of ${integer(clients)} clients in each`);
    setText(one("#expanded"), specYaml(answer.spec));
    setText(one("#curl"), `curl -X POST ${location.origin}/api/experiments -H 'content-type: application/json' -d '${JSON.stringify(spec).replaceAll("'", "'\\''")}'`);
  } catch (error) {
    if (error.name === "AbortError") return;
    const errors = error.errors ?? [{ field: "", message: error.message }];
    showProblems(errors);
    verdict("bad", `${errors.length} ${errors.length === 1 ? "problem" : "problems"}`);
  }
}

function checkSoon() {
  clearTimeout(timer);
  button.disabled = true;
  sessionStorage.setItem(DRAFT, area.value);
  drawLines(new Set());
  timer = window.setTimeout(check, 250);
}

function syncMethod(spec) {
  const id = spec?.algorithm?.name;
  method.value = catalogue.algorithms.some((item) => item.id === id) ? id : "";
  const chosen = catalogue.algorithms.find((item) => item.id === method.value);
  const help = one("#method-help");
  if (!chosen) {
    setText(help, "");
    return;
  }
  const source = [chosen.paper, [chosen.venue, chosen.year].filter(Boolean).join(" ")].filter(Boolean).join(", ");
  fill(help, chosen.shares ? `Shares ${chosen.shares}. ` : null, chosen.link && /^https?:/.test(chosen.link) ? h("a", { href: chosen.link, rel: "noreferrer" }, source || chosen.title) : source);
  const parameters = Object.entries(chosen.parameters.properties ?? {}).filter(([key]) => key !== "name");
  one("#parameters").hidden = parameters.length === 0;
  fill(
    one("#parameters tbody"),
    parameters.map(([key, schema]) =>
      h("tr", {}, h("th", { scope: "row", class: "code" }, key), h("td", { class: "num" }, JSON.stringify(schema.default ?? null)), h("td", { class: "num" }, bounds(schema)), h("td", {}, schema.description ?? "")),
    ),
  );
}

function bounds(schema) {
  const plain = schema.anyOf?.find((option) => option.type !== "null") ?? schema;
  if (plain.enum) return plain.enum.join(" | ");
  if (plain.type === "boolean") return "true | false";
  const low = plain.minimum ?? plain.exclusiveMinimum;
  const high = plain.maximum ?? plain.exclusiveMaximum;
  if (low === undefined && high === undefined) return "";
  return `${plain.exclusiveMinimum !== undefined ? "(" : "["}${low ?? "−∞"}, ${high ?? "∞"}${plain.exclusiveMaximum !== undefined ? ")" : "]"}`;
}

/** Puts another algorithm block into the text and leaves the rest as it is written. */
function replaceMethod(id) {
  const { spec, problem } = parse();
  const base = problem || !spec ? example(id) : { ...spec, algorithm: algorithmBlock(id) };
  if (typeof base.name === "string" && base.name.startsWith("my-first-")) base.name = `my-first-${id}`;
  area.value = specYaml(base);
  sessionStorage.setItem(DRAFT, area.value);
  check();
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

for (const family of FAMILIES) {
  const members = catalogue.algorithms.filter((item) => item.family === family);
  if (!members.length) continue;
  method.append(h("optgroup", { label: FAMILY_TITLES[family] }, members.map((item) => h("option", { value: item.id }, item.title))));
}
const others = catalogue.algorithms.filter((item) => !FAMILIES.includes(item.family));
if (others.length) method.append(h("optgroup", { label: "Other" }, others.map((item) => h("option", { value: item.id }, item.title))));

const first = catalogue.algorithms.find((item) => item.id === "fedavg") ?? catalogue.algorithms[0];
area.value = data.spec ? specYaml(data.spec) : sessionStorage.getItem(DRAFT) ?? specYaml(example(first.id));
area.addEventListener("input", checkSoon);
area.addEventListener("scroll", () => (one("#lines").scrollTop = area.scrollTop));
area.addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key === "Enter") submit();
});
method.addEventListener("change", () => method.value && replaceMethod(method.value));
button.addEventListener("click", submit);
one("#start-over").addEventListener("click", () => {
  area.value = specYaml(example(method.value || first.id));
  sessionStorage.removeItem(DRAFT);
  check();
});
drawLines(new Set());
check();
live.start({ after: data.seq });
