import { testWriters } from "./writers.contract.js";

const inCi = process.env.CI === "true";
testWriters({
  updates: Number(process.env.STATE_UPDATES ?? (inCi ? 20 : 100)),
  kills: Number(process.env.STATE_KILLS ?? (inCi ? 10 : 60)),
});
