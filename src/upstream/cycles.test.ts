import { startStopCycles } from "./cycles.contract.js";

startStopCycles(4);
