// Folders: looking into them and changing them, for those who offer more than the host's three tools.

export {
  type MoveArguments,
  prepareDeleteFile,
  prepareDeleteDirectory,
  prepareMakeDirectory,
  prepareMove,
} from "./mutate.js";
export {
  type DirectoryEntry,
  type ListArguments,
  type Listing,
  prepareList,
  prepareStat,
  type SeenEntries,
} from "./list.js";
export { decideBy, executeBy, type DirectoryDecision, type Prepare } from "./prepared.js";
