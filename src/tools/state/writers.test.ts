import { testWriters } from "./writers.contract.js";

testWriters({ writers: 4, updates: 1, kills: 2 });
