import { afterEach } from "vitest";
import { faultsUnderLoad } from "./faults.contract.js";
import { closeAll } from "./fixtures/calling.js";

afterEach(closeAll);
faultsUnderLoad(3);
