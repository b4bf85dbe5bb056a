export { type KernelLock, takeKernelLock } from "./kernel-lock.js";
export { type Koffi, loadKoffi } from "./koffi.js";
