import type { KeyObject } from "node:crypto";

export interface SigningKey {
  readonly key: KeyObject;
  readonly id: Buffer;
}
export function makeKey(): SigningKey;
export function secretPem(key: SigningKey, passphrase?: string): string;
export function parseSecret(text: string, passphrase?: string): SigningKey;
export function publicKeyText(key: SigningKey): string;
export function signFile(
  bytes: Buffer,
  key: SigningKey,
  trustedComment: string,
  options?: { legacy?: boolean },
): string;
export function releaseComment(version: string, channel: string, timestamp: number): string;
