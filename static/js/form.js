// A form made from JSON schemas: every field of a spec with its letter, bounds and help, and the error at the field.

/** @import { FieldSchema, Properties } from "./types.d.ts" */

import { fill, h } from "./dom.js";

/**
 * The parts of a schema that a control needs; null is allowed where one of the options is null.
 * @param {FieldSchema} schema @returns {FieldSchema & {nullable: boolean}}
 */
export function plainSchema(schema) {
  const options = schema.anyOf ?? [schema];
  const plain = options.find((option) => option.type !== "null") ?? schema;
  return { ...schema, ...plain, nullable: options.some((option) => option.type === "null") };
}

/** "[0, 1)" or "a | b". @param {FieldSchema} schema */
export function bounds(schema) {
  const plain = plainSchema(schema);
  const or = plain.nullable ? " or null" : "";
  if (plain.enum) return plain.enum.join(" | ") + or;
  if (plain.type === "boolean") return "true | false";
  const low = plain.minimum ?? plain.exclusiveMinimum;
  const high = plain.maximum ?? plain.exclusiveMaximum;
  if (low === undefined && high === undefined) return or.replace(" or ", "");
  return `${plain.exclusiveMinimum !== undefined ? "(" : "["}${low ?? "−∞"}, ${high ?? "∞"}${
    plain.exclusiveMaximum !== undefined ? ")" : "]"
  }${or}`;
}

/**
 * A description may begin or end with the letter of the paper: "λ: weight of …", "Batch size B".
 * @param {string} description
 */
export function symbolOf(description) {
  const front = /^(\p{L}[\u0300-\u036f]?\d?(?:_\w+)?): /u.exec(description);
  if (front) return { symbol: front[1], help: capital(description.slice(front[0].length)) };
  const back = / (?:(\p{Lu}|[α-ω])|\((\p{L})\))$/u.exec(description);
  return back
    ? { symbol: back[1] ?? back[2], help: description.slice(0, -back[0].length) }
    : { symbol: "", help: description };
}

/** @param {string} text */
function capital(text) {
  return text.slice(0, 1).toUpperCase() + text.slice(1);
}

/** λ, or η with a small g below. @param {string} symbol */
export function symbolNode(symbol) {
  const [letter, index] = symbol.split("_");
  return h("span", { class: "letter" }, letter, index ? h("sub", {}, index) : null);
}

/**
 * A value at a dotted path of a nested object; undefined where there is none.
 * @param {any} object @param {string} path
 */
export function valueAt(object, path) {
  return path.split(".").reduce(
    (value, key) => (value !== null && typeof value === "object" ? value[key] : undefined),
    object,
  );
}

/**
 * The same object with one value changed; undefined removes the field.
 * @param {any} object @param {string} path @param {unknown} value @returns {any}
 */
export function withValue(object, path, value) {
  const [key, ...rest] = path.split(".");
  const base = object !== null && typeof object === "object" ? object : {};
  if (rest.length) return { ...base, [key]: withValue(base[key], rest.join("."), value) };
  if (value !== undefined) return { ...base, [key]: value };
  return Object.fromEntries(Object.entries(base).filter(([name]) => name !== key));
}

/** @typedef {{id: string, label: string, group?: string}} MenuItem */

/**
 * The values to choose from, and how they stand in the spec.
 * @typedef {object} Menu
 * @property {MenuItem[]} options
 * @property {(value: any) => string|undefined} idOf
 * @property {(id: string) => unknown} make the value in the spec
 * @property {(value: any) => Properties|undefined} [parts] schemas of what else such a value holds, for values that are
 *   blocks
 */

/** @typedef {HTMLInputElement|HTMLSelectElement|HTMLTextAreaElement} Control */

/**
 * @typedef {object} FieldOptions
 * @property {(path: string, value: any) => void} change
 * @property {((path: string, values: unknown[]|null) => void)|null} [sweep] gets the list of values, null for one value
 *   again; without it the field cannot be swept
 * @property {(path: string, value: unknown) => unknown[]} [start]
 * @property {Menu|null} [choices]
 * @property {string} [title]
 * @property {string} [id]
 */

/**
 * The fields of one value of a list, folded.
 * @typedef {object} Part
 * @property {Field[]} fields
 * @property {HTMLElement} summary
 * @property {string} label
 * @property {HTMLElement} root
 */

