import { runStories } from "./stories.js";
import { workers } from "./story-modes.js";

runStories("workers", workers);
