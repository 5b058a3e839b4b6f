// A form made from JSON schemas: every field of a spec with its letter, bounds and help, and the error at the field.

import { fill, h } from "./dom.js";

/** The parts of a schema that a control needs; null is allowed where one of the options is null. */
export function plainSchema(schema) {
  const options = schema.anyOf ?? [schema];
  const plain = options.find((option) => option.type !== "null") ?? schema;
  return { ...schema, ...plain, nullable: options.some((option) => option.type === "null") };
}

/** "[0, 1)" or "a | b". */
export function bounds(schema) {
  const plain = plainSchema(schema);
  const or = plain.nullable ? " or null" : "";
  if (plain.enum) return plain.enum.join(" | ") + or;
  if (plain.type === "boolean") return "true | false";
  const low = plain.minimum ?? plain.exclusiveMinimum;
  const high = plain.maximum ?? plain.exclusiveMaximum;
  if (low === undefined && high === undefined) return or.replace(" or ", "");
  return `${plain.exclusiveMinimum !== undefined ? "(" : "["}${low ?? "−∞"}, ${high ?? "∞"}${plain.exclusiveMaximum !== undefined ? ")" : "]"}${or}`;
}

/** A description may begin or end with the letter of the paper: "λ: weight of …", "Batch size B". */
export function symbolOf(description) {
  const front = /^(\p{L}[\u0300-\u036f]?\d?(?:_\w+)?): /u.exec(description);
  if (front) return { symbol: front[1], help: capital(description.slice(front[0].length)) };
  const back = / (?:(\p{Lu}|[α-ω])|\((\p{L})\))$/u.exec(description);
  return back ? { symbol: back[1] ?? back[2], help: description.slice(0, -back[0].length) } : { symbol: "", help: description };
}

function capital(text) {
  return text.slice(0, 1).toUpperCase() + text.slice(1);
}

/** λ, or η with a small g below. */
export function symbolNode(symbol) {
  const [letter, index] = symbol.split("_");
  return h("span", { class: "letter" }, letter, index ? h("sub", {}, index) : null);
}

/** A value at a dotted path of a nested object; undefined where there is none. */
export function valueAt(object, path) {
  return path.split(".").reduce((value, key) => (value !== null && typeof value === "object" ? value[key] : undefined), object);
}

/** The same object with one value changed; undefined removes the field. */
export function withValue(object, path, value) {
  const [key, ...rest] = path.split(".");
  const base = object !== null && typeof object === "object" ? object : {};
  if (rest.length) return { ...base, [key]: withValue(base[key], rest.join("."), value) };
  if (value !== undefined) return { ...base, [key]: value };
  return Object.fromEntries(Object.entries(base).filter(([name]) => name !== key));
}

/**
 * One field. It never keeps a value of its own: `show` writes what the spec says, `change` reports what was typed.
 */
export class Field {
  /** @param {string} path @param {any} schema @param {(path: string, value: unknown) => void} change */
  constructor(path, schema, change) {
    this.path = path;
    this.schema = plainSchema(schema);
    const id = `field-${path.replaceAll(".", "-")}`;
    const { symbol, help } = symbolOf(schema.description ?? "");
    const name = path.split(".").pop();
    this.control = this.makeControl(id);
    this.error = h("span", { class: "field-error", id: `${id}-error`, hidden: true });
    const range = this.schema.type === "string" && !this.schema.enum ? "" : bounds(schema);
    this.root = h(
      "div",
      { class: "form-field", data: { path } },
      h("label", { for: id, title: `${path}${range ? ` · ${range}` : ""}` }, symbol ? symbolNode(symbol) : null, h("span", { class: "field-name" }, name.replaceAll("_", " "))),
      this.control,
      h("span", { class: "field-help", id: `${id}-help`, title: help }, help, range && !this.schema.enum && this.schema.type !== "boolean" ? h("span", { class: "num field-range" }, ` ${range}`) : null),
      this.error,
    );
    this.control.setAttribute("aria-describedby", `${id}-help ${id}-error`);
    this.control.addEventListener("input", () => change(path, this.read()));
  }

  makeControl(id) {
    const { schema } = this;
    if (schema.enum) return h("select", { id }, schema.nullable ? h("option", { value: "" }, "null") : null, schema.enum.map((value) => h("option", { value }, String(value))));
    if (schema.type === "boolean") return h("input", { id, type: "checkbox" });
    if (schema.type === "integer" || schema.type === "number") {
      return h("input", { id, type: "number", class: "num", step: schema.type === "integer" ? 1 : "any", min: schema.minimum ?? schema.exclusiveMinimum, max: schema.maximum ?? schema.exclusiveMaximum, placeholder: schema.nullable ? "null" : "", inputmode: "decimal" });
    }
    return h("input", { id, type: "text", placeholder: schema.nullable ? "null" : "", spellcheck: "false" });
  }

  read() {
    const { control, schema } = this;
    if (schema.type === "boolean") return control.checked;
    if (control.value === "") return schema.nullable ? null : undefined;
    if (schema.type === "integer" || schema.type === "number") return Number(control.value);
    return control.value;
  }

  /** @param {unknown} value undefined: the field is not in the spec and has its default */
  show(value) {
    const effective = value === undefined ? this.schema.default : value;
    this.root.classList.toggle("default", value === undefined);
    if (document.activeElement === this.control && this.control.type !== "checkbox" && this.control.tagName !== "SELECT") return;
    if (this.schema.type === "boolean") this.control.checked = Boolean(effective);
    else this.control.value = effective === null || effective === undefined ? "" : String(effective);
  }

  /** @param {string} message empty: nothing is wrong */
  complain(message) {
    this.control.setAttribute("aria-invalid", String(Boolean(message)));
    this.error.hidden = !message;
    this.error.textContent = message;
  }
}

/** Fields of one block of the spec; they are made anew when the block becomes another one. */
export class Block {
  /** @param {HTMLElement} root @param {string} prefix e.g. "training", empty for the spec's own fields */
  constructor(root, prefix, change) {
    this.root = root;
    this.prefix = prefix;
    this.change = change;
    this.key = null;
    /** @type {Field[]} */
    this.fields = [];
  }

  /** @param {string} key which schema it is; the same key keeps the fields and the focus */
  use(key, properties, skip = ["name"]) {
    if (key === this.key) return;
    this.key = key;
    this.fields = Object.entries(properties ?? {})
      .filter(([name, schema]) => !skip.includes(name) && schema.const === undefined && !(schema.enum?.length === 1))
      .map(([name, schema]) => new Field(this.prefix ? `${this.prefix}.${name}` : name, schema, this.change));
    fill(this.root, this.fields.map((field) => field.root));
    this.root.hidden = !this.fields.length;
  }

  show(spec) {
    for (const field of this.fields) field.show(valueAt(spec, field.path));
  }
}