/** @param {FieldSchema & {nullable: boolean}} schema @returns {Menu|null} of an enum or a boolean */
function plainChoices(schema) {
  const values = schema.type === "boolean"
    ? [true, false]
    : schema.enum
    ? [...(schema.nullable ? [null] : []), ...schema.enum]
    : null;
  if (!values) return null;
  return {
    options: values.map((value) => ({ id: String(value), label: String(value) })),
    idOf: (value) => String(value),
    make: (id) => values.find((value) => String(value) === id),
  };
}

/**
 * Options under the headings of their groups.
 * @param {MenuItem[]} options @param {(option: MenuItem) => HTMLElement} make
 * @param {(group: string, members: HTMLElement[]) => HTMLElement} gather
 */
function grouped(options, make, gather) {
  return [...Map.groupBy(options, (option) => option.group ?? "")].map((
    [group, members],
  ) => (group ? gather(group, members.map(make)) : members.map(make)));
}

/**
 * Names of fields whose key alone would not tell which one is meant, and what an empty one stands for.
 * @type {Record<string, {title: string, empty?: string}>}
 */
const NAMED = {
  seed: { title: "run seed" },
  "partition.seed": { title: "partition seed", empty: "same as the run seed" },
};

/**
 * One field, with one value or, swept, with a list of them. It never keeps a value of its own: `show` writes what the
 * document says, `change` and `sweep` report what was typed.
 */
export class Field {
  /**
   * @param {string} path
   * @param {FieldSchema} schema
   * @param {FieldOptions} options
   */
  constructor(
    path,
    schema,
    {
      change,
      sweep = null,
      start = (_, value) => [value],
      choices = null,
      title = "",
      id = `field-${path.replaceAll(".", "-")}`,
    },
  ) {
    this.path = path;
    this.id = id;
    this.schema = plainSchema(schema);
    this.choices = choices ?? plainChoices(this.schema);
    this.sweep = sweep;
    /** @type {unknown} */
    this.value = undefined;
    /** @type {unknown[]|null} what a swept field takes */
    this.values = null;
    /** @type {HTMLElement|null} where the values of a swept field are written or ticked */
    this.list = null;
    this.parts = h("div", { class: "sweep-parts" });
    this.partsKey = "";
    /** @type {Part[]} */
    this.inner = [];
    const { symbol, help } = symbolOf(schema.description ?? "");
    const range = this.schema.type === "string" && !this.schema.enum ? "" : bounds(schema);
    this.title = title || NAMED[path]?.title || (path.split(".").at(-1) ?? "").replaceAll("_", " ");
    /** The paper's letter where it has one. */
    this.short = symbol && !symbol.includes("_") ? symbol : this.title;
    this.control = this.makeControl(id);
    this.error = h("span", { class: "field-error", id: `${id}-error`, hidden: true });
    this.label = h(
      "label",
      { for: id, title: `${path}${range ? ` · ${range}` : ""}` },
      symbol ? symbolNode(symbol) : null,
      h("span", { class: "field-name" }, this.title),
    );
    this.toggleWord = h("span", {}, "sweep");
    this.toggle = sweep &&
      h(
        "button",
        {
          type: "button",
          class: "sweep-toggle",
          "aria-pressed": "false",
          title: "Several values, an experiment for each",
          on: { click: () => this.turn(start) },
        },
        this.toggleWord,
        h("span", { class: "sr" }, ` ${this.title}`),
      );
    this.root = h(
      "div",
      { class: "form-field", data: { path } },
      h("div", { class: "field-head" }, this.label, this.toggle),
      this.control,
      help || range
        ? h(
          "span",
          { class: "field-help", id: `${id}-help` },
          help,
          range && !this.choices ? h("span", { class: "num field-range" }, ` ${range}`) : null,
        )
        : null,
      this.error,
    );
    this.described = help || range ? `${id}-help ${id}-error` : `${id}-error`;
    this.control.setAttribute("aria-describedby", this.described);
    this.control.addEventListener("input", () => change(path, this.read()));
  }

  /** @param {string} id @returns {Control} */
  makeControl(id) {
    const { schema, choices } = this;
    if (schema.type === "boolean") return h("input", { id, type: "checkbox" });
    if (choices) {
      /** @type {(choice: MenuItem) => HTMLElement} */
      const option = ({ id: value, label }) => h("option", { value }, label);
      return h(
        "select",
        { id },
        grouped(choices.options, option, (label, members) => h("optgroup", { label }, members)),
      );
    }
    const placeholder = NAMED[this.path]?.empty ?? (schema.nullable ? "null" : "");
    if (schema.type === "integer" || schema.type === "number") {
      const [min, max] = [schema.minimum ?? schema.exclusiveMinimum, schema.maximum ?? schema.exclusiveMaximum];
      const step = schema.type === "integer" ? 1 : "any";
      return h("input", { id, type: "number", class: "num", step, min, max, placeholder, inputmode: "decimal" });
    }
    if (schema.format === "lines") return h("textarea", { id, rows: 4 });
    return h("input", { id, type: "text", placeholder, spellcheck: "false" });
  }

