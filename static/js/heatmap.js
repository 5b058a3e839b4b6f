// A table of numbers as colours: clients by classes, clients by rounds. Drawn on a canvas, readable by mouse, keys and as a table.

import { isDark, onThemeChange } from "./colours.js";
import { contextOf, download, downloadPng, fill, h, one, toolButton } from "./dom.js";
import { SvgPen } from "./svg-pen.js";
import { mean } from "./series.js";
import { csv } from "./table.js";
import { integer } from "./units.js";

/**
 * From nothing to most, each theme with its own: the empty cell is close to the ground, the fullest stands out.
 * @type {Record<"light"|"dark", number[][]>}
 */
const STOPS = {
  light: [[240, 243, 247], [158, 197, 232], [49, 120, 188], [8, 48, 107]],
  dark: [[30, 35, 42], [33, 74, 122], [62, 135, 205], [196, 225, 255]],
};
const LEFT = 52;
const TOP = 6;
const BOTTOM = 34;
const PAPER = { width: 900, dark: false, ink: "#3a3f47", font: "Helvetica, Arial, sans-serif" };

/** @param {number} share @param {boolean} dark */
function colour(share, dark) {
  const stops = STOPS[dark ? "dark" : "light"];
  const place = Math.min(1, Math.max(0, share)) * (stops.length - 1);
  const low = Math.min(stops.length - 2, Math.floor(place));
  const mix = stops[low].map((part, index) => Math.round(part + (stops[low + 1][index] - part) * (place - low)));
  return `rgb(${mix.join(", ")})`; // with commas, which every reader of SVG knows
}

const MOST_ROWS = 400;
const MOST_LINES = 140;

/**
 * More rows than can be told apart are drawn together, each line the mean of some.
 * @param {Heat} heat @returns {Heat}
 */
function together(heat) {
  const { values, rowTitle, rowText = String } = heat;
  if (values.length <= MOST_ROWS) return heat;
  const many = Math.ceil(values.length / MOST_LINES);
  const lines = Array.from(
    { length: Math.ceil(values.length / many) },
    (_, line) => values.slice(line * many, (line + 1) * many),
  );
  return {
    ...heat,
    values: lines.map((rows) => rows[0].map((_, column) => mean(rows.map((row) => row[column])))),
    rowTitle: `${rowTitle}s`,
    rowMark: (line) => rowText(line * many),
    rowText: (line) => `${rowText(line * many)}–${rowText(line * many + lines[line].length - 1)}`,
    note: `each line the mean of ${many} ${rowTitle.toLowerCase()}s`,
  };
}

/** The values of the palest and of the deepest colour. @param {Heat} heat */
function limits({ values, low = 0, high }) {
  return {
    low,
    high: high ?? values.flat().reduce((/** @type {number} */ most, value) => Math.max(most, value ?? low), low + 1e-9),
  };
}

/**
 * @typedef {object} Heat
 * @property {(number|null)[][]} values rows of cells; null is a cell without a value
 * @property {string} rowTitle what a row is, e.g. "Client"
 * @property {string} columnTitle what a column is, e.g. "Class"
 * @property {(index: number) => string} [rowText]
 * @property {(index: number) => string} [rowMark] what the axis says, where the text is too long for it
 * @property {(index: number) => string} [columnText]
 * @property {(value: number) => string} [valueText]
 * @property {number} [low] value of the palest colour
 * @property {number} [high] value of the deepest colour
 * @property {string} [note] what must be known to read the picture
 * @property {string} [unit] what the numbers are, for the tip and the legend
 */

/** @typedef {{row: number, column: number}} Cell */

/**
 * Sizes in pixels.
 * @typedef {object} Layout
 * @property {number} width
 * @property {number} height
 * @property {number} cellWidth
 * @property {number} cellHeight
 * @property {number} total
 */

/** @typedef {CanvasRenderingContext2D|SvgPen} Pen */

