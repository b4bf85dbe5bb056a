export interface Requirement {
  id: string;
  clauses: string[];
  doneBy: string[];
}
export interface Requirements {
  /** Letter of the ids → heading. */
  families: Record<string, string>;
  requirements: Requirement[];
}
export interface Tag {
  file: string;
  title: string;
  ids: string[];
}
export const PAGE: string;
export function readRequirements(): Requirements;
export function readTags(): Tag[];
export function tagsOf(file: string, text: string): Tag[];
export function problemsOf(all: Requirements, tags: readonly Tag[]): string[];
export function render(all: Requirements, tags: readonly Tag[]): string;
