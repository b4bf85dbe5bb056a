export const WIDTH: number;
export function wrap(text: string): string;
/** The lines of a text that are too long and could be shorter, as `line: text`. */
export function tooLong(text: string): string[];
export function pages(): string[];
