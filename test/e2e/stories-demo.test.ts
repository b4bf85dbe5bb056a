import { runStories } from "./stories.js";
import { demo } from "./story-modes.js";

runStories("demo", demo);