export class Heatmap {
  /** @param {HTMLElement} root @param {{title: string, empty?: string, name: string, file?: () => string}} options */
  constructor(root, { title, empty = "Nothing to show yet.", name, file = () => name }) {
    this.root = root;
    this.title = title;
    /** @type {Heat|null} */
    this.heat = null;
    /** All rows, for the file; `heat` is what is drawn and read. @type {Heat|null} */
    this.whole = null;
    this.limits = { low: 0, high: 1 };
    /** @type {Layout} */
    this.box = { width: 0, height: 0, cellWidth: 0, cellHeight: 0, total: 0 };
    /** @type {Cell|null} */
    this.cursor = null;
    this.canvas = h("canvas", { class: "heat-canvas", tabindex: 0, role: "img", "aria-label": title });
    this.tip = h("div", { class: "chart-tip", hidden: true });
    this.note = h("p", { class: "chart-empty" }, empty);
    this.stage = h("div", { class: "heat-stage" }, this.canvas, this.note, this.tip);
    this.legend = h("div", { class: "heat-legend small muted num" });
    this.table = h("div", {
      class: "table-frame heat-table",
      tabindex: 0,
      role: "region",
      "aria-label": `${title}, numbers`,
    });
    this.details = h(
      "details",
      { hidden: true, on: { toggle: () => this.writeTable() } },
      h("summary", {}, "The numbers as a table"),
      this.table,
    );
    this.tools = h(
      "div",
      { class: "tools", hidden: true },
      toolButton("CSV", "Download the numbers", () => download(`${file()}.csv`, csv(this.rows()), "text/csv")),
      toolButton(
        "SVG",
        "Download this picture as a vector image",
        () => download(`${file()}.svg`, this.toSvg(), "image/svg+xml"),
      ),
      toolButton("PNG", "Download this picture", () => downloadPng(`${file()}.png`, this.toSvg())),
    );
    fill(
      root,
      h("div", { class: "chart-head" }, h("h2", { class: "chart-title" }, title), this.legend, this.tools),
      this.stage,
      this.details,
    );
    this.canvas.addEventListener("mousemove", (event) => this.point(event));
    this.canvas.addEventListener("mouseleave", () => this.show(null));
    this.canvas.addEventListener("blur", () => this.show(null));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(this.stage);
    onThemeChange(() => this.draw());
    this.root.dataset.heatmap = name;
    /** @type {any} */ (root).heatmap = this; // for tests and the console
  }

  /** @param {Heat|null} heat */
  set(heat) {
    this.whole = heat && heat.values.length && heat.values[0].length ? heat : null;
    this.heat = this.whole && together(this.whole);
    if (this.heat) this.limits = limits(this.heat);
    this.draw();
    if (this.details.open) this.writeTable();
  }

  /** Says why there is nothing to see. @param {string} message */
  fail(message) {
    this.note.textContent = message;
    this.set(null);
  }

  get size() {
    return { rows: this.heat?.values.length ?? 0, columns: this.heat?.values[0]?.length ?? 0 };
  }

  /** @param {"row"|"column"} kind @param {number} index */
  text(kind, index) {
    return (kind === "row" ? this.heat?.rowText : this.heat?.columnText)?.(index) ?? String(index);
  }

  /** The numbers behind the picture, a line for each row. @returns {unknown[][]} */
  rows() {
    if (!this.whole) return [];
    const { values, rowTitle, rowText = String, columnTitle } = this.whole;
    const heads = values[0].map((_, x) => `${columnTitle} ${this.text("column", x)}`);
    return [[rowTitle, ...heads], ...values.map((row, y) => [rowText(y), ...row])];
  }

