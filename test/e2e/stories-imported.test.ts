import { runStories } from "./stories.js";
import { imported } from "./story-modes.js";

runStories("imported", imported);
