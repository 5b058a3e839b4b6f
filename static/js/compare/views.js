// The views below the curves, fetched together when the first of them is opened.

export { Boxes } from "./views/boxes.js";
export { ClientTable } from "./views/clients.js";
export { Price } from "./views/price.js";
export { Significance } from "./views/significance.js";
export { Sweep, sweptFields } from "./views/sweep.js";
export { Wins } from "./views/wins.js";