  draw() {
    const { heat, canvas } = this;
    canvas.hidden = !heat;
    this.note.hidden = Boolean(heat);
    this.details.hidden = !heat;
    this.legend.hidden = this.tools.hidden = !heat;
    const width = this.stage.clientWidth;
    if (!heat || !width) return;
    this.box = this.layout(width);
    const ratio = devicePixelRatio;
    canvas.style.height = `${this.box.total}px`;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(this.box.total * ratio);
    const pen = contextOf(canvas);
    pen.scale(ratio, ratio);
    const dark = isDark();
    const style = getComputedStyle(this.stage);
    this.paint(pen, this.box, { dark, ink: style.color, font: style.fontFamily });
    if (this.cursor) this.mark(pen, this.cursor);
    const { rows, columns } = this.size;
    const { low, high } = this.limits;
    this.canvas.setAttribute(
      "aria-label",
      `${this.title}: ${integer(rows)} × ${integer(columns)} cells. Arrow keys read them; a table follows.`,
    );
    const show = heat.valueText ?? integer;
    fill(
      this.legend,
      `${show(low)} `,
      h("canvas", { class: "heat-scale", width: 96, height: 10, "aria-hidden": "true" }),
      ` ${show(high)}${heat.unit ? ` ${heat.unit}` : ""}`,
    );
    const scale = contextOf(/** @type {HTMLCanvasElement} */ (one(".heat-scale", this.legend)));
    for (let x = 0; x < 96; x += 1) {
      scale.fillStyle = colour(heat.low === undefined ? Math.sqrt(x / 95) : x / 95, dark);
      scale.fillRect(x, 0, 1, 10);
    }
  }

  /** @param {number} width */
  layout(width) {
    const { rows, columns } = this.size;
    const cellHeight = Math.min(24, Math.max(3, Math.floor(420 / rows)));
    const plotWidth = width - LEFT - 8;
    return {
      width: plotWidth,
      height: cellHeight * rows,
      cellWidth: plotWidth / columns,
      cellHeight,
      total: TOP + cellHeight * rows + BOTTOM,
    };
  }

  /** For papers: on white, in the light theme's colours. */
  toSvg() {
    const pen = new SvgPen();
    const box = this.layout(PAPER.width);
    this.paint(pen, box, PAPER);
    return pen.file(PAPER.width, box.total);
  }

  /** @param {Pen} pen @param {Layout} box @param {{dark: boolean, ink: string, font: string}} look */
  paint(pen, box, { dark, ink, font }) {
    const { heat } = this;
    if (!heat) return;
    const { low, high } = this.limits;
    const gap = box.cellWidth >= 6 && box.cellHeight >= 6 ? 1 : 0;
    heat.values.forEach((row, y) => {
      row.forEach((value, x) => {
        if (value === null || value === undefined) return;
        // a step below linear for small counts: ten of a thousand samples are not nothing
        const share = heat.low === undefined ? Math.sqrt(value / high) : (value - low) / (high - low || 1);
        pen.fillStyle = colour(share, dark);
        pen.fillRect(
          LEFT + x * box.cellWidth,
          TOP + y * box.cellHeight,
          Math.max(0.75, box.cellWidth - gap),
          box.cellHeight - gap,
        );
      });
    });
    pen.fillStyle = ink;
    pen.font = `11px ${font}`;
    this.axes(pen, box, heat);
  }

  /** @param {Pen} pen @param {Layout} box @param {Heat} heat */
  axes(pen, { width: plotWidth, height: plotHeight, cellHeight: cell }, heat) {
    const { rows, columns } = this.size;
    pen.textBaseline = "middle";
    pen.textAlign = "right";
    const rowStep = Math.max(1, Math.ceil(14 / cell));
    for (let y = 0; y < rows; y += rowStep) {
      pen.fillText(heat.rowMark?.(y) ?? this.text("row", y), LEFT - 6, TOP + (y + 0.5) * cell);
    }
    pen.textAlign = "center";
    pen.textBaseline = "top";
    const columnStep = Math.max(1, Math.ceil(28 / (plotWidth / columns)));
    for (let x = 0; x < columns; x += columnStep) {
      pen.fillText(this.text("column", x), LEFT + (x + 0.5) * (plotWidth / columns), TOP + plotHeight + 4);
    }
    pen.fillText(
      [heat.columnTitle, heat.note].filter(Boolean).join(" · "),
      LEFT + plotWidth / 2,
      TOP + plotHeight + 19,
    );
    pen.save();
    pen.translate(10, TOP + plotHeight / 2);
    pen.rotate(-Math.PI / 2);
    pen.textBaseline = "middle";
    if (plotHeight > 40) pen.fillText(heat.rowTitle, 0, 0);
    pen.restore();
  }

