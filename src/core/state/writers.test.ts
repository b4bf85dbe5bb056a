import { testWriters } from "./writers.contract.js";

testWriters({ updates: 2, kills: 2 });
