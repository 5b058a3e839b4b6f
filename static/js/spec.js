// A spec in words: short texts for tables, and YAML for people to read and edit.

/** @import { Spec } from "./types.d.ts" */

import { vocabulary } from "./vocabulary.js";

/** "pathological, 2 classes" or "dirichlet, β 0.1". @param {Spec["partition"]} partition */
export function partitionText(partition) {
  const parts = [partition.name];
  if (partition.classes_per_client !== undefined) {
    parts.push(`${partition.classes_per_client} ${partition.classes_per_client === 1 ? "class" : "classes"}`);
  }
  for (const [key, letter] of Object.entries(vocabulary.partition_letters)) {
    if (partition[key] !== undefined) parts.push(`${letter} ${partition[key]}`);
  }
  return parts.join(", ");
}

/** @param {Spec["dataset"]} dataset */
export function datasetText(dataset) {
  if (dataset.name === "imported") return dataset.set ?? dataset.name;
  return dataset.labels === "coarse" ? `${dataset.name} (coarse)` : dataset.name;
}

/**
 * How many clients take part in a round, as engine/spec.py counts them.
 * @param {{clients: number, participation: number}} counts
 */
export function cohortSize({ clients, participation }) {
  return Math.max(1, Math.floor(participation * clients + 1e-6));
}

/**
 * The name of an experiment, or what it is when it has none.
 * @param {{name: string|null, spec: Spec}} experiment @param {(id: string) => string} methodTitle
 */
export function experimentTitle(experiment, methodTitle) {
  if (experiment.name) return experiment.name;
  const { algorithm, dataset, seed } = experiment.spec;
  return `${methodTitle(algorithm.name)} on ${datasetText(dataset)}, seed ${seed}`;
}

const TAIL = 22;

/**
 * A long name as its front, which may be shortened, and its end, which tells the experiments of a sweep apart.
 * @param {string} name @returns {[string, string]}
 */
export function nameParts(name) {
  if (name.length <= TAIL + 8) return [name, ""];
  const named = name.indexOf(": ") + 2; // a sweep's name, then what tells its experiments apart: the method first
  if (named > 1) return [name.slice(0, named), name.slice(named)];
  const place = name.indexOf(" ", name.length - TAIL) + 1 || name.length - TAIL;
  return [name.slice(0, place), name.slice(place)];
}

/**
 * A plain word needs no quotes in YAML; anything that could be read as something else gets them.
 * @param {unknown} value @returns {string}
 */
function scalar(value) {
  if (typeof value !== "string") return JSON.stringify(value);
  const plain = /^[A-Za-z][A-Za-z0-9_.-]*$/.test(value) && !/^(true|false|null|yes|no|on|off|y|n)$/i.test(value);
  return plain ? value : JSON.stringify(value);
}

/** The name says what a block is, so it comes first. @param {object} value @returns {[string, unknown][]} */
function fields(value) {
  return Object.entries(value).sort(([a], [b]) => Number(b === "name") - Number(a === "name"));
}

/** @param {unknown} value @returns {string} */
function flow(value) {
  if (Array.isArray(value)) return `[${value.map(flow).join(", ")}]`;
  if (value !== null && typeof value === "object") {
    return `{${fields(value).map(([key, inner]) => `${scalar(key)}: ${flow(inner)}`).join(", ")}}`;
  }
  return scalar(value);
}

const LONGEST_LINE = 76;

/**
 * Fields with their values: blocks in braces as the documentation writes them, long ones on lines of their own.
 * @param {object} value @param {string} indent @returns {string[]}
 */
function lines(value, indent) {
  if (Array.isArray(value)) return value.map((inner) => `${indent}- ${flow(inner)}`);
  // the fields of a document keep their order; within a block the name comes first
  return (indent ? fields(value) : Object.entries(value)).flatMap(([key, inner]) => {
    const line = `${indent}${scalar(key)}: ${flow(inner)}`;
    const block = inner !== null && typeof inner === "object" && Object.keys(inner).length > 0;
    const short = line.length <= LONGEST_LINE && key !== "base" && key !== "grid";
    return block && !short ? [`${indent}${scalar(key)}:`, ...lines(inner, `${indent}  `)] : [line];
  });
}

/** A spec or a sweep in YAML: a line for each field of it. @param {object} spec */
export function specYaml(spec) {
  return lines(spec, "").join("\n") + "\n";
}
