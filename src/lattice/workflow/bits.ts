import type { Transfer } from "./graph.js";

export function hasBit(bits: Uint32Array, offset: number, lane: number): boolean {
  return (((bits[offset + (lane >>> 5)] as number) >>> (lane & 31)) & 1) === 1;
}

export function setBit(bits: Uint32Array, offset: number, lane: number): void {
  const at = offset + (lane >>> 5);
  bits[at] = (bits[at] as number) | (1 << (lane & 31));
}

export function clearBit(bits: Uint32Array, offset: number, lane: number): void {
  const at = offset + (lane >>> 5);
  bits[at] = (bits[at] as number) & ~(1 << (lane & 31));
}

export function isZero(bits: Uint32Array): boolean {
  for (let w = 0; w < bits.length; w++) if (bits[w] !== 0) return false;
  return true;
}

/** Calls back for every lane that is set. */
export function eachLane(bits: Uint32Array, visit: (lane: number) => void): void {
  for (let w = 0; w < bits.length; w++) {
    for (let rest = bits[w] as number; rest !== 0; rest &= rest - 1) visit(w * 32 + 31 - Math.clz32(rest & -rest));
  }
}

/** What an edge makes of some lanes. The answer may be `bits` itself. */
export function pass({ mask, moves }: Transfer, bits: Uint32Array): Uint32Array {
  if (mask === undefined && moves.length === 0) return bits;
  const passed = bits.slice();
  if (mask !== undefined)
    for (let w = 0; w < passed.length; w++) passed[w] = (passed[w] as number) & (mask[w] as number);
  for (const [from, to] of moves) if (hasBit(bits, 0, from)) setBit(passed, 0, to);
  return passed;
}