  /** @param {CanvasRenderingContext2D} pen @param {Cell} cell */
  mark(pen, { row, column }) {
    const { cellWidth, cellHeight } = this.box;
    pen.strokeStyle = isDark() ? "#ffffff" : "#000000";
    pen.lineWidth = 1.5;
    pen.strokeRect(
      LEFT + column * cellWidth - 0.5,
      TOP + row * cellHeight - 0.5,
      Math.max(2, cellWidth),
      cellHeight,
    );
  }

  /** @param {MouseEvent} event */
  point(event) {
    const { left, top } = this.canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - left - LEFT) / this.box.cellWidth);
    const row = Math.floor((event.clientY - top - TOP) / this.box.cellHeight);
    const { rows, columns } = this.size;
    this.show(row >= 0 && row < rows && column >= 0 && column < columns ? { row, column } : null);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    /** @type {Record<string, [number, number]>} */
    const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    const move = moves[event.key];
    if (!move || !this.heat) return;
    event.preventDefault();
    const { rows, columns } = this.size;
    const from = this.cursor ?? { row: 0, column: -move[1] };
    this.show({
      row: Math.min(rows - 1, Math.max(0, from.row + move[0])),
      column: Math.min(columns - 1, Math.max(0, from.column + move[1])),
    });
  }

  /** @param {Cell|null} cursor */
  show(cursor) {
    const { heat, cursor: before } = this;
    this.cursor = cursor;
    if (before?.row !== cursor?.row || before?.column !== cursor?.column) this.draw();
    this.tip.hidden = !cursor;
    if (!cursor || !heat) return;
    const value = heat.values[cursor.row][cursor.column];
    const text = value === null || value === undefined
      ? "no value"
      : `${(heat.valueText ?? integer)(value)}${heat.unit ? ` ${heat.unit}` : ""}`;
    const head = `${heat.rowTitle} ${this.text("row", cursor.row)} · ${heat.columnTitle.toLowerCase()} ${
      this.text("column", cursor.column)
    }`;
    fill(
      this.tip,
      h("div", { class: "tip-head" }, head),
      h("div", { class: "tip-row" }, h("span", { class: "num" }, text)),
    );
    this.canvas.setAttribute("aria-label", `${head}: ${text}`);
    const x = LEFT + (cursor.column + 1) * this.box.cellWidth + 8;
    const flip = x + this.tip.offsetWidth > this.stage.clientWidth;
    this.tip.style.transform = `translate(${
      Math.round(flip ? x - this.tip.offsetWidth - this.box.cellWidth - 16 : x)
    }px, ${Math.round(Math.max(0, TOP + cursor.row * this.box.cellHeight - 20))}px)`;
  }

  writeTable() {
    const { heat } = this;
    if (!this.details.open || !heat) return;
    const { rows, columns } = this.size;
    const show = heat.valueText ?? integer;
    fill(
      this.table,
      h(
        "table",
        { class: "data" },
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            h("th", { scope: "col" }, heat.rowTitle),
            Array.from(
              { length: columns },
              (_, x) => h("th", { scope: "col", class: "right" }, this.text("column", x)),
            ),
          ),
        ),
        h(
          "tbody",
          {},
          Array.from({ length: rows }, (_, y) =>
            h(
              "tr",
              {},
              h("th", { scope: "row" }, this.text("row", y)),
              heat.values[y].map((value) =>
                h("td", { class: "num right" }, value === null || value === undefined ? "–" : show(value))
              ),
            )),
        ),
      ),
    );
  }
}
