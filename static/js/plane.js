// Points in the plane, coloured by class, with a shape for each client: a t-SNE of features.

import { isDark } from "./colours.js";
import { download, downloadPng, fill, h, setText } from "./dom.js";
import { csv } from "./table.js";

const NS = "http://www.w3.org/2000/svg";
const SIZE = 520;
const EDGE = 16;

/** Ten colours that stay apart for colour-blind readers, light theme and dark; more classes repeat them in rings. */
const COLOURS = [
  ["#2458b8", "#8db4ff"],
  ["#c4500b", "#ff9d5c"],
  ["#16693f", "#6fd09c"],
  ["#a3195b", "#ff8fc0"],
  ["#6b4fbb", "#bda7ff"],
  ["#8a6100", "#f0c14a"],
  ["#00708a", "#5fd3ee"],
  ["#5a616b", "#b4bcc8"],
  ["#7a3b12", "#d99a6c"],
  ["#4f6b00", "#b6d957"],
];

/** Shapes of the clients, as paths around 0, 0. */
const SHAPES = [
  "M-3.5,0a3.5,3.5 0 1,0 7,0a3.5,3.5 0 1,0 -7,0Z",
  "M-3.2,-3.2H3.2V3.2H-3.2Z",
  "M0,-4.4L4.2,3.2H-4.2Z",
  "M0,-4.6L4.6,0L0,4.6L-4.6,0Z",
  "M0,4.4L4.2,-3.2H-4.2Z",
  "M-1.4,-4.2H1.4V-1.4H4.2V1.4H1.4V4.2H-1.4V1.4H-4.2V-1.4H-1.4Z",
];

/**
 * The artifact's document: a place, a class, a client and a sample for each point, and the panel it belongs to.
 * @typedef {object} Points
 * @property {[number, number][]} points
 * @property {number[]} label
 * @property {number[]} client
 * @property {number[]} sample
 * @property {number[]} panel
 * @property {{width: number, perplexity: number}[]} panels
 * @property {string[]} architectures
 * @property {number} round
 */

export class Plane {
  /** @param {HTMLElement} root @param {Points} data @param {string} file name for downloads */
  constructor(root, data, file) {
    this.data = data;
    this.file = file;
    this.panel = 0;
    this.labels = [...new Set(data.label)].sort((a, b) => a - b);
    this.clients = [...new Set(data.client)].sort((a, b) => a - b);
    /** @type {Set<number>} */
    this.hiddenLabels = new Set();
    /** @type {Set<number>} */
    this.hiddenClients = new Set();
    this.stage = h("div", { class: "plane-stage" });
    this.status = h("span", { class: "chart-hint" });
    this.legend = h("div", { class: "plane-legend" });
    /** @type {(text: string, title: string, action: () => void) => HTMLElement} */
    const tool = (text, title, action) =>
      h("button", { type: "button", class: "tool", title, on: { click: action } }, text);
    const panels = data.panels.length > 1
      ? h(
        "label",
        { class: "small" },
        "Feature width ",
        h("select", {
          on: {
            change: (event) => {
              this.panel = Number(/** @type {HTMLSelectElement} */ (event.currentTarget).value);
              this.draw();
            },
          },
        }, data.panels.map((panel, index) => h("option", { value: index }, String(panel.width)))),
      )
      : null;
    root.classList.add("plane");
    root.setAttribute("role", "group");
    root.setAttribute("aria-label", "t-SNE of the features");
    fill(
      root,
      h(
        "header",
        { class: "chart-head" },
        h("h3", { class: "chart-title" }, "t-SNE of the features"),
        this.status,
        panels,
        h(
          "div",
          { class: "tools" },
          tool("CSV", "Download the points", () => download(`${this.file}.csv`, this.toCsv(), "text/csv")),
          tool("SVG", "Download as a vector image", () => download(`${this.file}.svg`, this.toSvg(), "image/svg+xml")),
          tool("PNG", "Download as an image", () => downloadPng(`${this.file}.png`, this.toSvg())),
        ),
      ),
      h("div", { class: "plane-body" }, this.stage, this.legend),
    );
    this.draw();
  }

  /** @param {number} label @param {boolean} dark */
  colour(label, dark = isDark()) {
    return COLOURS[this.labels.indexOf(label) % COLOURS.length][dark ? 1 : 0];
  }

  /** @param {number} client */
  shape(client) {
    return SHAPES[this.clients.indexOf(client) % SHAPES.length];
  }

  /** The points shown, scaled into the square. */
  shown() {
    const { points, label, client, sample, panel } = this.data;
    const here = points.map((_, index) => index).filter((index) => panel[index] === this.panel);
    /** @type {(k: number) => [number, number]} */
    const axis = (k) => {
      const values = here.map((index) => points[index][k]);
      return [Math.min(...values), Math.max(...values)];
    };
    const [[x0, x1], [y0, y1]] = [axis(0), axis(1)];
    const scale = (SIZE - 2 * EDGE) / Math.max(x1 - x0, y1 - y0, 1e-9);
    const middle = SIZE / 2;
    return here
      .filter((index) => !this.hiddenLabels.has(label[index]) && !this.hiddenClients.has(client[index]))
      .map((index) => ({
        x: middle + (points[index][0] - (x0 + x1) / 2) * scale,
        y: middle - (points[index][1] - (y0 + y1) / 2) * scale,
        label: label[index],
        client: client[index],
        sample: sample[index],
      }));
  }

