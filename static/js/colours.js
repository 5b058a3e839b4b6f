// One colour and one dash pattern for each method, everywhere and for ever.
//
// The hue says the family; tone and dash tell the methods of a family apart. Every colour has a contrast of at
// least 4.5 : 1 on the chart's ground in its theme, so it may also colour text. New methods are appended to their
// family: changing the order would change the colours of published pictures.

/** First light theme, then dark; four neighbouring tones each. */
const PALETTE = {
  proposed: [["#cc2b0e", "#a10350", "#c32e85", "#9c4803"], ["#fb784f", "#db6686", "#f594c3", "#ffb06e"]],
  distillation: [["#0161bd", "#034d73", "#3f6de5", "#027493"], ["#67b0f9", "#489bcd", "#a5c5ff", "#62cef0"]],
  split: [["#027650", "#045122", "#037a70", "#397e28"], ["#4fcb9c", "#52ab69", "#68e2d8", "#87d576"]],
  mutual: [["#8636af", "#5925a7", "#ab37ab", "#875cc6"], ["#d592f2", "#a184e4", "#f4a5ec", "#d3befe"]],
  homogeneous: [["#906109", "#5c4c02", "#7c4b02", "#797202"], ["#eab444", "#b29f3b", "#d99e4d", "#e4dc71"]],
  standalone: [["#51555c", "#6b6f76", "#393d44", "#5f636a"], ["#acb1bb", "#8d939c", "#cbd1db", "#9fa5ae"]],
};

const DASHES = [[], [14, 4], [6, 4], [10, 4, 2, 4], [10, 3, 2, 3, 2, 3], [2, 3]];

/** Where each family starts in DASHES, so that the first methods of two families differ in greyscale too. */
const FIRST_DASH = { proposed: 0, homogeneous: 1, distillation: 2, split: 3, mutual: 4, standalone: 5 };

const MEMBERS = {
  proposed: ["pfedafm", "pfedes", "fedarc", "compfl", "compfl-2", "compfl-3"],
  distillation: ["fd", "fedproto", "fedtgp", "fedgen"],
  split: ["lg-fedavg", "fedgh"],
  mutual: ["fml", "fedkd", "fedapen", "fedmrl"],
  homogeneous: [
    "fedavg", "fedavg-ft", "fedprox", "scaffold", "feddbe", "fedper", "fedrep", "fedbabu", "ditto", "fedrod",
  ],
  standalone: ["standalone"],
};

export const FAMILIES = Object.keys(PALETTE);

export const FAMILY_TITLES = {
  proposed: "Proposed",
  distillation: "Knowledge distillation",
  split: "Model split",
  mutual: "Mutual learning",
  homogeneous: "Model-homogeneous",
  standalone: "Standalone",
};

const SLOTS = new Map();
for (const family of FAMILIES) MEMBERS[family].forEach((id, slot) => SLOTS.set(id, { family, slot }));

/** The names of the methods as their papers write them; an unknown id is shown as it is. */
const TITLES = {
  pfedafm: "pFedAFM", pfedes: "pFedES", fedarc: "FedARC", compfl: "CompFL", "compfl-2": "CompFL-2",
  "compfl-3": "CompFL-3", fd: "FD", fedproto: "FedProto", fedtgp: "FedTGP", fedgen: "FedGen", "lg-fedavg": "LG-FedAvg",
  fedgh: "FedGH", fml: "FML", fedkd: "FedKD", fedapen: "FedAPEN", fedmrl: "FedMRL", fedavg: "FedAvg",
  "fedavg-ft": "FedAvg-FT", fedprox: "FedProx", scaffold: "SCAFFOLD", feddbe: "FedDBE", fedper: "FedPer",
  fedrep: "FedRep", fedbabu: "FedBABU", ditto: "Ditto", fedrod: "FedRoD", standalone: "Standalone",
};

/** @param {string} id */
export function methodTitle(id) {
  return TITLES[id] ?? id;
}

/** A method from elsewhere keeps its colour too: the slot comes from its name. */
function slotOf(id, family) {
  const known = SLOTS.get(id);
  if (known) return known;
  let hash = 2166136261;
  for (const letter of id) hash = Math.imul(hash ^ letter.codePointAt(0), 16777619) >>> 0;
  return { family: family in PALETTE ? family : "homogeneous", slot: hash % 18 };
}

/**
 * @param {string} id a method's id
 * @param {string} family its family, needed only for methods that are not listed here
 * @param {number} variant 0 for the method itself, 1, 2, … for the same method with other parameters
 * @returns {{light: string, dark: string, css: string, dash: number[], family: string}}
 */
export function methodStyle(id, family = "", variant = 0) {
  const { family: group, slot } = slotOf(id, family);
  const step = slot + Math.floor(slot / DASHES.length) + variant;
  const [light, dark] = PALETTE[group].map((steps) => steps[step % steps.length]);
  const dash = DASHES[(FIRST_DASH[group] + slot + variant) % DASHES.length];
  return { light, dark, css: `light-dark(${light}, ${dark})`, dash, family: group };
}

/** Every listed method, for a legend of all and for tests. */
export function allMethods() {
  return [...SLOTS.keys()];
}

const darkQuery = matchMedia("(prefers-color-scheme: dark)");

/** @returns {boolean} whether the page is dark now */
export function isDark() {
  const choice = document.documentElement.dataset.theme;
  return choice ? choice === "dark" : darkQuery.matches;
}

/** Calls back when the theme changes, by the switch or by the system. @param {() => void} callback */
export function onThemeChange(callback) {
  darkQuery.addEventListener("change", callback);
  new MutationObserver(callback).observe(document.documentElement, { attributeFilter: ["data-theme"] });
}

const probe = document.createElement("span");
probe.hidden = true;

/** The colour a CSS variable has in the present theme, as a canvas understands it. @param {string} name */
export function cssColour(name) {
  if (!probe.isConnected) document.body.append(probe);
  probe.style.color = `var(${name})`;
  return getComputedStyle(probe).color;
}
