// Box plots of the clients' accuracies: quartiles as a box, the extremes as whiskers, the mean as a dot.

import { fill, h } from "./dom.js";
import { mean, quantile } from "./series.js";
import { percent, ticks } from "./units.js";

const WIDTH = 720;
const HEIGHT = 240;
const SIDE = { left: 44, right: 8, top: 8, bottom: 34 };
const NS = "http://www.w3.org/2000/svg";

function shape(tag, attributes, ...children) {
  const element = document.createElementNS(NS, tag);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  element.append(...children);
  return element;
}

/** At most `most` of the rounds, evenly spread, the last always among them. */
function chosen(rounds, most) {
  const step = Math.max(1, Math.ceil(rounds.length / most));
  return rounds.filter((_, index) => (rounds.length - 1 - index) % step === 0);
}

/**
 * @param {HTMLElement} root
 * @param {{round: number, values: number[]}[]} rounds tested rounds with the accuracy of each tested client
 * @param {{css: string}} style
 */
export function boxplot(root, rounds, style, most = 24) {
  const shown = chosen(rounds, most);
  if (!shown.length) {
    fill(root, h("p", { class: "chart-empty" }, "Boxes appear once clients are tested."));
    return;
  }
  const all = shown.flatMap((item) => item.values);
  const low = Math.max(0, Math.min(...all) - 0.02);
  const high = Math.min(1, Math.max(...all) + 0.02);
  const y = (value) => SIDE.top + (HEIGHT - SIDE.top - SIDE.bottom) * (1 - (value - low) / Math.max(1e-9, high - low));
  const room = (WIDTH - SIDE.left - SIDE.right) / shown.length;
  const wide = Math.min(28, room * 0.6);
  const parts = [];
  for (const value of ticks(low, high, 5)) {
    parts.push(shape("line", { class: "box-grid", x1: SIDE.left, x2: WIDTH - SIDE.right, y1: y(value), y2: y(value) }));
    parts.push(shape("text", { class: "box-text", x: SIDE.left - 6, y: y(value) + 4, "text-anchor": "end" }, String(Number((100 * value).toPrecision(6)))));
  }
  const labelStep = Math.max(1, Math.ceil(34 / room));
  shown.forEach(({ round, values }, index) => {
    const centre = SIDE.left + room * (index + 0.5);
    const [least, first, middle, third, greatest] = [0, 0.25, 0.5, 0.75, 1].map((share) => quantile(values, share));
    const box = shape(
      "g",
      { class: "box" },
      shape("title", {}, `Round ${round}: ${values.length} clients, ${percent(least)} to ${percent(greatest)}, middle half ${percent(first)} – ${percent(third)}, median ${percent(middle)}, mean ${percent(mean(values))}`),
      shape("rect", { class: "box-hit", x: centre - room / 2, y: SIDE.top, width: room, height: HEIGHT - SIDE.top - SIDE.bottom }),
      shape("line", { class: "whisker", x1: centre, x2: centre, y1: y(least), y2: y(greatest) }),
      shape("rect", { class: "quartiles", x: centre - wide / 2, y: y(third), width: wide, height: Math.max(1, y(first) - y(third)) }),
      shape("line", { class: "median", x1: centre - wide / 2, x2: centre + wide / 2, y1: y(middle), y2: y(middle) }),
      shape("circle", { class: "mean", cx: centre, cy: y(mean(values)), r: 2.5 }),
    );
    parts.push(box);
    if ((shown.length - 1 - index) % labelStep === 0) parts.push(shape("text", { class: "box-text", x: centre, y: HEIGHT - SIDE.bottom + 16, "text-anchor": "middle" }, String(round)));
  });
  parts.push(shape("text", { class: "box-text", x: SIDE.left + (WIDTH - SIDE.left - SIDE.right) / 2, y: HEIGHT - 3, "text-anchor": "middle" }, "Round"));
  const last = shown[shown.length - 1];
  const svg = shape("svg", { class: "boxplot", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `Accuracy of the clients in ${shown.length} rounds; in round ${last.round} the median is ${percent(quantile(last.values, 0.5))}` }, ...parts);
  svg.style.color = style.css;
  fill(root, svg);
}