  draw() {
    const shown = this.shown();
    const svg = document.createElementNS(NS, "svg");
    svg.setAttribute("viewBox", `0 0 ${SIZE} ${SIZE}`);
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", `${shown.length} samples in the plane, coloured by class`);
    for (const point of shown) {
      const mark = document.createElementNS(NS, "path");
      mark.setAttribute("d", this.shape(point.client));
      mark.setAttribute("transform", `translate(${point.x.toFixed(1)} ${point.y.toFixed(1)})`);
      mark.setAttribute("fill", this.colour(point.label));
      const title = document.createElementNS(NS, "title");
      title.textContent = `class ${point.label}, client ${point.client}, sample ${point.sample}`;
      mark.append(title);
      svg.append(mark);
    }
    this.stage.replaceChildren(svg);
    const { width, perplexity } = this.data.panels[this.panel];
    setText(
      this.status,
      `${shown.length} samples · ${width} features to 2 · perplexity ${
        Number(perplexity.toFixed(1))
      } · after round ${this.data.round}`,
    );
    this.drawLegend();
  }

  drawLegend() {
    /** @type {(path: string, fillColour: string) => SVGElement} */
    const swatch = (path, fillColour) => {
      const svg = document.createElementNS(NS, "svg");
      svg.setAttribute("viewBox", "-6 -6 12 12");
      svg.setAttribute("class", "swatch");
      svg.setAttribute("width", "12");
      svg.setAttribute("height", "12");
      const mark = document.createElementNS(NS, "path");
      mark.setAttribute("d", path);
      mark.setAttribute("fill", fillColour);
      svg.append(mark);
      return svg;
    };
    /** @type {(text: string, mark: SVGElement, hidden: Set<number>, value: number, help: string) => HTMLElement} */
    const item = (text, mark, hidden, value, help) =>
      h(
        "button",
        {
          type: "button",
          class: "legend-item",
          "aria-pressed": String(!hidden.has(value)),
          title: help,
          on: {
            click: () => {
              if (!hidden.delete(value)) hidden.add(value);
              this.draw();
            },
          },
        },
        mark,
        text,
      );
    /** @type {(hidden: Set<number>, values: number[], name: string) => HTMLElement} */
    const all = (hidden, values, name) =>
      h("button", {
        type: "button",
        class: "tool",
        on: {
          click: () => {
            const none = hidden.size === 0;
            hidden.clear();
            if (none) values.forEach((value) => hidden.add(value));
            this.draw();
          },
        },
      }, hidden.size ? `Show all ${name}` : `Hide all ${name}`);
    const focused = this.legend.contains(document.activeElement)
      ? [...this.legend.querySelectorAll("button")].indexOf(/** @type {HTMLButtonElement} */ (document.activeElement))
      : -1;
    fill(
      this.legend,
      h("h4", {}, "Class"),
      h(
        "div",
        { class: "plane-items" },
        this.labels.map((label) =>
          item(
            String(label),
            swatch(SHAPES[0], this.colour(label)),
            this.hiddenLabels,
            label,
            `Show or hide class ${label}`,
          )
        ),
      ),
      all(this.hiddenLabels, this.labels, "classes"),
      h("h4", {}, "Client"),
      h(
        "div",
        { class: "plane-items" },
        this.clients.map((client) =>
          item(
            String(client),
            swatch(this.shape(client), "currentColor"),
            this.hiddenClients,
            client,
            `Client ${client}: ${this.data.architectures[client]}`,
          )
        ),
      ),
      all(this.hiddenClients, this.clients, "clients"),
    );
    if (focused >= 0) this.legend.querySelectorAll("button")[focused]?.focus();
  }

  toCsv() {
    const { points, label, client, sample, panel } = this.data;
    return csv([
      ["x", "y", "label", "client", "sample", "feature_width"],
      ...points.map((
        [x, y],
        index,
      ) => [x, y, label[index], client[index], sample[index], this.data.panels[panel[index]].width]),
    ]);
  }

  /** For papers: on white, in the light theme's colours, with the classes listed beside it. */
  toSvg() {
    const labels = this.labels.filter((label) => !this.hiddenLabels.has(label));
    const marks = this.shown().map((point) =>
      `<path d="${this.shape(point.client)}" transform="translate(${point.x.toFixed(1)} ${point.y.toFixed(1)})" fill="${
        this.colour(point.label, false)
      }"/>`
    );
    const legend = labels.map((label, index) =>
      `<path d="${SHAPES[0]}" transform="translate(${SIZE + 16} ${24 + 18 * index})" fill="${
        this.colour(label, false)
      }"/><text x="${SIZE + 28}" y="${28 + 18 * index}">class ${Number(label)}</text>`
    );
    return [
      `<svg xmlns="${NS}" width="${SIZE + 110}" height="${SIZE}" viewBox="0 0 ${
        SIZE + 110
      } ${SIZE}" font-family="Helvetica, Arial, sans-serif" font-size="12" fill="#3a3f47">`,
      `<rect width="100%" height="100%" fill="#ffffff"/>`,
      ...marks,
      ...legend,
      "</svg>",
    ].join("\n");
  }
}
