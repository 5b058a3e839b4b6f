// A page without moving parts of its own: only the shell is live.

import { pageData } from "../dom.js";
import { live } from "../live.js";

live.start({ after: pageData()?.seq ?? null });
