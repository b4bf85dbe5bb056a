import { testWriters } from "./writers.contract.js";

const inCi = process.env.CI === "true";
testWriters({
  writers: 8,
  updates: Number(process.env.STATE_UPDATES ?? (inCi ? 10 : 50)),
  kills: Number(process.env.STATE_KILLS ?? (inCi ? 5 : 40)),
});
