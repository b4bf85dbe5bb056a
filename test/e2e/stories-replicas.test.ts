import { runStories } from "./stories.js";
import { replicas } from "./story-modes.js";

runStories("replicas", replicas);