  read() {
    const { control, schema } = this;
    if (schema.type === "boolean") return /** @type {HTMLInputElement} */ (control).checked;
    if (this.choices) return this.choices.make(control.value);
    if (control.value === "") return schema.nullable ? null : undefined;
    if (schema.type === "integer" || schema.type === "number") return Number(control.value);
    return control.value;
  }

  /**
   * From one value to several, or back to the first of them.
   * @param {(path: string, value: unknown) => unknown[]} start
   */
  turn(start) {
    if (this.values) return this.sweep?.(this.path, null);
    const effective = this.value === undefined ? this.schema.default ?? null : this.value;
    this.sweep?.(this.path, start(this.path, effective));
    this.list?.querySelector("input")?.focus();
  }

  // --- the list of a swept field ---

  makeList() {
    const { choices } = this;
    const list = choices ? this.makeBoxes(choices) : this.makeLine();
    this.control.after(list);
    return list;
  }

  /** @param {Menu} choices */
  makeBoxes(choices) {
    /** @type {(choice: MenuItem) => HTMLElement} */
    const box = ({ id, label }) => {
      const input = h("input", { type: "checkbox", value: id });
      input.addEventListener("change", () => {
        const rest = (this.values ?? []).filter((value) => choices.idOf(value) !== id);
        this.sweep?.(this.path, input.checked ? [...rest, choices.make(id)] : rest);
      });
      return h("label", { class: "sweep-option" }, input, label);
    };
    return h(
      "fieldset",
      { class: "sweep-options" },
      h("legend", { class: "sr" }, `Values of ${this.title}`),
      grouped(choices.options, box, (group, members) =>
        h(
          "div",
          { class: "sweep-group" },
          h("span", { class: "muted small" }, group),
          h("div", { class: "sweep-members" }, members),
        )),
      this.parts,
    );
  }

  makeLine() {
    const input = h("input", {
      id: `${this.id}-values`,
      type: "text",
      class: "num",
      spellcheck: "false",
      autocomplete: "off",
      placeholder: "values, separated by commas",
      "aria-describedby": this.described,
    });
    input.addEventListener("input", () => this.sweep?.(this.path, this.readList(input.value)));
    return h("div", { class: "sweep-list" }, input);
  }

  /** What is no number stays a text, so that the check can say what is wrong with it. @param {string} text */
  readList(text) {
    const numeric = this.schema.type === "integer" || this.schema.type === "number";
    return text.split(",").map((part) => part.trim()).filter(Boolean).map((part) => {
      if (part === "null" && this.schema.nullable) return null;
      return numeric && Number.isFinite(Number(part)) ? Number(part) : part;
    });
  }

  /** @param {unknown[]} values */
  showList(values) {
    const { choices } = this;
    this.list ??= this.makeList();
    if (choices) {
      const chosen = new Set(values.map((value) => choices.idOf(value)));
      for (const box of inputs(this.list, ".sweep-option input")) box.checked = chosen.has(box.value);
      this.showParts(values, choices);
      return;
    }
    const [input] = inputs(this.list, "input");
    if (document.activeElement !== input) {
      input.value = values.map((
        value,
      ) => (typeof value === "object" && value !== null ? JSON.stringify(value) : String(value))).join(", ");
    }
  }

  /**
   * Values that are blocks hold more fields: those of each chosen one, folded.
   * @param {unknown[]} values @param {Menu} choices
   */
  showParts(values, choices) {
    if (!choices.parts) return;
    const key = JSON.stringify(values.map((value) => choices.idOf(value)));
    if (key !== this.partsKey) {
      this.partsKey = key;
      this.inner = values.map((value, place) => this.makePart(value, place, choices));
      fill(this.parts, this.inner.filter(({ fields }) => fields.length).map(({ root }) => root));
    }
    this.inner.forEach(({ fields, summary, label }, place) => {
      const given = fields.filter((field) => valueAt(values[place], field.path) !== undefined);
      summary.textContent = `${label}: ${
        given.length
          ? given.map((field) => `${field.short} ${valueAt(values[place], field.path)}`).join(", ")
          : "as by default"
      }`;
      for (const field of fields) field.show(valueAt(values[place], field.path));
    });
  }

