import { startStopCycles } from "./cycles.contract.js";

startStopCycles(Number(process.env.SERVER_CYCLES ?? 1_000));
