import { runStories } from "./stories.js";
import { module } from "./story-modes.js";

runStories("module", module);
