import { runStories } from "./stories.js";
import { applications } from "./story-modes.js";

runStories("applications", applications);