  /** @param {unknown} value @param {number} place @param {Menu} choices @returns {Part} */
  makePart(value, place, choices) {
    const fields = fieldsOf(choices.parts?.(value)).map(([name, schema]) =>
      new Field(name, schema, {
        id: `${this.id}-${place}-${name}`,
        change: (path, changed) =>
          this.sweep?.(
            this.path,
            (this.values ?? []).map((old, index) => (index === place ? withValue(old, path, changed) : old)),
          ),
      })
    );
    const summary = h("summary", {});
    return {
      fields,
      summary,
      label: choices.options.find((option) => option.id === choices.idOf(value))?.label ?? "?",
      root: h("details", {}, summary, h("div", { class: "form-grid" }, fields.map((field) => field.root))),
    };
  }

  /**
   * @param {unknown} value undefined: the field is not in the spec and has its default
   * @param {unknown[]|null} [values] of a swept field
   * @param {boolean} [elsewhere] swept in a way the form cannot show
   */
  show(value, values = null, elsewhere = false) {
    this.value = value;
    // a list stays one while it is being typed, even if it holds a single seed for a moment
    const typing = this.list?.contains(document.activeElement) && this.values && !values && this.path === "seed";
    this.values = typing ? [value] : values;
    const swept = Boolean(this.values);
    this.root.classList.toggle("swept", swept);
    this.root.classList.toggle("default", value === undefined && !swept);
    this.control.hidden = swept;
    this.control.disabled = elsewhere;
    this.control.title = elsewhere ? "Swept by zip or list: see the text" : "";
    if (this.toggle) {
      this.toggle.setAttribute("aria-pressed", String(swept));
      const count = this.values?.length;
      this.toggleWord.textContent = count === undefined ? "sweep" : `${count} ${count === 1 ? "value" : "values"}`;
      this.toggle.disabled = elsewhere;
    }
    this.label.htmlFor = swept ? `${this.id}-values` : this.id;
    if (this.values) this.showList(this.values);
    if (this.list) this.list.hidden = !swept;
    if (!swept) this.showOne(value === undefined ? this.schema.default : value);
  }

  /** @param {any} effective */
  showOne(effective) {
    const { control, choices } = this;
    if (document.activeElement === control && control.type !== "checkbox" && control.tagName !== "SELECT") return;
    if (this.schema.type === "boolean") /** @type {HTMLInputElement} */ (control).checked = Boolean(effective);
    else if (choices) control.value = (effective === undefined ? undefined : choices.idOf(effective)) ?? "";
    else control.value = effective === null || effective === undefined ? "" : String(effective);
  }

  /** @param {string} told empty: nothing is wrong */
  complain(told) {
    // what may be chosen stands in the list of choices already
    const message = this.choices ? told.replace(/; known: .*/, "") : told;
    for (const control of this.root.querySelectorAll(":scope > :is(input, select, textarea), .sweep-list input")) {
      control.setAttribute("aria-invalid", String(Boolean(message)));
    }
    this.error.hidden = !message;
    this.error.textContent = message;
  }
}

/** @param {HTMLElement} root @param {string} selector @returns {HTMLInputElement[]} */
function inputs(root, selector) {
  return [...root.querySelectorAll(selector)].filter((found) => found instanceof HTMLInputElement);
}

/**
 * The fields that a form shows: those with more than one possible value.
 * @param {Properties|undefined} properties @param {string[]} skip
 */
function fieldsOf(properties, skip = ["name"]) {
  return Object.entries(properties ?? {}).filter(([name, schema]) =>
    !skip.includes(name) && schema.const === undefined && !(schema.enum?.length === 1)
  );
}

/** Fields of one block of the spec; they are made anew when the block becomes another one. */
export class Block {
  /**
   * @param {HTMLElement} root
   * @param {string} prefix e.g. "training", empty for the spec's own fields
   * @param {FieldOptions} options of each field
   */
  constructor(root, prefix, options) {
    this.root = root;
    this.prefix = prefix;
    this.options = options;
    /** @type {string|null} */
    this.key = null;
    /** @type {Field[]} */
    this.fields = [];
  }

  /**
   * @param {string} key which schema it is; the same key keeps the fields and the focus
   * @param {Properties|undefined} properties @param {string[]} skip
   */
  use(key, properties, skip = ["name"]) {
    if (key === this.key) return;
    this.key = key;
    this.fields = fieldsOf(properties, skip).map(([name, schema]) =>
      new Field(this.prefix ? `${this.prefix}.${name}` : name, schema, this.options)
    );
    fill(this.root, this.fields.map((field) => field.root));
    this.root.hidden = !this.fields.length;
  }
}
