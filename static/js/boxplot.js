// Box plots of the clients' accuracies: quartiles as a box, the extremes as whiskers, the mean as a dot.

import { cssColour, isDark, onThemeChange } from "./colours.js";
import { download, downloadPng, fill, h, toolButton } from "./dom.js";
import { mean, quantile } from "./series.js";
import { csv } from "./table.js";
import { percent, ticks } from "./units.js";

const HEIGHT = 240;
const SIDE = { left: 52, right: 8, top: 8, bottom: 34 };
const NS = "http://www.w3.org/2000/svg";
const PAPER = { grid: "#e3e5e8", text: "#3a3f47", surface: "#ffffff" };
const PAPER_WIDTH = 900;

/** @param {string} tag @param {Record<string, string|number>} attributes @param {...(Node|string)} children */
function shape(tag, attributes, ...children) {
  const element = document.createElementNS(NS, tag);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  element.append(...children);
  return element;
}

/**
 * At most `most` of the rounds, evenly spread, the last always among them.
 * @param {Tested[]} rounds @param {number} most
 */
function chosen(rounds, most) {
  const step = Math.max(1, Math.ceil(rounds.length / most));
  return rounds.filter((_, index) => (rounds.length - 1 - index) % step === 0);
}

/** A tested round with the accuracy of each tested client. @typedef {{round: number, values: number[]}} Tested */

/** @typedef {{grid: string, text: string, surface: string, colour: string}} Inks */

/** @typedef {{low: number, high: number, y: (value: number) => number}} Scale */

/** @param {Tested[]} shown @returns {Scale} */
function scaleOf(shown) {
  // one by one: thousands of clients are more than a call takes as arguments
  const [least, most] = shown
    .flatMap((item) => item.values)
    .reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [1, 0]);
  const low = Math.max(0, least - 0.02);
  const high = Math.min(1, most + 0.02);
  const tall = HEIGHT - SIDE.top - SIDE.bottom;
  return { low, high, y: (value) => SIDE.top + tall * (1 - (value - low) / Math.max(1e-9, high - low)) };
}

/** @param {Inks} ink */
function wordsOf(ink) {
  return { fill: ink.text, "font-size": 12, "text-anchor": "middle" };
}

/**
 * The grid with its numbers, and the titles of both axes.
 * @param {number} width @param {Scale} scale @param {Inks} ink
 */
function axes(width, { low, high, y }, ink) {
  const words = wordsOf(ink);
  const turned = `translate(12 ${(HEIGHT - SIDE.bottom + SIDE.top) / 2}) rotate(-90)`;
  const middle = SIDE.left + (width - SIDE.left - SIDE.right) / 2;
  return [
    ...ticks(low, high, 5).flatMap((value) => [
      shape("line", { stroke: ink.grid, x1: SIDE.left, x2: width - SIDE.right, y1: y(value), y2: y(value) }),
      shape(
        "text",
        { ...words, "text-anchor": "end", x: SIDE.left - 6, y: y(value) + 4 },
        String(Number((100 * value).toPrecision(6))),
      ),
    ]),
    shape("text", { ...words, x: middle, y: HEIGHT - 3 }, "Round"),
    shape("text", { ...words, transform: turned }, "Accuracy (%)"),
  ];
}

/**
 * One round: its quartiles, extremes and mean, with the numbers in the title.
 * @param {Tested} tested @param {number} centre @param {number} room @param {(value: number) => number} y
 * @param {Inks} ink
 */
