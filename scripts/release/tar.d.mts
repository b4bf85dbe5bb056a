export function tarGz(
  entries: readonly { name: string; bytes?: Buffer; mode?: number; type?: string; link?: string }[],
): Buffer;
