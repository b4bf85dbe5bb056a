// Folders: looking into them and changing them, for those who offer more than the host's three tools.

export {
  type MoveArguments,
  prepareDeleteFile,
  prepareDeleteFolder,
  prepareMakeFolder,
  prepareMove,
} from "./change.js";
export { type Entry, type ListArguments, type Listing, prepareList, prepareStat, type Seen } from "./look.js";
export { decideBy, executeBy, type FolderDecision, type Prepare } from "./prepared.js";
