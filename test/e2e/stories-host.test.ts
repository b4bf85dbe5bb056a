import { runStories } from "./stories.js";
import { host } from "./story-modes.js";

runStories("host", host);
