// An error page is live too: the dot tells whether the server answers.

import { live } from "../live.js";

live.start({ after: null });
