// An error page is live too: the dot tells whether the server answers. What was deleted can be had back here.

import { api, messageOf } from "../api.js";
import { all } from "../dom.js";
import { live } from "../live.js";
import { notice, working } from "../shell.js";

const [restore] = all("#restore");
restore?.addEventListener("click", async () => {
  try {
    await working(api.undelete(restore.dataset.experiment ?? ""));
    location.reload();
  } catch (error) {
    notice(`Not restored: ${messageOf(error)}`, "error");
  }
});
live.start({ after: null });
