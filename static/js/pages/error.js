// An error page is live too: the dot tells whether the server answers. What was deleted can be had back here.

import { api } from "../api.js";
import { live } from "../live.js";
import { notice, working } from "../shell.js";

const restore = document.querySelector("#restore");
restore?.addEventListener("click", async () => {
  try {
    await working(api.undelete(/** @type {HTMLElement} */ (restore).dataset.experiment));
    location.reload();
  } catch (error) {
    notice(`Not restored: ${error.message}`, "error");
  }
});
live.start({ after: null });