function box({ round, values }, centre, room, y, ink) {
  const [lowest, first, middle, third, highest] = [0, 0.25, 0.5, 0.75, 1].map((share) =>
    quantile(values, share) ?? NaN
  );
  const average = mean(values) ?? NaN;
  const wide = Math.min(28, room * 0.6);
  const [left, right] = [centre - wide / 2, centre + wide / 2];
  const line = { stroke: ink.colour, "stroke-width": 1.5 };
  const told = [
    `Round ${round}: ${values.length} clients`,
    `${percent(lowest)} to ${percent(highest)}`,
    `interquartile range ${percent(first)} – ${percent(third)}`,
    `median ${percent(middle)}`,
    `mean ${percent(average)}`,
  ];
  const hit = { x: centre - room / 2, y: SIDE.top, width: room, height: HEIGHT - SIDE.top - SIDE.bottom };
  const half = { x: left, y: y(third), width: wide, height: Math.max(1, y(first) - y(third)) };
  return shape(
    "g",
    { class: "box" },
    shape("title", {}, told.join(", ")),
    shape("rect", { class: "box-hit", fill: "none", ...hit }),
    shape("line", { ...line, x1: centre, x2: centre, y1: y(lowest), y2: y(highest) }),
    shape("rect", { ...line, fill: ink.colour, "fill-opacity": 0.18, ...half }),
    shape("line", { ...line, "stroke-width": 2.5, x1: left, x2: right, y1: y(middle), y2: y(middle) }),
    shape("circle", { ...line, fill: ink.surface, cx: centre, cy: y(average), r: 2.5 }),
  );
}

export class Boxplot {
  /**
   * @param {HTMLElement} root @param {HTMLElement} tools where the exports stand
   * @param {{light: string, dark: string}} style @param {() => string} file @param {number} most boxes
   */
  constructor(root, tools, style, file, most = 24) {
    this.root = root;
    this.style = style;
    this.most = most;
    /** @type {Tested[]} */
    this.rounds = [];
    fill(
      tools,
      toolButton("CSV", "Download the accuracies of all tested rounds", () =>
        download(
          `${file()}.csv`,
          csv([
            ["round", "accuracy"],
            ...this.rounds.flatMap(({ round, values }) => values.map((value) => [round, value])),
          ]),
          "text/csv",
        )),
      toolButton(
        "SVG",
        "Download this chart as a vector image",
        () => download(`${file()}.svg`, this.toSvg(), "image/svg+xml"),
      ),
      toolButton("PNG", "Download this chart as an image", () => downloadPng(`${file()}.png`, this.toSvg())),
    );
    onThemeChange(() => this.draw());
    new ResizeObserver(() => this.draw()).observe(root);
  }

  /** @param {Tested[]} rounds */
  set(rounds) {
    this.rounds = rounds;
    this.draw();
  }

  draw() {
    if (!this.rounds.length) {
      fill(this.root, h("p", { class: "chart-empty" }, "Boxes appear once clients are tested."));
      return;
    }
    const width = this.root.clientWidth;
    if (!width) return;
    const ink = {
      grid: cssColour("--grid"),
      text: cssColour("--text-muted"),
      surface: cssColour("--surface"),
      colour: isDark() ? this.style.dark : this.style.light,
    };
    fill(this.root, this.picture(width, ink));
  }

  /** Always on white, with the light theme's colours. */
  toSvg() {
    const picture = this.picture(PAPER_WIDTH, { ...PAPER, colour: this.style.light });
    picture.setAttribute("xmlns", NS);
    picture.setAttribute("width", String(PAPER_WIDTH));
    picture.setAttribute("height", String(HEIGHT));
    picture.prepend(shape("rect", { width: PAPER_WIDTH, height: HEIGHT, fill: PAPER.surface }));
    return new XMLSerializer().serializeToString(picture);
  }

  /** @param {number} width @param {Inks} ink */
  picture(width, ink) {
    const shown = chosen(this.rounds, this.most);
    const scale = scaleOf(shown);
    const room = (width - SIDE.left - SIDE.right) / shown.length;
    const labelStep = Math.max(1, Math.ceil(34 / room));
    const columns = shown.map((tested, index) => {
      const centre = SIDE.left + room * (index + 0.5);
      const named = (shown.length - 1 - index) % labelStep === 0;
      const name = { ...wordsOf(ink), x: centre, y: HEIGHT - SIDE.bottom + 16 };
      return [box(tested, centre, room, scale.y, ink), ...(named ? [shape("text", name, String(tested.round))] : [])];
    });
    const last = shown[shown.length - 1];
    const median = percent(quantile(last.values, 0.5));
    return shape(
      "svg",
      {
        class: "boxplot",
        viewBox: `0 0 ${width} ${HEIGHT}`,
        "font-family": "system-ui, sans-serif",
        role: "img",
        "aria-label": `Accuracy of the clients in ${shown.length} rounds; median in round ${last.round}: ${median}`,
      },
      ...axes(width, scale, ink),
      ...columns.flat(),
    );
  }
}
